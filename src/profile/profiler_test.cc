#include "profile/profiler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "device/host/host_device.h"
#include "kv/kv_cache_options.h"
#include "load/dummy_models.h"
#include "model/dummy_weights.h"
#include "plan/iteration_plan.h"

namespace tandem {
namespace {

// Parts of an engine on the host backend.
class ProfilerTest : public testing::Test {
 protected:
  static constexpr int64_t kMaxRows = 24;
  static constexpr int64_t kMaxContext = 300;

  void Build(int64_t gpu_blocks, int64_t cpu_blocks, int64_t cpu_parts, DType gpu_kv = DType::kF32,
             DType cpu_kv = DType::kF32) {
    max_context_ = kMaxContext;
    device_ = CreateHostDevice({.num_compute_threads = 2});
    ops_ = CreateHostOps();
    const ModelConfig config = DummyModelConfig("tiny").value();
    decoder_ = std::make_unique<Decoder>(
        config, DType::kF32,
        MakeDummyWeights(
            config, device_.get(), ops_.get(),
            {.dtype = DType::kF32, .max_model_len = kMaxContext, .seed = 7, .show_progress = false})
            .value(),
        ops_.get());
    const KvShape shape = {
        .format = KvFormat::Of(gpu_kv), .num_kv_heads = config.num_kv_heads, .head_dim = config.head_dim};
    KvShape cpu_shape = shape;
    cpu_shape.format = KvFormat::Of(cpu_kv);
    const KvCacheOptions cache = {.num_layers = config.num_layers,
                                  .gpu = {.shape = shape, .num_blocks = gpu_blocks},
                                  .cpu = {.shape = cpu_shape, .num_blocks = cpu_blocks},
                                  .cpu_parts = cpu_parts};
    memory_ = KvMemory::Create(device_.get(), cache).value();
    books_ = KvBooks::Create(shape.block_size, {gpu_blocks, cpu_blocks}).value();
    rows_ = RowBuffers::Allocate(device_.get(), *decoder_, kMaxRows).value();
    plan_ = ops_->CreateAttentionPlan({.max_rows = kMaxRows,
                                       .max_sequences = kMaxRows,
                                       .max_blocks = gpu_blocks,
                                       .kv = shape,
                                       .num_heads = config.num_heads})
                .value();
    logits_ = LogitsStage::Create(device_.get(), decoder_.get(), ops_.get(), kMaxRows, 8).value();
    cpu_attention_ = std::make_unique<CpuAttention>(CpuAttentionOptions{.num_threads = 2, .pin = false});
    compute_ = device_->CreateStream(StreamKind::kCompute, "compute");
    copy_ = device_->CreateStream(StreamKind::kCopy, "copy");
  }

  ProfileParts Parts() {
    return {.device = device_.get(),
            .ops = ops_.get(),
            .decoder = decoder_.get(),
            .books = books_.get(),
            .memory = memory_.get(),
            .cpu_attention = books_->total_blocks(Tier::kCpu) > 0 ? cpu_attention_.get() : nullptr,
            .compute = compute_.get(),
            .copy = copy_.get(),
            .rows = &rows_,
            .plan = plan_.get(),
            .logits = logits_.get(),
            .max_rows = kMaxRows,
            .max_context = max_context_};
  }

