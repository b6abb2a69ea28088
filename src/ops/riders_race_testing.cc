#include <atomic>
#include <chrono>
#include <cstring>
#include <stop_token>
#include <thread>

#include "ops/riders_testing.h"

namespace tandem {
namespace {

// A cohort of the race. What it computes: O of a layer is its Q/K/V plus one.
struct RacingCohort {
  RacingCohort(const RiderBackend& backend, const RiderCapacity& capacity, int64_t num_rows)
      : state(backend, capacity, num_rows) {}

  RiderCohort state;
  int64_t boundary = -1;
  uint32_t step = 0;       // of the attention that is under way
  uint32_t next_step = 1;  // of the thread in place of the CPU
  float cpu_entry = 0;     // Q/K/V that thread expects at the next entry
  int64_t num_tokens = 0;
};

constexpr int64_t kRaceLayers = 5;
constexpr int64_t kRaceRows = 12;
constexpr int64_t kRaceWidth = 130;

float* Values(const RiderMatrix& matrix) {
  return static_cast<float*>(matrix.view().data);
}

// Answers every cohort's Q/K/V, after a while. Counts what it did not expect.
void AnswerRacingCohorts(const std::stop_token& stop,
                         const std::vector<std::unique_ptr<RacingCohort>>& cohorts,
                         std::atomic<int64_t>* num_errors) {
  std::mt19937 random(11);
  std::vector<float> expected(cohorts.size(), 0);
  while (!stop.stop_requested()) {
    for (size_t i = 0; i < cohorts.size(); ++i) {
      RacingCohort& cohort = *cohorts[i];
      if (cohort.state.ready->value() < cohort.next_step) continue;
      // From entry to last layer a token has one attention a layer.
      if ((cohort.next_step - 1) % kRaceLayers == 0) expected[i] = cohort.cpu_entry;
      const int64_t count = cohort.state.num_rows * kRaceWidth;
      for (int64_t at = 0; at < count; ++at) {
        if (Values(cohort.state.qkv)[at] != expected[i]) num_errors->fetch_add(1);
        Values(cohort.state.attention_out)[at] = expected[i] + 1;
      }
      expected[i] += 1;
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      cohort.state.done->Set(cohort.next_step++);
    }
    std::this_thread::yield();
  }
}

Bytes BytesOf(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<float> FloatsOf(const Bytes& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

void TestRiderRace(const RiderBackend& backend, int64_t num_tokens) {
  const RiderCapacity capacity = {.num_boundaries = kRaceLayers + 1,
                                  .max_rows = kRaceRows,
                                  .max_groups = 4,
                                  .hidden = 12,
                                  .q_width = kRaceWidth,
                                  .qkv_width = kRaceWidth,
                                  .dtype = DType::kF32,
                                  .product_dtype = DType::kF32};
  const std::unique_ptr<RiderPlan> plan = CreateTestRiderPlan(backend, capacity);
  Stream& stream = *backend.stream;
  std::vector<RiderBatch> batches;  // of each boundary, so that each shows what was gathered there
  for (int64_t boundary = -1; boundary < kRaceLayers; ++boundary) {
    batches.emplace_back(backend, capacity, kRaceRows);
  }
  std::vector<std::unique_ptr<RacingCohort>> cohorts;
  for (const int64_t num_rows : {5, 1, 4, 2}) {
    cohorts.push_back(std::make_unique<RacingCohort>(backend, capacity, num_rows));
    RacingCohort& cohort = *cohorts.back();
    cohort.cpu_entry = static_cast<float>(1000 * num_rows);
    cohort.state.residual.Write(
        BytesOf(std::vector<float>(static_cast<size_t>(num_rows * capacity.hidden), cohort.cpu_entry)));
  }
  std::atomic<int64_t> num_errors{0};
  std::jthread cpu([&](const std::stop_token& stop) { AnswerRacingCohorts(stop, cohorts, &num_errors); });

  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto behind = [&](const auto& cohort) { return cohort->num_tokens < num_tokens; };
  int64_t first_pass = 0;
  while (std::any_of(cohorts.begin(), cohorts.end(), behind) && std::chrono::steady_clock::now() < deadline &&
         !testing::Test::HasFailure()) {
    std::vector<RacingCohort*> order;
    order.reserve(cohorts.size());
    for (const auto& cohort : cohorts) order.push_back(cohort.get());
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return a->boundary < b->boundary; });
    std::vector<RiderGroup> groups;
    std::vector<int64_t> row_begins;
    std::vector<float> entry_qkv(kRaceRows * kRaceWidth);
    std::vector<float> entry_residual(static_cast<size_t>(kRaceRows * capacity.hidden));
    for (const RacingCohort* cohort : order) {
      const bool follows = !groups.empty() && groups.back().boundary == cohort->boundary;
      const int64_t row = follows ? row_begins.back() + groups.back().residual.rows : 0;
      row_begins.push_back(row);
      groups.push_back(cohort->state.Group(capacity, cohort->boundary, cohort->step, cohort->step + 1));
      if (cohort->boundary >= 0) continue;
      std::fill_n(entry_qkv.begin() + row * kRaceWidth, cohort->state.num_rows * kRaceWidth,
                  cohort->cpu_entry);
      std::fill_n(entry_residual.begin() + row * capacity.hidden, cohort->state.num_rows * capacity.hidden,
                  cohort->cpu_entry);
    }
    for (RiderBatch& batch : batches) {
      batch.attention_out.Poison();
      batch.residual.Poison();
    }
    batches.front().qkv.Write(BytesOf(entry_qkv));
    batches.front().residual.Write(BytesOf(entry_residual));

    backend.ops->PlanRiders(stream, groups, first_pass, plan.get());
    for (int64_t boundary = -1; boundary < kRaceLayers; ++boundary) {
      const RiderArgs args = batches[static_cast<size_t>(boundary + 1)].Args(boundary, 0, kRaceRows);
      if (boundary >= 0) {
        backend.ops->GatherRiders(stream, *plan, args);
        stream.Copy(args.qkv.data, args.attention_out.data, kRaceRows * kRaceWidth * sizeof(float));
      }
      backend.ops->ScatterRiders(stream, *plan, args);
    }
    backend.ops->CollectRiders(stream, plan.get());
    stream.Synchronize();
    first_pass += capacity.num_boundaries;
    EXPECT_EQ(plan->progress()->load(), first_pass - 1);

    for (size_t i = 0; i < order.size(); ++i) {
      RacingCohort& cohort = *order[i];
      const bool joined = plan->joined(static_cast<int64_t>(i));
      if (cohort.boundary >= 0) {
        const RiderBatch& batch = batches[static_cast<size_t>(cohort.boundary + 1)];
        const std::vector<float> out = FloatsOf(batch.attention_out.Read());
        const std::vector<float> residual = FloatsOf(batch.residual.Read());
        const auto has = [&](float value, float want) { return joined ? value == want : value != value; };
        const float want = cohort.cpu_entry + static_cast<float>(cohort.boundary + 1);
        for (int64_t row = row_begins[i]; row < row_begins[i] + cohort.state.num_rows; ++row) {
          for (int64_t c = 0; c < kRaceWidth; ++c) {
            const float value = out[static_cast<size_t>(row * kRaceWidth + c)];
            ASSERT_TRUE(has(value, want)) << "O at boundary " << cohort.boundary << " row " << row << " col "
                                          << c << ": " << value << ", joined " << joined;
          }
          for (int64_t c = 0; c < capacity.hidden; ++c) {
            const float value = residual[static_cast<size_t>(row * capacity.hidden + c)];
            ASSERT_TRUE(has(value, cohort.cpu_entry)) << "residual at boundary " << cohort.boundary << " row "
                                                      << row << ": " << value << ", joined " << joined;
          }
        }
      } else {
        EXPECT_TRUE(joined);
      }
      if (!joined) continue;
      if (++cohort.boundary == kRaceLayers) {
        cohort.boundary = -1;
        ++cohort.num_tokens;
      } else {
        ++cohort.step;
      }
    }
  }
  cpu.request_stop();
  cpu.join();
  EXPECT_EQ(num_errors.load(), 0) << "Q/K/V of other values";
  for (const auto& cohort : cohorts) EXPECT_GE(cohort->num_tokens, num_tokens) << "too slow";
}

}  // namespace tandem
