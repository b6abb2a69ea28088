#include "planning/apex_model.h"

#include <limits>

#include "perf/time_model.h"

namespace tandem {
namespace {

double MeanContext(const IterationLoad& load) {
  const int64_t cpu_rows = load.main_cpu_rows + load.cohort_rows;
  const int64_t cpu_tokens = load.main_cpu_kv_tokens + load.cohort_kv_tokens;
  if (cpu_rows > 0) return static_cast<double>(cpu_tokens) / static_cast<double>(cpu_rows);
  if (load.gpu_decode_rows == 0) return 0;
  return static_cast<double>(load.gpu_kv_tokens) / static_cast<double>(load.gpu_decode_rows);
}

double GpuTokens(const ApexTimes& times) {
  return times.gpu_tokens_per_us * times.gpu_attention_us;
}

}  // namespace

ApexTimes TimesFrom(const IterationLoad& load, const LayerCosts& costs) {
  const TimeModel time(costs);
  const LayerTimes decodes =
      time.TimesOf({.gpu_decode_rows = load.gpu_decode_rows, .gpu_kv_tokens = load.gpu_kv_tokens});
  const LayerTimes prefill = time.TimesOf(
      {.prefill_tokens = load.prefill_tokens, .prefill_attention_us = load.prefill_attention_us});
  ApexTimes times = {.linear_us = decodes.linear_main_us,
                     .gpu_attention_us = decodes.gpu_attention_us,
                     .prefill_linear_us = prefill.linear_main_us,
                     .prefill_attention_us = prefill.gpu_attention_us};
  if (times.gpu_attention_us > 0)
    times.gpu_tokens_per_us = static_cast<double>(load.gpu_kv_tokens) / times.gpu_attention_us;
  const double window_us = load.prefill_tokens > 0 ? OverlapCycleUs(times) : DecodeCycleUs(times);
  times.cpu_tokens_per_us = time.CpuTokensPerUs(MeanContext(load), window_us);
  return times;
}

double DecodeCycleUs(const ApexTimes& times) {
  return 2 * times.linear_us + times.gpu_attention_us;
}

double OverlapCycleUs(const ApexTimes& times) {
  return times.prefill_linear_us + times.prefill_attention_us + times.linear_us + times.gpu_attention_us;
}

double GpuOnlyDecodeThroughput(const ApexTimes& times) {
  const double cycle_us = times.linear_us + times.gpu_attention_us;
  return cycle_us > 0 ? GpuTokens(times) / cycle_us : 0;
}

double PipelinedDecodeThroughput(const ApexTimes& times) {
  const double cycle_us = DecodeCycleUs(times);
  return cycle_us > 0 ? (GpuTokens(times) + times.cpu_tokens_per_us * cycle_us) / cycle_us : 0;
}

bool AsymmetricPaysForDecodes(const ApexTimes& times) {
  return PipelinedDecodeThroughput(times) > GpuOnlyDecodeThroughput(times);
}

double DecodeRatioLimit(const ApexTimes& times) {
  if (times.linear_us <= 0 || times.gpu_attention_us <= 0) return std::numeric_limits<double>::infinity();
  const double linear_per_attention = times.linear_us / times.gpu_attention_us;
  return 2 * linear_per_attention + 3 + 1 / linear_per_attention;
}

bool AsymmetricPaysByRatio(const ApexTimes& times) {
  if (times.cpu_tokens_per_us <= 0 || DecodeCycleUs(times) <= 0) return false;
  return times.gpu_tokens_per_us / times.cpu_tokens_per_us < DecodeRatioLimit(times);
}

// Multiplied by its denominators, of which either may be 0:
//   (N_G T_gatt + N_C T_overlap) / (T_glinear + T_gatt) > N_G T_gatt / T_gatt
bool AsymmetricPaysForMixed(const ApexTimes& times) {
  return GpuTokens(times) + times.cpu_tokens_per_us * OverlapCycleUs(times) >
         times.gpu_tokens_per_us * (times.linear_us + times.gpu_attention_us);
}

ApexChoice ChooseStrategy(bool any_cpu_decodes, int64_t num_scheduled_prefills, int64_t num_scheduled_cpu,
                          const ApexTimes& times) {
  if (!any_cpu_decodes) return ApexChoice::kGpuOnly;
  if (num_scheduled_cpu == 0) return ApexChoice::kAsynchronous;
  const bool pays =
      num_scheduled_prefills == 0 ? AsymmetricPaysForDecodes(times) : AsymmetricPaysForMixed(times);
  return pays ? ApexChoice::kAsymmetric : ApexChoice::kAsynchronous;
}

}  // namespace tandem
