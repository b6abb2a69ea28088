// Exchange between slices of one GPU, and between GPUs where there are several.

#include "collective/cuda/cuda_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "collective/rank_threads.h"
#include "device/cuda/cuda_device.h"

namespace tandem {
namespace {

using testing::HasSubstr;

struct GroupMachine {
  int num_shards = 2;
  bool in_slices = true;  // of one GPU; else a GPU each
};

std::string NameOfGroupMachine(const testing::TestParamInfo<GroupMachine>& info) {
  return std::to_string(info.param.num_shards) + (info.param.in_slices ? "_slices" : "_gpus");
}

class CudaGroupTest : public testing::TestWithParam<GroupMachine> {
 protected:
  void SetUp() override {
    auto devices =
        GetParam().in_slices ? CreateCudaSlices({}, num_shards()) : CreateCudaDevices({}, num_shards());
    if (!devices.ok()) GTEST_SKIP() << devices.error().message;
    devices_ = std::move(devices).value();
    for (const auto& device : devices_) {
      pointers_.push_back(device.get());
      streams_.push_back(device->CreateStream(StreamKind::kCompute, "shard"));
    }
    Open({.timeout = std::chrono::seconds(30)});
  }

  void Open(const CudaGroupOptions& options) {
    group_.reset();
    auto group = CreateCudaGroup(pointers_, options);
    ASSERT_TRUE(group.ok()) << group.error().message;
    group_ = std::move(group).value();
  }

  // A call may wait for those of the other ranks.
  void OnAll(const std::function<void(int rank)>& work) { threads_->Run(work); }

  static int num_shards() { return GetParam().num_shards; }
  Collective& On(int rank) { return *group_->Of(rank, ShardChannel::kCompute); }
  Stream& StreamOf(int rank) { return *streams_[static_cast<size_t>(rank)]; }

  // Bytes in the memory of a shard.
  Buffer Upload(int rank, const void* bytes, size_t size_bytes) {
    Buffer buffer =
        devices_[static_cast<size_t>(rank)]->Allocate(size_bytes, MemoryKind::kDevice, "test").value();
    StreamOf(rank).Copy(buffer.data(), bytes, size_bytes);
    StreamOf(rank).Synchronize();
    return buffer;
  }
  template <typename T>
  Buffer Upload(int rank, const std::vector<T>& values) {
    return Upload(rank, values.data(), values.size() * sizeof(T));
  }
  template <typename T>
  std::vector<T> Download(int rank, const Buffer& buffer) {
    std::vector<T> values(buffer.size_bytes() / sizeof(T));
    StreamOf(rank).Copy(values.data(), buffer.data(), buffer.size_bytes());
    StreamOf(rank).Synchronize();
    return values;
  }
  void Synchronize() {
    for (const auto& stream : streams_) stream->Synchronize();
  }

