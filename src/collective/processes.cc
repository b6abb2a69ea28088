#include "collective/processes.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/wire.h"

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

// Of what rank 0 tells all.
constexpr uint64_t kShared = 0x6465726168732121;

}  // namespace

Error ErrorOf(const Shard& rank, Error error) {
  error.message = fmt::format("shard {} of {}: {}", rank.rank, rank.size, error.message);
  return error;
}

Error NotHeardOfOthers(Processes* processes) {
  const Shard shard = processes->shard();
  return processes->collectives()->failure().value_or(MakeError(
      ErrorCode::kUnavailable, "shard {} of {} has not heard of the others", shard.rank, shard.size));
}

std::optional<std::vector<Message>> ShareWithAll(Processes* processes, const Message& own) {
  const Shard shard = processes->shard();
  std::vector<Message> all(static_cast<size_t>(shard.size));
  if (shard.rank == 0) {
    all.front() = own;
    for (int rank = 1; rank < shard.size; ++rank) {
      std::optional<Message> message = processes->Receive(rank, std::nullopt);
      if (!message) return std::nullopt;
      all[static_cast<size_t>(rank)] = std::move(*message);
    }
    WireWriter writer;
    uint64_t what = kShared;
    writer(what, all);
    const Message told = writer.Take();
    for (int rank = 1; rank < shard.size; ++rank) processes->Send(rank, told);
    return all;
  }
  processes->Send(0, own);
  const std::optional<Message> told = processes->Receive(0, std::nullopt);
  uint64_t what = 0;
  if (!told || told->size() < sizeof(what)) return std::nullopt;
  WireReader reader(*told);
  reader(what);
  if (what != kShared) return std::nullopt;
  reader(all);
  return all;
}

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
