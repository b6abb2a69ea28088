// Iterations that only decode, recorded once a batch size and replayed: no launch of the host stands between
// two layers.
//
//   replay of size 8   embed | pre0 ga0 post0 | pre1 ga1 post1 | ... | norm, lm_head      then sampling,
//   eagerly
//
// A batch runs in the smallest size that holds it. The rows beyond it are computed for nothing: token 0,
// appended nowhere, without attention and never sampled.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "execute/int_inputs.h"
#include "execute/iteration_stamps.h"
#include "execute/logits_stage.h"
#include "kv/tiered_cache.h"
#include "model/decoder.h"
#include "model/row_batch.h"
#include "ops/ops.h"

namespace tandem {

// Engine thread only. Everything outlives the graphs and stays where it is.
class DecodeGraphs {
 public:
  struct Parts {
    const Decoder* decoder = nullptr;
    const TieredCache* cache = nullptr;
    const RowBuffers* buffers = nullptr;
    IntInputs* inputs = nullptr;  // token ids, positions and gpu slots of the main sub-batch
    const AttentionPlan* plan = nullptr;
    const LogitsStage* logits_stage = nullptr;
    IterationStamps* stamps = nullptr;
  };
  explicit DecodeGraphs(const Parts& parts) : parts_(parts) {}

  // Records the sizes, largest first (they share memory that grows with the size). Blocks.
  void Capture(Stream& stream, std::span<const int64_t> batch_sizes);
  // The smallest size that holds num_rows; 0 if there is none.
  int64_t SizeFor(int64_t num_rows) const;
  // Fills inputs up to `size` rows: values of the rows beyond the given ones that harm nothing.
  static void Pad(int64_t size, std::vector<int32_t>* token_ids, std::vector<int32_t>* positions,
                  std::vector<int32_t>* slots);
  // Replays a recorded size. inputs hold `size` rows and are uploaded, the plan is that of the batch.
  void Launch(Stream& stream, int64_t size);

 private:
  void Enqueue(Stream& stream, int64_t size) const;

  struct Recorded {
    std::unique_ptr<Graph> graph;
    std::vector<StampLabel> labels;
  };

  Parts parts_;
  std::map<int64_t, Recorded> graphs_;
};

}  // namespace tandem
