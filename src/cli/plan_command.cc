#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/param_error.h"
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
  if (options.json.empty()) return {};
  std::ofstream out(options.json);
  out << report.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
  out.close();
  if (!out) return MakeParamError(ErrorCode::kIo, "json", "{} cannot be written", options.json);
  return {};
}

}  // namespace tandem
