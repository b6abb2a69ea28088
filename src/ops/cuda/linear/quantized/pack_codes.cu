#include <algorithm>

#include "device/cuda/kernel_launch.h"
#include "ops/cuda/linear/quantized/pack_codes.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;

// A block packs one row after the other. A thread writes whole bytes, which hold codes of one row only.
__global__ void __launch_bounds__(kThreads) PackCodesKernel(const RowsToPack rows, const CodesView to) {
  AllowSuccessors();
  WaitForPredecessors();
  const CodeLayout& layout = to.layout;
  const int64_t in_features = layout.in_features;
  const int64_t num_groups = in_features / rows.group_size;
  const int numbers = layout.numbers_per_group();
  for (int64_t row = blockIdx.x; row < rows.num_rows; row += gridDim.x) {
    const int64_t output = rows.places[row];
    const uint8_t* codes = rows.codes + row * in_features;
    auto* bytes = reinterpret_cast<uint8_t*>(to.records);
    if (layout.bits == 4) {
      // Of every 16 elements the first 8 share bytes with the others.
      for (int64_t i = threadIdx.x; i < in_features / 2; i += kThreads) {
        const int64_t k = i / 8 * 16 + i % 8;
        bytes[layout.PlaceOfCode(output, k).byte] = static_cast<uint8_t>(codes[k] | codes[k + 8] << 4);
      }
    } else {
      for (int64_t k = threadIdx.x; k < in_features; k += kThreads) {
        bytes[layout.PlaceOfCode(output, k).byte] = codes[k];
      }
    }
    const int64_t stored = in_features / layout.group_size * numbers;
    const uint16_t* from = rows.numbers + row * num_groups * numbers;
    for (int64_t i = threadIdx.x; i < stored; i += kThreads) {
      const int64_t k = i / numbers * layout.group_size;
      const auto number = static_cast<int>(i % numbers);
      *reinterpret_cast<uint16_t*>(bytes + layout.PlaceOfNumber(output, k, number)) =
          from[k / rows.group_size * numbers + number];
    }
    if (threadIdx.x == 0) to.factors[output] = rows.factors[row];
  }
}

}  // namespace

void LaunchPackCodes(CudaStream& stream, const RowsToPack& rows, const CodesView& to) {
  if (rows.num_rows == 0) return;
  const auto grid = static_cast<unsigned>(std::min<int64_t>(rows.num_rows, stream.target().num_sms * 8));
  LaunchKernel("pack codes", PackCodesKernel, dim3(grid), dim3(kThreads), 0, stream, rows, to);
}

}  // namespace tandem
