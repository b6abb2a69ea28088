#include "collective/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "collective/exchange_state.h"
#include "collective/rendezvous.h"
#include "device/host/host_device.h"

namespace tandem {
namespace {

// What a shard shows the others for the time of a call.
struct Shown {
  MatrixView matrix;
  int64_t column_begin = 0;
  int64_t num_columns = 0;
  void* data = nullptr;
  std::span<int32_t> values;
};

// Floats that one task adds up: they fit the first cache.
constexpr int64_t kTaskFloats = 2048;

// values: of all ranks, in their order. Elements [begin, begin + count) of all become their sum.
void SumInRankOrder(const std::vector<Shown>& shown, int64_t begin, int64_t count) {
  std::array<float, kTaskFloats> sum;
  const auto at = [&](size_t rank) { return static_cast<float*>(shown[rank].matrix.data) + begin; };
  std::copy_n(at(0), count, sum.begin());
  for (size_t rank = 1; rank < shown.size(); ++rank) {
    const float* const values = at(rank);
    for (int64_t i = 0; i < count; ++i) sum[static_cast<size_t>(i)] += values[i];
  }
  for (size_t rank = 0; rank < shown.size(); ++rank) std::copy_n(sum.begin(), count, at(rank));
}

// Of all shards of a group. A call of a shard shows what it has, meets the others, does its part, and meets
// them again before anybody's memory may change.
class Channel {
 public:
  Channel(int size, std::chrono::milliseconds timeout, const std::function<void(int rank)>& on_late)
      : shown_(static_cast<size_t>(size)), rendezvous_(size, timeout, on_late) {}

  template <typename Part>
  void Exchange(int rank, const Shown& shows, const Part& part) {
    // Another shard may still read what this one has shown last.
    if (rendezvous_.aborted()) return;
    shown_[static_cast<size_t>(rank)] = shows;
    if (!rendezvous_.Arrive(rank)) return;
    part(shown_);
    rendezvous_.Arrive(rank);
  }
  void Abort() { rendezvous_.Abort(); }

 private:
  std::vector<Shown> shown_;  // by rank
  Rendezvous rendezvous_;
};

class SharedMemoryCollective : public Collective {
 public:
  SharedMemoryCollective(Shard shard, Channel* channel) : shard_(shard), channel_(channel) {}

  Shard shard() const override { return shard_; }

  void AllReduce(Stream& stream, const MatrixView& values) override {
    TANDEM_CHECK(values.dtype == DType::kF32 && values.row_stride == values.cols,
                 "all-reduce: [{}, {}] {} with a row stride of {}", values.rows, values.cols,
                 DTypeName(values.dtype), values.row_stride);
    AsHostStream(stream).Enqueue([this, values](ComputePool& pool) {
      channel_->Exchange(shard_.rank, {.matrix = values}, [&](const std::vector<Shown>& shown) {
        for (const Shown& other : shown) {
          TANDEM_CHECK(other.matrix.rows == values.rows && other.matrix.cols == values.cols,
                       "all-reduce: [{}, {}] meets [{}, {}]", values.rows, values.cols, other.matrix.rows,
                       other.matrix.cols);
        }
        // Every rank adds up a part of the tasks, for all.
        const int64_t num_floats = values.rows * values.cols;
        const int64_t num_tasks = (num_floats + kTaskFloats - 1) / kTaskFloats;
        const int64_t first = num_tasks * shard_.rank / shard_.size;
        const int64_t end = num_tasks * (shard_.rank + 1) / shard_.size;
        pool.ParallelFor(end - first, [&](int64_t i) {
          const int64_t begin = (first + i) * kTaskFloats;
          SumInRankOrder(shown, begin, std::min(kTaskFloats, num_floats - begin));
        });
      });
    });
  }

