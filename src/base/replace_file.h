// Files that several processes may write and read at the same time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

// Writes a file whole, with the folders above it; what it held before is gone. Whoever reads meanwhile finds
// the old file or the new one. Any thread. Errors: kIo; nothing is left of it then, an old file stays.
Status ReplaceFile(const std::string& path, std::string_view content);

// What ReplaceFile wrote. what: the file's purpose, for the message about one that is too large. Errors:
// kNotFound; kIo; kMalformedFile if it has more than max_bytes.
Result<std::string> ReadReplacedFile(const std::string& path, uint64_t max_bytes, std::string_view what);

}  // namespace tandem