  // Sums of these depend on their order, and differ from those of other seeds.
  static float Value(int rank, int64_t i, int64_t seed) {
    const auto hash = static_cast<float>(1 + (i * 7919 + rank * 104'729 + seed * 31) % 10'007);
    return (rank % 2 == 0 ? 1.0F : -1.0F) * hash * (rank == 1 ? 1e-3F : 1.0F);
  }
  static std::vector<float> ValuesOf(int rank, int64_t count, int64_t seed) {
    std::vector<float> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = Value(rank, i, seed);
    return values;
  }
  static uint16_t Round(DType dtype, float value) {
    return dtype == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
  }
  static float Widen(DType dtype, uint16_t bits) {
    return dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
  }

  void ExpectExactSums(int64_t rows, int64_t cols, DType dtype);
  void ExpectExactSumsInFp32(int64_t rows, int64_t cols, int64_t offset);

  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<Device*> pointers_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::unique_ptr<CollectiveGroup> group_;
  std::unique_ptr<RankThreads> threads_ = std::make_unique<RankThreads>(num_shards());
};

// fp16 and bf16: added in fp32 in the order of ranks, rounded once.
void CudaGroupTest::ExpectExactSums(int64_t rows, int64_t cols, DType dtype) {
  const int64_t count = rows * cols;
  std::vector<std::vector<uint16_t>> values;
  std::vector<Buffer> buffers;
  for (int rank = 0; rank < num_shards(); ++rank) {
    std::vector<uint16_t>& own = values.emplace_back(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) own[static_cast<size_t>(i)] = Round(dtype, Value(rank, i, rows));
    buffers.push_back(Upload(rank, own));
  }
  OnAll([&](int rank) {
    On(rank).AllReduce(StreamOf(rank),
                       MatrixView::Dense(buffers[static_cast<size_t>(rank)].data(), dtype, rows, cols));
  });
  Synchronize();
  for (int rank = 0; rank < num_shards(); ++rank) {
    const auto sums = Download<uint16_t>(rank, buffers[static_cast<size_t>(rank)]);
    for (size_t i = 0; i < sums.size(); ++i) {
      float sum = Widen(dtype, values[0][i]);
      for (size_t other = 1; other < values.size(); ++other) sum += Widen(dtype, values[other][i]);
      ASSERT_EQ(sums[i], Round(dtype, sum)) << rows << " rows of " << cols << ", shard " << rank << ", " << i;
    }
  }
}

void CudaGroupTest::ExpectExactSumsInFp32(int64_t rows, int64_t cols, int64_t offset) {
  const int64_t count = rows * cols;
  std::vector<std::vector<float>> values;
  std::vector<Buffer> buffers;
  for (int rank = 0; rank < num_shards(); ++rank) {
    values.push_back(ValuesOf(rank, count + offset, rows));
    buffers.push_back(Upload(rank, values.back()));
  }
  OnAll([&](int rank) {
    float* const data = buffers[static_cast<size_t>(rank)].as<float>() + offset;
    On(rank).AllReduce(StreamOf(rank), MatrixView::Dense(data, DType::kF32, rows, cols));
  });
  Synchronize();
  for (int rank = 0; rank < num_shards(); ++rank) {
    const auto sums = Download<float>(rank, buffers[static_cast<size_t>(rank)]);
    for (size_t i = 0; i < sums.size(); ++i) {
      float sum = values[0][i];
      for (size_t other = 1; other < values.size(); ++other) sum += values[other][i];
      const float expected = static_cast<int64_t>(i) < offset ? values[static_cast<size_t>(rank)][i] : sum;
      ASSERT_EQ(sums[i], expected) << rows << " rows of " << cols << ", shard " << rank << ", " << i;
    }
  }
}

TEST_P(CudaGroupTest, AllReduceOfHalvesIsExact) {
  Open({.timeout = std::chrono::seconds(30), .use_nccl = false});
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 2, 3, 8, 31, 64, 128, 256, 300, 512}) ExpectExactSums(rows, 8192, dtype);
    ExpectExactSums(7, 911, dtype);
  }
}

TEST_P(CudaGroupTest, AllReduceInFp32AddsInTheOrderOfRanks) {
  for (const int64_t rows : {1, 2, 3, 8, 31, 64, 128, 256, 300, 512}) ExpectExactSumsInFp32(rows, 2048, 0);
  // Neither their address nor their number is one of vectors.
  ExpectExactSumsInFp32(7, 911, 1);
  ExpectExactSumsInFp32(513, 911, 3);
}

// Those that NCCL takes: two shards have one order.
TEST_P(CudaGroupTest, LargeAllReduceIsExact) {
  if (num_shards() > 2) GTEST_SKIP() << "the order of more than two is not told";
  Open({.timeout = std::chrono::seconds(30), .nccl_from_bytes = 1 << 20});
  for (const int64_t rows : {64, 512, 2048}) ExpectExactSums(rows, 8192, DType::kBF16);
}

TEST_P(CudaGroupTest, AllGatherBringsTheColumnsOfAll) {
  for (const int64_t rows : {1, 5, 64}) {
    for (const int64_t cols : {int64_t{10} * num_shards() + 1, int64_t{32'003}}) {
      std::vector<Buffer> buffers;
      const int64_t stride = cols + 3;
      const auto begin = [&](int rank) { return cols * rank / num_shards(); };
      for (int rank = 0; rank < num_shards(); ++rank) {
        std::vector<int32_t> own(static_cast<size_t>(rows * stride), -1);
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t col = begin(rank); col < begin(rank + 1); ++col)
            own[static_cast<size_t>(row * stride + col)] = static_cast<int32_t>(row * cols + col);
        }
        buffers.push_back(Upload(rank, own));
      }
      OnAll([&](int rank) {
        const MatrixView matrix = {buffers[static_cast<size_t>(rank)].data(), DType::kI32, rows, cols,
                                   stride};
        On(rank).AllGather(StreamOf(rank), matrix, begin(rank), begin(rank + 1) - begin(rank));
      });
      Synchronize();
      for (int rank = 0; rank < num_shards(); ++rank) {
        const auto all = Download<int32_t>(rank, buffers[static_cast<size_t>(rank)]);
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t col = 0; col < stride; ++col) {
            ASSERT_EQ(all[static_cast<size_t>(row * stride + col)], col < cols ? row * cols + col : -1)
                << "shard " << rank << ", row " << row << ", column " << col;
          }
        }
      }
    }
  }
}

