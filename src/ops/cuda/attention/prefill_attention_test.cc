#include "ops/cuda/attention/prefill_attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/attention/prefill_test_batch.h"
#include "ops/cuda/cuda_op_test_bench.h"

namespace tandem {
namespace {

struct Heads {
  int64_t num_heads;
  int64_t num_kv_heads;
};

// q, the cache and the reference of one batch. Blocks lie in random order; whatever holds no token is NaN.
class Problem {
 public:
  Problem(Device& device, std::mt19937& random, const KvShape& kv, int64_t num_heads,
          const std::vector<Lengths>& lengths, int64_t first_row)
      : kv_(kv),
        num_heads_(num_heads),
        sequences_(MakeSequences(lengths, first_row)),
        num_rows_(sequences_.back().row_begin + sequences_.back().num_rows + 2),
        num_blocks_(CapacityOf(sequences_, kv, num_heads).max_blocks + 5),
        qkv_(device, kv.plain_dtype(), num_rows_, (num_heads + 2 * kv.num_kv_heads) * kv.head_dim, 8),
        cache_(device, kv.plain_dtype(), num_blocks_ * kv.num_kv_heads, 2 * kv.block_size * kv.head_dim),
        out_(device, kv.plain_dtype(), num_rows_, num_heads * kv.head_dim) {
    std::vector<int32_t> blocks(static_cast<size_t>(num_blocks_));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (int64_t r = 0; r < cache_.rows(); ++r) {
      for (int64_t c = 0; c < cache_.cols(); ++c) cache_.At(r, c) = std::numeric_limits<float>::quiet_NaN();
    }
    std::normal_distribution<float> normal;
    for (AttentionSequence& sequence : sequences_) {
      for (int32_t& block : sequence.block_table) block = blocks[static_cast<size_t>(block)];
      for (int64_t token = 0; token < sequence.context_len; ++token) {
        for (int64_t head = 0; head < kv.num_kv_heads; ++head) {
          for (int64_t d = 0; d < kv.head_dim; ++d) {
            Key(sequence, head, token)[d] = normal(random);
            Value(sequence, head, token)[d] = normal(random);
          }
        }
      }
    }
    cache_.Upload();
    qkv_.Fill(random, 1.5F);
  }

  const std::vector<AttentionSequence>& sequences() const { return sequences_; }
  AttentionArgs Args(int64_t sliding_window) const {
    AttentionArgs args;
    args.q = qkv_.view().Columns(0, num_heads_ * kv_.head_dim);
    args.out = out_.view();
    args.kv.data = cache_.view().data;
    args.kv.shape = kv_;
    args.kv.num_blocks = num_blocks_;
    args.num_heads = num_heads_;
    args.scale = scale();
    args.sliding_window = sliding_window;
    return args;
  }

  // Compares some rows of every sequence: the first and last ones and about a dozen between.
  void Check(int64_t sliding_window, const std::string& what) {
    out_.Download();
    const int64_t first_row = sequences_.front().row_begin;
    for (int64_t row = 0; row < num_rows_; ++row) {
      if (row >= first_row && row < num_rows_ - 2) continue;
      for (int64_t c = 0; c < out_.cols(); ++c) {
        ASSERT_TRUE(std::isnan(out_.At(row, c))) << what << ": row " << row << " is not of the batch";
      }
    }
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const int64_t rows = sequences_[s].num_rows;
      const int64_t step = std::max<int64_t>(1, rows / 13);
      for (int64_t row = 0; row < rows;
           row += row < 2 || row >= rows - 3 ? 1 : std::min(step, rows - 3 - row)) {
        ASSERT_NO_FATAL_FAILURE(CheckRow(s, row, sliding_window, what));
      }
    }
  }

