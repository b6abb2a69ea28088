#include "device/host/host_device.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitizers.h"
#include "base/topology.h"

namespace tandem {
namespace {

class HostDeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = CreateHostDevice({.num_compute_threads = 2});
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

TEST_F(HostDeviceTest, SynchronizeToAnEventLeavesTheRestRunning) {
  auto stream = device_->CreateStream(StreamKind::kCompute, "s");
  auto event = device_->CreateEvent();
  auto gate = device_->CreateFlag();
  int value = 0;
  AsHostStream(*stream).Enqueue([&value](ComputePool&) { value = 1; });
  stream->Record(*event);
  stream->WaitFlag(*gate, 1);
  AsHostStream(*stream).Enqueue([&value](ComputePool&) { value = 2; });
  stream->SynchronizeTo(*event);
  EXPECT_EQ(value, 1);
  gate->Set(1);
  stream->Synchronize();
  EXPECT_EQ(value, 2);
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

TEST_F(HostDeviceTest, GraphOfTwoStreamsRunsInTheOrderOfItsEvents) {
  auto stream = device_->CreateStream(StreamKind::kCompute, "stream");
  auto branch = device_->CreateStream(StreamKind::kCompute, "branch");
  auto forked = device_->CreateEvent();
  auto joined = device_->CreateEvent();
  std::vector<int> order;
  const auto add = [&order](Stream& to, int value) {
    AsHostStream(to).Enqueue([&order, value](ComputePool&) { order.push_back(value); });
  };
  stream->BeginCapture();
  for (int i = 0; i < 4; i += 2) {
    add(*stream, i);
    stream->Record(*forked);
    branch->Wait(*forked);
    add(*branch, i + 1);
    branch->Record(*joined);
    stream->Wait(*joined);
  }
  const auto graph = stream->EndCapture();
  EXPECT_TRUE(order.empty());
  // The branch is free again, and so are the events once they are recorded.
  add(*branch, 10);
  branch->Record(*joined);
  stream->Wait(*joined);
  stream->Launch(*graph);
  stream->Synchronize();
  EXPECT_EQ(order, (std::vector<int>{10, 0, 1, 2, 3}));
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
  auto cpu = device_->CreateStream(StreamKind::kCopy, "cpu");
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

TEST_F(HostDeviceTest, CopyRowsTakesEveryRowAndNothingBetween) {
  auto stream = device_->CreateStream(StreamKind::kCopy, "copy");
  constexpr size_t kRows = 37;
  std::vector<unsigned char> src(kRows * 16);
  for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<unsigned char>(i % 251);
  std::vector<unsigned char> dst(kRows * 24, 255);
  stream->CopyRows(dst.data(), 24, src.data(), 16, 10, kRows);
  stream->Synchronize();
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t i = 0; i < 24; ++i) EXPECT_EQ(dst[row * 24 + i], i < 10 ? src[row * 16 + i] : 255);
  }
}

TEST_F(HostDeviceTest, LargeMemoryIsZeroAndStartsAtAHugePage) {
  for (const size_t size_bytes : {size_t{2} << 20, (size_t{5} << 20) + 4097}) {
    for (const int64_t num_parts : {int64_t{1}, size_bytes % 2 == 0 ? int64_t{4} : int64_t{1}}) {
      auto buffer = device_->Allocate(size_bytes, MemoryKind::kPinned, "parts", {.num_parts = num_parts});
      ASSERT_TRUE(buffer.ok()) << buffer.error().message;
      EXPECT_EQ(buffer->size_bytes(), size_bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % (size_t{2} << 20), 0U);
      const auto* bytes = buffer->as<unsigned char>();
      for (size_t i = 0; i < size_bytes; i += 1021) ASSERT_EQ(bytes[i], 0);
      std::memset(buffer->data(), 1, size_bytes);
    }
  }
}

TEST_F(HostDeviceTest, BuffersMayOutliveTheDevice) {
  auto device = CreateHostDevice({.num_compute_threads = 1});
  auto buffer = device->Allocate(size_t{4} << 20, MemoryKind::kDevice, "a");
  ASSERT_TRUE(buffer.ok());
  device.reset();
  std::memset(buffer->data(), 1, buffer->size_bytes());
}

TEST_F(HostDeviceTest, ImpossibleAllocationIsAnErrorThatNamesIt) {
  for (const size_t size_bytes : {size_t{1} << 50, std::numeric_limits<size_t>::max() - 1}) {
    auto huge = device_->Allocate(size_bytes, MemoryKind::kDevice, "the KV cache", {.flag = "gpu-kv-cache"});
    ASSERT_FALSE(huge.ok());
    EXPECT_EQ(huge.error().code, ErrorCode::kResourceExhausted);
    EXPECT_EQ(huge.error().param, "gpu-kv-cache");
    for (const char* part : {"the KV cache", "MiB wanted", "MiB available", "make --gpu-kv-cache smaller"}) {
      EXPECT_NE(huge.error().message.find(part), std::string::npos) << huge.error().message;
    }
  }
  auto weights = device_->Allocate(size_t{1} << 50, MemoryKind::kDevice, "weights");
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(weights.error().param, "");
  EXPECT_EQ(weights.error().message.find("--"), std::string::npos) << weights.error().message;
}

// Untouched memory still counts as free for the system.
TEST_F(HostDeviceTest, PromisesAddUp) {
  const size_t free_bytes = device_->FreeBytes(MemoryKind::kDevice);
  const size_t two_thirds = free_bytes / 3 * 2;
  {
    auto first = device_->Allocate(two_thirds, MemoryKind::kDevice, "the first");
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_LT(device_->FreeBytes(MemoryKind::kPinned), free_bytes / 2);
    EXPECT_FALSE(device_->Allocate(two_thirds, MemoryKind::kPinned, "the second").ok());
  }
  EXPECT_TRUE(device_->Allocate(two_thirds, MemoryKind::kPinned, "the second").ok());
  // What has been touched counts once: as used by the system's account, no more as promised. A device that
  // promised nothing has that account at the same moment.
  const auto promised_bytes = [&] {
    const auto other = CreateHostDevice({.num_compute_threads = 1});
    return static_cast<int64_t>(other->FreeBytes(MemoryKind::kDevice)) -
           static_cast<int64_t>(device_->FreeBytes(MemoryKind::kDevice));
  };
  auto touched = device_->Allocate(size_t{256} << 20, MemoryKind::kDevice, "touched");
  ASSERT_TRUE(touched.ok());
  EXPECT_GT(promised_bytes(), int64_t{192} << 20);
  std::memset(touched->data(), 1, touched->size_bytes());
  EXPECT_LT(promised_bytes(), int64_t{64} << 20);
}

// Ends the process: with 0 if an allocation beyond the limit is refused and all that is said to be available
// can be had, with room for threads to start.
[[noreturn]] void AllocateUnderLimit(__rlimit_resource resource) {
  const rlimit limit{.rlim_cur = rlim_t{1} << 30, .rlim_max = rlim_t{1} << 30};
  setrlimit(resource, &limit);
  auto device = CreateHostDevice({.num_compute_threads = 2});
  auto refused = device->Allocate(size_t{1} << 30, MemoryKind::kPinned, "the KV cache of the cpu tier",
                                  {.flag = "cpu-kv-cache"});
  if (!refused.ok()) std::fprintf(stderr, "%s\n", refused.error().message.c_str());
  auto rest = device->Allocate(device->FreeBytes(MemoryKind::kPinned), MemoryKind::kPinned, "the rest");
  auto stream = device->CreateStream(StreamKind::kCompute, "compute");
  stream->Synchronize();
  std::_Exit(!refused.ok() && rest.ok() ? 0 : 1);
}

TEST(HostDeviceLimitTest, LimitOfTheAddressSpaceIsAClearError) {
  if (kSanitized) GTEST_SKIP() << "no limit of the address space under sanitizers";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    EXPECT_EXIT(AllocateUnderLimit(resource), ::testing::ExitedWithCode(0),
                "not enough memory for the KV cache of the cpu tier: 1024 MiB wanted, [0-9]+ MiB available; "
                "make --cpu-kv-cache smaller");
  }
}

class CgroupTest : public ::testing::Test {
 protected:
  ~CgroupTest() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  int64_t Left() { return CgroupMemoryLeftBytes(root_.string(), (root_ / "membership").string()); }

