#include "plan/plan_validator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "plan/plan_printer.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

using testing::Chunk;
using testing::CpuDecode;
using testing::CpuDecodes;
using testing::GpuDecode;
using testing::RowAt;

class PlanValidatorTest : public ::testing::Test {
 protected:
  PlanValidatorTest() {
    sequences_[1] = {.num_tokens = 41, .num_computed = 40, .tier = Tier::kGpu};
    sequences_[2] = {.num_tokens = 100, .num_computed = 0, .tier = std::nullopt};
    sequences_[3] = {.num_tokens = 9, .num_computed = 8, .tier = Tier::kCpu};
    sequences_[4] = {.num_tokens = 21, .num_computed = 20, .tier = Tier::kCpu};
  }

  std::string Check(const IterationPlan& plan) {
    const PlanRules rules{.num_layers = 4,
                          .max_rows = 128,
                          .max_rider_rows = 3,
                          .in_flight = &in_flight_,
                          .find_sequence = [this](SequenceId id) {
                            const auto found = sequences_.find(id);
                            return found == sequences_.end() ? std::nullopt : std::optional(found->second);
                          }};
    const Status status = ValidatePlan(plan, rules);
    return status.ok() ? "ok" : status.error().message;
  }

  static IterationPlan ValidPlan() {
    IterationPlan plan;
    plan.main.spans = {Chunk(2, 0, 64, false), GpuDecode(1, 40), CpuDecode(4, 20)};
    plan.cohorts.push_back({.cohort = 1,
                            .rows = {CpuDecode(3, 8)},
                            .cursor = kEntry,
                            .visits = {{kEntry, kEntry}, {0, 0}, {1, 1}, {2, 2}, {3, 3}}});
    return plan;
  }

  std::map<SequenceId, PlannedSequence> sequences_;
  std::vector<InFlightCohort> in_flight_;
};

// Beside gpu decodes of sequence 1: cohorts 5 (sequences 10 and 11, next at layer 2), 6 (12, layer 3) and 7
// (13, layer 0, parked) are in flight; 8 (14) enters.
class RidingTest : public PlanValidatorTest {
 protected:
  RidingTest() {
    for (SequenceId id = 10; id < 16; ++id)
      sequences_[id] = {.num_tokens = 21, .num_computed = 20, .tier = Tier::kCpu};
    in_flight_ = {
        {5, CpuDecodes({{10, 20}, {11, 20}}), 2}, {6, {CpuDecode(12, 20)}, 3}, {7, {CpuDecode(13, 20)}, 0}};
  }

  static CohortStep Ride(CohortId id, std::vector<RowSpan> rows, int64_t cursor) {
    return {
        .cohort = id, .rows = std::move(rows), .cursor = cursor, .visits = {{cursor, cursor}}, .rides = true};
  }
  static CohortStep Ride(CohortId id, std::initializer_list<RowAt> rows, int64_t cursor) {
    return Ride(id, CpuDecodes(rows), cursor);
  }

  static IterationPlan ValidRide() {
    IterationPlan plan;
    plan.main.spans = {GpuDecode(1, 40)};
    plan.cohorts = {Ride(5, {{10, 20}, {11, 20}}, 2), Ride(6, {{12, 20}}, 3), Ride(8, {{14, 20}}, kEntry)};
    return plan;
  }
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
  in_flight_ = {{1, {CpuDecode(3, 8)}, 1}};
  plan.main.spans.pop_back();
  plan.moves.push_back({.sequence = 4, .to = Tier::kGpu});
  plan.main.spans.push_back(GpuDecode(4, 20));
  EXPECT_EQ(Check(plan), "ok");
}

