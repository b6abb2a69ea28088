#include "ops/host/linear/quantized_layout.h"

#include "ops/host/linear/linear_kernels.h"

namespace tandem {

bool HasQuantizedLayout(const WeightFormat& format, int64_t in_features) {
  constexpr int64_t kGroupMultiple = 16;
  return format.is_quantized() && format.group_size > 0 && format.group_size % kGroupMultiple == 0 &&
         in_features % format.group_size == 0 && format.block_size % format.group_size == 0 &&
         (format.block_size == 0 || in_features % format.block_size == 0);
}

QuantizedLayout MakeQuantizedLayout(const WeightFormat& format, int64_t in_features) {
  const int64_t numbers = format.has_minimum ? 2 : 1;
  QuantizedLayout layout;
  layout.bits = format.bits();
  layout.has_minimum = format.has_minimum;
  layout.has_zero_points = format.has_zero_points;
  layout.group_size = format.group_size;
  layout.num_groups = in_features / format.group_size;
  layout.is_fp8 = !format.has_integers();
  layout.groups_per_block = format.block_size / format.group_size;
  if (format.block_size > 0)
    layout.groups_offset = in_features / format.block_size * numbers * kPanelColumns * 2;
  const int64_t number_bytes = layout.is_fp8 ? 4 : format.block_size > 0 ? 1 : 2;
  layout.words_offset = numbers * kPanelColumns * number_bytes;
  layout.group_bytes = layout.words_offset + format.group_size * kPanelColumns * layout.bits / 8;
  layout.panel_bytes = layout.groups_offset + layout.num_groups * layout.group_bytes;
  return layout;
}

int CodeShift(const QuantizedLayout& layout, int64_t k) {
  const int64_t in_word = k % (32 / layout.bits);
  return static_cast<int>(in_word / 2 * layout.bits + in_word % 2 * 16);
}

}  // namespace tandem
