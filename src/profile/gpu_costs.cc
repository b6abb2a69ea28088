#include "profile/gpu_costs.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include "execute/int_inputs.h"
#include "plan/iteration_plan.h"
#include "profile/shard_timer.h"

namespace tandem {
namespace {

// Close together where tiles of the products make steps.
constexpr std::array<int64_t, 27> kLinearRows = {1,   2,   4,   8,   12,   16,   24,   32,   48,
                                                 64,  96,  128, 160, 192,  224,  256,  320,  384,
                                                 448, 512, 640, 768, 1024, 1536, 2048, 3072, 4096};
constexpr std::array<int64_t, 6> kDecodeRows = {1, 4, 16, 64, 128, 256};
constexpr std::array<int64_t, 5> kDecodeContexts = {64, 256, 1024, 4096, 16384};
constexpr std::array<int64_t, 9> kChunks = {16, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
constexpr std::array<int64_t, 4> kPrefillContexts = {1024, 4096, 16384, 65536};
constexpr std::array<int64_t, 9> kSampledRows = {1, 8, 16, 32, 64, 128, 256, 512, 1024};

// Layers that a run goes through, one after the other: together more than caches hold, few enough that all of
// their launches wait in a stream.
constexpr int64_t kLayersPerRun = 4;
// What a decode of that many tokens does not tell yet, none will.
constexpr int64_t kMaxDecodeTokens = int64_t{1} << 19;
// Of an iteration: host work between the end of one and the start of the next, uploads, the attention plan.
// Corrected at run time.
constexpr double kStartOfIterationUs = 100;

// The values of an array that are below limit, and limit.
template <size_t kSize>
std::vector<int64_t> UpTo(int64_t limit, const std::array<int64_t, kSize>& values) {
  std::vector<int64_t> result;
  for (const int64_t value : values) {
    if (value < limit) result.push_back(value);
  }
  result.push_back(limit);
  return result;
}

int64_t GpuTokens(const ProfileParts& parts) {
  return parts.books->total_blocks(Tier::kGpu) * parts.books->block_size();
}

std::vector<int32_t> ConsecutiveBlocks(int64_t first, int64_t count) {
  std::vector<int32_t> blocks(static_cast<size_t>(count));
  std::iota(blocks.begin(), blocks.end(), static_cast<int32_t>(first));
  return blocks;
}

// Values that a model might compute: power, and with it the clock of a GPU, depends on them.
void FillActivations(const ProfileParts& parts, const ShardParts& shard) {
  const RowBatch rows(*shard.rows, parts.max_rows);
  shard.ops->FillRandom(*shard.compute, rows.qkv, {1, 1.0F});
  shard.ops->FillRandom(*shard.compute, rows.attention_out, {2, 1.0F});
  shard.ops->FillRandom(*shard.compute, rows.hidden, {3, 1.0F});
}

// The first blocks of the first layers. Also has their memory there: an append that touches a page for the
// first time takes milliseconds.
void FillGpuTier(const ProfileParts& parts, const ShardParts& shard, int64_t num_layers, int64_t num_tokens) {
  const int64_t num_blocks =
      std::min(parts.books->total_blocks(Tier::kGpu), parts.books->BlocksFor(num_tokens));
  for (int64_t layer = 0; layer < std::min(num_layers, shard.decoder->config().num_layers); ++layer) {
    const KvLayerView kv = shard.memory->LayerView(Tier::kGpu, layer);
    // Where elements are codes, numbers of bf16 are pairs of them, and scales.
    const bool plain = kv.shape.format.is_plain(kv.shape.format.k_type);
    const DType dtype = plain ? kv.shape.plain_dtype() : DType::kBF16;
    const auto row_size = static_cast<int64_t>(kv.shape.HeadBytes() / DTypeSize(dtype));
    shard.ops->FillRandom(*shard.compute,
                          MatrixView::Dense(kv.data, dtype, num_blocks * kv.shape.num_kv_heads, row_size),
                          {static_cast<uint64_t>(layer), 1.0F});
  }
  shard.compute->Synchronize();
}

// Of all shards.
void Fill(const ProfileParts& parts, int64_t num_layers, int64_t num_tokens) {
  const std::vector<ShardParts> shards = ShardsOf(parts);
  OnAllShards(parts, [&](size_t rank) {
    FillActivations(parts, shards[rank]);
    FillGpuTier(parts, shards[rank], num_layers, num_tokens);
  });
}

// Token ids, positions and slots of up to max_rows rows in device memory.
class RowInputs {
 public:
  static Result<RowInputs> Create(const ProfileParts& parts, const ShardParts& shard) {
    RowInputs result;
    TANDEM_ASSIGN_OR_RETURN(result.inputs_, IntInputs::Allocate(shard.device, 3 * parts.max_rows));
    const int64_t vocab_size = parts.decoder->config().vocab_size;
    std::vector<int32_t> ids;
    std::vector<int32_t> positions;
    std::vector<int32_t> slots;
    for (int64_t row = 0; row < parts.max_rows; ++row) {
      constexpr int64_t kStride = 7919;  // a prime: neighbouring rows read far apart in the embedding
      ids.push_back(static_cast<int32_t>(row * kStride % vocab_size));
      positions.push_back(static_cast<int32_t>(row % parts.max_context));
      slots.push_back(row < GpuTokens(parts) ? static_cast<int32_t>(row) : -1);
    }
    result.ids_ = result.inputs_.Add(ids);
    result.positions_ = result.inputs_.Add(positions);
    result.slots_ = result.inputs_.Add(slots);
    result.inputs_.Upload(*shard.compute);
    shard.compute->Synchronize();
    return result;
  }

  RowBatch Batch(const ShardParts& shard, int64_t num_rows) const {
    RowBatch batch(*shard.rows, num_rows);
    batch.token_ids = ids_;
    batch.positions = positions_;
    batch.slots = slots_;
    return batch;
  }

 private:
  IntInputs inputs_;
  const int32_t* ids_ = nullptr;
  const int32_t* positions_ = nullptr;
  const int32_t* slots_ = nullptr;
};

// Of all shards.
Result<std::vector<RowInputs>> CreateInputs(const ProfileParts& parts) {
  std::vector<RowInputs> inputs;
  for (const ShardParts& shard : ShardsOf(parts)) {
    TANDEM_ASSIGN_OR_RETURN(RowInputs of_shard, RowInputs::Create(parts, shard));
    inputs.push_back(std::move(of_shard));
  }
  return inputs;
}

// Microseconds a layer of attention over the gpu tier for a batch of rows 0 ...
double MeasureAttention(const ProfileParts& parts, const AttentionBatch& batch, ShardTimer* timer,
                        CostSampler* sampler) {
  const std::vector<ShardParts> shards = ShardsOf(parts);
  OnAllShards(parts, [&](size_t rank) {
    const ShardParts& shard = shards[rank];
    shard.ops->PlanAttention(*shard.compute, batch, shard.plan);
    shard.compute->Synchronize();
  });
  const int64_t num_layers = std::min(kLayersPerRun, parts.decoder->config().num_layers);
  const auto attend = [&](size_t rank) {
    const ShardParts& shard = shards[rank];
    const RowBatch rows(*shard.rows, batch.num_rows);
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      shard.decoder->Attend(*shard.compute, *shard.plan, shard.memory->LayerView(Tier::kGpu, layer), 0,
                            batch.num_rows, rows);
    }
  };
  return sampler->MedianUs([&](bool warm) {
    return warm ? timer->TimeEnqueuedUs(attend) : timer->TimeUs(attend);
  }) / static_cast<double>(num_layers);
}

}  // namespace

std::vector<int64_t> LinearRowCounts(int64_t max_rows) {
  return UpTo(max_rows, kLinearRows);
}

std::vector<int64_t> DecodeContexts(int64_t rows, int64_t max_tokens, int64_t max_context,
                                    int64_t block_size) {
  const int64_t longest = std::min(max_context, max_tokens / rows / block_size * block_size);
  std::vector<int64_t> contexts;
  if (longest < 1) return contexts;
  for (const int64_t context : kDecodeContexts) {
    if (context <= longest) contexts.push_back(context);
  }
  // Not one that is nearly the same again.
  if (contexts.empty() || longest >= 2 * contexts.back()) contexts.push_back(longest);
  return contexts;
}

Result<std::vector<CostPoint>> MeasureLinear(const ProfileParts& parts, double share, CostSampler* sampler) {
  TANDEM_ASSIGN_OR_RETURN(ShardTimer timer, ShardTimer::Create(parts));
  const std::vector<ShardParts> shards = ShardsOf(parts);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<RowInputs> inputs, CreateInputs(parts));
  std::vector<Decoder> decoders;
  decoders.reserve(shards.size());
  for (const ShardParts& shard : shards) decoders.push_back(shard.decoder->Alone());
  const int64_t num_layers = parts.decoder->config().num_layers;
  Fill(parts, num_layers, parts.max_rows);
  const std::vector<int64_t> counts = LinearRowCounts(parts.max_rows);
  sampler->BeginSection("linear operations", share, static_cast<int64_t>(counts.size()));
  const int64_t layers_per_run = std::min(kLayersPerRun, num_layers);
  std::vector<int64_t> next_layers(shards.size());
  std::vector<CostPoint> points;
  for (const int64_t count : counts) {
    const double growth =
        points.empty() ? 1.0 : static_cast<double>(count) / static_cast<double>(points.back().count);
    if (!sampler->HasTimeFor(growth)) break;
    std::vector<RowBatch> batches;
    for (size_t rank = 0; rank < shards.size(); ++rank)
      batches.push_back(inputs[rank].Batch(shards[rank], count));
    const auto pass = [&](size_t rank) {
      const ShardParts& shard = shards[rank];
      for (int64_t i = 0; i < layers_per_run; ++i) {
        const int64_t layer = next_layers[rank]++ % num_layers;
        const KvRows all = {.num_rows = count, .kv = shard.memory->LayerView(Tier::kGpu, layer)};
        decoders[rank].PreProjection(*shard.compute, layer, {all}, &batches[rank]);
        decoders[rank].PostProjection(*shard.compute, layer, &batches[rank]);
      }
    };
    const double us = sampler->MedianUs([&](bool warm) {
      OnAllShards(parts, [&](size_t rank) { decoders[rank].Embed(*shards[rank].compute, &batches[rank]); });
      return warm ? timer.TimeEnqueuedUs(pass) : timer.TimeUs(pass);
    });
    points.push_back({count, us / static_cast<double>(layers_per_run)});
  }
  return points;
}

