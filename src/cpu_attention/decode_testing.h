// A random decode batch with its cache, its exact result and a poisoned output, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "cpu_attention/append_token.h"
#include "cpu_attention/decode_plan.h"

namespace tandem {

inline const std::vector<DType> kCacheTypes = {DType::kF32, DType::kBF16, DType::kF16, DType::kI8,
                                               DType::kF8E4M3};

inline float LoadElement(DType dtype, const std::byte* p) {
  float value = 0;
  uint16_t half = 0;
  switch (dtype) {
    case DType::kBF16:
      std::memcpy(&half, p, 2);
      return BF16ToF32(half);
    case DType::kF16:
      std::memcpy(&half, p, 2);
      return F16ToF32(half);
    default:
      std::memcpy(&value, p, 4);
      return value;
  }
}

inline void StoreElement(DType dtype, float value, std::byte* p) {
  if (dtype == DType::kF32) {
    std::memcpy(p, &value, 4);
    return;
  }
  const uint16_t half = dtype == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
  std::memcpy(p, &half, 2);
}

struct DecodeCase {
  DType dtype = DType::kF32;      // of the cache: KvFormat::Of
  DType row_dtype = DType::kF32;  // of q, k, v and out
  int64_t group_size = 1;
  int64_t num_kv_heads = 1;
  int64_t head_dim = 64;
  int64_t block_size = 32;
  int64_t window = 0;
  int64_t num_parts = 1;
  std::vector<int64_t> contexts;
  // For each row, tokens whose blocks are those of the row before it, as far as both have whole ones; or
  // empty.
  std::vector<int64_t> common_tokens;
};

class DecodeBatch {
 public:
  DecodeBatch(const DecodeCase& c, std::mt19937& random) : case_(c) {
    shape_.kv = {KvFormat::Of(c.dtype), c.block_size, c.num_kv_heads, c.head_dim};
    shape_.num_heads = c.group_size * c.num_kv_heads;
    shape_.sliding_window = c.window;
    const KvParts parts = SplitHeads(c.num_kv_heads, c.num_parts);
    if (parts.num_parts > 1) shape_.heads_per_part = parts.heads_per_part;
    const auto rows = static_cast<int64_t>(c.contexts.size());
    AllocateCache(parts);
    std::vector<int32_t> blocks(static_cast<size_t>(layer_.kv.num_blocks));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    auto next = blocks.begin();
    for (const int64_t context : c.contexts) {
      std::vector<int32_t> table = CommonBlocks(context);
      const int64_t count = (context + c.block_size - 1) / c.block_size - static_cast<int64_t>(table.size());
      table.insert(table.end(), next, next + count);
      next += count;
      sequences_.push_back({context, std::move(table)});
    }
    layer_.q = MakeMatrix(&q_, rows, shape_.num_heads * c.head_dim, &random);
    layer_.k = MakeMatrix(&k_, rows, c.num_kv_heads * c.head_dim, &random);
    layer_.v = MakeMatrix(&v_, rows, c.num_kv_heads * c.head_dim, &random);
    layer_.out = MakeMatrix(&out_, rows, shape_.num_heads * c.head_dim, nullptr);
    lse_.assign(static_cast<size_t>(rows * shape_.num_heads), std::nanf(""));
    layer_.lse = lse_.data();
    layer_.scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
    FillCache(random);
  }

  const std::vector<DecodeSequence>& sequences() const { return sequences_; }
  const DecodeShape& shape() const { return shape_; }
  const DecodeLayer& layer() const { return layer_; }
  const std::vector<std::byte>& out() const { return out_; }
  const std::vector<float>& lse() const { return lse_; }
  void PoisonOut() {
    std::memset(out_.data(), 0xff, out_.size());
    for (float& value : lse_) value = std::nanf("");
  }

  // The largest ||out - reference|| / ||reference|| over rows and heads, in double precision from what the
  // cache and q hold; NaN if any value is.
  double WorstError() const {
    double worst = 0;
    for (size_t row = 0; row < sequences_.size(); ++row) {
      for (int64_t head = 0; head < shape_.num_heads; ++head) {
        const double error = HeadError(static_cast<int64_t>(row), head);
        if (!(error <= worst)) worst = error;
        if (std::isnan(worst)) return worst;
      }
    }
    return worst;
  }

 private:
  // Of the next sequence, whose context is given.
  std::vector<int32_t> CommonBlocks(int64_t context) const {
    if (case_.common_tokens.empty() || sequences_.empty()) return {};
    const DecodeSequence& before = sequences_.back();
    const int64_t tokens =
        std::min({case_.common_tokens[sequences_.size()], context - 1, before.context_len - 1});
    return {before.block_table.begin(), before.block_table.begin() + tokens / case_.block_size};
  }
  void AllocateCache(const KvParts& parts) {
    int64_t num_blocks = 2;
    for (const int64_t context : case_.contexts)
      num_blocks += (context + case_.block_size - 1) / case_.block_size;
    const size_t part_bytes =
        static_cast<size_t>(num_blocks * parts.heads_per_part) * shape_.kv.HeadBytes() + size_t{4096};
    // 0xff bytes are NaNs: what was never written must not reach a result.
    cache_.assign(static_cast<size_t>(parts.num_parts) * part_bytes, std::byte{0xff});
    layer_.kv = {cache_.data(), shape_.kv, num_blocks, shape_.heads_per_part,
                 shape_.heads_per_part > 0 ? part_bytes : 0};
  }

