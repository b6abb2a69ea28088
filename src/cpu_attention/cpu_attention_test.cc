// The worker pool: results do not depend on threads or neighbours, flags, aborts, sleeping, submissions from
// several threads.
#include "cpu_attention/cpu_attention.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "cpu_attention/decode_testing.h"
#include "device/host/host_device.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

CpuAttentionOptions Threads(int num_threads) {
  return {.num_threads = num_threads, .pin = false};
}

DecodeCase SmallCase(DType dtype, std::vector<int64_t> contexts) {
  return {.dtype = dtype,
          .row_dtype = DType::kF32,
          .group_size = 3,
          .num_kv_heads = 4,
          .head_dim = 64,
          .contexts = std::move(contexts)};
}

// The output bytes of a batch, computed by a pool of its own.
std::vector<std::byte> RunAlone(DecodeBatch* batch, int num_threads) {
  CpuAttention attention(Threads(num_threads));
  DecodePlan plan(batch->sequences(), batch->shape(), num_threads);
  batch->PoisonOut();
  attention.Submit({&plan, batch->layer(), nullptr, 0, nullptr, 0});
  attention.WaitIdle();
  return batch->out();
}

class CpuAttentionTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = CreateHostDevice({.num_compute_threads = 1});
  std::mt19937 random_{5};
};

// One thread computes long contexts whole; many cut them at partitions and heads and merge.
TEST_F(CpuAttentionTest, SameBitsForAnyNumberOfThreads) {
  for (const DType dtype : kCacheTypes) {
    DecodeBatch batch(SmallCase(dtype, {5000, 1, 700, 2048, 31}), random_);
    const std::vector<std::byte> expected = RunAlone(&batch, 1);
    for (const int num_threads : {2, 3, 8}) EXPECT_EQ(RunAlone(&batch, num_threads), expected) << num_threads;
  }
}

// The bits of a row do not depend on the rows beside it.
TEST_F(CpuAttentionTest, SameBitsAloneAndInABatch) {
  std::mt19937 first_random(9);
  DecodeBatch alone(SmallCase(DType::kF32, {1300}), first_random);
  const std::vector<std::byte> expected = RunAlone(&alone, 1);
  CpuAttention attention(Threads(2));
  // The same cache and rows, three times in one batch with other cuts. The new token is in the cache by now:
  // three rows must not write it at once.
  std::vector<DecodeSequence> sequences(3, alone.sequences().front());
  DecodeLayer layer = alone.layer();
  const int64_t width = layer.q.cols;
  layer.q.row_stride = 0;
  layer.q.rows = 3;
  layer.k.data = nullptr;
  layer.v.data = nullptr;
  std::vector<float> out(static_cast<size_t>(3 * width));
  layer.out = MatrixView::Dense(out.data(), DType::kF32, 3, width);
  layer.lse = nullptr;
  DecodePlan plan(sequences, alone.shape(), 7);
  attention.Submit({&plan, layer, nullptr, 0, nullptr, 0});
  attention.WaitIdle();
  for (int64_t row = 0; row < 3; ++row) {
    EXPECT_EQ(std::memcmp(out.data() + row * width, expected.data(), expected.size()), 0) << row;
  }
}

TEST_F(CpuAttentionTest, TasksWaitForTheirFlagsAndOvertakeThoseThatWait) {
  CpuAttention attention(Threads(2));
  DecodeBatch first(SmallCase(DType::kF32, {100}), random_);
  DecodeBatch second(SmallCase(DType::kF32, {60}), random_);
  DecodePlan first_plan(first.sequences(), first.shape(), 2);
  DecodePlan second_plan(second.sequences(), second.shape(), 2);
  const auto ready = device_->CreateFlag();
  const auto first_done = device_->CreateFlag();
  const auto second_done = device_->CreateFlag();
  attention.Submit({&first_plan, first.layer(), ready.get(), 2, first_done.get(), 7});
  attention.Submit({&second_plan, second.layer(), nullptr, 0, second_done.get(), 1});
  EXPECT_TRUE(second_done->Wait(1));
  EXPECT_LT(second.WorstError(), 1e-5);
  ready->Set(1);
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(first_done->value(), 0U);
  ready->Set(2);
  EXPECT_TRUE(first_done->Wait(7));
  EXPECT_LT(first.WorstError(), 1e-5);
  EXPECT_EQ(attention.stats().num_tasks, 2);
  EXPECT_EQ(attention.stats().kv_bytes, first_plan.kv_bytes() + second_plan.kv_bytes());
}

// Layers of one plan, each armed by the one before: the whole chain runs without a host thread in between.
TEST_F(CpuAttentionTest, LayersOfAPlanFollowEachOtherThroughFlags) {
  CpuAttention attention(Threads(3));
  DecodeBatch batch(SmallCase(DType::kF32, {900, 40}), random_);
  const std::vector<std::byte> expected = RunAlone(&batch, 1);
  batch.PoisonOut();
  DecodePlan plan(batch.sequences(), batch.shape(), 3);
  const auto flag = device_->CreateFlag();
  constexpr uint32_t kLayers = 50;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    attention.Submit({&plan, batch.layer(), flag.get(), layer + 1, flag.get(), layer + 2});
  }
  EXPECT_EQ(flag->value(), 0U);
  flag->Set(1);
  EXPECT_TRUE(flag->Wait(kLayers + 1));
  attention.WaitIdle();
  EXPECT_EQ(batch.out(), expected);
}

