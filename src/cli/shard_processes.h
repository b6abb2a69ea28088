// Commands whose model is cut into shards with a process each, as mpirun and srun start them.
#pragma once

#include <csignal>
#include <functional>

#include "base/result.h"
#include "engine/engine_options.h"

namespace tandem {

class Processes;

// Runs a command that makes an engine of options, and returns the exit code of this process. Where it is one
// of several, rank 0 runs the command and the others follow it; without, it only runs the command. report:
// shows what has become of it, and gives the exit code.
int RunWithShards(EngineOptions* options, const std::function<Status()>& command,
                  const std::function<int(const Status&)>& report);

}  // namespace tandem
