#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/rows/elementwise_test_bench.h"

namespace tandem {
namespace {

struct QkvShape {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rows = 0;
  int64_t gap = 0;
};

constexpr int64_t kMaxPosition = 50;
constexpr int64_t kBlockSize = 32;

std::vector<float> RopeTable(int64_t head_dim) {
  std::vector<float> table;
  for (int64_t p = 0; p < kMaxPosition; ++p) {
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
std::vector<double> PreparedHead(const float* x, int64_t head_dim, const float* norm_weight, double eps,
                                 const float* cos_sin) {
  double factor = 1.0;
  if (norm_weight != nullptr) {
    double squares = 0;
    for (int64_t d = 0; d < head_dim; ++d) squares += static_cast<double>(x[d]) * x[d];
    factor = 1.0 / std::sqrt(squares / static_cast<double>(head_dim) + eps);
  }
  const auto normed = [&](int64_t d) {
    return norm_weight == nullptr ? x[d] : x[d] * factor * norm_weight[d];
  };
  const int64_t half = head_dim / 2;
  std::vector<double> out(static_cast<size_t>(head_dim));
  for (int64_t j = 0; j < half; ++j) {
    const double a = normed(j);
    const double b = normed(j + half);
    out[static_cast<size_t>(j)] = a * cos_sin[j] - b * cos_sin[half + j];
    out[static_cast<size_t>(j + half)] = b * cos_sin[j] + a * cos_sin[half + j];
  }
  return out;
}

// Rows of which K and V are appended.
enum class Appends { kNone, kAll, kTwoCaches };  // kTwoCaches: a part here, a part there, the rest nowhere

std::array<KvRows, 2> RowsOf(Appends appends, int64_t rows) {
  std::array<KvRows, 2> parts;
  if (appends == Appends::kAll) parts[0].num_rows = rows;
  if (appends == Appends::kTwoCaches) {
    parts[0].num_rows = (rows + 1) / 3;
    parts[1] = {.row_begin = parts[0].num_rows, .num_rows = (rows + 2) / 3, .kv = {}};
  }
  return parts;
}

class CudaQkvPrepareTest : public CudaElementwiseTest {
 protected:
  // q_norm, k_norm: which of the norms are there.
  void Check(const QkvShape& shape, DType dtype, DType cache_dtype, bool q_norm, bool k_norm,
             Appends appends) {
    SCOPED_TRACE(testing::Message() << DTypeName(dtype) << ", cache " << DTypeName(cache_dtype) << ", "
                                    << shape.num_heads << " heads, " << shape.num_kv_heads << " kv heads of "
                                    << shape.head_dim << ", " << shape.rows << " rows, gap " << shape.gap
                                    << ", norms " << q_norm << k_norm << ", appends "
                                    << static_cast<int>(appends));
    const int64_t head_dim = shape.head_dim;
    const int64_t cols = (shape.num_heads + 2 * shape.num_kv_heads) * head_dim;
    CudaMatrix qkv(device(), dtype, shape.rows, cols, shape.gap);
    qkv.Fill(random());
    std::vector<float> original;
    for (int64_t r = 0; r < shape.rows; ++r) original.insert(original.end(), qkv.Row(r), qkv.Row(r) + cols);
    const std::vector<float> table = RopeTable(head_dim);
    const CudaArray<float> device_table(device(), table);
    std::vector<int32_t> positions;
    positions.reserve(static_cast<size_t>(shape.rows));
    for (int64_t r = 0; r < shape.rows; ++r) positions.push_back(static_cast<int32_t>(r * 17 % kMaxPosition));
    const CudaArray<int32_t> device_positions(device(), positions);
    CudaMatrix norms(device(), DType::kF32, 2, head_dim);
    norms.Fill(random());

    // Every third row is not appended; the others go to different slots, block ends among them.
    const int64_t num_blocks = (shape.rows + kBlockSize - 1) / kBlockSize + 1;
    std::vector<int32_t> all_slots(static_cast<size_t>(num_blocks * kBlockSize));
    std::iota(all_slots.begin(), all_slots.end(), 0);
    std::shuffle(all_slots.begin(), all_slots.end(), random());
    std::vector<int32_t> slots;
    for (size_t r = 0; r < static_cast<size_t>(shape.rows); ++r)
      slots.push_back(r % 3 == 2 ? -1 : all_slots[r]);
    slots[0] = std::count(slots.begin(), slots.end(), 31) > 0 ? slots[0] : 31;
    const CudaArray<int32_t> device_slots(device(), slots);
    const int64_t cache_rows = num_blocks * shape.num_kv_heads * 2 * kBlockSize;
    std::array<CudaMatrix, 2> caches = {CudaMatrix(device(), cache_dtype, cache_rows, head_dim),
                                        CudaMatrix(device(), cache_dtype, cache_rows, head_dim)};

    QkvPrepareArgs args;
    args.qkv = qkv.view();
    args.num_heads = shape.num_heads;
    args.num_kv_heads = shape.num_kv_heads;
    args.head_dim = head_dim;
    if (q_norm) args.q_norm_weight = static_cast<const float*>(norms.view().RowData(0));
    if (k_norm) args.k_norm_weight = static_cast<const float*>(norms.view().RowData(1));
    args.rope_table = device_table.data();
    args.positions = device_positions.data();
    if (appends != Appends::kNone) args.slots = device_slots.data();
    args.appends = RowsOf(appends, shape.rows);
    for (size_t i = 0; i < caches.size(); ++i) {
      if (args.appends[i].num_rows == 0) continue;
      args.appends[i].kv.data = caches[i].view().data;
      args.appends[i].kv.shape = {KvFormat::Plain(cache_dtype), kBlockSize, shape.num_kv_heads, head_dim};
      args.appends[i].kv.num_blocks = num_blocks;
    }
    ops().QkvPrepare(stream(), args);
    stream().Synchronize();
    qkv.Download();
    for (CudaMatrix& cache : caches) cache.Download();

    const int64_t num_rotated = shape.num_heads + shape.num_kv_heads;
    std::array<std::vector<bool>, 2> written;
    for (std::vector<bool>& rows : written) rows.resize(static_cast<size_t>(cache_rows));
    for (int64_t r = 0; r < shape.rows; ++r) {
      const float* cos_sin = table.data() + positions[static_cast<size_t>(r)] * head_dim;
      const float* before = original.data() + r * cols;
      for (int64_t h = 0; h < num_rotated; ++h) {
        const bool is_query = h < shape.num_heads;
        const float* norm = is_query ? (q_norm ? norms.Row(0) : nullptr) : (k_norm ? norms.Row(1) : nullptr);
        const std::vector<double> expected =
            PreparedHead(before + h * head_dim, head_dim, norm, args.norm_eps, cos_sin);
        for (int64_t d = 0; d < head_dim; ++d) {
          const double e = expected[static_cast<size_t>(d)];
          ASSERT_NEAR(qkv.At(r, h * head_dim + d), e, Tolerance(dtype, e))
              << "row " << r << " head " << h << " element " << d;
        }
      }
      for (int64_t c = num_rotated * head_dim; c < cols; ++c) {
        ASSERT_EQ(qkv.At(r, c), before[c]) << "V was changed: row " << r << " col " << c;
      }
      const int32_t slot = slots[static_cast<size_t>(r)];
      const auto* append = std::find_if(args.appends.begin(), args.appends.end(),
                                        [&](const KvRows& rows) { return rows.contains(r); });
      if (append == args.appends.end() || slot < 0) continue;
      const auto which = static_cast<size_t>(append - args.appends.begin());
      for (int64_t h = 0; h < shape.num_kv_heads; ++h) {
        for (const bool is_value : {false, true}) {
          const int64_t cache_row =
              ((slot / kBlockSize * shape.num_kv_heads + h) * 2 + (is_value ? 1 : 0)) * kBlockSize +
              slot % kBlockSize;
          written[which][static_cast<size_t>(cache_row)] = true;
          const int64_t col = (num_rotated + (is_value ? h : h - shape.num_kv_heads)) * head_dim;
          for (int64_t d = 0; d < head_dim; ++d) {
            const float in_row = qkv.At(r, col + d);
            const double slack = dtype == cache_dtype || is_value ? 0.0 : Tolerance(cache_dtype, in_row);
            ASSERT_NEAR(caches[which].At(cache_row, d), Rounded(cache_dtype, in_row), slack)
                << (is_value ? "V" : "K") << " of row " << r << " kv head " << h << " slot " << slot
                << " element " << d;
          }
        }
      }
    }
    for (size_t i = 0; i < caches.size(); ++i) {
      for (int64_t r = 0; r < cache_rows; ++r) {
        if (written[i][static_cast<size_t>(r)]) continue;
        for (int64_t d = 0; d < head_dim; ++d) {
          ASSERT_TRUE(std::isnan(caches[i].At(r, d)))
              << "cache " << i << " row " << r << " element " << d << " was written";
        }
      }
    }
  }
};

TEST_F(CudaQkvPrepareTest, MatchesReference) {
  const QkvShape shapes[] = {{3, 1, 64, 21, 0},  {2, 2, 16, 21, 8}, {4, 2, 80, 21, 0}, {32, 8, 128, 5, 0},
                             {32, 8, 128, 1, 0}, {5, 1, 256, 9, 0}, {3, 3, 6, 21, 1},  {2, 1, 250, 5, 0},
                             {7, 7, 96, 33, 0},  {9, 3, 64, 40, 2}, {8, 1, 32, 64, 0}};
  for (const QkvShape& shape : shapes) {
    for (const TypePair& types : kEngineTypes) {
      Check(shape, types.in, types.out, false, false, Appends::kAll);
      Check(shape, types.in, types.out, true, true, Appends::kAll);
    }
  }
}

TEST_F(CudaQkvPrepareTest, NormsOfQueriesOrKeysAlone) {
  Check({4, 2, 64, 10, 0}, DType::kBF16, DType::kBF16, true, false, Appends::kAll);
  Check({4, 2, 64, 10, 0}, DType::kBF16, DType::kBF16, false, true, Appends::kAll);
  Check({4, 2, 64, 10, 0}, DType::kBF16, DType::kBF16, true, true, Appends::kNone);
}

TEST_F(CudaQkvPrepareTest, ManyRows) {
  Check({32, 8, 128, 2500, 0}, DType::kBF16, DType::kBF16, false, false, Appends::kAll);
  Check({14, 2, 64, 4000, 0}, DType::kF16, DType::kF16, true, true, Appends::kAll);
}

TEST_F(CudaQkvPrepareTest, TwoCaches) {
  for (const int64_t rows : {1, 2, 3, 40, 700}) {
    for (const TypePair& types : kEngineTypes) {
      Check({9, 3, 64, rows, 2}, types.in, types.out, false, false, Appends::kTwoCaches);
      Check({32, 8, 128, rows, 0}, types.in, types.out, true, true, Appends::kTwoCaches);
      Check({3, 3, 6, rows, 1}, types.in, types.out, false, true, Appends::kTwoCaches);
    }
  }
}

// One head a group of lanes, some with two, and all heads of a row in one CTA.
TEST_F(CudaQkvPrepareTest, RowsAtWhichTheHeadsAreSharedOutAnew) {
  const int64_t num_sms = AsCudaStream(stream()).target().num_sms;
  for (const int64_t rows : {4 * num_sms, 4 * num_sms + 1, 8 * num_sms, 8 * num_sms + 1}) {
    Check({20, 4, 128, rows, 0}, DType::kBF16, DType::kBF16, false, false, Appends::kAll);
    Check({10, 3, 80, rows, 8}, DType::kF16, DType::kF16, true, true, Appends::kAll);
    Check({3, 2, 42, rows, 1}, DType::kF32, DType::kBF16, true, false, Appends::kAll);
  }
}

}  // namespace
}  // namespace tandem
