// The streams that an iteration runs on, each with the times at which it reached which point.
//
//   compute    the model
//   copy       moves between the tiers, KV in transit
//   rows_out   Q/K/V of cpu rows to the host
//   rows_in    their O back
//   riders     rows of riding cohorts join and leave
//
// The last three are there with a cpu tier only, riders if cohorts can ride.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/timeline.h"
#include "collective/shard.h"
#include "device/device.h"
#include "execute/iteration_stamps.h"

namespace tandem {

struct Lane {
  std::string timeline_name;
  IterationStamps stamps;
  std::unique_ptr<Stream> stream;  // null: there is none. Last, because its work writes the stamps
};

// Engine thread only.
class Lanes {
 public:
  struct Which {
    bool cpu_tier = false;
    bool riders = false;
  };
  // shard: of which these are the lanes. device, and timeline unless it is null: outlive the lanes. Errors:
  // kResourceExhausted.
  static Result<std::unique_ptr<Lanes>> Create(Device* device, int64_t num_layers, const Which& which,
                                               Timeline* timeline, const Shard& shard = {});

  Lane& compute() { return compute_; }
  Lane& copy() { return copy_; }
  Lane& rows_out() { return rows_out_; }
  Lane& rows_in() { return rows_in_; }
  Lane& riders() { return riders_; }

  // The stamps of a new iteration, while none runs that is to have others: those of the copy lane before its
  // moves, all others before its rows.
  void BeginMoves();
  void Begin();
  // Whether the next iteration may be enqueued before the times of this one are read.
  bool stamps_alternate() const { return !detailed_ && compute_.stamps.alternate(); }
  // Whether the next BeginMoves finds that somebody wants a timeline.
  bool timeline_wanted() const { return timeline_ != nullptr && timeline_->on(); }
  // Blocks until all lanes have run what is enqueued. Then AddToTimeline, of the last shard last: its ends
  // the iteration there.
  void Synchronize();
  void AddToTimeline();

 private:
  Lanes() = default;
  void SetDetailed(bool detailed);

  Device* device_ = nullptr;
  Timeline* timeline_ = nullptr;
  bool detailed_ = false;  // in this iteration
  bool is_last_shard_ = true;
  int64_t clock_offset_ns_ = 0;
  Lane compute_{.timeline_name = "gpu"};
  Lane copy_{.timeline_name = "copy: KV"};
  Lane rows_out_{.timeline_name = "copy: rows out"};
  Lane rows_in_{.timeline_name = "copy: rows in"};
  Lane riders_{.timeline_name = "riders"};
};

}  // namespace tandem
