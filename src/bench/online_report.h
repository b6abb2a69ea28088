// What the report of an online benchmark has besides.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/bench_report.h"
#include "bench/bench_run.h"
#include "bench/run_totals.h"

namespace tandem {

// run.online is there.
void AddOnlineFields(const OnlineConditions& conditions, const BenchRun& run, const RunTotals& totals,
                     nlohmann::ordered_json* report);

}  // namespace tandem