TEST_P(CudaGroupTest, BroadcastAndMinFollowEachOther) {
  constexpr size_t kNumJoins = 700;
  for (int round = 0; round < 20; ++round) {
    std::vector<Buffer> tokens;
    std::vector<Buffer> joins;
    for (int rank = 0; rank < num_shards(); ++rank) {
      tokens.push_back(Upload(rank, std::vector<int32_t>(3, 1000 * rank + round)));
      std::vector<int32_t> own(kNumJoins, 2);
      own[static_cast<size_t>(rank)] = 1;
      joins.push_back(Upload(rank, own));
    }
    OnAll([&](int rank) {
      const auto index = static_cast<size_t>(rank);
      On(rank).Broadcast(StreamOf(rank), tokens[index].data(), tokens[index].size_bytes());
      On(rank).Min(StreamOf(rank), {joins[index].as<int32_t>(), kNumJoins});
    });
    Synchronize();
    for (int rank = 0; rank < num_shards(); ++rank) {
      EXPECT_EQ(Download<int32_t>(rank, tokens[static_cast<size_t>(rank)]), std::vector<int32_t>(3, round));
      const auto least = Download<int32_t>(rank, joins[static_cast<size_t>(rank)]);
      for (size_t i = 0; i < kNumJoins; ++i)
        ASSERT_EQ(least[i], i < static_cast<size_t>(num_shards()) ? 1 : 2) << i;
    }
  }
}

// As in a decode: one exchange after the other, of different sizes, again and again.
TEST_P(CudaGroupTest, AGraphOfExchangesRunsAgainAndAgain) {
  constexpr int64_t kCols = 8192;
  constexpr int kSums = 40;
  constexpr int kReplays = 10;
  const std::vector<int64_t> row_counts = {1, 256, 8, 64};
  const int64_t count = 256 * kCols;
  std::vector<Buffer> buffers;
  buffers.reserve(static_cast<size_t>(num_shards()));
  std::vector<std::unique_ptr<Graph>> graphs;
  for (int rank = 0; rank < num_shards(); ++rank) {
    // The first sum gives all of them rank 0's value, and each further one that many times.
    buffers.push_back(
        Upload(rank, std::vector<float>(static_cast<size_t>(count), rank == 0 ? 1.0F / 1024 : 0.0F)));
  }
  for (int rank = 0; rank < num_shards(); ++rank) {
    Stream& stream = StreamOf(rank);
    stream.BeginCapture();
    for (int i = 0; i < kSums; ++i) {
      const int64_t rows = row_counts[static_cast<size_t>(i) % row_counts.size()];
      On(rank).AllReduce(
          stream, MatrixView::Dense(buffers[static_cast<size_t>(rank)].data(), DType::kF32, rows, kCols));
    }
    graphs.push_back(stream.EndCapture());
  }
  for (int replay = 0; replay < kReplays; ++replay) {
    for (int rank = 0; rank < num_shards(); ++rank) StreamOf(rank).Launch(*graphs[static_cast<size_t>(rank)]);
    Synchronize();
    std::vector<std::vector<float>> all(static_cast<size_t>(num_shards()));
    for (int rank = 0; rank < num_shards(); ++rank) {
      all[static_cast<size_t>(rank)] = Download<float>(rank, buffers[static_cast<size_t>(rank)]);
      ASSERT_TRUE(all[static_cast<size_t>(rank)] == all[0]) << "replay " << replay << ", shard " << rank;
    }
    // Rows by how many of the sums they took part in.
    const auto num_sums_of = [&](int64_t row) {
      int num_sums = 0;
      for (int i = 0; i < kSums; ++i)
        num_sums += row < row_counts[static_cast<size_t>(i) % row_counts.size()] ? 1 : 0;
      return num_sums;
    };
    for (int64_t row = 0; row < 256; ++row) {
      float expected = 1.0F / 1024;
      for (int i = 1; i < num_sums_of(row); ++i) {
        float sum = expected;
        for (int rank = 1; rank < num_shards(); ++rank) sum += expected;
        expected = sum;
      }
      for (int64_t col = 0; col < kCols; ++col)
        ASSERT_EQ(all[0][static_cast<size_t>(row * kCols + col)], expected) << "row " << row;
    }
    for (int rank = 0; rank < num_shards(); ++rank) {
      const std::vector<float> again(static_cast<size_t>(count), rank == 0 ? 1.0F / 1024 : 0.0F);
      StreamOf(rank).Copy(buffers[static_cast<size_t>(rank)].data(), again.data(),
                          again.size() * sizeof(float));
      StreamOf(rank).Synchronize();
    }
  }
  EXPECT_FALSE(group_->failure());
}