  MatrixView MakeMatrix(std::vector<std::byte>* data, int64_t rows, int64_t cols,
                        std::mt19937* random) const {
    const DType dtype = case_.row_dtype;
    data->assign(static_cast<size_t>(rows * cols) * DTypeSize(dtype), std::byte{0xff});
    if (random != nullptr) {
      std::normal_distribution<float> normal;
      for (size_t i = 0; i < static_cast<size_t>(rows * cols); ++i) {
        StoreElement(dtype, normal(*random), data->data() + i * DTypeSize(dtype));
      }
    }
    return MatrixView::Dense(data->data(), dtype, rows, cols);
  }

  // Every token but the new ones, which the task appends.
  void FillCache(std::mt19937& random) {
    std::normal_distribution<float> normal;
    const auto width = static_cast<size_t>(case_.num_kv_heads * case_.head_dim);
    std::vector<float> key(width);
    std::vector<float> value(width);
    std::vector<bool> filled(static_cast<size_t>(layer_.kv.num_blocks * case_.block_size));
    for (const DecodeSequence& sequence : sequences_) {
      for (int64_t t = 0; t + 1 < sequence.context_len; ++t) {
        const int32_t slot = Slot(sequence, t);
        if (filled[static_cast<size_t>(slot)]) continue;
        filled[static_cast<size_t>(slot)] = true;
        for (size_t i = 0; i < width; ++i) {
          key[i] = normal(random);
          value[i] = normal(random);
        }
        AppendToken(layer_.kv, slot, 0, case_.num_kv_heads, key.data(), value.data(), DType::kF32);
      }
    }
  }

  int32_t Slot(const DecodeSequence& sequence, int64_t position) const {
    return static_cast<int32_t>(sequence.block_table[static_cast<size_t>(position / case_.block_size)] *
                                    case_.block_size +
                                position % case_.block_size);
  }

  float Element(const MatrixView& m, int64_t row, int64_t column) const {
    return LoadElement(m.dtype, static_cast<const std::byte*>(m.RowData(row)) +
                                    static_cast<size_t>(column) * DTypeSize(m.dtype));
  }

  double HeadError(int64_t row, int64_t head) const {
    const DecodeSequence& sequence = sequences_[static_cast<size_t>(row)];
    const int64_t head_dim = case_.head_dim;
    const auto dims = static_cast<size_t>(head_dim);
    const int64_t first =
        case_.window > 0 ? std::max<int64_t>(0, sequence.context_len - case_.window) : int64_t{0};
    std::vector<float> key(dims);
    std::vector<float> value(dims);
    std::vector<double> sum(dims);
    double max = -INFINITY;
    double total = 0;
    for (int64_t t = first; t < sequence.context_len; ++t) {
      ReadToken(layer_.kv, Slot(sequence, t), head / case_.group_size, key.data(), value.data());
      double score = 0;
      for (size_t d = 0; d < dims; ++d) {
        score +=
            static_cast<double>(key[d]) * Element(layer_.q, row, head * head_dim + static_cast<int64_t>(d));
      }
      score *= layer_.scale;
      const double new_max = std::max(max, score);
      const double factor = std::exp(max - new_max);
      const double weight = std::exp(score - new_max);
      for (size_t d = 0; d < dims; ++d) sum[d] = sum[d] * factor + weight * value[d];
      total = total * factor + weight;
      max = new_max;
    }
    double difference = 0;
    double norm = 0;
    for (size_t d = 0; d < dims; ++d) {
      const double expected = sum[d] / total;
      const double delta = Element(layer_.out, row, head * head_dim + static_cast<int64_t>(d)) - expected;
      difference += delta * delta;
      norm += expected * expected;
    }
    const double lse = max + std::log(total);
    const double lse_error = std::abs(lse_[static_cast<size_t>(row * shape_.num_heads + head)] - lse);
    const double error = std::sqrt(difference / norm);
    // exp of the difference is what a merge by log-sum-exp would be wrong by.
    return std::isnan(error) || std::isnan(lse_error) ? std::nan("") : std::max(error, lse_error);
  }

  DecodeCase case_;
  DecodeShape shape_;
  std::vector<DecodeSequence> sequences_;
  std::vector<std::byte> cache_;
  std::vector<std::byte> q_;
  std::vector<std::byte> k_;
  std::vector<std::byte> v_;
  std::vector<std::byte> out_;
  std::vector<float> lse_;
  DecodeLayer layer_;
};

}  // namespace tandem