Result<std::vector<CostLine>> MeasureGpuDecodeAttention(const ProfileParts& parts, double share,
                                                        CostSampler* sampler) {
  TANDEM_ASSIGN_OR_RETURN(ShardTimer timer, ShardTimer::Create(parts));
  const int64_t max_tokens = std::min(GpuTokens(parts), kMaxDecodeTokens);
  const int64_t block_size = parts.books->block_size();
  std::vector<CostLine> lines;
  int64_t num_points = 0;
  for (const int64_t rows : UpTo(std::min(parts.max_rows, kDecodeRows.back()), kDecodeRows)) {
    CostLine& line = lines.emplace_back(CostLine{.rows = rows});
    for (const int64_t context : DecodeContexts(rows, max_tokens, parts.max_context, block_size))
      line.points.push_back({rows * context, 0});
    num_points += static_cast<int64_t>(line.points.size());
  }
  std::erase_if(lines, [](const CostLine& line) { return line.points.empty(); });
  Fill(parts, kLayersPerRun, max_tokens);
  sampler->BeginSection("gpu decode attention", share, num_points);
  const auto measure = [&](const CostLine& line, int64_t count) {
    AttentionBatch batch;
    batch.num_rows = line.rows;
    const int64_t context = count / line.rows;
    const int64_t num_blocks = parts.books->BlocksFor(context);
    for (int64_t row = 0; row < line.rows; ++row) {
      batch.sequences.push_back({.row_begin = row,
                                 .num_rows = 1,
                                 .context_len = context,
                                 .block_table = ConsecutiveBlocks(row * num_blocks, num_blocks)});
    }
    return MeasureAttention(parts, batch, &timer, sampler);
  };
  sampler->MeasureLines(GrowthOfCounts, measure, &lines);
  return lines;
}