  std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / fmt::format("tandem-cgroup-{}", getpid());
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
};

TEST_F(CgroupTest, TheTightestGroupCounts) {
  EXPECT_EQ(Left(), kNoLimit);
  Write("membership", "0::/service/tandem\n");
  Write("service/tandem/memory.max", "max\n");
  EXPECT_EQ(Left(), kNoLimit);
  Write("service/memory.max", "5000\n");
  Write("service/memory.current", "3000\n");
  EXPECT_EQ(Left(), 2000);
  // File pages that nobody uses make room when asked.
  Write("service/memory.stat", "anon 2000\ninactive_file 900\nactive_file 100\n");
  EXPECT_EQ(Left(), 2900);
  Write("service/tandem/memory.max", "1000\n");
  Write("service/tandem/memory.current", "1200\n");
  EXPECT_EQ(Left(), 0);
}

TEST_F(CgroupTest, VersionOneAndPathsOutsideOfTheView) {
  Write("membership", "7:cpu,cpuacct:/a\n6:hugetlb,memory:/docker/abc\n0::/../elsewhere\n");
  Write("memory/memory.limit_in_bytes", "10000\n");
  Write("memory/memory.usage_in_bytes", "4000\n");
  Write("memory/memory.stat", "inactive_file 1\ntotal_inactive_file 1000\n");
  EXPECT_EQ(Left(), 7000);
  Write("memory.max", "6000\n");
  EXPECT_EQ(Left(), 6000);
}

TEST(NumaTest, NodesAreNamedAndTakeMemory) {
  const Topology& topology = MachineTopology();
  ASSERT_FALSE(topology.numa_nodes.empty());
  size_t num_cpus = 0;
  for (const NumaNode& node : topology.numa_nodes) {
    num_cpus += node.cpus.size();
    if (node.os_index < 0) continue;
    auto device = CreateHostDevice({.num_compute_threads = 1});
    auto buffer = device->Allocate(size_t{2} << 20, MemoryKind::kPinned, "a");
    ASSERT_TRUE(buffer.ok());
    const Status placed = PreferNumaNode(buffer->data(), buffer->size_bytes(), node.os_index);
    // A sandbox may refuse; that is an error with a reason and nothing worse.
    if (!placed.ok()) {
      EXPECT_EQ(placed.error().code, ErrorCode::kIo);
    }
    std::memset(buffer->data(), 1, buffer->size_bytes());
  }
  if (topology.numa_nodes.front().os_index >= 0) {
    EXPECT_EQ(num_cpus, static_cast<size_t>(topology.num_logical_cpus));
  }
  EXPECT_FALSE(PreferNumaNode(nullptr, 0, -1).ok());
  EXPECT_FALSE(PreferNumaNode(nullptr, 0, 5000).ok());
}

}  // namespace
}  // namespace tandem
