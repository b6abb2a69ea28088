// Spans in few words, for tests.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "plan/iteration_plan.h"

namespace tandem::testing {

struct RowAt {
  SequenceId sequence = 0;
  int64_t position = 0;
};

inline RowSpan GpuDecode(SequenceId sequence, int64_t position) {
  return RowSpan::Decode(sequence, position, Tier::kGpu);
}
inline RowSpan CpuDecode(SequenceId sequence, int64_t position) {
  return RowSpan::Decode(sequence, position, Tier::kCpu);
}
inline std::vector<RowSpan> CpuDecodes(std::initializer_list<RowAt> rows) {
  std::vector<RowSpan> spans;
  for (const RowAt& row : rows) spans.push_back(CpuDecode(row.sequence, row.position));
  return spans;
}
// samples: its last row.
inline RowSpan Chunk(SequenceId sequence, int64_t start, int64_t num_tokens, bool samples,
                     Tier tier = Tier::kGpu) {
  return RowSpan::Chunk(sequence, start, num_tokens, start + num_tokens - (samples ? 1 : 0), tier);
}

}  // namespace tandem::testing
