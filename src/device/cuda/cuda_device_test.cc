#include "device/cuda/cuda_device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

namespace tandem {
namespace {

using std::chrono::steady_clock;

Result<std::unique_ptr<Device>> Open(const CudaDeviceOptions& options = {}) {
  return CreateCudaDevice(options);
}

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = Open();
    if (!device.ok()) GTEST_SKIP() << device.error().message;
    device_ = std::move(device).value();
    stream_ = device_->CreateStream(StreamKind::kCompute, "test");
  }
  Buffer Memory(size_t size_bytes, MemoryKind kind) {
    auto buffer = device_->Allocate(size_bytes, kind, "test");
    EXPECT_TRUE(buffer.ok()) << buffer.error().message;
    return std::move(buffer).value();
  }
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

// PTX of an earlier architecture that the driver has compiled for the GPU, and a GPU that is earlier than it.
TEST(CudaTargetTest, CodeLimitsWhatTheGpuIs) {
  constexpr CudaTarget kHopper = {.compute_capability = 90,
                                  .num_sms = 132,
                                  .max_shared_bytes_per_block = 227 << 10,
                                  .l2_bytes = 50 << 20};
  const CudaTarget turing = LimitToArchitecture(kHopper, 75);
  EXPECT_EQ(turing.compute_capability, 75);
  EXPECT_EQ(turing.max_shared_bytes_per_block, 64 << 10);
  EXPECT_EQ(turing.num_sms, kHopper.num_sms);
  EXPECT_EQ(turing.l2_bytes, kHopper.l2_bytes);
  const CudaTarget ampere = LimitToArchitecture(kHopper, 80);
  EXPECT_EQ(ampere.compute_capability, 80);
  EXPECT_EQ(ampere.max_shared_bytes_per_block, kHopper.max_shared_bytes_per_block);
  EXPECT_EQ(LimitToArchitecture(kHopper, 120).compute_capability, 90);
}

// Where there is no GPU this is what a user sees.
TEST(CudaDeviceErrorTest, OneSentenceSaysWhyThereIsNoDevice) {
  const auto device = Open();
  if (device.ok()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(device.error().param, "device");
  EXPECT_FALSE(device.error().message.empty());
  EXPECT_EQ(device.error().message.find('\n'), std::string::npos);
}

TEST_F(CudaDeviceTest, MemoryIsZeroAndComesBackAsCopied) {
  for (const size_t size_bytes : {size_t{12}, size_t{1} << 16, (size_t{5} << 20) + 4}) {
    const Buffer pinned = Memory(size_bytes, MemoryKind::kPinned);
    const Buffer device = Memory(size_bytes, MemoryKind::kDevice);
    auto* bytes = pinned.as<unsigned char>();
    for (size_t i = 0; i < size_bytes; ++i) ASSERT_EQ(bytes[i], 0) << i;
    std::memset(bytes, 0xab, size_bytes);
    stream_->Copy(bytes, device.data(), size_bytes);
    stream_->Synchronize();
    for (size_t i = 0; i < size_bytes; ++i) ASSERT_EQ(bytes[i], 0) << i;
    for (size_t i = 0; i < size_bytes; ++i) bytes[i] = static_cast<unsigned char>(i * 7);
    stream_->Copy(device.data(), bytes, size_bytes);
    std::vector<unsigned char> back(size_bytes);
    stream_->Copy(back.data(), device.data(), size_bytes);
    stream_->Synchronize();
    ASSERT_EQ(std::memcmp(back.data(), bytes, size_bytes), 0);
  }
}

TEST_F(CudaDeviceTest, RowsKeepTheirStrides) {
  constexpr size_t kRows = 5;
  const Buffer device = Memory(kRows * 16, MemoryKind::kDevice);
  std::vector<int> from(kRows * 3);
  std::iota(from.begin(), from.end(), 1);
  stream_->CopyRows(device.data(), 16, from.data(), 12, 8, kRows);
  std::vector<int> to(kRows * 4, -1);
  stream_->Copy(to.data(), device.data(), kRows * 16);
  stream_->Synchronize();
  for (size_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(to[row * 4], from[row * 3]);
    EXPECT_EQ(to[row * 4 + 1], from[row * 3 + 1]);
    EXPECT_EQ(to[row * 4 + 2], 0);
  }
}

TEST_F(CudaDeviceTest, StreamWaitsForAFlagOfTheHostAndSetsOneForIt) {
  const auto ready = device_->CreateFlag();
  const auto done = device_->CreateFlag();
  stream_->WaitFlag(*ready, 3);
  stream_->SetFlag(*done, 7);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(done->value(), 0U);
  ready->Set(3);
  EXPECT_TRUE(done->Wait(7));
  EXPECT_EQ(done->value(), 7U);
  stream_->Synchronize();
}

TEST_F(CudaDeviceTest, AbortLetsTheStreamGoOnAndStaysVisible) {
  const auto flag = device_->CreateFlag();
  stream_->WaitFlag(*flag, 5);
  stream_->WaitFlag(*flag, 100);
  flag->Abort();
  stream_->Synchronize();
  EXPECT_TRUE(flag->aborted());
  EXPECT_FALSE(flag->Wait(1));
  flag->Set(2);  // too late to matter
  stream_->WaitFlag(*flag, 50);
  stream_->Synchronize();
  flag->Reset();
  EXPECT_FALSE(flag->aborted());
  EXPECT_EQ(flag->value(), 0U);
}

TEST_F(CudaDeviceTest, EventsOrderTwoStreams) {
  const auto other = device_->CreateStream(StreamKind::kCopy, "other");
  const auto gate = device_->CreateFlag();
  const auto event = device_->CreateEvent();
  // Copies of ordinary memory would wait for the stream.
  const Buffer host = Memory(8, MemoryKind::kPinned);
  const Buffer memory = Memory(4, MemoryKind::kDevice);
  host.as<int>()[0] = 1;
  stream_->WaitFlag(*gate, 1);
  stream_->Copy(memory.data(), host.data(), 4);
  stream_->Record(*event);
  other->Wait(*event);
  other->Copy(host.as<int>() + 1, memory.data(), 4);
  EXPECT_FALSE(event->Complete());
  gate->Set(1);
  other->Synchronize();
  EXPECT_EQ(host.as<int>()[1], 1);
  EXPECT_TRUE(event->Complete());
}

TEST_F(CudaDeviceTest, GraphReadsItsMemoryAnewOnEveryLaunch) {
  const Buffer in = Memory(4, MemoryKind::kPinned);
  const Buffer between = Memory(4, MemoryKind::kDevice);
  const Buffer out = Memory(4, MemoryKind::kPinned);
  stream_->BeginCapture();
  stream_->Copy(between.data(), in.data(), 4);
  stream_->Copy(out.data(), between.data(), 4);
  const auto graph = stream_->EndCapture();
  for (int value = 1; value < 4; ++value) {
    *in.as<int>() = value;
    stream_->Launch(*graph);
    stream_->Synchronize();
    EXPECT_EQ(*out.as<int>(), value);
  }
}

TEST_F(CudaDeviceTest, GraphOfTwoStreamsRunsInTheOrderOfItsEvents) {
  const Buffer in = Memory(4, MemoryKind::kPinned);
  const Buffer between = Memory(8, MemoryKind::kDevice);
  const Buffer out = Memory(4, MemoryKind::kPinned);
  const auto branch = device_->CreateStream(StreamKind::kCompute, "branch");
  const auto forked = device_->CreateEvent();
  const auto joined = device_->CreateEvent();
  stream_->BeginCapture();
  stream_->Copy(between.data(), in.data(), 4);
  stream_->Record(*forked);
  branch->Wait(*forked);
  branch->Copy(between.as<int>() + 1, between.data(), 4);
  branch->Record(*joined);
  stream_->Wait(*joined);
  stream_->Copy(out.data(), between.as<int>() + 1, 4);
  const auto graph = stream_->EndCapture();
  for (int value = 1; value < 4; ++value) {
    *in.as<int>() = value;
    // The branch, and the events once they are recorded, are free for other work.
    branch->Record(*joined);
    stream_->Wait(*joined);
    stream_->Launch(*graph);
    stream_->Synchronize();
    EXPECT_EQ(*out.as<int>(), value);
  }
}

TEST_F(CudaDeviceTest, StampsFollowTheHostClock) {
  const Buffer stamps = Memory(2 * sizeof(uint64_t), MemoryKind::kPinned);
  const int64_t offset = device_->ClockOffsetNs();
  const auto now_ns = [] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(steady_clock::now().time_since_epoch())
        .count();
  };
  const int64_t begin = now_ns();
  stream_->Stamp(stamps.as<uint64_t>());
  stream_->Synchronize();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  stream_->Stamp(stamps.as<uint64_t>() + 1);
  stream_->Synchronize();
  const int64_t end = now_ns();
  const int64_t first = static_cast<int64_t>(stamps.as<uint64_t>()[0]) + offset;
  const int64_t second = static_cast<int64_t>(stamps.as<uint64_t>()[1]) + offset;
  constexpr int64_t kSlackNs = 50'000;
  EXPECT_GE(first, begin - kSlackNs);
  EXPECT_GE(second, first + 5'000'000 - kSlackNs);
  EXPECT_LE(second, end + kSlackNs);
}

TEST_F(CudaDeviceTest, MemoryLimitBoundsWhatIsFreeAndIsNamed) {
  const size_t free_bytes = device_->FreeBytes(MemoryKind::kDevice);
  auto limited = Open({.memory_limit_bytes = int64_t{4} << 30});
  ASSERT_TRUE(limited.ok()) << limited.error().message;
  EXPECT_LT((*limited)->FreeBytes(MemoryKind::kDevice), size_t{4} << 30);
  EXPECT_LT((*limited)->FreeBytes(MemoryKind::kDevice), free_bytes);
  const auto buffer =
      (*limited)->Allocate(size_t{5} << 30, MemoryKind::kDevice, "weights", {.flag = "gpu-kv-cache"});
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(buffer.error().param, "gpu-kv-cache");
  EXPECT_NE(buffer.error().message.find("5120 MiB wanted"), std::string::npos) << buffer.error().message;
}

TEST_F(CudaDeviceTest, ImpossibleOptionsNameTheirFlag) {
  EXPECT_EQ(Open({.memory_limit_bytes = int64_t{1} << 50}).error().param, "gpu-memory-limit");
  EXPECT_EQ(Open({.memory_utilization = 1.5}).error().param, "gpu-memory-utilization");
  EXPECT_EQ(Open({.memory_utilization = 0.0}).error().param, "gpu-memory-utilization");
  EXPECT_EQ(Open({.sm_limit = 100000}).error().param, "gpu-sm-limit");
}

TEST_F(CudaDeviceTest, SliceHasItsOwnSmsAndWorks) {
  if (CudaTargetOf(*device_).compute_capability < 90) GTEST_SKIP() << "slices are tested on Hopper";
  for (const int sms : {8, 16, 32}) {
    auto slice = Open({.sm_limit = sms});
    ASSERT_TRUE(slice.ok()) << slice.error().message;
    EXPECT_EQ(CudaTargetOf(**slice).num_sms, sms);
    EXPECT_NE(CudaDeviceKey(**slice), CudaDeviceKey(*device_));
    const auto stream = (*slice)->CreateStream(StreamKind::kCompute, "slice");
    auto memory = (*slice)->Allocate(4, MemoryKind::kDevice, "test");
    ASSERT_TRUE(memory.ok());
    const int value = sms;
    int back = 0;
    stream->Copy(memory->data(), &value, 4);
    stream->Copy(&back, memory->data(), 4);
    stream->Synchronize();
    EXPECT_EQ(back, sms);
  }
}

}  // namespace
}  // namespace tandem
