// Plans with cohorts that ride, and what the executor must say of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "conformance/decoder_harness.h"
#include "engine/executor_fixture.h"
#include "execute/executor.h"
#include "plan/iteration_plan.h"

namespace tandem {

inline constexpr int64_t kLayers = 4;
inline constexpr int kMostIterations = 400;  // of the longest test that goes on, if the CPU is slow

// Of a model with enough layers for cohorts to be apart.
class RidingBench : public ExecutorFixture {
 protected:
  explicit RidingBench(DecoderHarness::Options options = {})
      : ExecutorFixture([&] {
          options.random_layers = kLayers;
          return options;
        }()) {}

  // Where the cohort is, or at its entry with the next rows of its sequences.
  CohortStep StepOf(CohortId id, const std::vector<SequenceId>& sequences) const {
    if (const InFlightCohort* cohort = harness_.InFlight(id); cohort != nullptr)
      return {.cohort = id, .rows = cohort->rows, .cursor = cohort->cursor};
    CohortStep step = {.cohort = id};
    for (const SequenceId sequence : sequences) step.rows.push_back(harness_.NextRow(sequence, Tier::kCpu));
    return step;
  }
  CohortStep Ride(CohortId id, const std::vector<SequenceId>& sequences) const {
    CohortStep step = StepOf(id, sequences);
    step.rides = true;
    step.visits = {{step.cursor, step.cursor}};
    return step;
  }
  // At most num_visits, with products of their own.
  CohortStep Visits(CohortId id, const std::vector<SequenceId>& sequences, int64_t num_visits) const {
    CohortStep step = StepOf(id, sequences);
    for (int64_t layer = step.cursor; layer < std::min(kLayers, step.cursor + num_visits); ++layer)
      step.visits.push_back({layer, layer});
    return step;
  }
  std::vector<RowSpan> NextRows(const std::vector<SequenceId>& sequences, Tier tier = Tier::kGpu) const {
    std::vector<RowSpan> rows;
    for (const SequenceId sequence : sequences) rows.push_back(harness_.NextRow(sequence, tier));
    return rows;
  }
  bool AnyUnfinished() const {
    for (SequenceId id = 0; id < kNumSequences; ++id) {
      if (Unfinished(id)) return true;
    }
    return false;
  }

  // Runs it and checks what it says of the cohorts.
  IterationResult Run(const IterationPlan& plan) {
    IterationResult result = harness_.Run(plan);
    if (result.stalled) return result;
    EXPECT_EQ(result.cohorts.size(), plan.cohorts.size());
    for (size_t i = 0; i < plan.cohorts.size(); ++i) {
      const CohortStep& step = plan.cohorts[i];
      const CohortProgress& progress = result.cohorts[i];
      const auto planned = static_cast<int64_t>(step.visits.size());
      if (!step.rides || step.cursor == kEntry) {
        EXPECT_EQ(progress.num_visits, planned) << "cohort " << step.cohort;
      } else {
        EXPECT_LE(progress.num_visits, 1);
      }
      const int64_t cursor = step.cursor + progress.num_visits;
      EXPECT_EQ(progress.cursor, cursor == kLayers ? kEntry : cursor) << "cohort " << step.cohort;
      const bool has_result =
          std::any_of(result.sequences.begin(), result.sequences.end(),
                      [&](const SequenceResult& each) { return each.sequence == step.rows[0].sequence; });
      EXPECT_EQ(has_result, cursor == kLayers) << "cohort " << step.cohort;
    }
    return result;
  }

  // One cohort rides beside decodes of the gpu tier until all sequences are finished.
  void FinishRiding(const std::vector<SequenceId>& riders, const std::vector<SequenceId>& others) {
    for (int i = 0; AnyUnfinished(); ++i) {
      ASSERT_LT(i, kMostIterations);
      IterationPlan plan;
      plan.main.spans = NextRows(others);
      plan.cohorts.push_back(Ride(50, riders));
      Run(plan);
    }
    ExpectReferenceTokens();
  }
};

// What every suite of cohorts that ride runs on.
inline const auto kRidingMachines =
    ::testing::Values(Machine{"host", 1}, Machine{"host", 2}, Machine{"cuda", 1});

}  // namespace tandem
