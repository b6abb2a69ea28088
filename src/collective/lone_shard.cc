#include "collective/lone_shard.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "collective/exchange_state.h"

namespace tandem {
namespace {

class LoneCollective : public Collective {
 public:
  LoneCollective(LoneShardOptions options, double delay_us)
      : options_(std::move(options)), delay_us_(delay_us) {}

  Shard shard() const override { return {.rank = 0, .size = options_.num_shards}; }

  void AllReduce(Stream& stream, const MatrixView& values) override {
    Spend(stream, values.rows * values.cols * static_cast<int64_t>(DTypeSize(values.dtype)));
  }

  void AllGather(Stream& stream, const MatrixView& matrix, int64_t column_begin,
                 int64_t num_columns) override {
    TANDEM_CHECK(column_begin == 0 && num_columns > 0, "all-gather: shard 0 has {} columns from {} on",
                 num_columns, column_begin);
    const size_t row_bytes = static_cast<size_t>(matrix.row_stride) * DTypeSize(matrix.dtype);
    for (int64_t begin = num_columns; begin < matrix.cols; begin += num_columns) {
      const int64_t count = std::min(num_columns, matrix.cols - begin);
      stream.CopyRows(matrix.Columns(begin, count).data, row_bytes, matrix.data, row_bytes,
                      static_cast<size_t>(count) * DTypeSize(matrix.dtype), static_cast<size_t>(matrix.rows));
    }
    Spend(stream, matrix.rows * (matrix.cols - num_columns) * static_cast<int64_t>(DTypeSize(matrix.dtype)));
  }

  void Broadcast(Stream& stream, void* /*data*/, size_t size_bytes) override {
    Spend(stream, static_cast<int64_t>(size_bytes));
  }

  void Min(Stream& stream, std::span<int32_t> values) override {
    Spend(stream, static_cast<int64_t>(values.size_bytes()));
  }

 private:
  // What it takes to enqueue a delay is of the time.
  void Spend(Stream& stream, int64_t size_bytes) const {
    const double us = std::max(0.0, SumUs(options_.times, size_bytes) - delay_us_);
    stream.Delay(std::chrono::nanoseconds(static_cast<int64_t>(us * 1000)));
  }

  const LoneShardOptions options_;
  const double delay_us_;
};

class LoneShardGroup : public CollectiveGroup {
 public:
  LoneShardGroup(const LoneShardOptions& options, double delay_us)
      : size_(options.num_shards),
        ends_{LoneCollective(options, delay_us), LoneCollective(options, delay_us)} {}

  int size() const override { return size_; }
  Collective* Of(int rank, ShardChannel channel) override {
    TANDEM_CHECK(rank == 0, "shard {} is not here", rank);
    return &ends_[static_cast<size_t>(channel)];
  }
  void Abort(std::string reason) override { state_.Abort(std::move(reason)); }
  std::optional<Error> failure() const override { return state_.failure(); }

 private:
  const int size_;
  std::array<LoneCollective, kNumShardChannels> ends_;
  ExchangeState state_;
};

// What a delay of nothing takes, one behind the other in a graph.
Result<double> MeasureDelayUs(Device* device) {
  constexpr int kDelays = 160;
  constexpr int kRepeats = 5;
  TANDEM_ASSIGN_OR_RETURN(const Buffer stamps,
                          device->Allocate(2 * sizeof(uint64_t), MemoryKind::kPinned, "exchange"));
  const auto stream = device->CreateStream(StreamKind::kCompute, "delays");
  stream->BeginCapture();
  for (int i = 0; i < kDelays; ++i) stream->Delay(std::chrono::nanoseconds(0));
  const auto graph = stream->EndCapture();
  double least_us = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    auto* const at = stamps.as<uint64_t>();
    stream->Stamp(at);
    stream->Launch(*graph);
    stream->Stamp(at + 1);
    stream->Synchronize();
    const double us = static_cast<double>(at[1] - at[0]) / 1000 / kDelays;
    least_us = repeat == 0 ? us : std::min(least_us, us);
  }
  return least_us;
}

}  // namespace

double SumUs(const std::vector<SumTime>& times, int64_t size_bytes) {
  TANDEM_CHECK(!times.empty(), "no times of sums");
  const auto after = std::ranges::upper_bound(times, size_bytes, {}, &SumTime::size_bytes);
  if (after == times.begin()) return after->us;
  const SumTime& low = *std::prev(after);
  const auto beyond = static_cast<double>(size_bytes - low.size_bytes);
  if (after == times.end()) return low.us * (1 + beyond / static_cast<double>(low.size_bytes));
  return low.us + (after->us - low.us) * beyond / static_cast<double>(after->size_bytes - low.size_bytes);
}

Result<std::unique_ptr<CollectiveGroup>> CreateLoneShard(Device* device, const LoneShardOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const double delay_us, MeasureDelayUs(device));
  return std::unique_ptr<CollectiveGroup>(std::make_unique<LoneShardGroup>(options, delay_us));
}

}  // namespace tandem
