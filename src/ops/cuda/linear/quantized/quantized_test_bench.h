// What the tests of quantized weights on a GPU share: weights with the values they stand for, products in
// double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/quantized_rows.h"
#include "ops/cuda/linear/linear_test_bench.h"
#include "ops/cuda/linear/quantized/coded_weight.h"

namespace tandem {

struct QuantizedTestWeight {
  std::unique_ptr<QuantizedLinearWeight> weight;
  std::vector<float> values;  // [out, in], in logical order
  // What is added up for a value: |scale * code| and |minimum|, with 128 scales where 4-bit codes stay that
  // far from zero (quantized_linear.h). Sums in fp32 are exact to a share of that.
  std::vector<float> magnitudes;
  std::vector<float> bias;  // empty if none

  const CudaCodedWeight& cuda() const { return dynamic_cast<const CudaCodedWeight&>(*weight); }
  std::string Name() const {
    return fmt::format("weight [{}, {}] of {} at {}", weight->out_features(), weight->in_features(),
                       DescribeWeightFormat(weight->format()), DTypeName(weight->dtype()));
  }
};

class CudaQuantizedTest : public CudaLinearTest {
 protected:
  void SetUp() override {
    CudaLinearTest::SetUp();
    if (IsSkipped()) return;
    if (!HasQuantizedProducts(cuda_stream().target(), engine_dtype())) GTEST_SKIP() << "no products of codes";
  }

  static const std::vector<WeightFormat>& Formats() {
    static const std::vector<WeightFormat> formats = {
        Int4Format(16, false), Int4Format(16, true),   Int4Format(32, false), Int4Format(32, true),
        Int4Format(64, true),  Int4Format(128, false), Int4Format(128, true), Int8Format(16, false),
        Int8Format(16, true),  Int8Format(32, false),  Int8Format(32, true),  Int8Format(64, false),
        Int8Format(64, true),  Int8Format(192, false)};
    return formats;
  }

  // Codes, scales and minimums that fp16 holds (scales of FP8: that fp32 holds), of magnitudes that differ
  // from row to row.
  QuantizedRows RandomRows(const WeightFormat& format, int64_t num_rows, int64_t cols) {
    QuantizedRows rows;
    rows.Resize(format, num_rows, cols);
    std::uniform_int_distribution<int> codes(0, (1 << format.bits()) - 1);
    for (uint8_t& code : rows.codes) {
      code = static_cast<uint8_t>(codes(random()));
      if (!format.has_integers() && (code & 0x7fU) == 0x7fU) --code;  // NaN
    }
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    const float largest = format.bits() == 4 ? 1.0F : 1.0F / 16;
    for (size_t i = 0; i < rows.scales.size(); ++i) {
      const auto row = static_cast<int>(i / static_cast<size_t>(rows.num_groups()));
      const float size = std::ldexp(largest, row % 5 - 6);
      const float scale = size * uniform(random());
      rows.scales[i] = format.has_integers() ? F16ToF32(F32ToF16(scale)) : scale;
      if (format.has_minimum) rows.minimums[i] = F16ToF32(F32ToF16(8.0F * size * uniform(random())));
    }
    return rows;
  }

  QuantizedTestWeight MakeQuantized(Ops& ops, const QuantizedWeightShape& shape, const WeightFormat& format,
                                    bool with_bias = false) {
    QuantizedTestWeight made;
    made.weight = ops.CreateQuantizedWeight(shape, format).value();
    const auto count = static_cast<size_t>(shape.out_features * shape.in_features);
    made.values.resize(count);
    made.magnitudes.resize(count);
    // In two pieces, as checkpoints are split.
    for (const auto& [begin, end] : {std::pair{int64_t{0}, shape.out_features / 3},
                                     std::pair{shape.out_features / 3, shape.out_features}}) {
      const QuantizedRows rows = RandomRows(format, end - begin, shape.in_features);
      made.weight->LoadQuantizedRows(begin, rows);
      DequantizeRows(rows, made.values.data() + begin * shape.in_features);
      const bool keeps_base = format.bits() == 4 && format.has_minimum && shape.dtype == DType::kBF16;
      for (size_t i = 0; i < rows.codes.size(); ++i) {
        const auto at = static_cast<size_t>(begin * shape.in_features) + i;
        const size_t group = i / static_cast<size_t>(format.group_size);
        const float minimum = format.has_minimum ? rows.minimums[group] : 0.0F;
        made.magnitudes[at] = std::abs(made.values[at] - minimum) + std::abs(minimum) +
                              (keeps_base ? 128.0F * std::abs(rows.scales[group]) : 0.0F);
      }
    }
    if (with_bias) {
      std::normal_distribution<float> normal;
      made.bias.resize(static_cast<size_t>(shape.out_features));
      for (float& value : made.bias) value = normal(random());
      const int64_t first = shape.out_features / 3;
      made.weight->LoadBias(first, shape.out_features - first, made.bias.data() + first);
      made.weight->LoadBias(0, first, made.bias.data());
    }
    return made;
  }

