// Several strategies side by side, for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tandem {

// comparison: {"runs": [{"workload", perhaps "rate", "strategy", "result" or "error"}]}, result as
// MakeBenchReport makes it. A table for each workload and rate, a line for each strategy, with medians where
// it has several runs (rounds); relative figures are to the workload's first. Where no own bound is known the
// workload's is taken: it belongs to the work and the machine.
std::string FormatComparison(const nlohmann::ordered_json& comparison);

}  // namespace tandem
