// Which task comes next: those that somebody waits for, begun ones, the next pass that can still be met,
// missed passes, starvation; how much time a choice takes.
#include "cpu_attention/task_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

namespace tandem {
namespace {

constexpr int64_t kPeriod = 33;
constexpr int64_t kBytes = 1000;

ArmedTask Wanted(uint64_t number, int64_t wanted_at, int64_t kv_bytes = kBytes) {
  return {.number = number, .wanted_at = wanted_at, .period = kPeriod, .kv_bytes = kv_bytes};
}

// The device is at `pass`, and a task of kBytes takes passes_per_task passes.
TaskPace PaceAt(int64_t pass, double passes_per_task) {
  constexpr int64_t kPassNs = 100000;
  TaskPace pace;
  pace.SeePass(0, 0);
  pace.SeePass(1000, 1000 * kPassNs);
  if (passes_per_task > 0) pace.SeeTask(kBytes, static_cast<int64_t>(passes_per_task * kPassNs));
  pace.ForgetPasses();
  pace.SeePass(pass, 0);
  return pace;
}

uint64_t Pick(const std::vector<ArmedTask>& tasks, const TaskPace& pace,
              TaskOrder order = TaskOrder::kWanted) {
  return tasks[PickTask(tasks, order, pace)].number;
}

TEST(TaskOrderTest, InOrderOfArming) {
  std::vector<ArmedTask> tasks = {Wanted(7, 12), Wanted(3, 50), Wanted(9, 11)};
  tasks[2].begun = true;
  EXPECT_EQ(Pick(tasks, PaceAt(10, 0), TaskOrder::kArming), 3U);
}

TEST(TaskOrderTest, WhatSomebodyWaitsForGoesFirst) {
  std::vector<ArmedTask> tasks = {Wanted(1, 11), Wanted(2, 12), {.number = 4}, {.number = 3}};
  tasks[1].begun = true;
  tasks[2].begun = true;
  EXPECT_EQ(Pick(tasks, PaceAt(10, 0)), 3U) << "in order of arming among themselves";
}

TEST(TaskOrderTest, ABegunTaskIsFinished) {
  std::vector<ArmedTask> tasks = {Wanted(1, 11), Wanted(2, 40), Wanted(3, 12)};
  tasks[1].begun = true;
  EXPECT_EQ(Pick(tasks, PaceAt(10, 0)), 2U);
}

TEST(TaskOrderTest, TheNextWantComesFirst) {
  EXPECT_EQ(Pick({Wanted(1, 30), Wanted(2, 12), Wanted(3, 15)}, PaceAt(10, 0)), 2U);
  EXPECT_EQ(Pick({Wanted(5, 12), Wanted(4, 12)}, PaceAt(10, 0)), 4U) << "by arming where wants are equal";
}

TEST(TaskOrderTest, AMissedPassIsWantedAPeriodLater) {
  // 10 has just been passed: the task is wanted at 43 again.
  EXPECT_EQ(Pick({Wanted(1, 10), Wanted(2, 42)}, PaceAt(10, 0)), 2U);
  EXPECT_EQ(Pick({Wanted(1, 10), Wanted(2, 44)}, PaceAt(10, 0)), 1U);
}

TEST(TaskOrderTest, WhatCannotBeDoneInTimeIsNotTried) {
  // Four passes with the margin of a quarter, rounded up: 6. So 16 is too early, and wanted at 49 again.
  const TaskPace pace = PaceAt(10, 4);
  EXPECT_EQ(pace.LeadPasses(kBytes), 6);
  EXPECT_EQ(Pick({Wanted(1, 16), Wanted(2, 17)}, pace), 2U);
  EXPECT_EQ(Pick({Wanted(1, 16), Wanted(2, 17), Wanted(3, 16, kBytes / 4)}, pace), 3U) << "a short one can";
  EXPECT_EQ(Pick({Wanted(1, 16), Wanted(2, 50)}, pace), 1U);
}

TEST(TaskOrderTest, WithoutProgressByWantAlone) {
  EXPECT_EQ(Pick({Wanted(1, 900), Wanted(2, 3), Wanted(3, 7)}, TaskPace()), 2U);
}

TEST(TaskOrderTest, ATaskWithoutAPeriodIsNeverTooLate) {
  std::vector<ArmedTask> tasks = {Wanted(1, 500), Wanted(2, 5)};
  tasks[1].period = 0;
  EXPECT_EQ(Pick(tasks, PaceAt(400, 0)), 2U);
}

TEST(TaskOrderTest, TwoMissedPassesGoBeforeAnyWant) {
  EXPECT_EQ(Pick({Wanted(1, 10), Wanted(2, 42)}, PaceAt(10 + kPeriod - 2, 0)), 2U) << "missed once";
  // At pass 10 + 33: missed twice, wanted at 76; the other at 44.
  EXPECT_EQ(Pick({Wanted(1, 10), Wanted(2, 44)}, PaceAt(10 + kPeriod, 0)), 1U);
  // The longest wait is at the top, whatever is wanted sooner.
  EXPECT_EQ(Pick({Wanted(1, 40), Wanted(2, 20), Wanted(3, 90)}, PaceAt(20 + 3 * kPeriod, 0)), 2U);
}

TEST(TaskPaceTest, APassTakesWhatItTookLately) {
  TaskPace pace;
  EXPECT_EQ(pace.LeadPasses(kBytes), 0) << "nothing known";
  int64_t now_ns = 5;
  int64_t pass = 1;
  const auto run = [&](int64_t passes, int64_t pass_ns) {
    for (int64_t i = 0; i < passes; ++i) pace.SeePass(pass++, now_ns += pass_ns);
  };
  pace.SeeTask(kBytes, 80000);
  EXPECT_EQ(pace.LeadPasses(kBytes), 0);
  run(100, 10000);
  EXPECT_EQ(pace.LeadPasses(kBytes), 11);  // 8 and a quarter, rounded up
  run(2000, 20000);
  EXPECT_EQ(pace.LeadPasses(kBytes), 6);
  now_ns += 10'000'000'000;  // nothing to do for ten seconds
  run(33, 20000);
  EXPECT_GE(pace.LeadPasses(kBytes), 4);
  for (int i = 0; i < 100; ++i) pace.SeeTask(2 * kBytes, 40000);
  run(2000, 20000);
  EXPECT_EQ(pace.LeadPasses(kBytes), 2);
}

// Cohorts that ride, one pass apart, and a CPU that needs load * kPeriod passes for one layer of all of them.
// Virtual time. random: their sizes differ. Returns how often each cohort made its visit, over the times it
// could have.
std::vector<double> ShareInTime(TaskOrder order, double load, int64_t num_cohorts, std::mt19937* random) {
  struct Cohort {
    int64_t wanted_at = 0;
    double done_at = 0;  // passes; -1: armed
    double length = 0;   // passes
    uint64_t armed = 0;
    int64_t visits = 0;
  };
  constexpr int64_t kRounds = 300;
  std::vector<Cohort> cohorts(static_cast<size_t>(num_cohorts));
  double total_length = 0;
  for (size_t i = 0; i < cohorts.size(); ++i) {
    Cohort& cohort = cohorts[i];
    cohort.wanted_at = static_cast<int64_t>(i) * kPeriod / num_cohorts;
    cohort.length = 1;
    if (random != nullptr) cohort.length *= std::uniform_real_distribution<>(0.2, 1.8)(*random);
    total_length += cohort.length;
  }
  for (Cohort& cohort : cohorts) cohort.length *= load * static_cast<double>(kPeriod) / total_length;
  uint64_t num_armed = 0;
  double cpu_free_at = 0;
  for (int64_t pass = 0; pass < kRounds * kPeriod; ++pass) {
    // What the CPU begins before the pass.
    while (cpu_free_at < static_cast<double>(pass)) {
      std::vector<ArmedTask> armed;
      for (size_t i = 0; i < cohorts.size(); ++i) {
        if (cohorts[i].done_at >= 0) continue;
        armed.push_back({.number = cohorts[i].armed,
                         .wanted_at = cohorts[i].wanted_at,
                         .period = kPeriod,
                         .kv_bytes = static_cast<int64_t>(cohorts[i].length * 1000),
                         .slot = static_cast<int32_t>(i)});
      }
      if (armed.empty()) {
        cpu_free_at = static_cast<double>(pass);
        break;
      }
      const auto reached = static_cast<int64_t>(cpu_free_at);
      Cohort& cohort = cohorts[static_cast<size_t>(armed[PickTask(armed, order, PaceAt(reached, 1))].slot)];
      cpu_free_at += cohort.length;
      cohort.done_at = cpu_free_at;
    }
    for (size_t i = 0; i < cohorts.size(); ++i) {
      Cohort& cohort = cohorts[i];
      if ((pass - cohort.wanted_at) % kPeriod != 0 || pass < cohort.wanted_at) continue;
      if (cohort.done_at < 0 || cohort.done_at > static_cast<double>(pass)) continue;
      ++cohort.visits;
      cohort.wanted_at = pass + kPeriod + 1;  // the next layer, in the next iteration
      cohort.done_at = -1;
      cohort.armed = num_armed++;
    }
  }
  std::vector<double> shares;
  shares.reserve(cohorts.size());
  for (const Cohort& cohort : cohorts) {
    shares.push_back(static_cast<double>(cohort.visits * (kPeriod + 1)) /
                     static_cast<double>(kRounds * kPeriod));
  }
  return shares;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Cohorts of one size get their share whatever the load, and each of them, however the sizes divide the
// iteration.
TEST(TaskOrderTest, UnderOverloadOnlyTheExcessIsLate) {
  for (const int64_t num_cohorts : {33, 16, 8}) {
    for (const double load : {0.9, 1.1, 1.3, 2.0, 3.5}) {
      // A visit takes kPeriod + 1 passes at least.
      const double ideal = std::min(1.0, static_cast<double>(kPeriod + 1) / (load * kPeriod));
      const std::vector<double> shares = ShareInTime(TaskOrder::kWanted, load, num_cohorts, nullptr);
      EXPECT_GE(Mean(shares), 0.97 * ideal) << num_cohorts << " cohorts, load " << load;
      EXPECT_GE(*std::min_element(shares.begin(), shares.end()), 0.8 * ideal)
          << num_cohorts << " cohorts, load " << load;
    }
  }
}

TEST(TaskOrderTest, LargeCohortsAreLateRatherThanThoseBehindThem) {
  for (const int64_t num_cohorts : {33, 16, 8}) {
    std::mt19937 random(1);
    std::mt19937 same(1);
    const std::vector<double> wanted = ShareInTime(TaskOrder::kWanted, 1.4, num_cohorts, &random);
    const std::vector<double> armed = ShareInTime(TaskOrder::kArming, 1.4, num_cohorts, &same);
    EXPECT_GT(Mean(wanted), Mean(armed) + 0.02) << num_cohorts;
    EXPECT_GT(*std::min_element(wanted.begin(), wanted.end()), 0.5) << num_cohorts;
  }
}

// Every worker chooses for every task, one after the other, and tasks may take a tenth of a millisecond.
TEST(TaskOrderTest, AChoiceAmongManyIsShort) {
  std::vector<ArmedTask> tasks;
  std::mt19937 random(1);
  for (uint64_t i = 0; i < 64; ++i) {
    const auto late = static_cast<int64_t>(random() % (3 * kPeriod));
    tasks.push_back(Wanted(i, 1000 + kPeriod - late));
  }
  const TaskPace pace = PaceAt(1000, 2);
  const auto measure_ns = [&] {
    constexpr int kPicks = 20000;
    size_t sum = 0;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kPicks; ++i) {
      tasks[static_cast<size_t>(i) % tasks.size()].wanted_at ^= 1;
      sum += PickTask(tasks, TaskOrder::kWanted, pace);
    }
    const auto took = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start);
    EXPECT_GT(sum, 0U);
    return took.count() / kPicks;
  };
  const double first_ns = measure_ns();
  tasks[40].begun = true;
  const double others_ns = measure_ns();
  RecordProperty("ns_of_the_first_worker", static_cast<int>(first_ns));
  RecordProperty("ns_of_the_others", static_cast<int>(others_ns));
  // Sanitizers and busy machines included.
  EXPECT_LT(first_ns, 20000);
  EXPECT_LT(others_ns, 20000);
}

}  // namespace
}  // namespace tandem
