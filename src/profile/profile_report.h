// A cost table for people.
#pragma once

#include <string>

#include "load/model_config.h"
#include "perf/cost_table.h"

namespace tandem {

// What a table says about the machine, the best of its points. 0 where nothing was measured.
struct ProfileFigures {
  double linear_one_row_us = 0;
  double weights_gb_per_s = 0;  // that one row reads them with
  double linear_tflop_per_s = 0;
  double gpu_attention_gb_per_s = 0;  // of KV, decodes
  double cpu_attention_gb_per_s = 0;
  double swap_gb_per_s = 0;
};

// Bytes of K and V of a token in one layer, in each tier's type.
struct KvTokenBytes {
  double gpu = 0;
  double cpu = 0;
};

// layer_weight_bytes: that a layer's linear operations read.
ProfileFigures FiguresOf(const CostMeasurements& measurements, const ModelConfig& config,
                         double layer_weight_bytes, const KvTokenBytes& kv);

// "a sum over them takes 4 us for 1 row, 18 us for 256 rows": of a shard's costs.
std::string DescribeSums(const CostMeasurements& measurements);

// Lines that end in '\n': the tables, then the figures.
std::string FormatProfile(const CostMeasurements& measurements, const ModelConfig& config,
                          double layer_weight_bytes, const KvTokenBytes& kv);

}  // namespace tandem