TEST_F(PlanValidatorTest, AWaitingSequenceBeginsBehindWhatIsCached) {
  sequences_[2].num_cached = {32, 64};
  IterationPlan plan;
  plan.attached = {{.sequence = 2, .tier = Tier::kCpu, .num_tokens = 64}};
  plan.main.spans = {Chunk(2, 64, 36, true, Tier::kCpu)};
  EXPECT_EQ(Check(plan), "ok");
  EXPECT_EQ(PrintPlan(plan), "attach 2 [0, 64) in cpu\nprefill 2 [64, 100) to cpu samples\n");
  // And goes to the other tier.
  plan.moves = {{.sequence = 2, .to = Tier::kGpu}};
  plan.main.spans = {Chunk(2, 64, 36, true)};
  EXPECT_EQ(Check(plan), "ok");
  plan.moves.clear();
  EXPECT_EQ(Check(plan), "sequence 2: span for the gpu tier, its blocks are in the cpu tier");
  plan.attached[0].tier = Tier::kGpu;
  EXPECT_EQ(Check(plan), "sequence 2 is attached to 64 tokens, 32 are in the gpu tier");
  plan.attached[0].num_tokens = 32;
  EXPECT_EQ(Check(plan), "sequence 2: span starts at 64, 32 tokens are computed");
  plan.attached.push_back(plan.attached[0]);
  EXPECT_EQ(Check(plan), "sequence 2 is attached twice");
  plan.attached = {{.sequence = 1, .tier = Tier::kGpu, .num_tokens = 32}};
  EXPECT_EQ(Check(plan), "attached sequence 1 holds blocks");
  plan.attached[0].sequence = 77;
  EXPECT_EQ(Check(plan), "attached sequence 77 is unknown");
}

TEST_F(PlanValidatorTest, NamesTheBrokenRule) {
  struct Case {
    void (*breakage)(IterationPlan*);
    const char* message;
  };
  const Case cases[] = {
      {[](IterationPlan* p) { p->main.spans[0].start = 1; }, "span starts at 1"},
      {[](IterationPlan* p) { p->main.spans[0].num_tokens = 0; }, "span of 0 tokens"},
      {[](IterationPlan* p) { p->main.spans[0].num_tokens = 101; }, "span ends at 101"},
      {[](IterationPlan* p) { p->main.spans[0].sampled_from = 63; },
       "rows from 63 of its span give logits, those from 64 are wanted"},
      {[](IterationPlan* p) { p->main.spans[1].sampled_from = 1; }, "those from 0 are wanted"},
      {[](IterationPlan* p) { p->main.spans[0].sequence = 77; }, "unknown"},
      {[](IterationPlan* p) { p->main.spans[1].start = 39; }, "span starts at 39, 40 tokens are computed"},
      {[](IterationPlan* p) { p->main.spans.push_back(GpuDecode(3, 8)); },
       "span for the gpu tier, its blocks are in the cpu tier"},
      {[](IterationPlan* p) { p->main.spans.push_back(CpuDecode(3, 8)); }, "appears twice"},
      {[](IterationPlan* p) { p->cohorts.push_back(p->cohorts[0]); }, "cohort 1 appears twice"},
      {[](IterationPlan* p) { p->cohorts[0].visits[1].layer = 2; }, "its cursor is at 0"},
      {[](IterationPlan* p) { p->cohorts[0].visits[1].boundary = -1; }, "out of order"},
      {[](IterationPlan* p) { p->cohorts[0].cursor = -2; }, "not in flight"},
      {[](IterationPlan* p) { p->cohorts[0].rows.clear(); }, "has no rows"},
      {[](IterationPlan* p) { p->preempted = {Preemption{1}}; }, "appears twice"},
      {[](IterationPlan* p) { p->preempted = {Preemption{2}}; }, "holds no blocks"},
      {[](IterationPlan* p) {
         p->moves = {{1, Tier::kGpu}};
       },
       "already"},
      {[](IterationPlan* p) {
         p->moves = {{1, Tier::kCpu}};
       },
       "span for the gpu tier, its blocks are in the cpu tier"},
      {[](IterationPlan* p) {
         p->moves = {{2, Tier::kCpu}};
       },
       "holds no blocks"},
      {[](IterationPlan* p) { p->cohorts[0].cursor = 1; }, "cohort 1 enters at layer 1, it is not in flight"},
      {[](IterationPlan* p) { p->main.spans[1].attention = Tier::kCpu; },
       "sequence 1 attends on the CPU, its KV is in the gpu tier"},
      {[](IterationPlan* p) {
         p->main.spans[0].tier = Tier::kCpu;
         p->main.spans[0].attention = Tier::kCpu;
       },
       "sequence 2 attends on the CPU, 0 of its 100 tokens are computed"},
      {[](IterationPlan* p) {
         p->cohorts[0].rows[0].tier = Tier::kGpu;
         p->cohorts[0].rows[0].attention = Tier::kGpu;
       },
       "cohort 1: sequence 3 attends on the GPU"},
  };
  for (const Case& test_case : cases) {
    IterationPlan plan = ValidPlan();
    test_case.breakage(&plan);
    EXPECT_NE(Check(plan).find(test_case.message), std::string::npos)
        << Check(plan) << " for " << test_case.message;
  }
  IterationPlan plan = ValidPlan();
  sequences_[2].num_tokens = 1000;
  plan.main.spans[0] = Chunk(2, 0, 126, false);
  EXPECT_NE(Check(plan).find("129 rows"), std::string::npos) << Check(plan);
}

