#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "base/quantized_rows.h"
#include "ops/host/op_test_bench.h"

namespace tandem {
namespace {

constexpr int64_t kOut = 70;
constexpr int64_t kIn = 96;

class ColumnOrderTest : public testing::Test {
 protected:
  ColumnOrderTest() {
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), random_);
    HashedRows(5, 1.0F, 0, kOut, kIn, Int4Format(32, true), &rows_);
  }

  std::unique_ptr<QuantizedLinearWeight> Weight(DType dtype, std::span<const int32_t> order) {
    QuantizedWeightShape shape{kOut, kIn, dtype};
    shape.column_order = order;
    auto weight = bench_.ops().CreateQuantizedWeight(shape, rows_.format).value();
    weight->LoadQuantizedRows(0, rows_);
    return weight;
  }

  TestMatrix Product(const TestMatrix& x, const LinearWeight& weight) {
    TestMatrix y(DType::kF32, x.view().rows, kOut, 3);
    bench_.ops().Linear(bench_.stream(), {x.view(), &weight, y.view()});
    bench_.Synchronize();
    return y;
  }

  std::mt19937 random_{3};
  std::vector<int32_t> order_ = std::vector<int32_t>(kIn);
  QuantizedRows rows_;
  OpTestBench bench_{BestCpuIsa()};
};

// The product of x is that of x with its columns put in order, for rows that lie apart, few and many.
TEST_F(ColumnOrderTest, XIsReadInTheOrderOfTheCodes) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto ordered = Weight(dtype, order_);
    const auto plain = Weight(dtype, {});
    for (const int64_t rows : {1, 5, 70, 300}) {
      TestMatrix x(dtype, rows, kIn, 7);
      x.Fill(random_);
      TestMatrix gathered(dtype, rows, kIn);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < kIn; ++c) gathered.Set(r, c, x.Get(r, order_[static_cast<size_t>(c)]));
      }
      const TestMatrix found = Product(x, *ordered);
      const TestMatrix wanted = Product(gathered, *plain);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t n = 0; n < kOut; ++n) ASSERT_EQ(found.Get(r, n), wanted.Get(r, n)) << rows << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace tandem