  // y = x weight^T, some rows with the first and the last, in double precision. weight_precision: relative
  // rounding of the weights; 0: they are not rounded. The message says where errors are.
  static void ExpectQuantizedProduct(const CudaMatrix& x, const QuantizedTestWeight& weight,
                                     const CudaMatrix& y, DType y_dtype, double weight_precision,
                                     const std::string& what) {
    const int64_t in = weight.weight->in_features();
    const int64_t out = weight.weight->out_features();
    constexpr int64_t kMaxTerms = 10'000'000;
    const int64_t checked =
        std::clamp<int64_t>(kMaxTerms / (out * in), std::min<int64_t>(x.rows(), 3), x.rows());
    double worst = 0.0;
    std::string message;
    int64_t num_wrong = 0;
    std::map<int64_t, int64_t> wrong_rows;
    std::map<int64_t, int64_t> wrong_blocks;  // of 16 columns
    for (int64_t i = 0; i < checked; ++i) {
      const int64_t row = checked == 1 ? 0 : i * (x.rows() - 1) / (checked - 1);
      const float* x_row = x.Row(row);
      for (int64_t o = 0; o < out; ++o) {
        const float* values = weight.values.data() + o * in;
        const float* magnitudes = weight.magnitudes.data() + o * in;
        double want = weight.bias.empty() ? 0.0 : double{weight.bias[static_cast<size_t>(o)]};
        double rounded = std::abs(want);
        double magnitude = std::abs(want);
        for (int64_t k = 0; k < in; ++k) {
          want += double{x_row[k]} * double{values[k]};
          rounded += std::abs(double{x_row[k]} * double{values[k]});
          magnitude += std::abs(double{x_row[k]}) * double{magnitudes[k]};
        }
        // A bias may be added by a kernel of its own to a rounded y.
        const double allowed = (weight.bias.empty() ? 1.0 : 2.0) * Precision(y_dtype) * std::abs(want) +
                               weight_precision * rounded + 1e-5 * magnitude + 1e-6 +
                               (weight.bias.empty() ? 0.0 : Precision(y_dtype) * rounded);
        const double got = y.At(row, o);
        const double excess = std::isfinite(got) ? std::abs(got - want) / allowed : 1e30;
        if (excess > 1.0) {
          ++num_wrong;
          ++wrong_rows[row];
          ++wrong_blocks[o / 16 * 16];
        }
        if (excess <= worst) continue;
        worst = excess;
        message = fmt::format("row {} column {}: got {}, want {}, allowed {}", row, o, got, want, allowed);
      }
    }
    if (worst <= 1.0) return;
    const auto firsts = [](const std::map<int64_t, int64_t>& counts) {
      std::string text;
      for (const auto& [at, count] : counts) {
        if (text.size() > 100) return text + " ...";
        text += fmt::format(" {} ({})", at, count);
      }
      return text;
    };
    ADD_FAILURE() << what << ", " << weight.Name() << ": " << num_wrong << " of " << checked * out
                  << " wrong, worst " << message << "\n  rows (number wrong):" << firsts(wrong_rows)
                  << "\n  blocks of 16 columns:" << firsts(wrong_blocks);
  }
};

}  // namespace tandem
