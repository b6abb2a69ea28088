// Prefill of sequences that live in the cpu tier: their KV passes through the device layer by layer and takes
// no room in the gpu tier (NEO section 3.1, layer-wise swapping).
//
//   compute stream   [in 0] pre 0 | attention 0 | [in 1] pre 1 | attention 1 | [in 2, out 0] pre 2 ...
//   copy stream      in 0, in 1 .... out 0 | in 2 ....... out 1 | in 3 ...
//
// Two slots hold one layer each, layer i in slot i % 2. "in" brings what earlier chunks of a prompt have left
// in the cpu tier, "out" takes the blocks of this chunk there.
//
// The main sub-batch's chunks pass all layers in an iteration, a cohort in transit some of them
// (execute/transit_cohort.h). Both share the slots: each has blocks of its own.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "execute/iteration_stamps.h"
#include "kv/kv_memory.h"
#include "ops/ops.h"
#include "plan/iteration_plan.h"

namespace tandem {

// Device memory of two layers.
class TransitSlots {
 public:
  // Room for the contexts of all chunks of an iteration, and of a cohort in flight: max_tokens, each context
  // rounded up to blocks. shape: as they pass through the device. Errors: kResourceExhausted.
  static Result<std::unique_ptr<TransitSlots>> Create(Device* device, const KvShape& shape,
                                                      int64_t max_tokens);
  static size_t BytesFor(const KvShape& shape, int64_t max_tokens);

  int64_t max_blocks() const { return max_blocks_; }
  const KvShape& shape() const { return shape_; }
  // Where a layer lies while it passes.
  KvLayerView LayerView(int64_t layer) const;

 private:
  KvShape shape_;
  int64_t max_blocks_ = 0;
  std::array<Buffer, 2> slots_;
};

// Engine thread only.
class KvTransit {
 public:
  // All arguments outlive it.
  KvTransit(Device* device, Ops* ops, const KvMemory* kv, const TransitSlots* slots);

  const TransitSlots& slots() const { return *slots_; }
  // No chunks; those to come take blocks of the slots from first_block on.
  void Begin(int64_t first_block);
  // Takes room for a chunk, with the blocks of its context in the cpu tier. CHECKs the room. Returns the
  // numbers of its blocks in the slots, from the start of the context; valid until the next call.
  const std::vector<int32_t>& Add(const RowSpan& chunk, std::vector<int32_t> block_table);
  bool empty() const { return chunks_.empty(); }
  // Behind those of all chunks since Begin.
  int64_t end_block() const { return end_block_; }
  // All chunks are there, and pass layers [begin, end) now, the first ones 0 or where they ended before: what
  // ran then has ended. Brings what earlier chunks have left in the cpu tier, of the first layers; later on
  // of one layer more than they pass, which they find there when they go on.
  void Start(int64_t begin, int64_t end, Stream& copy_stream);

  // In this order for every layer:
  // before K and V of the chunks are appended,
  void AwaitSlot(int64_t layer, Stream& compute_stream);
  // after they are,
  // stamps: of the copy stream.
  void CopyOut(int64_t layer, Stream& compute_stream, Stream& copy_stream, IterationStamps* stamps);
  // after attention.
  void Attended(int64_t layer, Stream& compute_stream, Stream& copy_stream);

 private:
  struct Chunk {
    std::vector<int32_t> slot_blocks;
    std::vector<int32_t> cpu_blocks;
    int64_t num_blocks_in = 0;    // that hold tokens of earlier chunks
    int64_t first_block_out = 0;  // that holds a token of this one
  };

  void CopyIn(int64_t layer, Stream& copy_stream);

  Ops* ops_;
  const KvMemory* kv_;
  const TransitSlots* slots_;
  std::vector<Chunk> chunks_;
  bool any_in_ = false;
  int64_t end_block_ = 0;
  int64_t begin_layer_ = 0;  // of Start
  int64_t end_layer_ = 0;
  int64_t num_layers_in_ = 0;  // brought in, or on their way
  std::unique_ptr<Event> appended_;
  std::array<std::unique_ptr<Event>, 2> in_;  // of each slot
  std::array<std::unique_ptr<Event>, 2> out_;
  std::array<std::unique_ptr<Event>, 2> attended_;
};

}  // namespace tandem