  int64_t max_context_ = 0;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvMemory> memory_;
  std::unique_ptr<KvBooks> books_;
  RowBuffers rows_;
  std::unique_ptr<AttentionPlan> plan_;
  std::unique_ptr<LogitsStage> logits_;
  std::unique_ptr<CpuAttention> cpu_attention_;
  std::unique_ptr<Stream> compute_;
  std::unique_ptr<Stream> copy_;
};

std::vector<int64_t> CountsOf(const std::vector<CostPoint>& points) {
  std::vector<int64_t> counts;
  counts.reserve(points.size());
  for (const CostPoint& point : points) counts.push_back(point.count);
  return counts;
}

TEST_F(ProfilerTest, MeasuresEveryCost) {
  Build(20, 24, 2);
  double last_share = -1;
  bool share_ascends = true;
  const auto progress = [&](double share, std::string_view what) {
    share_ascends = share_ascends && share >= last_share && share <= 1 && !what.empty();
    last_share = share;
  };
  const CostTable table = Profile(Parts(), {.budget_seconds = 60, .progress = progress}).value();
  EXPECT_TRUE(share_ascends);
  EXPECT_DOUBLE_EQ(last_share, 1);

  const CostMeasurements& measured = table.measurements();
  EXPECT_EQ(CountsOf(measured.linear), (std::vector<int64_t>{1, 2, 4, 8, 12, 16, 24}));
  EXPECT_EQ(measured.row_tiles, ops_->ProductTiles());
  EXPECT_EQ(CountsOf(measured.outside_layers), (std::vector<int64_t>{0, 1, 8, 16, 24}));
  EXPECT_EQ(CountsOf(measured.exchange), (std::vector<int64_t>{1, 4, 16}));
  EXPECT_EQ(CountsOf(measured.swap), (std::vector<int64_t>{32, 128, 512}));
  // The gpu tier has 640 tokens: 24 rows cannot have one block each.
  ASSERT_EQ(measured.gpu_decode_attention.size(), 3U);
  EXPECT_EQ(CountsOf(measured.gpu_decode_attention[0].points), (std::vector<int64_t>{64, 256}));
  EXPECT_EQ(CountsOf(measured.gpu_decode_attention[1].points), (std::vector<int64_t>{256, 4 * 160}));
  EXPECT_EQ(CountsOf(measured.gpu_decode_attention[2].points), (std::vector<int64_t>{512}));
  ASSERT_EQ(measured.prefill_attention.size(), 2U);
  EXPECT_EQ(CountsOf(measured.prefill_attention[1].points), (std::vector<int64_t>{24, 300}));
  ASSERT_EQ(measured.cpu_attention.size(), 3U);
  EXPECT_EQ(CountsOf(measured.cpu_attention[1].points), (std::vector<int64_t>{256, 4 * 192}));

  for (const auto& points : {measured.linear, measured.outside_layers, measured.exchange, measured.swap}) {
    for (const CostPoint& point : points) EXPECT_GT(point.us, 0) << point.count;
  }
  double last_us = 0;
  for (int64_t tokens = 0; tokens < 100; ++tokens) {
    EXPECT_GE(table.LinearUs(tokens), last_us);
    last_us = table.LinearUs(tokens);
  }
  EXPECT_GT(table.CpuAttentionUs(3, 100), 0);
  EXPECT_GT(table.GpuDecodeAttentionUs(3, 100), 0);
  EXPECT_GT(table.PrefillAttentionUs(20, 200), 0);
}

// 8 rows of one whole partition and a token each.
TEST_F(ProfilerTest, SharedReadsWhereContextsAreLongEnough) {
  Build(20, 8 * 17, 2);
  EXPECT_TRUE(Profile(Parts(), {.budget_seconds = 0}).value().measurements().shared_reads.empty());
  max_context_ = 600;
  const CostTable table = Profile(Parts(), {.budget_seconds = 10}).value();
  EXPECT_EQ(CountsOf(table.measurements().shared_reads), (std::vector<int64_t>{1, 2, 4, 8}));
  for (const CostPoint& point : table.measurements().shared_reads) EXPECT_GT(point.us, 0) << point.count;
  EXPECT_GE(table.SharedReadCost(8), 1);
  EXPECT_LE(table.SharedReadCost(8), 8);
}

TEST_F(ProfilerTest, WithoutACpuTier) {
  Build(20, 0, 0);
  const CostTable table = Profile(Parts(), {.budget_seconds = 60}).value();
  EXPECT_FALSE(table.measurements().has_cpu_tier());
  EXPECT_TRUE(table.measurements().exchange.empty());
  EXPECT_GT(table.CpuAttentionUs(1, 1), 1e6);
  EXPECT_EQ(MakeProfileCoverage(Parts()).cpu_kv_tokens, 0);
  EXPECT_EQ(MakeProfileKey(Parts(), 0).cpu_threads, 0);
  EXPECT_EQ(MakeProfileKey(Parts(), 0).cpu_kv, "");
}

TEST_F(ProfilerTest, TiersOfTypesOfTheirOwn) {
  for (const auto& [gpu_kv, cpu_kv] :
       {std::pair{DType::kF32, DType::kI8}, std::pair{DType::kI8, DType::kF32}}) {
    Build(20, 24, 2, gpu_kv, cpu_kv);
    const ProfileKey key = MakeProfileKey(Parts(), 0);
    EXPECT_EQ(key.gpu_kv, DTypeName(gpu_kv));
    EXPECT_EQ(key.cpu_kv, DTypeName(cpu_kv));
    const CostTable table = Profile(Parts(), {.budget_seconds = 0}).value();
    EXPECT_GT(table.GpuDecodeAttentionUs(3, 100), 0);
    EXPECT_GT(table.PrefillAttentionUs(20, 200), 0);
    EXPECT_GT(table.CpuAttentionUs(3, 100), 0);
    EXPECT_GT(table.SwapUs(64), 0);
  }
}

TEST_F(ProfilerTest, WithoutTimeEveryTableHasAPoint) {
  Build(20, 24, 1);
  const CostTable table = Profile(Parts(), {.budget_seconds = 0}).value();
  EXPECT_FALSE(table.measurements().linear.empty());
  EXPECT_FALSE(table.measurements().gpu_decode_attention.empty());
  EXPECT_FALSE(table.measurements().prefill_attention.empty());
  EXPECT_TRUE(table.measurements().has_cpu_tier());
}

TEST_F(ProfilerTest, MeasuresOnceAndKeepsTheFile) {
  Build(20, 24, 1);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tandem_profiler_test." + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  const ProfileKey key = MakeProfileKey(Parts(), 0);
  EXPECT_EQ(key.device.find("MiB"), std::string::npos);
  int num_measured = 0;
  LoadOrMeasureOptions options;
  options.folder = folder.string();
  options.profile.budget_seconds = 1;
  options.profile.progress = [&](double /*share*/, std::string_view what) { num_measured += what == "done"; };
  const CostTable first = LoadOrMeasureCosts(Parts(), key, options).value();
  EXPECT_EQ(num_measured, 1);
  const CostTable second = LoadOrMeasureCosts(Parts(), key, options).value();
  EXPECT_EQ(num_measured, 1);
  EXPECT_EQ(second.measurements(), first.measurements());
  options.measure = true;
  static_cast<void>(LoadOrMeasureCosts(Parts(), key, options).value());
  EXPECT_EQ(num_measured, 2);

  // A damaged file is measured anew, and whole again after that.
  options.measure = false;
  std::filesystem::resize_file(ProfilePath(options.folder, key), 100);
  static_cast<void>(LoadOrMeasureCosts(Parts(), key, options).value());
  EXPECT_EQ(num_measured, 3);
  static_cast<void>(LoadOrMeasureCosts(Parts(), key, options).value());
  EXPECT_EQ(num_measured, 3);

  // Nowhere to keep it: measured all the same.
  options.folder = "/proc/no-such-folder";
  static_cast<void>(LoadOrMeasureCosts(Parts(), key, options).value());
  EXPECT_EQ(num_measured, 4);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tandem