Result<std::vector<CostLine>> MeasurePrefillAttention(const ProfileParts& parts, double share,
                                                      CostSampler* sampler) {
  TANDEM_ASSIGN_OR_RETURN(ShardTimer timer, ShardTimer::Create(parts));
  const int64_t longest = std::min(parts.max_context, GpuTokens(parts));
  std::vector<CostLine> lines;
  int64_t num_points = 0;
  for (const int64_t chunk : UpTo(std::min(parts.max_rows, longest), kChunks)) {
    CostLine& line = lines.emplace_back(CostLine{.rows = chunk, .points = {{chunk, 0}}});
    for (const int64_t context : UpTo(longest, kPrefillContexts)) {
      if (context > chunk) line.points.push_back({context, 0});
    }
    num_points += static_cast<int64_t>(line.points.size());
  }
  Fill(parts, kLayersPerRun, longest);
  sampler->BeginSection("prefill attention", share, num_points);
  double last_work = 1;
  const auto work_of = [](const CostLine& line, int64_t count) {
    const auto chunk = static_cast<double>(line.rows);
    return chunk * (static_cast<double>(count) - chunk / 2);
  };
  const auto growth = [&](const CostLine& line, size_t i) {
    return work_of(line, line.points[i].count) / last_work;
  };
  const auto measure = [&](const CostLine& line, int64_t count) {
    last_work = work_of(line, count);
    AttentionBatch batch;
    batch.num_rows = line.rows;
    batch.sequences.push_back({.row_begin = 0,
                               .num_rows = line.rows,
                               .context_len = count,
                               .block_table = ConsecutiveBlocks(0, parts.books->BlocksFor(count))});
    return MeasureAttention(parts, batch, &timer, sampler);
  };
  sampler->MeasureLines(growth, measure, &lines);
  return lines;
}

