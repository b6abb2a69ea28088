// Seeds of tests that draw their cases at random.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "base/nightly_testing.h"

namespace tandem {

// Every run tries `usual`. With TANDEM_NIGHTLY=1 there are num_more besides, other ones each time;
// TANDEM_SEED=N tries N alone, to see again what failed. The test names the seed in its failures
// (SCOPED_TRACE).
inline std::vector<uint32_t> SeedsToTry(uint32_t usual, int num_more) {
  if (const char* const only = std::getenv("TANDEM_SEED")) {
    return {static_cast<uint32_t>(std::strtoul(only, nullptr, 10))};
  }
  std::vector<uint32_t> seeds = {usual};
  if (!IsNightly()) return seeds;
  std::random_device device;
  for (int i = 0; i < num_more; ++i) seeds.push_back(device());
  return seeds;
}

}  // namespace tandem
