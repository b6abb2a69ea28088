// Costs of a model on a machine from published figures, and what of these figures is reached: fitted on one
// H200 and slices of it (docs/plan.md has how well), and taken for every other card.
//
// T_l(n) = per_layer_us + sqrt(read^2 + compute^2)
//     read: weights / (read rate), and tile_start_us where rows are in tiles; compute: 2 * weights * n /
//     FLOP/s
// T_ga = start + KV bytes / (attention rate)
//     rates: shares of bytes/s, no more than SMs can draw
// T_ga of prompts = start + FLOP of whole tiles / (share of FLOP/s)
// T_ca = start + KV bytes / (CPU's rate)
//
// A shard has its part of the weights, of attention and of the host's bandwidth, and
//
//   sum of n rows = start + 2 (N - 1) / N * bytes / (share of the link's rate)     between the GPUs
#pragma once

#include <cstdint>

#include "forecast/gpu_cards.h"
#include "forecast/host_machines.h"
#include "forecast/model_outline.h"
#include "perf/cost_table.h"

namespace tandem {

// Shares of published figures, and times that no figure tells.
struct Efficiencies {
  // GPU. 4.65 of the H200's 4.8 TB/s were read by a plain kernel, 155 GB/s an SM on slices.
  double read_of_sheet = 0.97;
  double sm_read_bytes_per_s = 155e9;
  double weights_of_read = 0.90;    // 16-bit weights: bench_engine, batch 1, whole and slices
  double fp8_of_read = 0.60;        // the same with FP8 weights
  double int_of_read = 0.45;        // and with int4
  double products_of_sheet = 0.57;  // of FLOP/s, whole GPU: gpu-only runs, some hundred rows an iteration
  double products_of_slice = 0.94;  // the profile of 16 SMs: power does not bound their clock
  double attention_of_read = 0.92;  // decodes, and no more an SM than
  double sm_attention_bytes_per_s = 104e9;
  double prompt_attention_of_products = 0.52;
  double per_layer_us = 6;
  // The products of a layer begin and end more slowly once their rows are in tiles: bench_engine, batch 32
  // and 64 beside 1 and 8.
  double tile_start_us = 16;
  int64_t rows_without_tiles = 8;
  double attention_start_us = 3.5;
  double outside_us = 108;  // of an iteration, beside the logits: profiles of the whole GPU and of a slice
  // Link to the host.
  double link_of_sheet = 0.80;  // swaps of the profile 0.74, its exchanges 0.88
  double exchange_us = 15;
  double least_exchange_us = 23;
  double swap_start_us = 15;
  // Sums over shards: two H200s over NVLink, 1 to 8,192 rows. Over PCI Express nothing was measured.
  double peer_of_sheet = 0.64;
  double sum_start_us = 3.5;
  double pcie_sum_start_us = 10;
  // Host. The share of a memory's peak that reads reach is no fit: the machines we had do not tell their
  // peak.
  double host_read_of_peak = 0.80;
  double cpu_attention_of_read = 0.89;  // docs/performance.md, 4 query heads a KV head, 16 threads
  double core_bytes_per_s = 14e9;       // 56 GB/s of 4 threads
  double cpu_start_us = 25;
};

struct SheetMachine {
  GpuCard gpu;
  HostMachine host;
  int64_t gpu_sm_limit = 0;  // 0: all
  int64_t num_shards = 1;    // a GPU each; they share the host
};

// The cores that the engine leaves to CPU attention, and what it reads with them, bytes a second.
int64_t CpuAttentionCores(const HostMachine& host);
double CpuAttentionRate(const HostMachine& host, const Efficiencies& of = {});
// What reads of weights of 16 bits get of the GPU's memory, and products of FLOP/s.
double WeightReadRate(const SheetMachine& machine, const Efficiencies& of = {});
double ProductRate(const SheetMachine& machine, const ModelOutline& model, const Efficiencies& of = {});

// Of a shard, the first of machine.num_shards. model: the whole one, with the KV heads of all of them.
CostTable SheetCosts(const SheetMachine& machine, const ModelOutline& model, const Efficiencies& of = {});

}  // namespace tandem
