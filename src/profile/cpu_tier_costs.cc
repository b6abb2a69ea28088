#include "profile/cpu_tier_costs.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "cpu_attention/decode_plan.h"
#include "ops/kv_copy.h"
#include "plan/iteration_plan.h"
#include "profile/gpu_costs.h"
#include "profile/stream_timer.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<int64_t, 7> kRows = {1, 4, 16, 64, 128, 256, 512};
constexpr std::array<int64_t, 6> kSwapBlocks = {1, 4, 16, 64, 256, 1024};

// Memory of the cpu tier that is written and read. A quarter of it is the largest batch: far beyond every
// cache.
constexpr int64_t kMaxLayers = 4;
constexpr int64_t kMaxBytes = int64_t{2} << 30;

}  // namespace

Result<CpuTierProfiler> CpuTierProfiler::Create(const ProfileParts& parts) {
  CpuTierProfiler profiler(parts);
  const ModelConfig& config = parts.decoder->config();
  const KvShape shape = parts.memory->LayerView(Tier::kCpu, 0).shape;
  profiler.max_rows_ = std::min(parts.max_rows, kRows.back());
  profiler.num_layers_ = std::min(config.num_layers, kMaxLayers);
  profiler.num_blocks_ =
      std::clamp<int64_t>(kMaxBytes / profiler.num_layers_ / static_cast<int64_t>(shape.BlockBytes()), 1,
                          parts.books->total_blocks(Tier::kCpu));
  for (const ShardParts& shard : ShardsOf(parts)) {
    TANDEM_ASSIGN_OR_RETURN(Side side, profiler.CreateSide(shard));
    profiler.TouchBlocks(side);
    profiler.sides_.push_back(std::move(side));
  }
  return profiler;
}

Result<CpuTierProfiler::Side> CpuTierProfiler::CreateSide(const ShardParts& shard) const {
  const ModelConfig& config = shard.decoder->config();
  const auto rows = static_cast<size_t>(max_rows_);
  Side side;
  side.memory = shard.memory;
  side.workers = shard.cpu_attention;
  TANDEM_ASSIGN_OR_RETURN(side.qkv, shard.device->Allocate(rows * static_cast<size_t>(config.qkv_width()) *
                                                               DTypeSize(shard.decoder->product_dtype()),
                                                           MemoryKind::kPinned, "rows for the cpu tier"));
  TANDEM_ASSIGN_OR_RETURN(side.out, shard.device->Allocate(rows * static_cast<size_t>(config.q_width()) *
                                                               DTypeSize(shard.decoder->dtype()),
                                                           MemoryKind::kPinned, "rows of the cpu tier"));
  return side;
}

void CpuTierProfiler::TouchBlocks(const Side& side) const {
  // Many threads: the system clears the pages meanwhile.
  const int num_threads = side.workers->num_threads();
  side.workers->RunOnWorkers([&](int thread) {
    for (int64_t layer = 0; layer < num_layers_; ++layer) {
      const KvLayerView kv = side.memory->LayerView(Tier::kCpu, layer);
      for (int64_t block = thread; block < num_blocks_; block += num_threads) {
        for (int64_t head = 0; head < kv.shape.num_kv_heads; ++head)
          std::memset(kv.Head(block, head), 0, kv.shape.HeadBytes());
      }
    }
  });
  std::memset(side.qkv.data(), 0, side.qkv.size_bytes());
  std::memset(side.out.data(), 0, side.out.size_bytes());
}

std::unique_ptr<DecodePlan> CpuTierProfiler::PlanRows(const Side& side, int64_t rows, int64_t context,
                                                      int64_t first_block, int64_t readers) const {
  const int64_t blocks_a_row = parts_.books->BlocksFor(context);
  std::vector<DecodeSequence> sequences;
  for (int64_t row = 0; row < rows; ++row) {
    DecodeSequence& sequence = sequences.emplace_back(DecodeSequence{.context_len = context});
    sequence.block_table.resize(static_cast<size_t>(blocks_a_row));
    std::iota(sequence.block_table.begin(), sequence.block_table.end(),
              static_cast<int32_t>(first_block + row * blocks_a_row));
    if (row % readers == 0) continue;
    const auto& first = sequences[static_cast<size_t>(row - row % readers)].block_table;
    std::copy_n(first.begin(), SharedBlocks(context), sequence.block_table.begin());
  }
  const ModelConfig& config = parts_.decoder->config();
  const KvLayerView kv = side.memory->LayerView(Tier::kCpu, 0);
  const DecodeShape shape = {.kv = kv.shape,
                             .num_heads = config.num_heads,
                             .sliding_window = config.sliding_window,
                             .heads_per_part = kv.heads_per_part,
                             .most_readers = side.workers->most_readers()};
  return std::make_unique<DecodePlan>(std::move(sequences), shape, side.workers->num_threads());
}

