// When asymmetric pipelining pays, as APEX sections 3.2 and 3.4 have it: inequalities (5) to (8), algorithms
// 1 and 2. One layer throughout; tokens are tokens of context that attention reads.
//
//   gpu-only      T_glinear + T_gatt                                             (1)
//   asymmetric    2 T_glinear + T_gatt                                           (2)
//   with prefill  T_glinear_pref + T_gatt_pref + T_glinear + T_gatt              (7)
//
// In a cycle GPU attention reads N_G T_gatt tokens and CPU attention, which has all of it, N_C T_overlap.
//
// Weak points of (8), kept as they are in the paper:
// - Both of its throughputs leave time out. On the left the work of a cycle of (7) is divided by T_glinear +
//   T_gatt, without the prefill; on the right that of gpu-only by T_gatt, without linear operations and
//   prefill. What is left is N_C T_overlap > N_G T_glinear. With T_m for the time in which gpu-only does the
//   same prefill and decodes, and (7) being T_m + T_glinear, whole times on both sides give
//   N_C T_overlap > N_G T_glinear T_gatt / T_m. So (8) asks for a CPU that is T_m / T_gatt times as fast as
//   it has to be, and more the longer the prefill.
// - It does not meet (5) where prefill becomes small: one token of it has T_glinear_pref = T_glinear and
//   T_gatt_pref = 0, and the limit on N_G / N_C falls from 2 T_glinear/T_gatt + 3 + T_gatt/T_glinear to
//   2 + T_gatt/T_glinear: from 7.5 to 2.5 at T_gatt/T_glinear = 0.5.
// - As (5), it compares with gpu-only, while what is chosen otherwise is asynchronous overlap. With cpu
//   decodes enough to keep the CPU busy that makes N_C tokens a microsecond more than gpu-only and reads the
//   weights once: by this very model it is never behind asymmetric pipelining. With few cpu decodes it is,
//   since each makes one visit an iteration; how many there are does not appear in the model.
#pragma once

#include <cstdint>

#include "perf/iteration_load.h"
#include "perf/layer_costs.h"

namespace tandem {

// Microseconds of one layer, and tokens a microsecond.
struct ApexTimes {
  double linear_us = 0;             // T_glinear: of the gpu decodes
  double gpu_attention_us = 0;      // T_gatt: of the gpu decodes
  double prefill_linear_us = 0;     // T_glinear_pref
  double prefill_attention_us = 0;  // T_gatt_pref
  double gpu_tokens_per_us = 0;     // N_G, GPU attention
  double cpu_tokens_per_us = 0;     // N_C, CPU attention
};

// load: gpu decodes and prefills; cpu decodes of it that do not ride only say how long their contexts are
// (without any: as those of the gpu decodes). N_C is the rate at as many of such rows as CPU attention gets
// through in a cycle of (2), with prefill of (7); one at least, exchange included. How many there are is of
// no account.
ApexTimes TimesFrom(const IterationLoad& load, const LayerCosts& costs);

// T_overlap of (2), with prefill of (7).
double DecodeCycleUs(const ApexTimes& times);
double OverlapCycleUs(const ApexTimes& times);

// Tokens a microsecond, right and left side of (5). 0 if there is nothing to do.
double GpuOnlyDecodeThroughput(const ApexTimes& times);
double PipelinedDecodeThroughput(const ApexTimes& times);

// (5): the left side is above the right one.
bool AsymmetricPaysForDecodes(const ApexTimes& times);
// (6), which is (5) solved for N_G / N_C.
bool AsymmetricPaysByRatio(const ApexTimes& times);
// N_G / N_C below which (6) holds. Infinite if T_glinear or T_gatt is 0.
double DecodeRatioLimit(const ApexTimes& times);
// (8).
bool AsymmetricPaysForMixed(const ApexTimes& times);

enum class ApexChoice { kGpuOnly, kAsymmetric, kAsynchronous };

// Algorithm 1, with algorithm 2 at its end. any_cpu_decodes: whether D_cpu_in holds any. The counts are of
// the schedule that asymmetric pipelining would make: prefill chunks (P_sch), cpu decodes (D_cpu_sch).
ApexChoice ChooseStrategy(bool any_cpu_decodes, int64_t num_scheduled_prefills, int64_t num_scheduled_cpu,
                          const ApexTimes& times);

}  // namespace tandem
