// How many files and sockets the process may have open.
#pragma once

#include <cstdint>

namespace tandem {

// Raises the limit to num_files where it is lower, as far as the system lets the process. Returns what it is
// then. Any thread.
int64_t RaiseOpenFileLimit(int64_t num_files);

}  // namespace tandem