// Later than the last row of a prompt, or earlier: what gives logits is said by the sequence.
TEST_F(PlanValidatorTest, EchoAsksForRowsOfAPrompt) {
  sequences_[2].first_logits = 10;
  IterationPlan plan;
  plan.main.spans = {RowSpan::Chunk(2, 0, 64, 10, Tier::kGpu)};
  EXPECT_EQ(plan.main.spans[0].num_sampled(), 54);
  EXPECT_EQ(Check(plan), "ok");
  EXPECT_EQ(PrintPlan(plan), "prefill 2 [0, 64) logits from 10\n");
  plan.main.spans[0].sampled_from = 64;
  EXPECT_NE(Check(plan).find("those from 10 are wanted"), std::string::npos) << Check(plan);
  plan.main.spans = {RowSpan::Chunk(2, 0, 8, 10, Tier::kGpu)};
  EXPECT_EQ(Check(plan), "ok");
  EXPECT_EQ(PrintPlan(plan), "prefill 2 [0, 8)\n");
}

// Every row of a draft is sampled, in either tier, and in a cohort.
TEST_F(PlanValidatorTest, ADraftIsASpanOfSeveralSampledRows) {
  for (const SequenceId id : {1, 3, 4}) sequences_[id].num_drafted = 3;
  IterationPlan plan = ValidPlan();
  plan.main.spans[1].num_tokens = 4;
  plan.main.spans[2].num_tokens = 3;
  plan.cohorts[0].rows[0].num_tokens = 2;
  EXPECT_EQ(plan.main.spans[1].num_sampled(), 4);
  EXPECT_EQ(plan.main.num_rows(), 64 + 4 + 3);
  EXPECT_EQ(Check(plan), "ok");
  EXPECT_EQ(PrintPlan(plan),
            "prefill 2 [0, 64)\nprefill 1 [40, 44) logits from 40\ncpu-decode 4@20+2\n"
            "cohort 1 cursor -1 rows 3@8+1 visits -1@-1 0@0 1@1 2@2 3@3\n");
  plan.main.spans[1].num_tokens = 5;
  EXPECT_NE(Check(plan).find("span ends at 45, it has 41 tokens and 3 drafted"), std::string::npos)
      << Check(plan);
}

TEST_F(RidingTest, AcceptsAndPrintsRiders) {
  IterationPlan plan = ValidRide();
  EXPECT_EQ(Check(plan), "ok");
  EXPECT_EQ(PrintPlan(plan),
            "gpu-decode 1@40\n"
            "cohort 5 cursor 2 rows 10@20 11@20 rides 2@2\n"
            "cohort 6 cursor 3 rows 12@20 rides 3@3\n"
            "cohort 8 cursor -1 rows 14@20 rides -1@-1\n");
  // Dropped, its rows are free, and so is its name.
  plan.dropped = {7, 6};
  plan.cohorts[1] = Ride(6, {{13, 20}}, kEntry);
  plan.main.spans.push_back(CpuDecode(12, 20));
  EXPECT_EQ(Check(plan), "ok");
  EXPECT_EQ(PrintPlan(plan).substr(0, 9), "drop 7 6\n");
}

