// What shards exchange. Every shard enqueues the same calls in the same order on a stream of its own; a call
// runs once all shards' streams have got to it, and nobody goes on before it is done.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/matrix_view.h"
#include "base/result.h"
#include "collective/shard.h"
#include "device/device.h"

namespace tandem {

// One shard's end of a channel. One thread enqueues, on the cuda backend each shard's own: a call may block
// until all shards have made it. Memory is the device's and stays alive and in place
// until the stream has run the call. After a failure of the group calls end at once and what they leave is
// undefined.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual Shard shard() const = 0;

  // values [rows, cols], dense, the same shape and type everywhere, becomes the sum over all shards, the same
  // bits on all of them. fp32, added in the order of ranks: the same bits in every run too. On the cuda
  // backend also bf16 and fp16, added in fp32 unless they are many.
  virtual void AllReduce(Stream& stream, const MatrixView& values) = 0;
  // matrix [rows, cols], of the same shape and type everywhere: each shard has filled its own columns
  // [column_begin, column_begin + num_columns) and gets those of the others.
  virtual void AllGather(Stream& stream, const MatrixView& matrix, int64_t column_begin,
                         int64_t num_columns) = 0;
  // What rank 0 has at data goes to data of all others.
  virtual void Broadcast(Stream& stream, void* data, size_t size_bytes) = 0;
  // Each value becomes the least of all shards'. As many everywhere.
  virtual void Min(Stream& stream, std::span<int32_t> values) = 0;
  // Before a graph that has captured such calls is launched: may block until all shards are about to.
  virtual void AwaitReplay() {}
};

// Streams of a shard that exchange beside each other have a channel each.
enum class ShardChannel { kCompute, kRiders };
inline constexpr size_t kNumShardChannels = 2;

// All shards. Any thread.
class CollectiveGroup {
 public:
  virtual ~CollectiveGroup() = default;
  virtual int size() const = 0;
  // Lives as long as the group.
  virtual Collective* Of(int rank, ShardChannel channel) = 0;
  // Ends all exchanges, those to come too: nobody waits for anybody any more. The first reason stays.
  virtual void Abort(std::string reason) = 0;
  // For how long an iteration may go without any progress before the group is to be aborted, where its own
  // waits have no bound.
  virtual std::optional<std::chrono::milliseconds> unbounded_timeout() const { return std::nullopt; }
  // kUnavailable with the reason once the group was aborted, or a shard has kept the others waiting for too
  // long.
  virtual std::optional<Error> failure() const = 0;
};

}  // namespace tandem
