// One shard's end of a channel between processes, on the host backend.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collective/collective.h"
#include "collective/mpi/mpi_wait.h"

namespace tandem {

// Every call goes through memory of its own: after a failure MPI may still read and write there.
class MpiCollective : public Collective {
 public:
  // communicator: of this channel alone, of all shards. state: outlives it.
  MpiCollective(MPI_Comm communicator, Shard shard, std::chrono::milliseconds timeout, ExchangeState* state);

  Shard shard() const override { return shard_; }
  void AllReduce(Stream& stream, const MatrixView& values) override;
  void AllGather(Stream& stream, const MatrixView& matrix, int64_t column_begin,
                 int64_t num_columns) override;
  void Broadcast(Stream& stream, void* data, size_t size_bytes) override;
  void Min(Stream& stream, std::span<int32_t> values) override;

 private:
  // Unless the exchange is over by then.
  void Enqueue(Stream& stream, std::function<void()> work);
  // Of the stream's thread, as all below.
  void Reduce(std::span<float> values);
  void Gather(const MatrixView& matrix, int64_t column_begin, int64_t num_columns);
  void ShareOfRank0(std::span<std::byte> data);
  void ReduceToMin(std::span<int32_t> values);

  // A copy, from which it may be sent until the next call of these two.
  std::span<std::byte> ToSend(std::span<const std::byte> own);
  std::span<std::byte> ToSend(size_t size_bytes);
  void Send(int rank, std::span<const std::byte> sent);
  // Where it will be; until the next call for that rank.
  std::span<std::byte> ToReceive(int rank, size_t size_bytes);
  // Waits for all that was sent and is to be received since the last call. False if the exchange is over.
  bool Exchange();
  // The same bytes to all others, as many from each.
  bool ShareWithAll(std::span<const std::byte> own);
  // What rank has sent: own where it is this one.
  template <typename T>
  const T* ReceivedFrom(int rank, const T* own) const {
    return rank == shard_.rank ? own
                               : reinterpret_cast<const T*>(received_[static_cast<size_t>(rank)].data());
  }
  // sum = what all have for elements of own, added in the order of ranks.
  void AddInRankOrder(std::span<const float> own, std::span<float> sum) const;

  const MPI_Comm communicator_;
  const Shard shard_;
  const std::chrono::milliseconds timeout_;
  ExchangeState* const state_;
  std::vector<std::byte> sent_;
  std::vector<std::vector<std::byte>> received_;  // by rank
  std::vector<MPI_Request> requests_;
  std::vector<int> ranks_;  // of the requests
};

}  // namespace tandem