AttentionTask CpuTierProfiler::TaskOf(const Side& side, DecodePlan* plan, int64_t layer, Flag* done,
                                      uint32_t value) const {
  const ModelConfig& config = parts_.decoder->config();
  const auto rows = static_cast<int64_t>(plan->sequences().size());
  const MatrixView qkv =
      MatrixView::Dense(side.qkv.data(), parts_.decoder->product_dtype(), rows, config.qkv_width());
  AttentionTask task;
  task.plan = plan;
  task.layer.kv = side.memory->LayerView(Tier::kCpu, layer);
  task.layer.q = qkv.Columns(0, config.q_width());
  task.layer.k = qkv.Columns(config.q_width(), config.kv_width());
  task.layer.v = qkv.Columns(config.q_width() + config.kv_width(), config.kv_width());
  task.layer.out = MatrixView::Dense(side.out.data(), parts_.decoder->dtype(), rows, config.q_width());
  task.layer.scale = parts_.decoder->attention_scale();
  task.done = done;
  task.done_value = value;
  task.name = "measured";
  return task;
}

int64_t CpuTierProfiler::SharedBlocks(int64_t context) const {
  return (context - 1) / kPartitionTokens * kPartitionTokens / parts_.books->block_size();
}

struct CpuTierProfiler::SideRun {
  std::unique_ptr<DecodePlan> plan;
  std::unique_ptr<DecodePlan> waking_plan;
  std::unique_ptr<Flag> ready;
  std::unique_ptr<Flag> done;
};

