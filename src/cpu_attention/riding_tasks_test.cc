// Tasks of riding cohorts on real workers: who is served in which order under overload, and that nothing is
// lost with many flags and submitters.
//
// A device in virtual time: it passes boundaries at the pace at which the one worker gets done, by the work
// of its tasks. It runs in the done flags that the worker sets, so the course of events is the same in every
// run, however busy the machine is (but for the measured pace of tasks).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "cpu_attention/cpu_attention.h"
#include "cpu_attention/decode_testing.h"
#include "device/flag_testing.h"
#include "device/host/host_device.h"

namespace tandem {
namespace {

constexpr int64_t kPeriod = 17;

struct RideOptions {
  TaskOrder order = TaskOrder::kWanted;
  std::vector<int64_t> contexts;  // of the cohorts, a row each
  double load = 1;                // work of one layer of all cohorts, over that of an iteration's time
  bool somebody_waits = false;    // for a task of the first cohort's size, once an iteration
  int64_t num_iterations = 100;
};

class Ride {
 public:
  explicit Ride(const RideOptions& options)
      : options_(options), attention_({.num_threads = 1, .pin = false, .order = options.order}) {
    attention_.WatchProgress(&progress_);
    int64_t total = 0;
    for (const int64_t context : options.contexts) total += context;
    passes_per_token_ = options.load * static_cast<double>(kPeriod) / static_cast<double>(total);
    const auto num_cohorts = static_cast<int64_t>(options.contexts.size());
    for (int64_t i = 0; i < num_cohorts; ++i) {
      Cohort& cohort = *cohorts_.emplace_back(MakeCohort(options.contexts[static_cast<size_t>(i)]));
      cohort.wanted_at = 1 + i * kPeriod / num_cohorts;
    }
    waited_for_ = MakeCohort(options.contexts.front());
    waited_for_->wanted_at = -1;
    waited_for_->armed = false;
    const auto start = device_->CreateFlag();
    for (auto& cohort : cohorts_) Submit(cohort.get(), start.get());
    start->Set(1);
    attention_.WaitIdle();
  }

  // Visits made over those that would have been possible.
  double Share(size_t cohort) const {
    return static_cast<double>(cohorts_[cohort]->visits * (kPeriod + 1)) /
           static_cast<double>(options_.num_iterations * kPeriod);
  }
  double MeanShare() const {
    double sum = 0;
    for (size_t i = 0; i < cohorts_.size(); ++i) sum += Share(i);
    return sum / static_cast<double>(cohorts_.size());
  }
  double MinShare() const {
    double least = 1;
    for (size_t i = 0; i < cohorts_.size(); ++i) least = std::min(least, Share(i));
    return least;
  }
  // Passes.
  double mean_wait() const { return total_wait_ / static_cast<double>(options_.num_iterations); }

 private:
  struct Cohort {
    std::unique_ptr<DecodeBatch> batch;
    std::unique_ptr<DecodePlan> plan;
    std::unique_ptr<testing::CallbackFlag> done;
    double length = 0;  // passes
    int64_t wanted_at = 0;
    bool armed = true;
    int64_t visits = 0;
  };

  std::unique_ptr<Cohort> MakeCohort(int64_t context) {
    auto cohort = std::make_unique<Cohort>();
    cohort->batch = std::make_unique<DecodeBatch>(
        DecodeCase{.dtype = DType::kF32, .num_kv_heads = 2, .head_dim = 64, .contexts = {context}}, random_);
    cohort->plan = std::make_unique<DecodePlan>(cohort->batch->sequences(), cohort->batch->shape(), 1);
    cohort->done = std::make_unique<testing::CallbackFlag>([this, c = cohort.get()] { Done(c); });
    cohort->length = passes_per_token_ * static_cast<double>(context);
    return cohort;
  }

  // ready: that something else than this call arms it.
  void Submit(Cohort* cohort, Flag* ready = nullptr) {
    cohort->armed = true;
    attention_.Submit({.plan = cohort->plan.get(),
                       .layer = cohort->batch->layer(),
                       .ready = ready,
                       .ready_value = 1,
                       .done = cohort->done.get(),
                       .wanted_at = cohort->wanted_at,
                       .period = cohort->wanted_at < 0 ? 0 : kPeriod});
  }

  // The worker's thread.
  void Done(Cohort* cohort) {
    cohort->armed = false;
    now_ += cohort->length;
    if (cohort == waited_for_.get()) {
      total_wait_ += now_ - static_cast<double>(waits_since_);
    }
    const auto any_armed = [&] {
      return waited_for_->armed ||
             std::any_of(cohorts_.begin(), cohorts_.end(), [](const auto& c) { return c->armed; });
    };
    while (pass_ < options_.num_iterations * kPeriod &&
           (static_cast<double>(pass_ + 1) <= now_ || !any_armed())) {
      PassNext();
      now_ = std::max(now_, static_cast<double>(pass_));
    }
  }

