// Processes over MPI.
#pragma once

#include <memory>

#include "base/result.h"
#include "collective/processes.h"

namespace tandem {

// As JoinProcesses.
Result<std::unique_ptr<Processes>> JoinMpiProcesses(const ProcessesOptions& options);

}  // namespace tandem