TEST_F(RidingTest, ACohortAmidATokenMayVisitByItself) {
  IterationPlan plan = ValidRide();
  plan.cohorts[0].rides = false;
  plan.cohorts[0].visits = {{2, 2}, {3, 3}};
  EXPECT_EQ(Check(plan), "ok");
  plan.cohorts[0].visits = {};  // named, but left where it is
  EXPECT_EQ(Check(plan), "ok");
  plan.main.spans.clear();
  plan.cohorts = {plan.cohorts[0]};
  plan.cohorts[0].visits = {{-1, 2}};
  EXPECT_EQ(Check(plan), "ok");
}

TEST_F(RidingTest, ChunksInTransitAreACohortOfTheirOwn) {
  for (SequenceId id = 20; id < 23; ++id)
    sequences_[id] = {.num_tokens = 100, .num_computed = 40, .tier = Tier::kCpu};
  IterationPlan plan = ValidRide();
  plan.cohorts.push_back({.cohort = 9,
                          .rows = {Chunk(20, 40, 8, false, Tier::kCpu), Chunk(21, 40, 60, true, Tier::kCpu)},
                          .visits = {{-1, -1}, {3, 0}}});
  EXPECT_EQ(Check(plan), "ok");
  EXPECT_THAT(PrintPlan(plan),
              ::testing::EndsWith("cohort 9 in transit cursor -1 rows 20@40+7 21@40+59 visits -1@-1 0@3\n"));

  IterationPlan mixed = plan;
  mixed.cohorts[3].rows.push_back(CpuDecode(15, 20));
  EXPECT_THAT(Check(mixed), ::testing::HasSubstr("sequence 15 is amid chunks or decodes, and is none"));
  IterationPlan riding = plan;
  riding.cohorts[3].rides = true;
  EXPECT_THAT(Check(riding), ::testing::HasSubstr("cohort 9 rides, its rows are in transit"));
  IterationPlan two = plan;
  two.cohorts.push_back(two.cohorts[3]);
  two.cohorts[4].cohort = 10;
  two.cohorts[4].rows = {Chunk(22, 40, 8, false, Tier::kCpu)};
  EXPECT_THAT(Check(two), ::testing::HasSubstr("is in transit, and so is another one"));

  // In flight it goes on from where it is, and its prompts are nobody else's.
  in_flight_.push_back({9, plan.cohorts[3].rows, 1});
  plan.cohorts[3].cursor = 1;
  plan.cohorts[3].visits = {{0, 1}, {3, 2}};
  EXPECT_EQ(Check(plan), "ok");
  plan.main.spans.push_back(Chunk(20, 40, 8, false, Tier::kCpu));
  EXPECT_THAT(Check(plan), ::testing::HasSubstr("sequence 20 is in flight with cohort 9"));
  plan.main.spans.pop_back();
  plan.cohorts.pop_back();
  EXPECT_EQ(Check(plan), "ok");  // it rests
  plan.cohorts.push_back({.cohort = 10, .rows = {Chunk(22, 40, 8, false, Tier::kCpu)}, .visits = {{0, -1}}});
  EXPECT_THAT(Check(plan), ::testing::HasSubstr("cohort 10 is in transit, and so is another one"));
}