 private:
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(kv_.head_dim)); }
  float* Key(const AttentionSequence& sequence, int64_t head, int64_t token) {
    const int64_t block = sequence.block_table[static_cast<size_t>(token / kv_.block_size)];
    return &cache_.At(block * kv_.num_kv_heads + head, token % kv_.block_size * kv_.head_dim);
  }
  float* Value(const AttentionSequence& sequence, int64_t head, int64_t token) {
    return Key(sequence, head, token) + kv_.block_size * kv_.head_dim;
  }

  void CheckRow(size_t s, int64_t row, int64_t sliding_window, const std::string& what) {
    const AttentionSequence& sequence = sequences_[s];
    const int64_t position = sequence.context_len - sequence.num_rows + row;
    const int64_t begin = sliding_window > 0 ? std::max<int64_t>(0, position + 1 - sliding_window) : 0;
    const int64_t group = num_heads_ / kv_.num_kv_heads;
    std::vector<double> weights(static_cast<size_t>(position + 1 - begin));
    std::vector<double> want(static_cast<size_t>(kv_.head_dim));
    for (int64_t head = 0; head < num_heads_; ++head) {
      const float* q = qkv_.Row(sequence.row_begin + row) + head * kv_.head_dim;
      double maximum = -std::numeric_limits<double>::infinity();
      for (int64_t token = begin; token <= position; ++token) {
        const float* key = Key(sequence, head / group, token);
        double score = 0;
        for (int64_t d = 0; d < kv_.head_dim; ++d) score += double{q[d]} * double{key[d]};
        weights[static_cast<size_t>(token - begin)] = score * scale();
        maximum = std::max(maximum, score * scale());
      }
      double total = 0;
      std::fill(want.begin(), want.end(), 0.0);
      for (int64_t token = begin; token <= position; ++token) {
        const double weight = std::exp(weights[static_cast<size_t>(token - begin)] - maximum);
        const float* value = Value(sequence, head / group, token);
        total += weight;
        for (int64_t d = 0; d < kv_.head_dim; ++d) want[static_cast<size_t>(d)] += weight * double{value[d]};
      }
      for (double& value : want) value /= total;
      const float* got = out_.Row(sequence.row_begin + row) + head * kv_.head_dim;
      const double error = RelativeError(got, want.data(), kv_.head_dim);
      ASSERT_LE(error, 1e-2) << what << ": sequence " << s << " (" << sequence.num_rows << " rows, context "
                             << sequence.context_len << "), row " << row << ", head " << head << ": got "
                             << fmt::format("{:.4f}", fmt::join(got, got + 4, " ")) << ", want "
                             << fmt::format("{:.4f}", fmt::join(want.begin(), want.begin() + 4, " "));
    }
  }

  KvShape kv_;
  int64_t num_heads_;
  std::vector<AttentionSequence> sequences_;
  int64_t num_rows_;
  int64_t num_blocks_;
  CudaMatrix qkv_;
  CudaMatrix cache_;
  CudaMatrix out_;
};

struct PrefillCase {
  DType dtype;
  int64_t head_dim;
  Heads heads;
};

class PrefillAttentionTest : public CudaOpTest, public testing::WithParamInterface<PrefillCase> {
 protected:
  // sm_counts: what the plan is told, which decides about splits.
  void RunBatch(const std::vector<Lengths>& lengths, int64_t sliding_window,
                const std::vector<int>& sm_counts) {
    const PrefillCase& param = GetParam();
    const KvShape kv = {KvFormat::Plain(param.dtype), kBlockSize, param.heads.num_kv_heads, param.head_dim};
    auto& cuda_stream = AsCudaStream(stream());
    CudaTarget target = cuda_stream.target();
    if (!PrefillAttention::Supports(kv, param.dtype, param.heads.num_heads, target)) {
      GTEST_SKIP() << "not for compute capability " << target.compute_capability;
    }
    for (const int num_sms : sm_counts) {
      if (num_sms > 0) target.num_sms = num_sms;
      Problem problem(device(), random(), kv, param.heads.num_heads, lengths, 3);
      auto attention = PrefillAttention::Create(
          &device(), CapacityOf(problem.sequences(), kv, param.heads.num_heads), param.dtype, target);
      ASSERT_TRUE(attention.ok()) << attention.error().message;
      (*attention)->Plan(cuda_stream, problem.sequences(), kv, param.heads.num_heads, sliding_window);
      (*attention)->Run(cuda_stream, problem.Args(sliding_window));
      stream().Synchronize();
      ASSERT_NO_FATAL_FAILURE(problem.Check(
          sliding_window,
          fmt::format("{}, {} heads ({} kv) of {}, window {}, {} SMs, {}", DTypeName(param.dtype),
                      param.heads.num_heads, param.heads.num_kv_heads, param.head_dim, sliding_window,
                      target.num_sms, PrefillAttention::Description(kv, param.dtype, target))));
    }
  }
};

