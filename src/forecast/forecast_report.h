// A forecast for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "forecast/forecast.h"

namespace tandem {

// price: dollars an hour of the machine; 0: none, and no tokens a dollar.
nlohmann::ordered_json ForecastJson(const ForecastOptions& options, const ForecastMachine& machine,
                                    const Forecast& forecast, double price);
// report: of ForecastJson.
std::string ForecastText(const nlohmann::ordered_json& report);

}  // namespace tandem
