#include "plan/iteration_plan.h"

#include <algorithm>

namespace tandem {

int64_t KvTokensOf(const std::vector<RowSpan>& spans) {
  int64_t kv_tokens = 0;
  for (const RowSpan& span : spans) kv_tokens += KvTokensOf(span);
  return kv_tokens;
}

int64_t NumRowsOf(const std::vector<RowSpan>& spans) {
  int64_t rows = 0;
  for (const RowSpan& span : spans) rows += span.num_tokens;
  return rows;
}

bool MainSubBatch::attends_on_cpu() const {
  return std::any_of(spans.begin(), spans.end(),
                     [](const RowSpan& span) { return span.attention == Tier::kCpu; });
}

std::string_view PreemptionReasonName(PreemptionReason reason) {
  switch (reason) {
    case PreemptionReason::kGpuTierFull:
      return "gpu_tier_full";
    case PreemptionReason::kCpuTierFull:
      return "cpu_tier_full";
    case PreemptionReason::kBothTiersFull:
      return "both_tiers_full";
    case PreemptionReason::kCpuTierUnusable:
      return "cpu_tier_unusable";
  }
  return "";
}

bool IterationPlan::gpu_rows_only() const {
  return dropped.empty() && preempted.empty() && moves.empty() && copy_down.max_blocks == 0 &&
         cohorts.empty() && !main.empty() &&
         std::all_of(main.spans.begin(), main.spans.end(), [](const RowSpan& span) {
           return span.tier == Tier::kGpu && span.attention == Tier::kGpu;
         });
}

}  // namespace tandem
