// Keys among the arguments of the program.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace tandem {

// The arguments with stars in place of keys, for reports.
std::vector<std::string> WithoutSecrets(int argc, const char* const* argv);

// Overwrites keys where they stand, so that neither ps nor /proc/PID/cmdline shows them any more.
void OverwriteSecrets(int argc, char** argv);

// A key that is given and empty, as by a script whose variable is not set, would leave the server open.
// Errors: kInvalidArgument; param is the flag.
Status CheckSecretFlags(int argc, const char* const* argv);
// The same of the environment variable of a flag that is not given. param: the flag without dashes.
Status CheckSecretVariable(const char* param, const char* variable);

}  // namespace tandem
