// What this program was built from and for.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// Of the project: "0.1.0". The one place in the program that knows it.
std::string_view ProjectVersion();
// Of the source tree when the program was built: the short hash, or the tag and what came after it;
// "-dirty" behind it if files differed; "unknown" outside a git tree.
std::string_view SourceCommit();
// Compute capabilities that the cuda backend has code for ("8.0, 9.0a", "7.5, 12.0 and later"); empty: built
// without it.
std::string_view CudaArchitectures();

// What --version prints: the above, the backends, the instruction sets compiled in and those of this machine.
// Lines, without the last line's end.
std::string VersionText();

}  // namespace tandem
