// Quantized safetensors: which tensors make a weight, and whether they fit each other.
#pragma once

#include <vector>

#include "base/result.h"
#include "load/mapped_checkpoint.h"
#include "load/quantization_config.h"
#include "load/safetensors_file.h"

namespace tandem {

// Takes the tensors that make quantized weights out of tensors, and gives one "MODULE.weight" for each of
// them. What is stored decides which modules are quantized, whatever lists of exceptions the configuration
// has. Reads groups of columns (g_idx) and shapes, no other data; the tensors' files must outlive the result.
// Errors: kMalformedFile (names file and tensor) for parts that are missing or do not fit each other or the
// configuration; kUnsupported.
Result<std::vector<MappedTensor>> TakeQuantizedModules(const QuantizationConfig& config,
                                                       std::vector<SafetensorsTensor>* tensors);

}  // namespace tandem
