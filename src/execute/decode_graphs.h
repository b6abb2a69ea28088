// Iterations that only decode, recorded once a batch size and replayed: no launch of the host stands between
// two layers.
//
//   replay of size 8   embed | pre0 ga0 post0 | pre1 ga1 post1 | ... | norm, lm_head      then sampling,
//   eagerly
//
// A batch runs in the smallest size that holds it. The rows beyond it are computed for nothing: token 0,
// appended nowhere, without attention and never sampled. With riders (execute/riding.h) there are graphs that
// have the same number of rows for them at every boundary, behind those; whoever rides is read anew in every
// replay. Where one cohort is much larger than the others, most of these rows would be padding: then the
// iteration is enqueued op by op.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "device/device.h"
#include "execute/int_inputs.h"
#include "execute/iteration_stamps.h"
#include "execute/logits_stage.h"
#include "execute/riding.h"
#include "kv/kv_memory.h"
#include "model/decoder.h"
#include "model/row_batch.h"
#include "ops/ops.h"

namespace tandem {

struct GraphShape {
  int64_t num_rows = 0;        // of the main sub-batch, padding included
  int64_t num_rider_rows = 0;  // at every boundary; 0: none ride
  bool empty() const { return num_rows == 0; }
  int64_t total_rows() const { return num_rows + num_rider_rows; }
  bool operator<(const GraphShape& other) const {
    return std::pair(num_rows, num_rider_rows) < std::pair(other.num_rows, other.num_rider_rows);
  }
};

// Engine thread only. Everything outlives the graphs and stays where it is.
class DecodeGraphs {
 public:
  struct Parts {
    const Decoder* decoder = nullptr;
    KvMemory* memory = nullptr;
    const RowBuffers* buffers = nullptr;
    IntInputs* inputs = nullptr;  // token ids, positions and gpu slots of all rows
    const AttentionPlan* plan = nullptr;
    const LogitsStage* logits_stage = nullptr;
    IterationStamps* stamps = nullptr;
    Riding* riding = nullptr;  // null: no riders
    IterationStamps* rider_stamps = nullptr;
  };
  explicit DecodeGraphs(const Parts& parts) : parts_(parts) {}

  // Records the shapes, largest first (they share memory that grows with the size). Blocks.
  void Capture(Stream& stream, std::vector<GraphShape> shapes);
  // The smallest shape that holds num_rows, and as many riders as at the boundary with most of them, if there
  // are any; empty if there is none, or if beside mean_rider_rows, of all boundaries, it is too much padding.
  GraphShape ShapeFor(int64_t num_rows, int64_t most_rider_rows, int64_t mean_rider_rows) const;
  // Replays a recorded shape. inputs hold its rows and are uploaded, the plan is that of the batch.
  void Launch(Stream& stream, const GraphShape& shape);

 private:
  void Enqueue(Stream& stream, const GraphShape& shape) const;

  struct Recorded {
    std::unique_ptr<Graph> graph;
    std::vector<StampLabel> labels;
    std::vector<StampLabel> rider_labels;
  };

  Parts parts_;
  std::map<GraphShape, Recorded> graphs_;
};

}  // namespace tandem
