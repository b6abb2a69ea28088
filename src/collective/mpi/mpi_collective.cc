#include "collective/mpi/mpi_collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "device/host/host_device.h"

namespace tandem {
namespace {

constexpr int kExchangeTag = 0;
// Sums of more are cut: each shard adds up a part for all, so that less is sent, in one step more.
constexpr size_t kCutFromFloats = 16'384;

struct ColumnRange {
  int64_t begin = 0;
  int64_t count = 0;
};

int AsCount(size_t size_bytes) {
  TANDEM_CHECK(size_bytes <= static_cast<size_t>(std::numeric_limits<int>::max()), "a message of {} bytes",
               size_bytes);
  return static_cast<int>(size_bytes);
}

}  // namespace

MpiCollective::MpiCollective(MPI_Comm communicator, Shard shard, std::chrono::milliseconds timeout,
                             ExchangeState* state)
    : communicator_(communicator),
      shard_(shard),
      timeout_(timeout),
      state_(state),
      received_(static_cast<size_t>(shard.size)) {}

std::span<std::byte> MpiCollective::ToSend(size_t size_bytes) {
  if (sent_.size() < size_bytes) sent_.resize(size_bytes);
  return std::span(sent_).first(size_bytes);
}

std::span<std::byte> MpiCollective::ToSend(std::span<const std::byte> own) {
  const std::span<std::byte> sent = ToSend(own.size());
  std::ranges::copy(own, sent.begin());
  return sent;
}

std::span<std::byte> MpiCollective::ToReceive(int rank, size_t size_bytes) {
  std::vector<std::byte>& memory = received_[static_cast<size_t>(rank)];
  if (memory.size() < size_bytes) memory.resize(size_bytes);
  const std::span<std::byte> place = std::span(memory).first(size_bytes);
  CheckMpi(MPI_Irecv(place.data(), AsCount(size_bytes), MPI_BYTE, rank, kExchangeTag, communicator_,
                     &requests_.emplace_back()),
           "MPI_Irecv");
  ranks_.push_back(rank);
  return place;
}

void MpiCollective::Send(int rank, std::span<const std::byte> sent) {
  CheckMpi(MPI_Isend(sent.data(), AsCount(sent.size()), MPI_BYTE, rank, kExchangeTag, communicator_,
                     &requests_.emplace_back()),
           "MPI_Isend");
  ranks_.push_back(rank);
}

bool MpiCollective::Exchange() {
  const bool done = AwaitMpi(*state_, timeout_, [this] {
    int all = 0;
    CheckMpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE),
             "MPI_Testall");
    return all != 0;
  });
  if (!done && !state_->aborted()) {
    int late = shard_.size;
    for (size_t i = 0; i < requests_.size(); ++i) {
      int ended = 0;
      CheckMpi(MPI_Test(&requests_[i], &ended, MPI_STATUS_IGNORE), "MPI_Test");
      if (ended == 0) late = std::min(late, ranks_[i]);
    }
    if (late < shard_.size) {
      state_->Abort(fmt::format("shard {} of {} has kept the others waiting for {:g} s", late, shard_.size,
                                std::chrono::duration<double>(timeout_).count()));
    }
  }
  requests_.clear();
  ranks_.clear();
  return !state_->aborted();
}

bool MpiCollective::ShareWithAll(std::span<const std::byte> own) {
  for (int rank = 0; rank < shard_.size; ++rank) {
    if (rank != shard_.rank) ToReceive(rank, own.size());
  }
  const std::span<std::byte> sent = ToSend(own);
  for (int rank = 0; rank < shard_.size; ++rank) {
    if (rank == shard_.rank) continue;
    Send(rank, sent);
  }
  return Exchange();
}