TEST_P(PrefillAttentionTest, WholePrompts) {
  RunBatch({{1, 1}, {31, 31}, {32, 32}, {33, 33}, {130, 130}, {7, 7}, {400, 400}}, 0, {0});
}

TEST_P(PrefillAttentionTest, OneLongPrompt) {
  RunBatch({{2100, 2100}}, 0, {0});
}

TEST_P(PrefillAttentionTest, ChunksOfLongerContexts) {
  RunBatch({{5, 1500}, {64, 65}, {600, 1537}, {1, 2}, {512, 512}, {100, 2100}}, 0, {0, 1000});
}

TEST_P(PrefillAttentionTest, ShortChunks) {
  RunBatch({{5, 1500}, {16, 700}, {9, 40}}, 0, {0, 1000});
}

TEST_P(PrefillAttentionTest, Decodes) {
  RunBatch({{1, 1}, {1, 2100}, {1, 32}, {1, 33}, {1, 700}, {1, 1024}}, 0, {0, 8, 1000});
}

TEST_P(PrefillAttentionTest, SlidingWindow) {
  RunBatch({{300, 300}, {1, 2100}, {40, 1300}, {600, 2000}}, 1, {0});
  RunBatch({{300, 300}, {1, 2100}, {40, 1300}, {600, 2000}}, 100, {0});
  RunBatch({{5, 2100}, {1, 2000}, {1, 3}}, 1700, {0, 1000});
  RunBatch({{300, 2100}, {900, 900}}, 1200, {1000});
}

std::vector<PrefillCase> PrefillCases() {
  std::vector<PrefillCase> cases;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t head_dim : {64, 128, 256}) {
      for (const Heads heads : {Heads{2, 2}, Heads{6, 2}, Heads{8, 2}, Heads{8, 1}}) {
        cases.push_back({dtype, head_dim, heads});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, PrefillAttentionTest, testing::ValuesIn(PrefillCases()),
                         [](const auto& test) {
                           return fmt::format("{}_{}x{}_{}", DTypeName(test.param.dtype),
                                              test.param.heads.num_heads, test.param.heads.num_kv_heads,
                                              test.param.head_dim);
                         });

// A plan is renewed and a batch with other sequences runs in the same memory.
using PrefillPlanReuseTest = CudaOpTest;
TEST_F(PrefillPlanReuseTest, BatchAfterBatch) {
  const KvShape kv = {KvFormat::Plain(DType::kF16), kBlockSize, 2, 128};
  auto& cuda_stream = AsCudaStream(stream());
  if (!PrefillAttention::Supports(kv, DType::kF16, 8, cuda_stream.target())) GTEST_SKIP();
  AttentionCapacity capacity;
  capacity.kv = kv;
  capacity.num_heads = 8;
  capacity.max_rows = 700;
  capacity.max_sequences = 4;
  capacity.max_blocks = 200;
  auto attention = PrefillAttention::Create(&device(), capacity, DType::kF16, cuda_stream.target());
  ASSERT_TRUE(attention.ok()) << attention.error().message;
  const std::vector<std::vector<Lengths>> batches = {
      {{700, 700}}, {{1, 2000}, {1, 3}}, {{600, 600}, {1, 1500}, {20, 50}}, {{1, 1}}};
  for (size_t i = 0; i < batches.size(); ++i) {
    Problem problem(device(), random(), kv, 8, batches[i], static_cast<int64_t>(i));
    (*attention)->Plan(cuda_stream, problem.sequences(), kv, 8, 0);
    // As the layers do.
    (*attention)->Run(cuda_stream, problem.Args(0));
    (*attention)->Run(cuda_stream, problem.Args(0));
    stream().Synchronize();
    ASSERT_NO_FATAL_FAILURE(problem.Check(0, fmt::format("batch {}", i)));
  }
}

}  // namespace
}  // namespace tandem
