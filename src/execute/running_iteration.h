// What Executor keeps between Start and Finish.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "base/sampled_token.h"
#include "cpu_attention/cpu_attention.h"
#include "execute/executor.h"
#include "execute/logits_stage.h"
#include "execute/main_rows.h"
#include "plan/iteration_plan.h"

namespace tandem {

struct Executor::Running {
  // What became of a cohort that rides.
  struct Ridden {
    bool joined = false;
    std::span<SampledToken> results;  // of its rows, at the last layer; nothing unless it joined
  };

  IterationPlan plan;
  FindRequest find_request;
  MainRows main;
  std::unordered_map<CohortId, LogitsWork> cohort_logits;  // of those that make visits of their own
  std::vector<Ridden> ridden;                              // of the plan's cohorts
  CpuAttentionStats cpu_attention_before;
};

}  // namespace tandem
