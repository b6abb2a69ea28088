#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cpu_attention/append_token.h"
#include "ops/host/op_test_bench.h"

namespace tandem {
namespace {

struct Shape {
  int64_t num_heads = 1;
  int64_t num_kv_heads = 1;
  int64_t head_dim = 16;
  int64_t block_size = 32;
  int64_t window = 0;
};

// One sequence with its qkv of every position, K and V appended to randomly placed blocks.
struct Context {
  // dtype: of the rows.
  Context(const Shape& shape, DType dtype, const KvFormat& format, int64_t context_len, std::mt19937& random)
      : qkv(dtype, context_len, (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim),
        length(context_len) {
    qkv.Fill(random);
    const int64_t num_blocks = (context_len + shape.block_size - 1) / shape.block_size;
    kv.shape = {format, shape.block_size, shape.num_kv_heads, shape.head_dim};
    kv.num_blocks = num_blocks + 3;
    // 0xff bytes are NaNs: what was never written must not reach a result.
    cache.assign(static_cast<size_t>(kv.num_blocks) * kv.shape.BlockBytes(), std::byte{0xff});
    kv.data = cache.data();
    std::vector<int32_t> blocks(static_cast<size_t>(kv.num_blocks));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    block_table.assign(blocks.begin(), blocks.begin() + num_blocks);
    for (int64_t t = 0; t < context_len; ++t) {
      slots.push_back(static_cast<int32_t>(
          block_table[static_cast<size_t>(t / shape.block_size)] * shape.block_size + t % shape.block_size));
    }
  }
  Context(const Shape& shape, DType dtype, int64_t context_len, std::mt19937& random)
      : Context(shape, dtype, KvFormat::Plain(dtype), context_len, random) {}

  void Append(const Shape& shape, int64_t begin, int64_t count) const {
    const int64_t width = shape.num_kv_heads * shape.head_dim;
    const MatrixView keys = qkv.view().Columns(shape.num_heads * shape.head_dim, width);
    const MatrixView values = qkv.view().Columns(shape.num_heads * shape.head_dim + width, width);
    for (int64_t t = begin; t < begin + count; ++t) {
      AppendToken(kv, slots[static_cast<size_t>(t)], 0, shape.num_kv_heads, keys.RowData(t),
                  values.RowData(t), qkv.view().dtype);
    }
  }

  TestMatrix qkv;
  int64_t length;
  KvLayerView kv;
  std::vector<std::byte> cache;
  std::vector<int32_t> block_table;
  std::vector<int32_t> slots;
};

std::unique_ptr<AttentionPlan> MakePlan(OpTestBench& bench, const AttentionBatch& batch) {
  auto plan = bench.ops().CreateAttentionPlan({});
  TANDEM_CHECK(plan.ok(), "{}", plan.error().message);
  bench.ops().PlanAttention(bench.stream(), batch, plan->get());
  return std::move(plan).value();
}

// Attention of positions [begin, begin + count) with the context cut there.
void Attend(OpTestBench& bench, const Shape& shape, const Context& context, int64_t begin, int64_t count,
            const MatrixView& out) {
  AttentionBatch batch;
  batch.num_rows = count;
  batch.sequences.push_back({0, count, begin + count, context.block_table});
  const auto plan = MakePlan(bench, batch);
  AttentionArgs args;
  args.q = context.qkv.view().Rows(begin, count).Columns(0, shape.num_heads * shape.head_dim);
  args.out = out;
  args.kv = context.kv;
  args.num_heads = shape.num_heads;
  args.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
  args.sliding_window = shape.window;
  args.plan = plan.get();
  bench.ops().PagedAttention(bench.stream(), args);
  bench.Synchronize();
}

std::vector<double> ReferenceHead(const Shape& shape, const Context& context, int64_t position,
                                  int64_t head) {
  const int64_t kv_head = head / (shape.num_heads / shape.num_kv_heads);
  const int64_t d_count = shape.head_dim;
  const int64_t first = shape.window > 0 ? std::max<int64_t>(0, position - shape.window + 1) : 0;
  std::vector<double> scores;
  for (int64_t t = first; t <= position; ++t) {
    double dot = 0;
    for (int64_t d = 0; d < d_count; ++d) {
      dot += static_cast<double>(context.qkv.Get(position, head * d_count + d)) *
             context.qkv.Get(t, (shape.num_heads + kv_head) * d_count + d);
    }
    scores.push_back(dot / std::sqrt(static_cast<double>(d_count)));
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::vector<double> out(static_cast<size_t>(d_count));
  for (int64_t t = first; t <= position; ++t) {
    const double p = std::exp(scores[static_cast<size_t>(t - first)] - max);
    sum += p;
    for (int64_t d = 0; d < d_count; ++d) {
      out[static_cast<size_t>(d)] +=
          p * context.qkv.Get(t, (shape.num_heads + shape.num_kv_heads + kv_head) * d_count + d);
    }
  }
  for (double& value : out) value /= sum;
  return out;
}

void ExpectRow(const Shape& shape, const Context& context, int64_t position, const TestMatrix& out,
               int64_t row, double tolerance) {
  for (int64_t head = 0; head < shape.num_heads; ++head) {
    const std::vector<double> expected = ReferenceHead(shape, context, position, head);
    for (int64_t d = 0; d < shape.head_dim; ++d) {
      ASSERT_NEAR(out.Get(row, head * shape.head_dim + d), expected[static_cast<size_t>(d)], tolerance)
          << "position " << position << " head " << head << " d " << d;
    }
  }
}

class AttentionTest : public testing::TestWithParam<CpuIsa> {};

TEST_P(AttentionTest, MatchesReference) {
  std::mt19937 random(11);
  OpTestBench bench(GetParam());
  const std::vector<Shape> shapes = {{3, 1, 64, 32, 0},  {4, 4, 16, 16, 0},  {6, 2, 80, 32, 0},
                                     {16, 1, 32, 32, 0}, {2, 2, 96, 48, 17}, {5, 1, 128, 64, 40},
                                     {2, 1, 256, 32, 0}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Shape& shape : shapes) {
      SCOPED_TRACE(testing::Message()
                   << DTypeName(dtype) << " " << shape.num_heads << "/" << shape.num_kv_heads << " heads of "
                   << shape.head_dim << ", blocks of " << shape.block_size << ", window " << shape.window);
      const Context context(shape, dtype, 75, random);
      context.Append(shape, 0, context.length);
      const TestMatrix out(dtype, context.length, shape.num_heads * shape.head_dim, 16);
      Attend(bench, shape, context, 0, context.length, out.view());
      for (const int64_t position : {0, 1, 15, 16, 31, 32, 33, 63, 64, 73, 74}) {
        ExpectRow(shape, context, position, out, position, dtype == DType::kF32 ? 2e-6 : 2e-2);
      }
    }
  }
}

TEST_P(AttentionTest, LongContextMatchesReference) {
  std::mt19937 random(12);
  for (const int num_threads : {1, 2}) {
    OpTestBench bench(GetParam(), num_threads);
    for (const int64_t window : {0, 300}) {
      const Shape shape{3, 1, 32, 32, window};
      const Context context(shape, DType::kF32, 1100, random);
      context.Append(shape, 0, context.length);
      const TestMatrix out(DType::kF32, 3, shape.num_heads * shape.head_dim);
      Attend(bench, shape, context, 1097, 3, out.view());
      for (int64_t row = 0; row < 3; ++row) ExpectRow(shape, context, 1097 + row, out, row, 2e-6);
    }
  }
}

// A row has the same bits as a decode and in chunks of any length, with any number of threads.
TEST_P(AttentionTest, ChunksAndDecodesAgree) {
  std::mt19937 random(13);
  struct Types {
    DType rows;
    KvFormat cache;
  };
  for (const Types& types :
       {Types{DType::kF32, KvFormat::Plain(DType::kF32)}, Types{DType::kBF16, KvFormat::Plain(DType::kBF16)},
        Types{DType::kF32, KvFormat::Int8()}, Types{DType::kF32, KvFormat::Fp8()},
        Types{DType::kBF16, KvFormat::Fp8()}}) {
    const DType dtype = types.rows;
    for (const int64_t window : {0, 45}) {
      const Shape shape{6, 2, types.cache.is_coded() ? 64 : 32, 32, window};
      const int64_t length = 530;  // past the border of a partition
      const Context context(shape, dtype, types.cache, length, random);
      OpTestBench whole(GetParam(), 2);
      context.Append(shape, 0, length);
      const TestMatrix expected(dtype, length, shape.num_heads * shape.head_dim);
      Attend(whole, shape, context, 0, length, expected.view());
      for (const int num_threads : {1, 2, 3}) {
        OpTestBench bench(GetParam(), num_threads);
        for (const int64_t chunk : {1, 7, 130}) {
          for (const int64_t begin : {0, 29, 395}) {
            const TestMatrix out(dtype, chunk, shape.num_heads * shape.head_dim);
            Attend(bench, shape, context, begin, chunk, out.view());
            for (int64_t row = 0; row < chunk; ++row) {
              ASSERT_TRUE(out.RowEquals(row, expected, begin + row))
                  << DTypeName(dtype) << " over " << KvFormatName(types.cache) << " window " << window
                  << " chunk " << chunk << " at " << begin << " row " << row << ", " << num_threads
                  << " threads";
            }
          }
        }
      }
    }
  }
}

// To the bit: so a request's tokens do not depend on which of two such tiers it lies in.
TEST_P(AttentionTest, Fp8IsAttendedAsFp32OfItsNumbers) {
  for (const int64_t window : {0, 45}) {
    for (const int64_t block_size : {16, 32, 64}) {
      for (const Shape& shape : {Shape{6, 2, 64, block_size, window}, Shape{3, 3, 48, block_size, window}}) {
        constexpr int64_t kLength = 530;
        std::vector<TestMatrix> outs;
        for (const KvFormat& format : {KvFormat::Fp8(), KvFormat::PlainOfFp8(DType::kF32)}) {
          std::mt19937 random(17);
          const Context context(shape, DType::kF32, format, kLength, random);
          context.Append(shape, 0, kLength);
          OpTestBench bench(GetParam(), 2);
          outs.emplace_back(DType::kF32, kLength, shape.num_heads * shape.head_dim);
          Attend(bench, shape, context, 0, kLength, outs.back().view());
        }
        for (int64_t row = 0; row < kLength; ++row) {
          ASSERT_TRUE(outs[0].RowEquals(row, outs[1], row))
              << "row " << row << ", heads of " << shape.head_dim << ", blocks of " << block_size
              << ", window " << window;
          ASSERT_FALSE(std::isnan(outs[0].Get(row, 0)));
        }
      }
    }
  }
}

// While the context grows, blocks hold NaNs behind its end.
TEST_P(AttentionTest, NothingBehindTheContextIsRead) {
  std::mt19937 random(14);
  OpTestBench bench(GetParam());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Shape shape{2, 1, 16, 16, 0};
    const Context context(shape, dtype, 40, random);
    for (int64_t position = 0; position < context.length; ++position) {
      context.Append(shape, position, 1);
      const TestMatrix out(dtype, 1, shape.num_heads * shape.head_dim);
      Attend(bench, shape, context, position, 1, out.view());
      ExpectRow(shape, context, position, out, 0, dtype == DType::kF32 ? 2e-6 : 2e-2);
    }
  }
}

TEST_P(AttentionTest, MixedBatchMatchesSequencesAlone) {
  std::mt19937 random(15);
  OpTestBench bench(GetParam());
  const Shape shape{4, 2, 16, 32, 0};
  // Three sequences in one cache: a chunk, a decode and a whole prefill.
  const std::vector<int64_t> lengths = {90, 333, 20};
  const std::vector<int64_t> num_rows = {30, 1, 20};
  const int64_t width = shape.num_heads * shape.head_dim;
  int64_t total_tokens = 0;
  for (const int64_t length : lengths) total_tokens += (length + 31) / 32 * 32;
  const Context context(shape, DType::kF32, total_tokens, random);
  context.Append(shape, 0, total_tokens);
  AttentionBatch batch;
  TestMatrix q(DType::kF32, 51, width);
  q.Fill(random);
  int64_t block = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    const int64_t num_blocks = (lengths[s] + 31) / 32;
    batch.sequences.push_back(
        {batch.num_rows,
         num_rows[s],
         lengths[s],
         {context.block_table.begin() + block, context.block_table.begin() + block + num_blocks}});
    batch.num_rows += num_rows[s];
    block += num_blocks;
  }
  AttentionArgs args;
  args.kv = context.kv;
  args.num_heads = shape.num_heads;
  args.scale = 0.25F;
  const TestMatrix together(DType::kF32, batch.num_rows, width);
  const TestMatrix alone(DType::kF32, batch.num_rows, width);
  const auto plan = MakePlan(bench, batch);
  args.plan = plan.get();
  args.q = q.view();
  args.out = together.view();
  bench.ops().PagedAttention(bench.stream(), args);
  bench.Synchronize();
  for (AttentionSequence sequence : batch.sequences) {
    args.q = q.view().Rows(sequence.row_begin, sequence.num_rows);
    args.out = alone.view().Rows(sequence.row_begin, sequence.num_rows);
    AttentionBatch single;
    single.num_rows = sequence.num_rows;
    sequence.row_begin = 0;
    single.sequences.push_back(sequence);
    const auto single_plan = MakePlan(bench, single);
    args.plan = single_plan.get();
    bench.ops().PagedAttention(bench.stream(), args);
    bench.Synchronize();
  }
  for (int64_t row = 0; row < batch.num_rows; ++row) {
    EXPECT_TRUE(together.RowEquals(row, alone, row)) << "row " << row;
    EXPECT_FALSE(std::isnan(together.Get(row, 0)));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionTest, testing::ValuesIn(SupportedCpuIsas()), IsaTestName);

}  // namespace
}  // namespace tandem
