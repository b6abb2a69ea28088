// A weight whose codes and scales lie in tensors apart, as quantized safetensors have it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/quantized_rows.h"
#include "base/result.h"
#include "base/weight_format.h"
#include "load/safetensors_file.h"

namespace tandem {

// Immutable; every method may be called from any thread.
class CodedWeight {
 public:
  virtual ~CodedWeight() = default;

  virtual WeightFormat format() const = 0;
  // Where the columns that share a scale are not neighbours: the columns in the order in which they are. Read
  // gives column column_order()[i] of the weight as column i. Empty: they are as they are.
  virtual const std::vector<int32_t>& column_order() const = 0;
  // Rows [row_begin, row_begin + num_rows), which the weight has. Errors: kMalformedFile (names file and
  // tensor) for a scale that is zero or no number, a zero point that is not what the configuration says, and
  // codes of no number.
  virtual Status Read(int64_t row_begin, int64_t num_rows, QuantizedRows* rows) const = 0;
};

// Values [begin, begin + count) of a tensor of F32, F16 or BF16. Errors: kMalformedFile for zero and what is
// no finite number.
Status ReadScales(const SafetensorsTensor& scales, int64_t begin, int64_t count, float* dst);

}  // namespace tandem