void MpiCollective::AddInRankOrder(std::span<const float> own, std::span<float> sum) const {
  // own may be where the sum goes.
  constexpr size_t kPartFloats = 2048;
  std::array<float, kPartFloats> part;
  for (size_t begin = 0; begin < own.size(); begin += kPartFloats) {
    const size_t count = std::min(kPartFloats, own.size() - begin);
    std::copy_n(ReceivedFrom(0, own.data()) + begin, count, part.begin());
    for (int rank = 1; rank < shard_.size; ++rank) {
      const float* const values = ReceivedFrom(rank, own.data()) + begin;
      for (size_t i = 0; i < count; ++i) part[i] += values[i];
    }
    std::copy_n(part.begin(), count, sum.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

void MpiCollective::Reduce(std::span<float> values) {
  if (values.size() < kCutFromFloats) {
    if (ShareWithAll(std::as_bytes(values))) AddInRankOrder(values, values);
    return;
  }
  const auto part_of = [&](int rank) {
    const size_t begin = values.size() * static_cast<size_t>(rank) / static_cast<size_t>(shard_.size);
    const size_t end = values.size() * static_cast<size_t>(rank + 1) / static_cast<size_t>(shard_.size);
    return values.subspan(begin, end - begin);
  };
  const std::span<float> own = part_of(shard_.rank);
  const std::span<std::byte> sent = ToSend(std::as_bytes(values));
  for (int rank = 0; rank < shard_.size; ++rank) {
    if (rank == shard_.rank) continue;
    ToReceive(rank, own.size_bytes());
    Send(rank, sent.subspan(static_cast<size_t>(part_of(rank).data() - values.data()) * sizeof(float),
                            part_of(rank).size_bytes()));
  }
  if (!Exchange()) return;
  AddInRankOrder(own, own);
  const std::span<std::byte> sum = ToSend(std::as_bytes(own));
  for (int rank = 0; rank < shard_.size; ++rank) {
    if (rank == shard_.rank) continue;
    ToReceive(rank, part_of(rank).size_bytes());
    Send(rank, sum);
  }
  if (!Exchange()) return;
  for (int rank = 0; rank < shard_.size; ++rank) {
    const std::span<float> part = part_of(rank);
    if (rank != shard_.rank) std::copy_n(ReceivedFrom(rank, part.data()), part.size(), part.begin());
  }
}

void MpiCollective::Gather(const MatrixView& matrix, int64_t column_begin, int64_t num_columns) {
  // How the columns are cut each shard says itself.
  const ColumnRange own = {.begin = column_begin, .count = num_columns};
  if (!ShareWithAll(std::as_bytes(std::span(&own, 1)))) return;
  std::vector<ColumnRange> ranges(static_cast<size_t>(shard_.size));
  for (int rank = 0; rank < shard_.size; ++rank)
    std::memcpy(&ranges[static_cast<size_t>(rank)], ReceivedFrom(rank, &own), sizeof(ColumnRange));
  const size_t element_bytes = DTypeSize(matrix.dtype);
  const auto row_bytes = [&](int rank) {
    return static_cast<size_t>(ranges[static_cast<size_t>(rank)].count) * element_bytes;
  };
  const auto columns_of = [&](int rank) {
    const ColumnRange& range = ranges[static_cast<size_t>(rank)];
    return matrix.Columns(range.begin, range.count);
  };
  const auto num_rows = static_cast<size_t>(matrix.rows);
  const std::span<std::byte> sent = ToSend(num_rows * row_bytes(shard_.rank));
  for (size_t row = 0; row < num_rows; ++row) {
    std::memcpy(sent.data() + row * row_bytes(shard_.rank),
                columns_of(shard_.rank).RowData(static_cast<int64_t>(row)), row_bytes(shard_.rank));
  }
  for (int rank = 0; rank < shard_.size; ++rank) {
    if (rank == shard_.rank) continue;
    ToReceive(rank, num_rows * row_bytes(rank));
    Send(rank, sent);
  }
  if (!Exchange()) return;
  for (int rank = 0; rank < shard_.size; ++rank) {
    if (rank == shard_.rank) continue;
    const std::byte* const received = received_[static_cast<size_t>(rank)].data();
    const MatrixView columns = columns_of(rank);
    for (size_t row = 0; row < num_rows; ++row) {
      std::memcpy(columns.RowData(static_cast<int64_t>(row)), received + row * row_bytes(rank),
                  row_bytes(rank));
    }
  }
}

void MpiCollective::ShareOfRank0(std::span<std::byte> data) {
  if (shard_.rank > 0) {
    const std::span<std::byte> received = ToReceive(0, data.size());
    if (Exchange()) std::ranges::copy(received, data.begin());
    return;
  }
  const std::span<std::byte> sent = ToSend(data);
  for (int rank = 1; rank < shard_.size; ++rank) Send(rank, sent);
  Exchange();
}

void MpiCollective::ReduceToMin(std::span<int32_t> values) {
  if (!ShareWithAll(std::as_bytes(values))) return;
  for (int rank = 0; rank < shard_.size; ++rank) {
    const int32_t* const others = ReceivedFrom(rank, values.data());
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::min(values[i], others[i]);
  }
}

void MpiCollective::Enqueue(Stream& stream, std::function<void()> work) {
  AsHostStream(stream).Enqueue([this, work = std::move(work)](ComputePool&) {
    // What was under way when the exchange ended may still be, in the memory of these calls.
    if (!state_->aborted()) work();
  });
}

void MpiCollective::AllReduce(Stream& stream, const MatrixView& values) {
  TANDEM_CHECK(values.dtype == DType::kF32 && values.row_stride == values.cols,
               "all-reduce: [{}, {}] {} with a row stride of {}", values.rows, values.cols,
               DTypeName(values.dtype), values.row_stride);
  Enqueue(stream, [this, values] {
    Reduce({static_cast<float*>(values.data), static_cast<size_t>(values.rows * values.cols)});
  });
}

void MpiCollective::AllGather(Stream& stream, const MatrixView& matrix, int64_t column_begin,
                              int64_t num_columns) {
  Enqueue(stream, [this, matrix, column_begin, num_columns] { Gather(matrix, column_begin, num_columns); });
}

void MpiCollective::Broadcast(Stream& stream, void* data, size_t size_bytes) {
  Enqueue(stream, [this, data, size_bytes] { ShareOfRank0({static_cast<std::byte*>(data), size_bytes}); });
}

void MpiCollective::Min(Stream& stream, std::span<int32_t> values) {
  Enqueue(stream, [this, values] { ReduceToMin(values); });
}

}  // namespace tandem