TEST_F(RidingTest, NamesTheBrokenRule) {
  struct Case {
    std::function<void(IterationPlan*)> breakage;
    const char* message;
  };
  const std::vector<Case> cases = {
      {[](IterationPlan* p) { p->cohorts[0].rows.pop_back(); }, "cohort 5 is in flight with other rows"},
      {[](IterationPlan* p) { p->cohorts[0] = Ride(5, p->cohorts[0].rows, 1); },
       "cohort 5: cursor 1, it is in flight at layer 2"},
      {[](IterationPlan* p) { p->cohorts[2] = Ride(8, p->cohorts[2].rows, 0); },
       "cohort 8 enters at layer 0, it is not in flight"},
      {[](IterationPlan* p) { p->dropped = {8}; }, "dropped cohort 8 is not in flight"},
      {[](IterationPlan* p) {
         p->dropped = {7, 7};
       },
       "cohort 7 is dropped twice"},
      // Dropped and used again, it enters.
      {[](IterationPlan* p) { p->dropped = {5}; }, "cohort 5 enters at layer 2"},
      // Sequences in flight are nobody else's, also if the plan leaves their cohort where it is.
      {[](IterationPlan* p) { p->preempted = {Preemption{13}}; }, "sequence 13 is in flight with cohort 7"},
      {[](IterationPlan* p) {
         p->moves = {{13, Tier::kGpu}};
       },
       "sequence 13 is in flight with cohort 7"},
      {[](IterationPlan* p) {
         p->moves = {{10, Tier::kGpu}};
       },
       "sequence 10 is in flight with cohort 5"},
      {[](IterationPlan* p) { p->main.spans = {Chunk(13, 20, 1, true, Tier::kCpu)}; },
       "sequence 13 is in flight with cohort 7"},
      {[](IterationPlan* p) { p->main.spans = {CpuDecode(13, 20)}; },
       "sequence 13 is in flight with cohort 7"},
      {[](IterationPlan* p) { p->main.spans = {CpuDecode(10, 20)}; },
       "sequence 10 is in flight with cohort 5"},
      {[](IterationPlan* p) { p->cohorts[2].rows = {CpuDecode(13, 20)}; },
       "sequence 13 is in flight with cohort 7"},
      {[](IterationPlan* p) {
         p->cohorts[0].visits.push_back({3, 3});
       },
       "cohort 5 rides: it makes one visit"},
      {[](IterationPlan* p) { p->cohorts[0].visits.clear(); }, "cohort 5 rides: it makes one visit"},
      {[](IterationPlan* p) {
         p->cohorts[0].visits = {{3, 2}};
       },
       "cohort 5 rides: it makes one visit"},
      {[](IterationPlan* p) { p->main.spans.clear(); }, "rides without a main sub-batch"},
      {[](IterationPlan* p) {
         p->cohorts[2].rows = CpuDecodes({{14, 20}, {15, 20}, {4, 20}, {3, 8}});
       },
       "4 rows ride at boundary -1"},
  };
  for (const Case& test_case : cases) {
    IterationPlan plan = ValidRide();
    test_case.breakage(&plan);
    EXPECT_NE(Check(plan).find(test_case.message), std::string::npos)
        << Check(plan) << " for " << test_case.message;
  }
}

TEST_F(RidingTest, RidersAreBesideTheRowsOfTheIteration) {
  IterationPlan plan = ValidRide();
  sequences_[2].num_tokens = 1000;
  // 127 of the main sub-batch, 1 with visits of its own, and those that ride.
  plan.main.spans.push_back(Chunk(2, 0, 126, false));
  plan.cohorts.push_back({.cohort = 9, .rows = {CpuDecode(15, 20)}, .visits = {{-1, -1}, {0, 0}}});
  EXPECT_EQ(Check(plan), "ok");
  plan.main.spans.back() = Chunk(2, 0, 127, false);
  EXPECT_NE(Check(plan).find("129 rows"), std::string::npos) << Check(plan);
  // One that is left where it is has no rows in it.
  plan.cohorts.back().visits.clear();
  EXPECT_EQ(Check(plan), "ok");
}

TEST_F(RidingTest, TwoCohortsAtOneBoundary) {
  in_flight_[1].cursor = 2;
  IterationPlan plan = ValidRide();
  plan.cohorts[1] = Ride(6, {{12, 20}}, 2);
  EXPECT_EQ(Check(plan), "ok");
  in_flight_[1].rows.push_back(CpuDecode(15, 20));
  plan.cohorts[1].rows.push_back(CpuDecode(15, 20));
  EXPECT_NE(Check(plan).find("cohort 6 is one too many: 4 rows ride at boundary 2"), std::string::npos)
      << Check(plan);
}

}  // namespace
}  // namespace tandem
