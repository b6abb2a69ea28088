#include "device/host/host_device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace tandem {
namespace {

class HostDeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ =
      CreateHostDevice({.num_compute_threads = 2, .num_cpu_attention_threads = 1});
};

TEST_F(HostDeviceTest, StreamRunsInOrder) {
  auto stream = device_->CreateStream(StreamKind::kCompute, "s");
  std::vector<int> order;
  for (int i = 0; i < 100; ++i)
    AsHostStream(*stream).Enqueue([&order, i](ComputePool&) { order.push_back(i); });
  stream->Synchronize();
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST_F(HostDeviceTest, EventOrdersTwoStreams) {
  auto producer = device_->CreateStream(StreamKind::kCompute, "producer");
  auto consumer = device_->CreateStream(StreamKind::kCopy, "consumer");
  auto event = device_->CreateEvent();
  int value = 0;
  std::vector<int> seen;
  for (int i = 1; i <= 50; ++i) {
    AsHostStream(*producer).Enqueue([&value, i](ComputePool&) { value = i; });
    producer->Record(*event);
    consumer->Wait(*event);
    AsHostStream(*consumer).Enqueue([&](ComputePool&) { seen.push_back(value); });
    // The producer may not overwrite before the consumer has read.
    consumer->Record(*event);
    producer->Wait(*event);
  }
  consumer->Synchronize();
  producer->Synchronize();
  ASSERT_EQ(seen.size(), 50U);
  for (int i = 1; i <= 50; ++i) EXPECT_EQ(seen[static_cast<size_t>(i - 1)], i);
}

TEST_F(HostDeviceTest, EventNeverRecordedIsComplete) {
  auto event = device_->CreateEvent();
  EXPECT_TRUE(event->Complete());
  event->Synchronize();
  auto stream = device_->CreateStream(StreamKind::kCopy, "s");
  stream->Wait(*event);
  stream->Synchronize();
}

// Two streams answer each other through flags without the host thread: only real overlap can finish this.
TEST_F(HostDeviceTest, StreamsAnswerEachOtherThroughFlags) {
  auto gpu = device_->CreateStream(StreamKind::kCompute, "gpu");
  auto cpu = device_->CreateStream(StreamKind::kCpuAttention, "cpu");
  auto ready = device_->CreateFlag();
  auto done = device_->CreateFlag();
  int64_t x = 0;
  constexpr uint32_t kLayers = 200;
  for (uint32_t layer = 1; layer <= kLayers; ++layer) {
    cpu->WaitFlag(*ready, layer);
    AsHostStream(*cpu).Enqueue([&x](ComputePool&) { x = x * 3 % 1000003; });
    cpu->SetFlag(*done, layer);
    AsHostStream(*gpu).Enqueue([&x](ComputePool&) { x += 1; });
    gpu->SetFlag(*ready, layer);
    gpu->WaitFlag(*done, layer);
  }
  gpu->Synchronize();
  cpu->Synchronize();
  int64_t expected = 0;
  for (uint32_t layer = 0; layer < kLayers; ++layer) expected = (expected + 1) * 3 % 1000003;
  EXPECT_EQ(x, expected);
}

TEST_F(HostDeviceTest, AbortReleasesStreamAndHostWaits) {
  auto stream = device_->CreateStream(StreamKind::kCompute, "s");
  auto flag = device_->CreateFlag();
  stream->WaitFlag(*flag, 1);
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    flag->Abort();
  });
  EXPECT_FALSE(flag->Wait(1));
  stream->Synchronize();
  aborter.join();
  EXPECT_TRUE(flag->aborted());
  flag->Reset();
  EXPECT_FALSE(flag->aborted());
  flag->Set(3);
  EXPECT_TRUE(flag->Wait(2));
  EXPECT_EQ(flag->value(), 3U);
}

TEST_F(HostDeviceTest, CopyAndAllocate) {
  auto stream = device_->CreateStream(StreamKind::kCopy, "copy");
  auto a = device_->Allocate(1 << 16, MemoryKind::kDevice, "a");
  auto b = device_->Allocate(1 << 16, MemoryKind::kPinned, "b");
  ASSERT_TRUE(a.ok());
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data()) % 64, 0U);
  std::memset(a->data(), 7, 1 << 16);
  stream->Copy(b->data(), a->data(), 1 << 16);
  stream->Synchronize();
  EXPECT_EQ(std::memcmp(a->data(), b->data(), 1 << 16), 0);
}

TEST_F(HostDeviceTest, ImpossibleAllocationIsAnErrorThatNamesIt) {
  auto huge = device_->Allocate(size_t{1} << 50, MemoryKind::kDevice, "the KV cache");
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(huge.error().message.find("the KV cache"), std::string::npos);
}

}  // namespace
}  // namespace tandem