double CpuTierProfiler::AttendUs(int64_t rows, int64_t context, int64_t readers) {
  const int64_t layer = num_runs_ % num_layers_;
  const int64_t num_blocks = rows * parts_.books->BlocksFor(context);
  const int64_t num_places = num_blocks_ / num_blocks;
  TANDEM_CHECK(num_places >= 1, "cpu attention: {} rows in {} blocks, there are {}", rows, num_blocks,
               num_blocks_);
  const int64_t first_block = num_runs_ / num_layers_ % num_places * num_blocks;
  ++num_runs_;
  std::vector<SideRun> runs;
  for (const Side& side : sides_) {
    const SideRun& run =
        runs.emplace_back(SideRun{.plan = PlanRows(side, rows, context, first_block, readers),
                                  .waking_plan = PlanRows(side, 1, 1, first_block),
                                  .ready = parts_.device->CreateFlag(),
                                  .done = parts_.device->CreateFlag()});
    AttentionTask task = TaskOf(side, run.plan.get(), layer, run.done.get(), 2);
    task.ready = run.ready.get();
    task.ready_value = 1;
    side.workers->Submit(task);
    side.workers->Submit(TaskOf(side, run.waking_plan.get(), layer, run.done.get(), 1));
  }
  for (const SideRun& run : runs) static_cast<void>(run.done->Wait(1));
  const auto begin = Clock::now();
  for (const SideRun& run : runs) run.ready->Set(1);
  for (const SideRun& run : runs) static_cast<void>(run.done->Wait(2));
  const auto end = Clock::now();
  // The workers may still hold the task.
  for (const Side& side : sides_) side.workers->WaitIdle();
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

Result<std::vector<CostLine>> CpuTierProfiler::MeasureAttention(double share, CostSampler* sampler) {
  const int64_t block_size = parts_.books->block_size();
  std::vector<CostLine> lines;
  int64_t num_points = 0;
  for (const int64_t rows : kRows) {
    if (rows > max_rows_) break;
    CostLine line{.rows = rows};
    for (const int64_t context :
         DecodeContexts(rows, num_blocks_ * block_size, parts_.max_context, block_size)) {
      line.points.push_back({rows * context, 0});
    }
    num_points += static_cast<int64_t>(line.points.size());
    if (!line.points.empty()) lines.push_back(std::move(line));
  }
  sampler->BeginSection("cpu attention", share, num_points);
  sampler->MeasureLines(
      GrowthOfCounts,
      [&](const CostLine& line, int64_t count) {
        return sampler->MedianUs([&](bool /*warm*/) { return AttendUs(line.rows, count / line.rows); });
      },
      &lines);
  return lines;
}

Result<std::vector<CostPoint>> CpuTierProfiler::MeasureSharedReads(double share, CostSampler* sampler) {
  constexpr int64_t kMostPartitions = 8;
  const int64_t rows = std::min(max_rows_, kRowsPerGroup);
  const int64_t row_tokens = num_blocks_ / rows * parts_.books->block_size();
  const int64_t num_partitions =
      std::min((std::min(row_tokens, parts_.max_context) - 1) / kPartitionTokens, kMostPartitions);
  std::vector<CostPoint> points;
  // Whole blocks, so that a shared one is never written to.
  if (num_partitions < 1 || kPartitionTokens % parts_.books->block_size() != 0) return points;
  for (int64_t readers = 1; readers <= rows; readers *= 2) points.push_back({readers, 0});
  sampler->BeginSection("shared reads", share, static_cast<int64_t>(points.size()));
  const int64_t context = num_partitions * kPartitionTokens + 1;
  for (CostPoint& point : points) {
    point.us = sampler->MedianUs([&](bool /*warm*/) { return AttendUs(rows, context, point.count); });
  }
  return points;
}

Result<std::vector<CostPoint>> CpuTierProfiler::MeasureExchange(double share, CostSampler* sampler) {
  TANDEM_ASSIGN_OR_RETURN(StreamTimer timer, StreamTimer::Create(parts_.device, parts_.compute));
  const std::unique_ptr<Event> computed = parts_.device->CreateEvent();
  const std::unique_ptr<Event> returned = parts_.device->CreateEvent();
  const std::unique_ptr<Flag> ready = parts_.device->CreateFlag();
  const std::unique_ptr<Flag> done = parts_.device->CreateFlag();
  uint32_t sequence = 0;
  std::vector<int64_t> counts;
  for (const int64_t rows : kRows) {
    if (rows <= max_rows_) counts.push_back(rows);
  }
  sampler->BeginSection("exchange of rows", share, static_cast<int64_t>(counts.size()));
  std::vector<CostPoint> points;
  for (const int64_t count : counts) {
    const RowBatch rows(*parts_.rows, count);
    const auto bytes = [count](const MatrixView& matrix) {
      return static_cast<size_t>(count * matrix.row_stride) * DTypeSize(matrix.dtype);
    };
    const auto enqueue = [&] {
      ++sequence;
      parts_.compute->Record(*computed);
      parts_.copy->Wait(*computed);
      parts_.copy->Copy(sides_.front().qkv.data(), rows.qkv.data, bytes(rows.qkv));
      parts_.copy->SetFlag(*ready, sequence);
      parts_.copy->WaitFlag(*done, sequence);
      parts_.copy->Copy(rows.attention_out.data, sides_.front().out.data(), bytes(rows.attention_out));
      parts_.copy->Record(*returned);
      parts_.compute->Wait(*returned);
    };
    const double us = sampler->MedianUs([&](bool /*warm*/) {
      return timer.TimeEnqueuedUs(enqueue, [&] {
        static_cast<void>(ready->Wait(sequence));
        done->Set(sequence);
      });
    });
    points.push_back({count, us});
  }
  parts_.copy->Synchronize();
  return points;
}

Result<std::vector<CostPoint>> CpuTierProfiler::MeasureSwap(double share, CostSampler* sampler) {
  TANDEM_ASSIGN_OR_RETURN(StreamTimer timer, StreamTimer::Create(parts_.device, parts_.copy));
  const int64_t max_blocks = std::min(parts_.books->total_blocks(Tier::kGpu), num_blocks_);
  std::vector<int64_t> counts;
  for (const int64_t blocks : kSwapBlocks) {
    if (blocks <= max_blocks) counts.push_back(blocks);
  }
  sampler->BeginSection("swaps", share, 2 * static_cast<int64_t>(counts.size()));
  std::vector<int32_t> blocks(static_cast<size_t>(counts.back()));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<CostPoint> points;
  for (const int64_t count : counts) {
    if (!points.empty() && !sampler->HasTimeFor(2 * static_cast<double>(count * parts_.books->block_size()) /
                                                static_cast<double>(points.back().count))) {
      break;
    }
    const std::span<const int32_t> chosen(blocks.data(), static_cast<size_t>(count));
    double slower_us = 0;
    for (const bool to_cpu : {true, false}) {
      const double us = sampler->MedianUs([&](bool /*warm*/) {
        const int64_t layer = num_runs_++ % num_layers_;
        return timer.TimeUs([&] {
          static_cast<void>(
              parts_.ops->CopyKv(*parts_.copy, {.gpu = parts_.memory->LayerView(Tier::kGpu, layer),
                                                .cpu = parts_.memory->LayerView(Tier::kCpu, layer),
                                                .gpu_blocks = chosen,
                                                .cpu_blocks = chosen,
                                                .to_cpu = to_cpu}));
        });
      });
      slower_us = std::max(slower_us, us);
    }
    points.push_back({count * parts_.books->block_size(), slower_us});
  }
  return points;
}

}  // namespace tandem
