#include "collective/processes.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#ifdef TANDEM_MPI
#include "collective/mpi/mpi_processes.h"
#endif

namespace tandem {
namespace {

// 0: the environment does not say.
int NumberIn(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return 0;
  const std::string_view digits(text);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? number : 0;
}

}  // namespace

bool IsOneOfSeveralProcesses() {
  for (const char* const variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const int size = NumberIn(variable); size > 0) return size > 1;
  }
  // Slurm's PMIx says only who one is.
  return std::getenv("PMIX_RANK") != nullptr && NumberIn("SLURM_STEP_NUM_TASKS") != 1;
}

Result<std::unique_ptr<Processes>> JoinProcesses(const ProcessesOptions& options) {
#ifdef TANDEM_MPI
  return JoinMpiProcesses(options);
#else
  static_cast<void>(options);
  return MakeError(
      ErrorCode::kUnsupported,
      "this build has no MPI, so its processes cannot be shards of one model (libopenmpi-dev was "
      "missing when it was configured)");
#endif
}

}  // namespace tandem