Result<std::vector<CostPoint>> MeasureOutsideLayers(const ProfileParts& parts, double share,
                                                    CostSampler* sampler) {
  TANDEM_ASSIGN_OR_RETURN(ShardTimer timer, ShardTimer::Create(parts));
  const std::vector<ShardParts> shards = ShardsOf(parts);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<RowInputs> inputs, CreateInputs(parts));
  std::vector<int64_t> counts = UpTo(std::min(parts.max_rows, kSampledRows.back()), kSampledRows);
  counts.insert(counts.begin(), 0);
  sampler->BeginSection("logits and sampling", share, static_cast<int64_t>(counts.size()));
  std::vector<CostPoint> points;
  for (const int64_t count : counts) {
    if (points.size() > 2 &&
        !sampler->HasTimeFor(static_cast<double>(count) / static_cast<double>(points.back().count))) {
      break;
    }
    std::vector<RowBatch> batches;
    std::vector<LogitsWork> works(shards.size());
    for (size_t rank = 0; rank < shards.size(); ++rank) {
      batches.push_back(inputs[rank].Batch(shards[rank], std::max<int64_t>(1, count)));
      for (int64_t row = 0; row < count; ++row) {
        works[rank].row_indices.push_back(static_cast<int32_t>(row));
        SampleRow sample;
        sample.temperature = 0;
        works[rank].sample_rows.push_back(sample);
      }
      shards[rank].logits->BeginIteration(nullptr);
      shards[rank].logits->Prepare(&works[rank]);
    }
    const double us = sampler->MedianUs([&](bool /*warm*/) {
      // Sampling may need the host: nothing is held back.
      return timer.TimeUs([&](size_t rank) {
        const ShardParts& shard = shards[rank];
        shard.logits->Upload(*shard.compute);
        shard.decoder->Embed(*shard.compute, &batches[rank]);
        if (count > 0) shard.logits->Run(*shard.compute, &batches[rank], &works[rank]);
      });
    });
    points.push_back({count, us + kStartOfIterationUs});
  }
  return points;
}

}  // namespace tandem
