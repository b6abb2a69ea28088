// A shard that does not answer ends every request with a sentence that names it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "conformance/decoder_harness.h"
#include "engine/engine_client.h"
#include "engine/engine_loop.h"
#include "engine/loaded_model.h"
#include "engine/shards.h"
#include "execute/worker_group.h"
#include "kv/kv_books.h"
#include "policy/strategy.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// An engine loop on two shards of a small model: on the host backend, or on slices of a GPU.
class ShardFailureTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "cuda" && !DecoderHarness::HasCuda()) GTEST_SKIP() << "no GPU";
    EngineOptions options;
    options.device = GetParam();
    options.dummy = "tiny";
    if (options.device == "cuda") options.gpu_sm_slices = 2;
    options.dtype = DType::kF32;
    options.cpu_threads = 2;
    options.tensor_parallel_size = 2;
    options.show_progress = false;
    model_ = LoadModel(&options).value();
    constexpr int64_t kBlocks = 64;
    const KvShape shape = {.format = model_.kv_formats.gpu,
                           .num_kv_heads = model_.num_kv_heads(),
                           .head_dim = model_.config.head_dim};
    KvCacheOptions cache;
    cache.num_layers = model_.config.num_layers;
    cache.gpu = {.shape = shape, .num_blocks = kBlocks};
    cache.cpu.shape = shape;
    memories_ = CreateShardMemories(model_, cache).value();
    books_ = KvBooks::Create(shape.block_size, {kBlocks, 0}).value();
    workers_ = CreateWorkerGroup(model_, memories_, {.max_rows = 64}).value();
    // As an engine does: memory of products that came while another shard's kernel waits could wait for it.
    workers_->WarmUp();
    strategy_ = CreateStrategy("gpu-only", nullptr).value();
    EngineLoopOptions loop_options;
    loop_options.limits = {
        .max_num_seqs = 8, .max_num_batched_tokens = 64, .num_layers = model_.config.num_layers};
    loop_options.vocab_size = model_.config.vocab_size;
    loop_options.max_model_len = 2048;
    loop_options.max_num_queued_reqs = 64;
    loop_ = std::make_unique<EngineLoop>(loop_options, model_.backend.device.get(), strategy_.get(),
                                         books_.get(), workers_.get(), nullptr);
  }

  Submitted SubmitLong() {
    RequestSpec spec;
    spec.prompt_tokens = {1, 2, 3};
    spec.sampling.temperature = 0;
    spec.sampling.ignore_eos = true;
    spec.sampling.max_tokens = 2000;
    return SubmitTo(*loop_, std::move(spec));
  }

  void ExpectAllFail(const std::vector<Submitted>& submitted, const std::string& message) {
    for (const Submitted& each : submitted) {
      EXPECT_EQ(each.output->Wait(), FinishReason::kError);
      EXPECT_THAT(each.output->error_message(), HasSubstr(message));
    }
    const Submitted later = SubmitLong();
    EXPECT_EQ(later.output->Wait(), FinishReason::kError);
    EXPECT_THAT(later.output->error_message(), HasSubstr(message));
    loop_->CancelAll();
    EXPECT_EQ(loop_->Stats().gpu_blocks_free, loop_->Stats().gpu_blocks_total);
  }

  LoadedModel model_;
  std::vector<std::unique_ptr<KvMemory>> memories_;
  std::unique_ptr<KvBooks> books_;
  std::unique_ptr<WorkerGroup> workers_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<EngineLoop> loop_;
};

TEST_P(ShardFailureTest, AFailureOfTheExchangeEndsAllRequests) {
  const std::vector<Submitted> submitted = {SubmitLong(), SubmitLong()};
  for (const Submitted& each : submitted) each.output->WaitForTokens(3);
  model_.collectives->Abort("shard 1 of 2 has stopped");
  ExpectAllFail(submitted, "shard 1 of 2 has stopped");
}

TEST_P(ShardFailureTest, AShardThatHangsIsNamedWithinTenSeconds) {
  // Its stream waits for what never comes, as that of a device that is stuck.
  const std::unique_ptr<Flag> never = model_.backend.device->CreateFlag();
  Stream& stream = *workers_->rank0().measurement_parts().compute;
  stream.WaitFlag(*never, 1);
  const auto start = std::chrono::steady_clock::now();
  ExpectAllFail({SubmitLong()}, "shard 0 of 2 has kept the others waiting for 10 s");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  never->Abort();
  stream.Synchronize();
}

INSTANTIATE_TEST_SUITE_P(Devices, ShardFailureTest, ::testing::Values("host", "cuda"),
                         [](const auto& device) { return device.param; });

}  // namespace
}  // namespace tandem