TEST_P(CudaGroupTest, AShardThatDoesNotComeIsNamed) {
  Open({.timeout = std::chrono::milliseconds(200), .use_nccl = false});
  std::vector<Buffer> buffers;
  buffers.reserve(static_cast<size_t>(num_shards()));
  for (int rank = 0; rank < num_shards(); ++rank) buffers.push_back(Upload(rank, ValuesOf(rank, 8192, 1)));
  const int missing = num_shards() - 1;
  const auto start = std::chrono::steady_clock::now();
  OnAll([&](int rank) {
    for (int i = 0; rank < missing && i < 3; ++i) {
      On(rank).AllReduce(StreamOf(rank),
                         MatrixView::Dense(buffers[static_cast<size_t>(rank)].data(), DType::kF32, 1, 8192));
    }
  });
  for (int rank = 0; rank < missing; ++rank) StreamOf(rank).Synchronize();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  const auto failure = group_->failure();
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->message,
              HasSubstr("shard " + std::to_string(missing) + " of " + std::to_string(num_shards()) +
                        " has kept the others waiting for 0.2 s"));
  // Whoever comes later waits for nobody.
  On(missing).AllReduce(StreamOf(missing), MatrixView::Dense(buffers.back().data(), DType::kF32, 1, 8192));
  On(missing).AllReduce(StreamOf(missing), MatrixView::Dense(buffers.back().data(), DType::kF32, 1, 8192));
  StreamOf(missing).Synchronize();
}

// The host of a shard comes, and its GPU does not.
TEST_P(CudaGroupTest, AGpuThatDoesNotComeIsNamed) {
  Open({.timeout = std::chrono::milliseconds(200), .use_nccl = false});
  std::vector<Buffer> buffers;
  buffers.reserve(static_cast<size_t>(num_shards()));
  for (int rank = 0; rank < num_shards(); ++rank) buffers.push_back(Upload(rank, ValuesOf(rank, 8192, 1)));
  const std::unique_ptr<Flag> never = devices_.front()->CreateFlag();
  StreamOf(0).WaitFlag(*never, 1);
  OnAll([&](int rank) {
    On(rank).AllReduce(StreamOf(rank),
                       MatrixView::Dense(buffers[static_cast<size_t>(rank)].data(), DType::kF32, 1, 8192));
  });
  for (int rank = 1; rank < num_shards(); ++rank) StreamOf(rank).Synchronize();
  const auto failure = group_->failure();
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->message, HasSubstr("shard 0 of " + std::to_string(num_shards()) +
                                          " has kept the others waiting for 0.2 s"));
  never->Abort();
  Synchronize();
}

TEST_P(CudaGroupTest, AnAbortEndsAllWaits) {
  const Buffer buffer = Upload(0, ValuesOf(0, 8192, 1));
  std::thread waits([&] {
    On(0).AllReduce(StreamOf(0), MatrixView::Dense(buffer.data(), DType::kF32, 1, 8192));
    StreamOf(0).Synchronize();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  group_->Abort("shard 1 has stopped");
  waits.join();
  ASSERT_TRUE(group_->failure());
  EXPECT_EQ(group_->failure()->message, "shard 1 has stopped");
}

INSTANTIATE_TEST_SUITE_P(Machines, CudaGroupTest,
                         testing::Values(GroupMachine{2, true}, GroupMachine{3, true}, GroupMachine{4, true},
                                         GroupMachine{2, false}, GroupMachine{4, false}),
                         NameOfGroupMachine);

}  // namespace
}  // namespace tandem
