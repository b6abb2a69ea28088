// bench online --find-rate-at-latency: online runs at several rates.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "cli/command_line.h"

namespace tandem {

// The report of one run, as MeasureOnline has it.
using MeasureOnlineOnce = std::function<Result<nlohmann::ordered_json>(const BenchOnlineOptions& options)>;

// Runs at the rates that RateSearch asks for, from options.arrivals.rate on, until it has an answer. A run
// has prompts of its own, so that a server's prefix cache does not know them, and where options name no
// deadline one that an overload cannot pass by much. A run in which a request failed, or none was answered,
// counts as beyond the limit. Errors: those of a run but kUnavailable, which is what an overloaded server
// answers.
Result<nlohmann::ordered_json> FindRateAtLatency(const BenchOnlineOptions& options,
                                                 const MeasureOnlineOnce& measure);

// A line a run, and the answer.
std::string FormatRateSearch(const nlohmann::ordered_json& report);

}  // namespace tandem
