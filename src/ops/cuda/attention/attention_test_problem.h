// A batch for the tests of attention on the GPU, with its reference in double precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/hashed_uniform.h"
#include "base/kv_layout.h"
#include "cpu_attention/append_token.h"
#include "device/device.h"
#include "ops/attention.h"
#include "ops/cuda/cuda_op_test_bench.h"

namespace tandem {

// Rows before the first sequence.
constexpr int64_t kFirstRow = 2;

struct AttentionShape {
  int64_t num_heads = 1;
  int64_t num_kv_heads = 1;
  int64_t head_dim = 128;
  int64_t block_size = 32;
  int64_t window = 0;
};

struct RowsAndContext {
  int64_t num_rows = 1;
  int64_t context_len = 1;
};

inline std::vector<RowsAndContext> Decodes(const std::vector<int64_t>& context_lens) {
  std::vector<RowsAndContext> lengths;
  lengths.reserve(context_lens.size());
  for (const int64_t context_len : context_lens) lengths.push_back({1, context_len});
  return lengths;
}

// Of the relative error of one head of one row, of the coarsest type that is computed with.
inline double AttentionTolerance(DType dtype) {
  return dtype == DType::kBF16 ? 1e-2 : dtype == DType::kF16 ? 3e-3 : 1e-5;
}

// q, the cache and the reference of one batch. Blocks lie in random order; whatever no row may see is NaN, or
// codes with scales that are. dtype: of the cache, for KvFormat::Of.
class AttentionProblem {
 public:
  AttentionProblem(Device& device, std::mt19937& random, DType dtype, const AttentionShape& shape,
                   const std::vector<RowsAndContext>& lengths, DType q_dtype)
      : device_(device),
        shape_(shape),
        kv_{KvFormat::Of(dtype), shape.block_size, shape.num_kv_heads, shape.head_dim},
        q_dtype_(q_dtype),
        num_blocks_(5) {
    batch_.num_rows = kFirstRow;
    for (const RowsAndContext& length : lengths) {
      AttentionSequence sequence;
      sequence.row_begin = batch_.num_rows;
      sequence.num_rows = length.num_rows;
      sequence.context_len = length.context_len;
      sequence.block_table.resize(
          static_cast<size_t>((length.context_len + shape.block_size - 1) / shape.block_size));
      num_blocks_ += static_cast<int64_t>(sequence.block_table.size());
      batch_.num_rows += length.num_rows;
      batch_.sequences.push_back(std::move(sequence));
    }
    std::vector<int32_t> blocks(static_cast<size_t>(num_blocks_));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    auto block = blocks.begin();
    for (AttentionSequence& sequence : batch_.sequences) {
      for (int32_t& entry : sequence.block_table) entry = *block++;
    }
    FillCache(random());
    // The columns of q are part of the wider rows of qkv.
    qkv_ = std::make_unique<CudaMatrix>(device, q_dtype, batch_.num_rows + 1,
                                        (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim, 8);
    qkv_->Fill(random, 1.2F);
  }
  AttentionProblem(Device& device, std::mt19937& random, DType dtype, const AttentionShape& shape,
                   const std::vector<RowsAndContext>& lengths)
      : AttentionProblem(device, random, dtype, shape, lengths, dtype) {}

  const AttentionBatch& batch() const { return batch_; }

  AttentionCapacity Capacity() const {
    AttentionCapacity capacity;
    capacity.max_rows = batch_.num_rows;
    capacity.max_sequences = static_cast<int64_t>(batch_.sequences.size());
    capacity.max_blocks = num_blocks_;
    capacity.kv = kv_;
    capacity.coded_rows = q_dtype_;
    capacity.num_heads = shape_.num_heads;
    capacity.sliding_window = shape_.window;
    return capacity;
  }

  AttentionArgs Args(const AttentionPlan* plan, const CudaMatrix& out) const {
    AttentionArgs args;
    args.q = qkv_->view().Columns(0, shape_.num_heads * shape_.head_dim);
    args.out = out.view();
    args.kv.data = codes_ != nullptr ? codes_->data() : cache_->view().data;
    args.kv.shape = kv_;
    args.kv.num_blocks = num_blocks_;
    args.num_heads = shape_.num_heads;
    args.scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
    args.sliding_window = shape_.window;
    args.plan = plan;
    return args;
  }

  CudaMatrix MakeOut() const {
    return CudaMatrix(device_, q_dtype_, batch_.num_rows + 1, shape_.num_heads * shape_.head_dim);
  }

  // The rows of each sequence, or of long ones the first, the last and some between; and that no other was
  // written.
  void Expect(CudaMatrix& out) const {
    out.Download();
    for (const int64_t row : {int64_t{0}, kFirstRow - 1, batch_.num_rows}) {
      for (int64_t c = 0; c < out.cols(); ++c) {
        ASSERT_TRUE(std::isnan(out.At(row, c))) << "row " << row << " of no sequence, column " << c;
      }
    }
    for (size_t s = 0; s < batch_.sequences.size(); ++s) {
      const AttentionSequence& sequence = batch_.sequences[s];
      const int64_t step = sequence.num_rows > 40 ? 29 : 1;
      for (int64_t row = 0; row < sequence.num_rows; row += step) {
        ExpectRow(out, s, row);
        if (testing::Test::HasFatalFailure()) return;
      }
      ExpectRow(out, s, sequence.num_rows - 1);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  int64_t FirstVisible(int64_t position) const {
    return shape_.window > 0 ? std::max<int64_t>(0, position + 1 - shape_.window) : 0;
  }
  const float* Key(const AttentionSequence& sequence, int64_t kv_head, int64_t token) const {
    const int64_t block = sequence.block_table[static_cast<size_t>(token / shape_.block_size)];
    return cache_->Row(block * shape_.num_kv_heads + kv_head) + token % shape_.block_size * shape_.head_dim;
  }
  const float* Value(const AttentionSequence& sequence, int64_t kv_head, int64_t token) const {
    return Key(sequence, kv_head, token) + shape_.block_size * shape_.head_dim;
  }

  void FillCache(uint64_t seed) {
    const bool coded = kv_.format.is_coded();
    cache_ = std::make_unique<CudaMatrix>(device_, coded ? DType::kF32 : kv_.plain_dtype(),
                                          num_blocks_ * shape_.num_kv_heads,
                                          2 * shape_.block_size * shape_.head_dim);
    for (int64_t r = 0; r < cache_->rows(); ++r) {
      std::fill_n(&cache_->At(r, 0), cache_->cols(), std::numeric_limits<float>::quiet_NaN());
    }
    uint64_t index = 0;
    for (const AttentionSequence& sequence : batch_.sequences) {
      // FlashInfer multiplies what lies before a row's window by 0.
      const int64_t first = sequence.num_rows == 1 ? FirstVisible(sequence.context_len - 1) : 0;
      for (int64_t token = first; token < sequence.context_len; ++token) {
        for (int64_t kv_head = 0; kv_head < shape_.num_kv_heads; ++kv_head) {
          for (float* row : {const_cast<float*>(Key(sequence, kv_head, token)),
                             const_cast<float*>(Value(sequence, kv_head, token))}) {
            for (int64_t d = 0; d < shape_.head_dim; ++d) row[d] = HashedUniform(seed, index++, 2.0F);
          }
        }
      }
    }
    if (coded) {
      FillCodes();
    } else {
      cache_->Upload();
    }
  }

  // Codes of what is in the cache, which becomes what they stand for.
  void FillCodes() {
    std::vector<std::byte> bytes(static_cast<size_t>(num_blocks_) * kv_.BlockBytes(), std::byte{0xff});
    const KvLayerView view = {.data = bytes.data(), .shape = kv_, .num_blocks = num_blocks_};
    for (const AttentionSequence& sequence : batch_.sequences) {
      for (int64_t token = 0; token < sequence.context_len; ++token) {
        const int64_t block = sequence.block_table[static_cast<size_t>(token / shape_.block_size)];
        const auto slot = static_cast<int32_t>(block * shape_.block_size + token % shape_.block_size);
        for (int64_t kv_head = 0; kv_head < shape_.num_kv_heads; ++kv_head) {
          auto* key = const_cast<float*>(Key(sequence, kv_head, token));
          auto* value = const_cast<float*>(Value(sequence, kv_head, token));
          if (std::isnan(*key)) continue;
          AppendToken(view, slot, kv_head, 1, key, value, DType::kF32);
          ReadToken(view, slot, kv_head, key, value);
        }
      }
    }
    codes_ = std::make_unique<CudaArray<std::byte>>(device_, bytes);
  }

  void ExpectRow(const CudaMatrix& out, size_t sequence_index, int64_t row) const {
    const AttentionSequence& sequence = batch_.sequences[sequence_index];
    const int64_t position = sequence.context_len - sequence.num_rows + row;
    const int64_t first = FirstVisible(position);
    const int64_t head_dim = shape_.head_dim;
    std::vector<double> scores(static_cast<size_t>(position + 1 - first));
    std::vector<double> want(static_cast<size_t>(head_dim));
    for (int64_t head = 0; head < shape_.num_heads; ++head) {
      const int64_t kv_head = head / (shape_.num_heads / shape_.num_kv_heads);
      const float* q = qkv_->Row(sequence.row_begin + row) + head * head_dim;
      double max = -std::numeric_limits<double>::infinity();
      for (int64_t token = first; token <= position; ++token) {
        const float* key = Key(sequence, kv_head, token);
        double score = 0;
        for (int64_t d = 0; d < head_dim; ++d) score += static_cast<double>(q[d]) * key[d];
        score /= std::sqrt(static_cast<double>(head_dim));
        scores[static_cast<size_t>(token - first)] = score;
        max = std::max(max, score);
      }
      double sum = 0;
      std::fill(want.begin(), want.end(), 0.0);
      for (int64_t token = first; token <= position; ++token) {
        const double weight = std::exp(scores[static_cast<size_t>(token - first)] - max);
        const float* value = Value(sequence, kv_head, token);
        sum += weight;
        for (int64_t d = 0; d < head_dim; ++d) want[static_cast<size_t>(d)] += weight * value[d];
      }
      for (double& value : want) value /= sum;
      const float* got = out.Row(sequence.row_begin + row) + head * head_dim;
      const double error = RelativeError(got, want.data(), head_dim);
      const bool coded = kv_.format.is_coded();
      if (error <= AttentionTolerance(coded ? q_dtype_ : kv_.plain_dtype())) continue;
      int64_t worst = 0;
      for (int64_t d = 0; d < head_dim; ++d) {
        if (!(std::abs(got[d] - want[static_cast<size_t>(d)]) <=
              std::abs(got[worst] - want[static_cast<size_t>(worst)]))) {
          worst = d;
        }
      }
      FAIL() << "relative error " << error << ": sequence " << sequence_index << " of "
             << batch_.sequences.size() << ", row " << row << " of " << sequence.num_rows << ", context "
             << sequence.context_len << ", head " << head << "; worst at " << worst << ": got " << got[worst]
             << ", want " << want[static_cast<size_t>(worst)];
    }
  }

  Device& device_;
  AttentionShape shape_;
  KvShape kv_;
  DType q_dtype_;
  int64_t num_blocks_;
  AttentionBatch batch_;
  std::unique_ptr<CudaMatrix> cache_;
  std::unique_ptr<CudaArray<std::byte>> codes_;  // what the GPU reads where the cache has codes
  std::unique_ptr<CudaMatrix> qkv_;
};

}  // namespace tandem
