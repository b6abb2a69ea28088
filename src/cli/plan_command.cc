#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/bench_report.h"
#include "cli/bench_output.h"
#include "cli/commands.h"
#include "forecast/forecast.h"
#include "forecast/forecast_report.h"

namespace tandem {

Status PlanMachine(const PlanOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckJsonWritable(options.json));
  TANDEM_ASSIGN_OR_RETURN(const ForecastMachine machine, DescribeMachine(options.forecast));
  TANDEM_ASSIGN_OR_RETURN(const Forecast forecast, PlayForecast(options.forecast, machine));
  const nlohmann::ordered_json report = ForecastJson(options.forecast, machine, forecast, options.price);
  fmt::print("{}", ForecastText(report));
  return options.json.empty() ? Status() : WriteBenchReport(report, options.json);
}

}  // namespace tandem