TEST_F(CpuAttentionTest, AnAbortedFlagAbortsWhatWaitsForIt) {
  CpuAttention attention(Threads(2));
  DecodeBatch batch(SmallCase(DType::kF32, {100}), random_);
  batch.PoisonOut();
  const std::vector<std::byte> poisoned = batch.out();
  DecodePlan plan(batch.sequences(), batch.shape(), 2);
  const auto ready = device_->CreateFlag();
  const auto done = device_->CreateFlag();
  attention.Submit({&plan, batch.layer(), ready.get(), 1, done.get(), 1});
  ready->Abort();
  EXPECT_FALSE(done->Wait(1));
  attention.WaitIdle();
  EXPECT_EQ(batch.out(), poisoned);
  EXPECT_EQ(attention.stats().kv_bytes, 0);
}

TEST_F(CpuAttentionTest, DestructionAbortsWhatStillWaits) {
  DecodeBatch batch(SmallCase(DType::kF32, {100}), random_);
  DecodePlan plan(batch.sequences(), batch.shape(), 2);
  const auto ready = device_->CreateFlag();
  const auto done = device_->CreateFlag();
  {
    CpuAttention attention(Threads(2));
    attention.Submit({&plan, batch.layer(), ready.get(), 1, done.get(), 1});
  }
  EXPECT_TRUE(done->aborted());
}

TEST_F(CpuAttentionTest, AnEmptyBatchIsDoneAtOnce) {
  CpuAttention attention(Threads(1));
  DecodeBatch batch(SmallCase(DType::kF32, {4}), random_);
  DecodePlan plan({}, batch.shape(), 1);
  const auto done = device_->CreateFlag();
  attention.Submit({&plan, batch.layer(), nullptr, 0, done.get(), 3});
  EXPECT_TRUE(done->Wait(3));
}

TEST_F(CpuAttentionTest, RunOnWorkersReachesEveryWorkerOnce) {
  CpuAttention attention(Threads(4));
  for (int round = 0; round < 20; ++round) {
    std::array<std::atomic<int>, 4> calls = {};
    attention.RunOnWorkers([&](int thread) { calls.at(static_cast<size_t>(thread)).fetch_add(1); });
    for (const auto& count : calls) EXPECT_EQ(count.load(), 1);
  }
}

// Idle workers must leave the processor to the scheduler and to other programs, also while a task waits.
TEST_F(CpuAttentionTest, IdleWorkersSleep) {
  CpuAttention attention(Threads(4));
  DecodeBatch batch(SmallCase(DType::kF32, {100}), random_);
  DecodePlan plan(batch.sequences(), batch.shape(), 4);
  const auto ready = device_->CreateFlag();
  const auto cpu_time = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  std::this_thread::sleep_for(milliseconds(20));
  auto before = cpu_time();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LT(cpu_time() - before, milliseconds(30)) << "nothing submitted";
  attention.Submit({&plan, batch.layer(), ready.get(), 1, nullptr, 0});
  std::this_thread::sleep_for(milliseconds(20));
  before = cpu_time();
  std::this_thread::sleep_for(milliseconds(300));
  // One of them looks at the flag now and then.
  EXPECT_LT(cpu_time() - before, milliseconds(150)) << "a task waits";
  ready->Set(1);
  attention.WaitIdle();
}

// Several threads submit chains, plain tasks and tasks whose flags other threads set late or abort.
TEST_F(CpuAttentionTest, SubmissionsFromSeveralThreads) {
  CpuAttention attention(Threads(4));
  const auto submitter = [&](unsigned seed) {
    std::mt19937 random(seed);
    DecodeBatch batch(
        SmallCase(seed % 2 == 0 ? DType::kF32 : DType::kBF16,
                  {static_cast<int64_t>(1 + random() % 1500), 77, static_cast<int64_t>(1 + random() % 90)}),
        random);
    const std::vector<std::byte> expected = RunAlone(&batch, 1);
    DecodePlan plan(batch.sequences(), batch.shape(), 4);
    for (int round = 0; round < 60; ++round) {
      batch.PoisonOut();
      const auto ready = device_->CreateFlag();
      const auto done = device_->CreateFlag();
      const bool abort = random() % 5 == 0;
      const bool early = random() % 2 == 0;
      if (early && !abort) ready->Set(1);
      attention.Submit({&plan, batch.layer(), ready.get(), 1, done.get(), 1});
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      if (abort) {
        ready->Abort();
      } else if (!early) {
        ready->Set(1);
      }
      ASSERT_EQ(done->Wait(1), !abort);
      if (abort) continue;
      ASSERT_EQ(batch.out(), expected) << "round " << round;
    }
    // Flags and buffers go when this returns: nothing may touch them any more, which done promises.
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 5; ++seed) threads.emplace_back(submitter, seed);
  for (std::thread& thread : threads) thread.join();
  attention.WaitIdle();
  EXPECT_EQ(attention.stats().num_tasks, 5 * 60);
}

}  // namespace
}  // namespace tandem
