#include "cli/shard_processes.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <utility>

#include "base/log.h"
#include "base/param_error.h"
#include "collective/processes.h"
#include "engine/shards.h"
#include "execute/remote_executor.h"

namespace tandem {
namespace {

// What stops a command goes to rank 0, who tells the others. While it lives, threads that start do not take
// these signals, nor does the thread that has made it.
class SignalsAreOfRank0 {
 public:
  SignalsAreOfRank0() {
    sigset_t stops;
    sigemptyset(&stops);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&stops, signal);
    pthread_sigmask(SIG_BLOCK, &stops, &before_);
  }
  ~SignalsAreOfRank0() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsAreOfRank0(const SignalsAreOfRank0&) = delete;
  SignalsAreOfRank0& operator=(const SignalsAreOfRank0&) = delete;

 private:
  sigset_t before_ = {};
};

Status CheckOneShardEach(const Shard& process, const EngineOptions& options) {
  if (process.size == options.tensor_parallel_size) return {};
  return MakeParamError(
      ErrorCode::kInvalidArgument, "tensor-parallel-size",
      "{} processes were started and --tensor-parallel-size is {}: each process has one shard", process.size,
      options.tensor_parallel_size);
}

// Returns once rank 0 has ended.
int Follow(const EngineOptions& options) {
  Processes& processes = *options.processes;
  const Status followed = FollowRank0(options);
  if (!followed.ok()) {
    // If it was this process alone, rank 0 has heard of it, says so and ends all.
    processes.Receive(0, std::nullopt);
    LogInfo("shard {} of {} ends: {}", processes.shard().rank, processes.shard().size,
            processes.collectives()->failure().value_or(followed.error()).message);
  }
  processes.Leave();
  return followed.ok() ? 0 : 1;
}

int Lead(const EngineOptions& options, const std::function<Status()>& command,
         const std::function<int(const Status&)>& report) {
  Processes& processes = *options.processes;
  const Status status = command();
  // Before the others end: that may be the end of this process too.
  const int code = report(status);
  if (status.ok()) {
    for (int rank = 1; rank < processes.shard().size; ++rank) SendEnd(&processes, rank);
  } else {
    processes.collectives()->Abort(status.error().message);
  }
  processes.Leave();
  return code;
}

}  // namespace

int RunWithShards(EngineOptions* options, const std::function<Status()>& command,
                  const std::function<int(const Status&)>& report) {
  if (!IsOneOfSeveralProcesses()) return report(command());
  auto signals = std::make_unique<SignalsAreOfRank0>();
  auto joined = JoinProcesses({.on_stuck = [] { _exit(1); }});
  if (!joined.ok()) return report(joined.error());
  // Never destroyed: see JoinProcesses.
  Processes* const processes = std::move(joined).value().release();
  const bool leads = processes->shard().rank == 0;
  if (const Status fits = CheckOneShardEach(processes->shard(), *options); !fits.ok()) {
    const int code = leads ? report(fits) : 1;
    processes->Leave();
    return code;
  }
  options->processes = processes;
  if (!leads) return Follow(*options);
  signals.reset();
  return Lead(*options, command, report);
}

}  // namespace tandem
