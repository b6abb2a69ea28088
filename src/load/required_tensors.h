// The tensors that a model of a given configuration consists of, by Hugging Face name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "load/model_config.h"

namespace tandem {

struct RequiredTensor {
  std::string name;
  int64_t rows = 1;  // 1 for a vector
  int64_t cols = 0;
};

std::vector<RequiredTensor> RequiredTensors(const ModelConfig& config);

}  // namespace tandem