  void PassNext() {
    progress_.store(++pass_, std::memory_order_relaxed);
    for (auto& cohort : cohorts_) {
      const int64_t late = pass_ - cohort->wanted_at;
      if (late < 0 || late % kPeriod != 0 || cohort->armed) continue;
      ++cohort->visits;
      cohort->wanted_at = pass_ + kPeriod + 1;
      Submit(cohort.get());
    }
    if (options_.somebody_waits && pass_ % kPeriod == kPeriod / 2 && !waited_for_->armed) {
      waits_since_ = pass_;
      Submit(waited_for_.get());
    }
  }

  const RideOptions options_;
  const std::unique_ptr<Device> device_ = CreateHostDevice({.num_compute_threads = 1});
  std::mt19937 random_{1};
  double passes_per_token_ = 0;
  std::vector<std::unique_ptr<Cohort>> cohorts_;
  std::unique_ptr<Cohort> waited_for_;
  std::atomic<int64_t> progress_{0};
  int64_t pass_ = 0;
  double now_ = 0;  // passes
  int64_t waits_since_ = 0;
  double total_wait_ = 0;
  CpuAttention attention_;  // last: the worker is gone before the rest
};

TEST(RidingTasksTest, UnderOverloadOnlyTheExcessIsLate) {
  for (const double load : {0.9, 1.1, 1.6}) {
    const double ideal = std::min(1.0, static_cast<double>(kPeriod + 1) / (load * kPeriod));
    const Ride ride({.contexts = std::vector<int64_t>(12, 128), .load = load});
    EXPECT_GE(ride.MeanShare(), 0.95 * ideal) << load;
    EXPECT_GE(ride.MinShare(), 0.7 * ideal) << load;
  }
}

TEST(RidingTasksTest, LargeCohortsAreLateRatherThanThoseBehindThem) {
  const std::vector<int64_t> contexts = {64, 256, 96, 512, 64, 128, 64, 320, 96, 64, 448, 64};
  const Ride wanted({.contexts = contexts, .load = 1.4});
  const Ride armed({.order = TaskOrder::kArming, .contexts = contexts, .load = 1.4});
  EXPECT_GT(wanted.MeanShare(), armed.MeanShare() + 0.03);
  EXPECT_GT(wanted.MinShare(), 0.4);
}

// Overloaded, the CPU is an iteration behind: whoever waits must not stand in that line.
TEST(RidingTasksTest, WhoWaitsGoesBeforeTheBacklog) {
  const std::vector<int64_t> contexts(12, 128);
  const double length = 1.1 * kPeriod / 12;
  const Ride wanted({.contexts = contexts, .load = 1.1, .somebody_waits = true});
  EXPECT_LE(wanted.mean_wait(), 2 * length) << "the rest of a task, and its own";
  const Ride armed({.order = TaskOrder::kArming, .contexts = contexts, .load = 1.1, .somebody_waits = true});
  EXPECT_GE(armed.mean_wait(), 5 * length);
}

// Those that wait for their flag and those that are armed already.
TEST(RidingTasksTest, WhoIsInAHurryGoesFirst) {
  std::mt19937 random(5);
  const auto device = CreateHostDevice({.num_compute_threads = 1});
  constexpr size_t kTasks = 5;  // the first keeps the worker busy until all are there
  std::vector<size_t> order;
  std::atomic<bool> busy{false};
  std::atomic<bool> all_there{false};
  struct Each {
    std::unique_ptr<DecodeBatch> batch;
    std::unique_ptr<DecodePlan> plan;
    std::unique_ptr<Flag> ready;
    std::unique_ptr<testing::CallbackFlag> done;
  };
  std::vector<Each> tasks(kTasks);
  CpuAttention attention({.num_threads = 1, .pin = false});
  for (size_t i = 0; i < kTasks; ++i) {
    Each& each = tasks[i];
    each.batch = std::make_unique<DecodeBatch>(
        DecodeCase{.dtype = DType::kF32, .num_kv_heads = 2, .head_dim = 64, .contexts = {40}}, random);
    each.plan = std::make_unique<DecodePlan>(each.batch->sequences(), each.batch->shape(), 1);
    each.ready = device->CreateFlag();
    each.done = std::make_unique<testing::CallbackFlag>([&order, &busy, &all_there, i] {
      order.push_back(i);
      busy.store(true);
      while (i == 0 && !all_there.load()) std::this_thread::yield();
    });
    if (i == 0) each.ready->Set(1);
    attention.Submit({.plan = each.plan.get(),
                      .layer = each.batch->layer(),
                      .ready = each.ready.get(),
                      .ready_value = 1,
                      .done = each.done.get(),
                      .done_value = 1,
                      .wanted_at = static_cast<int64_t>(100 + i),
                      .period = kPeriod});
    while (!busy.load()) std::this_thread::yield();
  }
  attention.Hurry(tasks[3].ready.get());
  for (size_t i = 1; i < kTasks; ++i) tasks[i].ready->Set(1);
  attention.Hurry(tasks[4].ready.get());
  all_there.store(true);
  attention.WaitIdle();
  ASSERT_EQ(order.size(), kTasks);
  EXPECT_EQ(std::min(order[1], order[2]), 3U);
  EXPECT_EQ(std::max(order[1], order[2]), 4U);
  EXPECT_EQ(order[3], 1U);
  EXPECT_EQ(order[4], 2U);
}

// Many cohorts with flags of their own from several submitters, a device that moves on, aborts, tasks that
// somebody waits for: everything is answered, and right.
TEST(RidingTasksTest, ManyFlagsAndSubmitters) {
  constexpr int kSubmitters = 4;
  constexpr size_t kCohorts = 16;
  constexpr uint32_t kRounds = 12;
  const auto device = CreateHostDevice({.num_compute_threads = 1});
  CpuAttention attention({.num_threads = 4, .pin = false});
  std::atomic<int64_t> progress{0};
  std::atomic<bool> stop{false};
  attention.WatchProgress(&progress);
  std::thread clock([&] {
    while (!stop.load()) {
      progress.fetch_add(1);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  std::atomic<int64_t> num_tasks{0};
  const auto submitter = [&](unsigned seed) {
    std::mt19937 random(seed);
    struct Cohort {
      std::unique_ptr<DecodeBatch> batch;
      std::unique_ptr<DecodePlan> plan;
      std::unique_ptr<Flag> ready;
      std::unique_ptr<Flag> done;
    };
    std::vector<Cohort> cohorts(kCohorts);
    for (Cohort& cohort : cohorts) {
      cohort.batch = std::make_unique<DecodeBatch>(
          DecodeCase{.dtype = DType::kF32,
                     .num_kv_heads = 2,
                     .head_dim = 64,
                     .contexts = {static_cast<int64_t>(1 + random() % 600), 40}},
          random);
      cohort.plan = std::make_unique<DecodePlan>(cohort.batch->sequences(), cohort.batch->shape(), 4);
      cohort.ready = device->CreateFlag();
      cohort.done = device->CreateFlag();
    }
    for (uint32_t round = 1; round <= kRounds; ++round) {
      for (Cohort& cohort : cohorts) {
        cohort.batch->PoisonOut();
        const bool waits = random() % 4 == 0;
        attention.Submit({.plan = cohort.plan.get(),
                          .layer = cohort.batch->layer(),
                          .ready = cohort.ready.get(),
                          .ready_value = round,
                          .done = cohort.done.get(),
                          .done_value = round,
                          .wanted_at = waits ? -1 : progress.load() + static_cast<int64_t>(random() % 40),
                          .period = kPeriod});
        num_tasks.fetch_add(1);
      }
      std::shuffle(cohorts.begin(), cohorts.end(), random);
      for (Cohort& cohort : cohorts) {
        if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
        cohort.ready->Set(round);
      }
      for (Cohort& cohort : cohorts) {
        ASSERT_TRUE(cohort.done->Wait(round));
        ASSERT_LT(cohort.batch->WorstError(), 1e-5);
      }
    }
    // Dropped: never armed.
    for (Cohort& cohort : cohorts) {
      attention.Submit({.plan = cohort.plan.get(),
                        .layer = cohort.batch->layer(),
                        .ready = cohort.ready.get(),
                        .ready_value = kRounds + 1,
                        .done = cohort.done.get(),
                        .done_value = kRounds + 1,
                        .wanted_at = 5,
                        .period = kPeriod});
      num_tasks.fetch_add(1);
    }
    for (Cohort& cohort : cohorts) cohort.ready->Abort();
    for (Cohort& cohort : cohorts) ASSERT_FALSE(cohort.done->Wait(kRounds + 1));
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < kSubmitters; ++seed) threads.emplace_back(submitter, seed);
  for (std::thread& thread : threads) thread.join();
  stop = true;
  clock.join();
  EXPECT_EQ(attention.stats().num_tasks, num_tasks.load());
}

}  // namespace
}  // namespace tandem
