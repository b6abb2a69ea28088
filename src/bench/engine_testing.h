// The engine of the benchmarks' tests: small, real, and done with a request within milliseconds.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace tandem {

EngineOptions TestEngineOptions();
// Ends the test program if there is none.
std::unique_ptr<Engine> CreateTestEngine(const EngineOptions& options);

}  // namespace tandem
