// What a benchmark's energy is counted by.
#pragma once

#include "bench/energy_meter.h"
#include "engine/engine_options.h"

namespace tandem {

// engine: with its device. Of a GPU it is the one that CUDA has first.
EnergyOptions EnergyOptionsFor(const EngineOptions& engine, double watts_per_core);

}  // namespace tandem
