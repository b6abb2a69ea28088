#include "plan/plan_validator.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "plan/plan_printer.h"

namespace tandem {
namespace {

class PlanValidatorTest : public ::testing::Test {
 protected:
  PlanValidatorTest() {
    sequences_[1] = {.num_tokens = 41, .num_computed = 40, .tier = Tier::kGpu};
    sequences_[2] = {.num_tokens = 100, .num_computed = 0, .tier = std::nullopt};
    sequences_[3] = {.num_tokens = 9, .num_computed = 8, .tier = Tier::kCpu};
    sequences_[4] = {.num_tokens = 21, .num_computed = 20, .tier = Tier::kCpu};
  }

  std::string Check(const IterationPlan& plan) {
    const PlanRules rules{.num_layers = 4, .max_rows = 128, .find_sequence = [this](SequenceId id) {
                            const auto found = sequences_.find(id);
                            return found == sequences_.end() ? std::nullopt : std::optional(found->second);
                          }};
    const Status status = ValidatePlan(plan, rules);
    return status.ok() ? "ok" : status.error().message;
  }

  static IterationPlan ValidPlan() {
    IterationPlan plan;
    plan.main.prefills.push_back({.sequence = 2, .start = 0, .num_tokens = 64, .samples = false});
    plan.main.gpu_decodes.push_back({.sequence = 1, .position = 40});
    plan.main.cpu_decodes.push_back({.sequence = 4, .position = 20});
    plan.cohorts.push_back({.cohort = 1,
                            .rows = {{.sequence = 3, .position = 8}},
                            .cursor = kEntry,
                            .visits = {{kEntry, kEntry}, {0, 0}, {1, 1}, {2, 2}, {3, 3}}});
    return plan;
  }

  std::map<SequenceId, PlannedSequence> sequences_;
};

TEST_F(PlanValidatorTest, AcceptsAndPrintsAFullPlan) {
  const IterationPlan plan = ValidPlan();
  EXPECT_EQ(Check(plan), "ok");
  EXPECT_EQ(PrintPlan(plan),
            "prefill 2 [0, 64)\ngpu-decode 1@40\ncpu-decode 4@20\n"
            "cohort 1 cursor -1 rows 3@8 visits -1@-1 0@0 1@1 2@2 3@3\n");
}

TEST_F(PlanValidatorTest, AcceptsASlowCohortAndAMove) {
  IterationPlan plan = ValidPlan();
  plan.cohorts[0].cursor = 1;
  plan.cohorts[0].visits = {{3, 1}};  // a layer other than the boundary's
  plan.main.cpu_decodes.clear();
  plan.moves.push_back({.sequence = 4, .to = Tier::kGpu});
  plan.main.gpu_decodes.push_back({.sequence = 4, .position = 20});
  EXPECT_EQ(Check(plan), "ok");
}

TEST_F(PlanValidatorTest, NamesTheBrokenRule) {
  struct Case {
    void (*breakage)(IterationPlan*);
    const char* message;
  };
  const Case cases[] = {
      {[](IterationPlan* p) { p->main.prefills[0].start = 1; }, "chunk starts at 1"},
      {[](IterationPlan* p) { p->main.prefills[0].num_tokens = 0; }, "chunk of 0 tokens"},
      {[](IterationPlan* p) { p->main.prefills[0].num_tokens = 101; }, "chunk ends at 101"},
      {[](IterationPlan* p) { p->main.prefills[0].samples = true; }, "samples if and only if"},
      {[](IterationPlan* p) { p->main.prefills[0].sequence = 77; }, "unknown"},
      {[](IterationPlan* p) { p->main.gpu_decodes[0].position = 39; }, "decode at 39"},
      {[](IterationPlan* p) {
         p->main.gpu_decodes.push_back({3, 8});
       },
       "not in the gpu tier"},
      {[](IterationPlan* p) {
         p->main.cpu_decodes.push_back({3, 8});
       },
       "appears twice"},
      {[](IterationPlan* p) { p->cohorts.push_back(p->cohorts[0]); }, "cohort 1 appears twice"},
      {[](IterationPlan* p) { p->cohorts[0].visits[1].layer = 2; }, "its cursor is at 0"},
      {[](IterationPlan* p) { p->cohorts[0].visits[1].boundary = -1; }, "out of order"},
      {[](IterationPlan* p) { p->cohorts[0].cursor = 4; }, "outside the 4 layers"},
      {[](IterationPlan* p) { p->cohorts[0].rows.clear(); }, "has no rows"},
      {[](IterationPlan* p) { p->preempted = {1}; }, "appears twice"},
      {[](IterationPlan* p) { p->preempted = {2}; }, "holds no blocks"},
      {[](IterationPlan* p) {
         p->moves = {{1, Tier::kGpu}};
       },
       "already"},
      {[](IterationPlan* p) {
         p->moves = {{1, Tier::kCpu}};
       },
       "not in the gpu tier"},
      {[](IterationPlan* p) {
         p->moves = {{2, Tier::kCpu}};
       },
       "holds no blocks"},
  };
  for (const Case& test_case : cases) {
    IterationPlan plan = ValidPlan();
    test_case.breakage(&plan);
    EXPECT_NE(Check(plan).find(test_case.message), std::string::npos)
        << Check(plan) << " for " << test_case.message;
  }
  IterationPlan plan = ValidPlan();
  sequences_[2].num_tokens = 1000;
  plan.main.prefills[0].num_tokens = 126;
  EXPECT_NE(Check(plan).find("129 rows"), std::string::npos) << Check(plan);
}

}  // namespace
}  // namespace tandem
