#include "simulate/measured_costs_testing.h"

#include <string>
#include <utility>

#include "perf/profile_file.h"

namespace tandem::testing {

Result<CostTable> MeasuredCosts() {
  const std::string path = TANDEM_SOURCE_DIR "/tests/fixtures/profiles/llama-3.1-8b_h200_16sm.json";
  TANDEM_ASSIGN_OR_RETURN(StoredProfile profile, ReadStoredProfile(path));
  if (profile.coverage.Serves({.max_rows = 2048,
                               .max_context = kMeasuredMaxContext,
                               .gpu_kv_tokens = kMeasuredGpuTokens,
                               .cpu_kv_tokens = kMeasuredCpuTokens}))
    return std::move(profile.costs);
  return MakeError(ErrorCode::kUnsupported, "{} does not reach that far", path);
}

}  // namespace tandem::testing