  void AllGather(Stream& stream, const MatrixView& matrix, int64_t column_begin,
                 int64_t num_columns) override {
    const Shown shows = {.matrix = matrix, .column_begin = column_begin, .num_columns = num_columns};
    AsHostStream(stream).Enqueue([this, shows](ComputePool& pool) {
      channel_->Exchange(shard_.rank, shows, [&](const std::vector<Shown>& shown) {
        for (const Shown& other : shown) {
          TANDEM_CHECK(other.matrix.rows == shows.matrix.rows && other.matrix.cols == shows.matrix.cols &&
                           other.matrix.dtype == shows.matrix.dtype,
                       "all-gather: [{}, {}] {} meets [{}, {}] {}", shows.matrix.rows, shows.matrix.cols,
                       DTypeName(shows.matrix.dtype), other.matrix.rows, other.matrix.cols,
                       DTypeName(other.matrix.dtype));
        }
        pool.ParallelFor(shows.matrix.rows, [&](int64_t row) {
          for (const Shown& other : shown) {
            if (other.matrix.data == shows.matrix.data) continue;
            std::memcpy(shows.matrix.Columns(other.column_begin, other.num_columns).RowData(row),
                        other.matrix.Columns(other.column_begin, other.num_columns).RowData(row),
                        static_cast<size_t>(other.num_columns) * DTypeSize(other.matrix.dtype));
          }
        });
      });
    });
  }

  void Broadcast(Stream& stream, void* data, size_t size_bytes) override {
    AsHostStream(stream).Enqueue([this, data, size_bytes](ComputePool&) {
      channel_->Exchange(shard_.rank, {.data = data}, [&](const std::vector<Shown>& shown) {
        if (shard_.rank != 0) std::memcpy(data, shown.front().data, size_bytes);
      });
    });
  }

  void Min(Stream& stream, std::span<int32_t> values) override {
    AsHostStream(stream).Enqueue([this, values](ComputePool&) {
      // Others read the values until all have met again: a rank's own are written behind that.
      std::vector<int32_t> least(values.begin(), values.end());
      bool met = false;
      channel_->Exchange(shard_.rank, {.values = values}, [&](const std::vector<Shown>& shown) {
        met = true;
        for (const Shown& other : shown) {
          TANDEM_CHECK(other.values.size() == values.size(), "min: {} values meet {}", values.size(),
                       other.values.size());
          for (size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], other.values[i]);
        }
      });
      if (met) std::ranges::copy(least, values.begin());
    });
  }

 private:
  const Shard shard_;
  Channel* const channel_;
};

class SharedMemoryGroup : public CollectiveGroup {
 public:
  explicit SharedMemoryGroup(const SharedMemoryOptions& options) : size_(options.num_shards) {
    const auto on_late = [this, options](int rank) {
      Abort(fmt::format("shard {} of {} has kept the others waiting for {:g} s", rank, size_,
                        std::chrono::duration<double>(options.timeout).count()));
    };
    for (size_t i = 0; i < kNumShardChannels; ++i) {
      channels_[i] = std::make_unique<Channel>(size_, options.timeout, on_late);
      for (int rank = 0; rank < size_; ++rank) {
        ends_[i].push_back(
            std::make_unique<SharedMemoryCollective>(Shard{.rank = rank, .size = size_}, channels_[i].get()));
      }
    }
  }

  int size() const override { return size_; }
  Collective* Of(int rank, ShardChannel channel) override {
    return ends_[static_cast<size_t>(channel)][static_cast<size_t>(rank)].get();
  }
  void Abort(std::string reason) override {
    state_.Abort(std::move(reason));
    for (const auto& channel : channels_) channel->Abort();
  }
  std::optional<Error> failure() const override { return state_.failure(); }

 private:
  const int size_;
  ExchangeState state_;
  std::array<std::unique_ptr<Channel>, kNumShardChannels> channels_;
  std::array<std::vector<std::unique_ptr<Collective>>, kNumShardChannels> ends_;
};

}  // namespace

std::unique_ptr<CollectiveGroup> CreateSharedMemoryGroup(const SharedMemoryOptions& options) {
  TANDEM_CHECK(options.num_shards >= 1, "{} shards", options.num_shards);
  return std::make_unique<SharedMemoryGroup>(options);
}

}  // namespace tandem
