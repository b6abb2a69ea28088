// Names of the instruction sets for parameterized tests.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <string>

#include "simd/cpu_isa.h"

namespace tandem {

inline std::string IsaTestName(const testing::TestParamInfo<CpuIsa>& info) {
  std::string name;
  for (const char c : CpuIsaName(info.param)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name;
}

}  // namespace tandem
