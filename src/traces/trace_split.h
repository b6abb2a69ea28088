// Which rows of a trace constants may be tuned on, and which are kept for judging them.
//
// The rule: the last third of the rows, rounded down, is held out. What picks a constant (PlannerTuning among
// them) reads the tuning part only; simulate/held_out_test.cc alone reads the rest. The traces ascend in
// arrival time where they have any, so what is held out also came later.
#pragma once

#include <span>

#include "traces/trace_csv.h"

namespace tandem {

// The first rows. Both are views of the trace.
std::span<const TraceRequest> TuningPart(std::span<const TraceRequest> trace);
// The rows behind them: empty for a trace of fewer than three.
std::span<const TraceRequest> HeldOutPart(std::span<const TraceRequest> trace);

}  // namespace tandem
