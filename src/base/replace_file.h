// Files that several processes may write and read at the same time.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

// Writes a file whole, with the folders above it; what it held before is gone. Whoever reads meanwhile finds
// the old file or the new one. Any thread. Errors: kIo; nothing is left of it then, an old file stays.
Status ReplaceFile(const std::string& path, std::string_view content);

}  // namespace tandem
