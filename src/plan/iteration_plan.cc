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

}  // namespace tandem
