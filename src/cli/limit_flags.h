// Flags of limits that an engine has and a plan of one.
#pragma once

#include <cstdint>

namespace CLI {
class App;
}

namespace tandem {

// value outlives app, here and below. 0: chosen by the engine.
void AddMaxNumBatchedTokensFlag(CLI::App* app, int64_t* value);
// 0: one more than there are layers.
void AddAsyncCohortsFlag(CLI::App* app, int64_t* value);

}  // namespace tandem
