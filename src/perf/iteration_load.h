// The work of an iteration plan in numbers.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem {

struct IterationLoad {
  int64_t prefill_tokens = 0;
  double prefill_attention_us = 0;  // of all chunks, one layer
  int64_t gpu_decode_rows = 0;
  int64_t gpu_kv_tokens = 0;  // that they read
  int64_t main_cpu_rows = 0;  // cpu decodes of the main sub-batch (NEO's batch-0)
  // That they read, here and below: shared reads count as perf/shared_reads.h says.
  int64_t main_cpu_kv_tokens = 0;
  // Of cohorts with visits of their own (NEO's batch-1); of one that does not visit all layers its share.
  int64_t cohort_rows = 0;
  int64_t cohort_kv_tokens = 0;
  // Visits of riding cohorts (APEX section 3.3), if their attention is done in time.
  int64_t rider_rows = 0;        // of all boundaries
  int64_t rider_kv_tokens = 0;   // that they read, one layer each, in the layer that follows the visit
  double rider_linear_us = 0;    // what they add to the linear operations, all boundaries together
  double rider_cpu_us = 0;       // CPU attention of one layer of each cohort, exchange included
  double rider_exchange_us = 0;  // the exchange of it
  // Layers that a cohort in transit passes, all together.
  double transit_us = 0;         // products and attention
  double transit_copies_us = 0;  // KV on its way in and out
  int64_t num_sampled = 0;       // rows of logits
  // Of chunks that are prefilled to the cpu tier: their own, whose KV leaves for it, and all before them,
  // whose KV comes in however short the chunk is; schedules that are compared count their own alone
  // (PrefillQueue::AddTo). Moves are not counted.
  int64_t swapped_tokens = 0;

  int64_t main_rows() const { return prefill_tokens + gpu_decode_rows + main_cpu_rows; }
  int64_t decode_rows() const { return gpu_decode_rows + main_cpu_rows + cohort_rows; }
};

// CPU attention behind the visit of a riding cohort: that of the next layer, none after the last.
struct RiderWork {
  int64_t kv_tokens = 0;
  double attention_us = 0;
  double exchange_us = 0;

  double cpu_us() const { return attention_us + exchange_us; }
};

// A layer of chunks in transit, microseconds.
struct TransitTimes {
  double compute_us = 0;
  double copies_us = 0;
};

// Parts of a layer, microseconds (NEO section 3.2).
struct LayerTimes {
  double linear_main_us = 0;    // T_l0
  double linear_cohort_us = 0;  // T_l1
  double gpu_attention_us = 0;  // T_ga0
  double cpu_main_us = 0;       // T_ca0, exchange included
  double cpu_cohort_us = 0;     // T_ca1, exchange included

  // max(T_l0, T_ca1) + max(T_l1 + T_ga0, T_ca0)
  double LayerUs() const {
    return std::max(linear_main_us, cpu_cohort_us) +
           std::max(linear_cohort_us + gpu_attention_us, cpu_main_us);
  }
};

// Where the time of iterations goes, microseconds; the sum is what they take.
struct TimeParts {
  double weights_us = 0;        // linear operations: reading the weights once for each sub-batch
  double products_us = 0;       // what they take beyond that
  double gpu_attention_us = 0;  // prompts and decodes
  double cpu_wait_us = 0;       // the GPU waits for CPU attention
  double copies_us = 0;         // it waits for copies between the tiers
  double outside_us = 0;        // outside the layers

  double SumUs() const {
    return weights_us + products_us + gpu_attention_us + cpu_wait_us + copies_us + outside_us;
  }
  TimeParts& operator+=(const TimeParts& other) {
    weights_us += other.weights_us;
    products_us += other.products_us;
    gpu_attention_us += other.gpu_attention_us;
    cpu_wait_us += other.cpu_wait_us;
    copies_us += other.copies_us;
    outside_us += other.outside_us;
    return *this;
  }
  TimeParts operator-(const TimeParts& other) const {
    return {.weights_us = weights_us - other.weights_us,
            .products_us = products_us - other.products_us,
            .gpu_attention_us = gpu_attention_us - other.gpu_attention_us,
            .cpu_wait_us = cpu_wait_us - other.cpu_wait_us,
            .copies_us = copies_us - other.copies_us,
            .outside_us = outside_us - other.outside_us};
  }
};

}  // namespace tandem
