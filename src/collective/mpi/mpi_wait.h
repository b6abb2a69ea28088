// Waiting for messages without blocking in MPI: every wait has a bound, and an end once the exchange is over.
#pragma once

#include <mpi.h>

#include <chrono>
#include <functional>
#include <optional>
#include <span>

#include "collective/exchange_state.h"

namespace tandem {

// Calls is_done until it says so: often at first, then in steps of some ten microseconds. False if it is not
// done within the timeout (absent: there is none), or the exchange ends before. Time is counted in looks, not
// by the clock: if the whole process was stopped, nobody had time to come.
bool AwaitMpi(const ExchangeState& state, std::optional<std::chrono::milliseconds> timeout,
              const std::function<bool()>& is_done);

// Of an MPI call that cannot fail but by a bug.
void CheckMpi(int code, const char* call);

}  // namespace tandem
