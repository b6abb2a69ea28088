#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "cpu_attention/append_token.h"
#include "ops/host/op_test_bench.h"

namespace tandem {
namespace {

// Relative for what is large, absolute near zero; one rounding of the output type.
double Tolerance(DType out, double value) {
  return (out == DType::kBF16 ? std::abs(value) * 0x1p-8 : 0.0) + 2e-6 * (1.0 + std::abs(value));
}

class ElementwiseTest : public testing::TestWithParam<CpuIsa> {};

TEST_P(ElementwiseTest, EmbeddingCopiesRows) {
  std::mt19937 random(21);
  OpTestBench bench(GetParam());
  for (const auto& [table_dtype, out_dtype] :
       {std::pair{DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}, {DType::kBF16, DType::kBF16}}) {
    TestMatrix table(table_dtype, 10, 37);
    table.Fill(random);
    const std::vector<int32_t> ids = {9, 0, 3, 3};
    const TestMatrix out(out_dtype, 4, 37, 2);
    bench.ops().Embedding(bench.stream(), {table.view(), ids.data(), out.view()});
    bench.Synchronize();
    for (int64_t r = 0; r < 4; ++r) {
      for (int64_t c = 0; c < 37; ++c) {
        ASSERT_EQ(out.Get(r, c), table.Get(ids[static_cast<size_t>(r)], c)) << r << " " << c;
      }
    }
  }
}

TEST_P(ElementwiseTest, AddRmsNormMatchesReference) {
  std::mt19937 random(22);
  OpTestBench bench(GetParam());
  for (const int64_t cols : {5, 64, 100, 576}) {
    for (const auto& [delta_dtype, out_dtype] :
         {std::pair{DType::kF32, DType::kF32}, {DType::kBF16, DType::kBF16}, {DType::kF32, DType::kBF16}}) {
      for (const bool has_delta : {false, true}) {
        constexpr int64_t kRows = 65;
        TestMatrix residual(DType::kF32, kRows, cols, 3);
        residual.Fill(random, 3.0F);
        const TestMatrix before = residual.Values();
        TestMatrix delta(delta_dtype, kRows, cols);
        delta.Fill(random);
        TestMatrix weight(DType::kF32, 1, cols);
        weight.Fill(random);
        const TestMatrix out(out_dtype, kRows, cols, 1);
        AddRmsNormArgs args;
        args.residual = residual.view();
        if (has_delta) args.delta = delta.view();
        args.weight = static_cast<const float*>(weight.view().data);
        args.eps = 1e-5F;
        args.out = out.view();
        bench.ops().AddRmsNorm(bench.stream(), args);
        bench.Synchronize();
        for (int64_t r = 0; r < kRows; ++r) {
          double squares = 0;
          for (int64_t c = 0; c < cols; ++c) {
            const float sum = before.Get(r, c) + (has_delta ? delta.Get(r, c) : 0.0F);
            ASSERT_EQ(residual.Get(r, c), sum);
            squares += static_cast<double>(sum) * sum;
          }
          const double factor = 1.0 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
          for (int64_t c = 0; c < cols; ++c) {
            const double expected = residual.Get(r, c) * factor * weight.Get(0, c);
            ASSERT_NEAR(out.Get(r, c), expected, Tolerance(out_dtype, expected));
          }
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, SiluMulMatchesReference) {
  std::mt19937 random(23);
  OpTestBench bench(GetParam());
  for (const int64_t cols : {7, 96, 333}) {
    for (const auto& [in_dtype, out_dtype] :
         {std::pair{DType::kF32, DType::kF32}, {DType::kBF16, DType::kBF16}, {DType::kF32, DType::kBF16}}) {
      TestMatrix gate_up(in_dtype, 70, 2 * cols, 2);
      gate_up.Fill(random, 4.0F);
      gate_up.Set(0, 0, -100.0F);  // exp overflows if it is not guarded
      gate_up.Set(1, 0, 100.0F);
      gate_up.Set(2, 0, 0.0F);
      const TestMatrix out(out_dtype, 70, cols, 4);
      bench.ops().SiluMul(bench.stream(), {gate_up.view(), out.view()});
      bench.Synchronize();
      for (int64_t r = 0; r < 70; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const double gate = gate_up.Get(r, c);
          const double expected = gate / (1.0 + std::exp(-gate)) * gate_up.Get(r, cols + c);
          ASSERT_NEAR(out.Get(r, c), expected, Tolerance(out_dtype, expected)) << gate;
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, GatherRowsCopies) {
  std::mt19937 random(24);
  OpTestBench bench(GetParam());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TestMatrix in(dtype, 8, 19, 1);
    in.Fill(random);
    const std::vector<int32_t> indices = {7, 0, 7, 4, 1};
    const TestMatrix out(dtype, 5, 19, 2);
    bench.ops().GatherRows(bench.stream(), {in.view(), indices.data(), out.view()});
    bench.Synchronize();
    for (int64_t r = 0; r < 5; ++r) EXPECT_TRUE(out.RowEquals(r, in, indices[static_cast<size_t>(r)]));
  }
}

struct Heads {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
};

std::vector<float> RopeTable(int64_t max_position, int64_t head_dim) {
  std::vector<float> table;
  for (int64_t p = 0; p < max_position; ++p) {
    for (const bool sine : {false, true}) {
      for (int64_t j = 0; j < head_dim / 2; ++j) {
        const double angle = static_cast<double>(p) *
                             std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
        table.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
      }
    }
  }
  return table;
}

// What a prepared head must be.
std::vector<double> PreparedHead(const TestMatrix& qkv, int64_t row, int64_t head, int64_t head_dim,
                                 const float* norm_weight, double eps, const float* cos_sin) {
  std::vector<double> x;
  double squares = 0;
  for (int64_t d = 0; d < head_dim; ++d) {
    x.push_back(qkv.Get(row, head * head_dim + d));
    squares += x.back() * x.back();
  }
  if (norm_weight != nullptr) {
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(head_dim) + eps);
    for (size_t d = 0; d < x.size(); ++d) x[d] *= factor * norm_weight[d];
  }
  const size_t half = x.size() / 2;
  std::vector<double> out(x.size());
  for (size_t j = 0; j < half; ++j) {
    out[j] = x[j] * cos_sin[j] - x[j + half] * cos_sin[half + j];
    out[j + half] = x[j + half] * cos_sin[j] + x[j] * cos_sin[half + j];
  }
  return out;
}

TEST_P(ElementwiseTest, QkvPrepareMatchesReference) {
  std::mt19937 random(25);
  OpTestBench bench(GetParam());
  for (const Heads& heads : {Heads{3, 1, 64}, Heads{2, 2, 16}, Heads{4, 2, 80}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const bool with_norm : {false, true}) {
        constexpr int64_t kRows = 21;
        TestMatrix qkv(dtype, kRows, (heads.num_heads + 2 * heads.num_kv_heads) * heads.head_dim, 2);
        qkv.Fill(random);
        const TestMatrix original = qkv.Values();
        const std::vector<float> table = RopeTable(50, heads.head_dim);
        std::vector<int32_t> positions;
        for (int64_t r = 0; r < kRows; ++r) positions.push_back(static_cast<int32_t>((r * 17) % 50));
        TestMatrix norms(DType::kF32, 2, heads.head_dim);
        norms.Fill(random);
        QkvPrepareArgs args;
        args.qkv = qkv.view();
        args.num_heads = heads.num_heads;
        args.num_kv_heads = heads.num_kv_heads;
        args.head_dim = heads.head_dim;
        if (with_norm) {
          args.q_norm_weight = static_cast<const float*>(norms.view().RowData(0));
          args.k_norm_weight = static_cast<const float*>(norms.view().RowData(1));
        }
        args.rope_table = table.data();
        args.positions = positions.data();
        bench.ops().QkvPrepare(bench.stream(), args);
        bench.Synchronize();
        for (int64_t r = 0; r < kRows; ++r) {
          const float* cos_sin = table.data() + positions[static_cast<size_t>(r)] * heads.head_dim;
          const int64_t num_rotated = heads.num_heads + heads.num_kv_heads;
          for (int64_t h = 0; h < num_rotated; ++h) {
            const float* norm = h < heads.num_heads ? args.q_norm_weight : args.k_norm_weight;
            const std::vector<double> expected =
                PreparedHead(original, r, h, heads.head_dim, norm, args.norm_eps, cos_sin);
            for (int64_t d = 0; d < heads.head_dim; ++d) {
              const double e = expected[static_cast<size_t>(d)];
              ASSERT_NEAR(qkv.Get(r, h * heads.head_dim + d), e, Tolerance(dtype, e) + 1e-6);
            }
          }
          for (int64_t c = num_rotated * heads.head_dim; c < qkv.view().cols; ++c) {
            ASSERT_EQ(qkv.Get(r, c), original.Get(r, c));  // V is not rotated
          }
        }
      }
    }
  }
}

// Random rows of two heads and one kv head, the same twice; positions; and caches that the slots fit.
struct AppendCase {
  static constexpr int64_t kHeadDim = 32;

  AppendCase(DType dtype, std::vector<int32_t> slots_of_rows, uint32_t seed)
      : num_rows(static_cast<int64_t>(slots_of_rows.size())),
        fused(dtype, num_rows, 4 * kHeadDim),
        apart(dtype, num_rows, 4 * kHeadDim),
        table(RopeTable(num_rows, kHeadDim)),
        positions(slots_of_rows.size()),
        slots(std::move(slots_of_rows)) {
    std::mt19937 random(seed);
    fused.Fill(random);
    matrix_bytes = static_cast<size_t>(num_rows * 4 * kHeadDim) * DTypeSize(dtype);
    std::memcpy(apart.view().data, fused.view().data, matrix_bytes);
    std::iota(positions.begin(), positions.end(), 0);
    kv.shape = {KvFormat::Plain(dtype), 16, 1, kHeadDim};
    kv.num_blocks = 3;
    untouched.assign(static_cast<size_t>(kv.num_blocks) * kv.shape.BlockBytes(), std::byte{0xff});
  }

  // Of `fused`, without appends.
  QkvPrepareArgs Args() {
    QkvPrepareArgs args;
    args.qkv = fused.view();
    args.num_heads = 2;
    args.num_kv_heads = 1;
    args.head_dim = kHeadDim;
    args.rope_table = table.data();
    args.positions = positions.data();
    args.slots = slots.data();
    return args;
  }
  KvLayerView Cache(std::vector<std::byte>* bytes) const {
    KvLayerView cache = kv;
    cache.data = bytes->data();
    return cache;
  }

  int64_t num_rows;
  TestMatrix fused;
  TestMatrix apart;
  size_t matrix_bytes = 0;
  std::vector<float> table;
  std::vector<int32_t> positions;
  std::vector<int32_t> slots;
  KvLayerView kv;
  std::vector<std::byte> untouched;  // a cache that nothing was appended to
};

// QkvPrepare with a cache writes the same bytes as QkvPrepare without one and AppendToken; negative slots
// nothing.
TEST_P(ElementwiseTest, QkvPrepareAppendsWhatAppendTokenDoes) {
  OpTestBench bench(GetParam());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    AppendCase rows(dtype, {47, 0, -1, 16, 31, 33, 1, -1, 20}, 26);
    constexpr int64_t kHeadDim = AppendCase::kHeadDim;
    std::vector<std::byte> first = rows.untouched;
    std::vector<std::byte> second = rows.untouched;
    QkvPrepareArgs args = rows.Args();
    args.qkv = rows.apart.view();
    args.slots = nullptr;
    bench.ops().QkvPrepare(bench.stream(), args);
    bench.Synchronize();
    for (int64_t row = 0; row < rows.num_rows; ++row) {
      AppendToken(rows.Cache(&second), rows.slots[static_cast<size_t>(row)], 0, 1,
                  rows.apart.view().Columns(2 * kHeadDim, kHeadDim).RowData(row),
                  rows.apart.view().Columns(3 * kHeadDim, kHeadDim).RowData(row), dtype);
    }
    args = rows.Args();
    args.appends[0] = {.row_begin = 0, .num_rows = rows.num_rows, .kv = rows.Cache(&first)};
    bench.ops().QkvPrepare(bench.stream(), args);
    bench.Synchronize();
    EXPECT_EQ(first, second);
    const auto untouched = static_cast<size_t>(std::count(first.begin(), first.end(), std::byte{0xff}));
    EXPECT_GE(untouched, first.size() / 48 * 41);  // 7 of 48 slots were written
  }
}

// Rows of two caches and rows of none: as three calls would do.
TEST_P(ElementwiseTest, QkvPrepareAppendsToTwoCaches) {
  OpTestBench bench(GetParam());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    AppendCase rows(dtype, {47, 0, -1, 16, 31, 33, 1, -1, 20, 3, 5, 6}, 27);
    std::array<std::vector<std::byte>, 2> fused = {rows.untouched, rows.untouched};
    std::array<std::vector<std::byte>, 2> expected = fused;
    const std::array<int64_t, 4> begins = {0, 5, 9, rows.num_rows};
    QkvPrepareArgs args = rows.Args();
    for (size_t i = 0; i < 2; ++i) {
      args.appends[i] = {
          .row_begin = begins[i], .num_rows = begins[i + 1] - begins[i], .kv = rows.Cache(&fused[i])};
    }
    bench.ops().QkvPrepare(bench.stream(), args);
    for (size_t i = 0; i < 3; ++i) {
      args = rows.Args();
      args.qkv = rows.apart.view().Rows(begins[i], begins[i + 1] - begins[i]);
      args.positions += begins[i];
      args.slots += begins[i];
      if (i < 2)
        args.appends[0] = {.row_begin = 0, .num_rows = args.qkv.rows, .kv = rows.Cache(&expected[i])};
      bench.ops().QkvPrepare(bench.stream(), args);
    }
    bench.Synchronize();
    EXPECT_EQ(fused, expected);
    EXPECT_NE(fused[0], fused[1]);
    EXPECT_EQ(std::memcmp(rows.fused.view().data, rows.apart.view().data, rows.matrix_bytes), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ElementwiseTest, testing::ValuesIn(SupportedCpuIsas()), IsaTestName);

}  // namespace
}  // namespace tandem
