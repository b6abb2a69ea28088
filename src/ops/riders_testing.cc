#include "ops/riders_testing.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace tandem {
namespace {

enum class AttentionState {
  kEnters,         // none: the group begins at boundary -1
  kDone,           //
  kDoneLongAgo,    // the flag is further ahead
  kRunning,        // the flag is one short
  kAborted,        // while it ran
  kAbortedAtOnce,  // before it ever was set
  kAbortedIfDone,  // after it was done
};

bool Joins(AttentionState state) {
  return state == AttentionState::kEnters || state == AttentionState::kDone ||
         state == AttentionState::kDoneLongAgo;
}

void SetDone(AttentionState state, uint32_t done_value, Flag* done) {
  switch (state) {
    case AttentionState::kEnters:
      return;
    case AttentionState::kDone:
      return done->Set(done_value);
    case AttentionState::kDoneLongAgo:
      return done->Set(done_value + 4);
    case AttentionState::kRunning:
      return done->Set(done_value - 1);
    case AttentionState::kAborted:
      done->Set(done_value - 1);
      return done->Abort();
    case AttentionState::kAbortedAtOnce:
      return done->Abort();
    case AttentionState::kAbortedIfDone:
      done->Set(done_value);
      return done->Abort();
  }
}

struct PlannedGroup {
  int64_t boundary = 0;
  AttentionState state = AttentionState::kDone;
  int64_t num_rows = 0;
};

constexpr uint32_t kDoneValue = 70;
constexpr uint32_t kReadyValue = 90;

class BoundariesTest {
 public:
  BoundariesTest(const RiderBackend& backend, const RiderTestShape& shape)
      : backend_(backend),
        capacity_{.num_boundaries = 5,
                  .max_rows = 23,
                  .max_groups = 12,
                  .hidden = shape.hidden,
                  .q_width = shape.q_width,
                  .qkv_width = shape.qkv_width,
                  .dtype = shape.dtype,
                  .product_dtype = shape.dtype},
        batch_(backend, capacity_, kRowBegin + kNumRows + 3, shape.gap),
        plan_(CreateTestRiderPlan(backend, capacity_)) {}

  void Run(const std::vector<PlannedGroup>& planned, int64_t first_pass) {
    cohorts_.clear();
    filled_.clear();
    std::vector<RiderGroup> groups;
    for (const PlannedGroup& each : planned) {
      auto cohort = std::make_unique<RiderCohort>(backend_, capacity_, each.num_rows);
      filled_.push_back({.residual = cohort->residual.Fill(random_),
                         .positions = cohort->positions.Fill(random_),
                         .attention_out = cohort->attention_out.Fill(random_)});
      SetDone(each.state, kDoneValue, cohort->done.get());
      groups.push_back(cohort->Group(capacity_, each.boundary, kDoneValue, kReadyValue));
      cohorts_.push_back(std::move(cohort));
    }
    backend_.ops->PlanRiders(*backend_.stream, groups, first_pass, plan_.get());
    for (int64_t boundary = -1; boundary < capacity_.num_boundaries - 1; ++boundary) {
      SCOPED_TRACE("boundary " + std::to_string(boundary));
      Gather(planned, boundary);
      Scatter(planned, boundary);
      if (testing::Test::HasFatalFailure()) return;
      EXPECT_EQ(plan_->progress()->load(), first_pass + boundary + 1);
    }
    backend_.ops->CollectRiders(*backend_.stream, plan_.get());
    backend_.stream->Synchronize();
    for (size_t i = 0; i < planned.size(); ++i) {
      EXPECT_EQ(plan_->joined(static_cast<int64_t>(i)), Joins(planned[i].state)) << "group " << i;
    }
  }

 private:
  static constexpr int64_t kRowBegin = 2;
  static constexpr int64_t kNumRows = 25;  // more than the capacity's: a graph's may be

  // What a cohort held when the iteration began.
  struct FilledCohort {
    Bytes residual;
    Bytes positions;
    Bytes attention_out;
  };

  // Calls body(cohort's index, its row, row of the batch) for the rows that join at a boundary.
  template <typename Body>
  void ForEachJoined(const std::vector<PlannedGroup>& planned, int64_t boundary, const Body& body) {
    int64_t batch_row = kRowBegin;
    for (size_t i = 0; i < planned.size(); ++i) {
      if (planned[i].boundary != boundary) continue;
      for (int64_t row = 0; row < planned[i].num_rows; ++row, ++batch_row) {
        if (Joins(planned[i].state)) body(i, row, batch_row);
      }
    }
  }

  void Gather(const std::vector<PlannedGroup>& planned, int64_t boundary) {
    Bytes residual = batch_.residual.Fill(random_);
    Bytes attention_out = batch_.attention_out.Fill(random_);
    Bytes positions = batch_.positions.Fill(random_);
    RiderArgs args = batch_.Args(boundary, kRowBegin, kNumRows);
    args.qkv = {};
    if (boundary == -1) {
      args.residual = {};
      args.attention_out = {};
    }
    backend_.ops->GatherRiders(*backend_.stream, *plan_, args);
    backend_.stream->Synchronize();
    ForEachJoined(planned, boundary, [&](size_t i, int64_t row, int64_t batch_row) {
      const FilledCohort& filled = filled_[i];
      std::memcpy(positions.data() + batch_row * 4, filled.positions.data() + row * 4, 4);
      if (boundary == -1) return;
      batch_.residual.SetRow(batch_row, cohorts_[i]->residual.Row(filled.residual, row), &residual);
      batch_.attention_out.SetRow(batch_row, cohorts_[i]->attention_out.Row(filled.attention_out, row),
                                  &attention_out);
    });
    ExpectSame(batch_.residual, residual, "gathered residual");
    ExpectSame(batch_.attention_out, attention_out, "gathered attention_out");
    EXPECT_EQ(batch_.positions.Read(), positions);
  }

  void Scatter(const std::vector<PlannedGroup>& planned, int64_t boundary) {
    const bool leaves = boundary == capacity_.num_boundaries - 2;
    const Bytes residual = batch_.residual.Fill(random_);
    const Bytes qkv = batch_.qkv.Fill(random_);
    std::vector<Bytes> want_residual;
    std::vector<Bytes> want_qkv;
    for (const auto& cohort : cohorts_) {
      want_residual.push_back(cohort->residual.Read());
      want_qkv.push_back(cohort->qkv.Read());
    }
    ForEachJoined(planned, boundary, [&](size_t i, int64_t row, int64_t batch_row) {
      const RiderCohort& cohort = *cohorts_[i];
      cohort.residual.SetRow(row, batch_.residual.Row(residual, batch_row), &want_residual[i]);
      if (!leaves) cohort.qkv.SetRow(row, batch_.qkv.Row(qkv, batch_row), &want_qkv[i]);
    });
    RiderArgs args = batch_.Args(boundary, kRowBegin, kNumRows);
    args.attention_out = {};
    args.positions = nullptr;
    if (leaves) args.qkv = {};
    backend_.ops->ScatterRiders(*backend_.stream, *plan_, args);
    backend_.stream->Synchronize();
    for (size_t i = 0; i < planned.size(); ++i) {
      const RiderCohort& cohort = *cohorts_[i];
      SCOPED_TRACE("group " + std::to_string(i));
      ExpectSame(cohort.residual, want_residual[i], "residual");
      ExpectSame(cohort.qkv, want_qkv[i], "qkv");
      const bool left = planned[i].boundary <= boundary && Joins(planned[i].state);
      const bool has_ready = planned[i].boundary < capacity_.num_boundaries - 2;
      EXPECT_EQ(cohort.ready->value(), left && has_ready ? kReadyValue : 0);
    }
    ExpectSame(batch_.residual, residual, "scattered residual");
    ExpectSame(batch_.qkv, qkv, "scattered qkv");
  }

  static void ExpectSame(const RiderMatrix& matrix, const Bytes& want, const char* what) {
    const Bytes got = matrix.Read();
    if (std::memcmp(got.data(), want.data(), want.size()) == 0) return;
    for (int64_t row = 0; row < matrix.view().rows; ++row) {
      const Bytes got_row = matrix.Row(got, row);
      const Bytes want_row = matrix.Row(want, row);
      const auto [at, want_at] = std::mismatch(got_row.begin(), got_row.end(), want_row.begin());
      ASSERT_TRUE(at == got_row.end())
          << what << " row " << row << " byte " << at - got_row.begin() << " of " << got_row.size()
          << ": got " << std::to_integer<int>(*at) << ", want " << std::to_integer<int>(*want_at);
    }
    FAIL() << what << ": written between rows";
  }

  RiderBackend backend_;
  RiderCapacity capacity_;
  RiderBatch batch_;
  std::unique_ptr<RiderPlan> plan_;
  std::vector<std::unique_ptr<RiderCohort>> cohorts_;
  std::vector<FilledCohort> filled_;
  std::mt19937 random_{7};
};

}  // namespace

void TestRiderBoundaries(const RiderBackend& backend, const RiderTestShape& shape) {
  SCOPED_TRACE(Name(shape));
  BoundariesTest test(backend, shape);
  using enum AttentionState;
  // Boundary 2 has no group.
  test.Run({{-1, kEnters, 3},
            {-1, kEnters, 1},
            {0, kDone, 1},
            {0, kRunning, 5},
            {0, kDoneLongAgo, 2},
            {1, kAborted, 4},
            {1, kDone, 15},
            {1, kAbortedIfDone, 1},
            {1, kAbortedAtOnce, 2},
            {1, kDone, 1},
            {3, kDone, 7},
            {3, kRunning, 2}},
           1000);
  // The same plan with others, then with none.
  test.Run({{0, kRunning, 23}, {2, kDone, 23}, {3, kAborted, 1}}, int64_t{1} << 40);
  test.Run({}, (int64_t{1} << 40) + 5);
}

void TestRidersDecidedAhead(const RiderBackend& backend) {
  constexpr int64_t kNumRows = 12;
  const RiderCapacity capacity = {.num_boundaries = 4,
                                  .max_rows = kNumRows,
                                  .max_groups = 9,
                                  .hidden = 20,
                                  .q_width = 36,
                                  .qkv_width = 36,
                                  .dtype = DType::kBF16,
                                  .product_dtype = DType::kBF16,
                                  .decided_ahead = true};
  using enum AttentionState;
  struct Planned {
    int64_t boundary = 0;
    AttentionState on_first = kDone;
    AttentionState on_second = kDone;
    int64_t num_rows = 0;
  };
  const std::vector<Planned> planned = {{-1, kEnters, kEnters, 2},  {0, kDone, kDone, 3},
                                        {0, kDone, kRunning, 1},    {0, kRunning, kDoneLongAgo, 4},
                                        {0, kRunning, kAborted, 1}, {1, kAbortedIfDone, kDone, 5},
                                        {1, kDoneLongAgo, kDone, 7}};
  struct TestedShard {
    std::unique_ptr<RiderPlan> plan;
    std::vector<std::unique_ptr<RiderCohort>> cohorts;
    std::unique_ptr<RiderBatch> batch;
    std::span<int32_t> decisions;
    std::vector<int32_t> found;
  };
  std::vector<TestedShard> shards(2);
  Stream& stream = *backend.stream;
  std::mt19937 random(5);
  for (size_t i = 0; i < shards.size(); ++i) {
    TestedShard& shard = shards[i];
    shard.plan = CreateTestRiderPlan(backend, capacity);
    shard.batch = std::make_unique<RiderBatch>(backend, capacity, kNumRows);
    std::vector<RiderGroup> groups;
    for (const Planned& each : planned) {
      auto cohort = std::make_unique<RiderCohort>(backend, capacity, each.num_rows);
      cohort->attention_out.Fill(random);
      SetDone(i == 0 ? each.on_first : each.on_second, kDoneValue, cohort->done.get());
      groups.push_back(cohort->Group(capacity, each.boundary, kDoneValue, kReadyValue));
      shard.cohorts.push_back(std::move(cohort));
    }
    backend.ops->PlanRiders(stream, groups, 0, shard.plan.get());
  }
  const auto both_join = [](const Planned& each) { return Joins(each.on_first) && Joins(each.on_second); };
  for (int64_t boundary = 0; boundary < capacity.num_boundaries - 1; ++boundary) {
    for (TestedShard& shard : shards) {
      shard.decisions = backend.ops->DecideRiders(stream, *shard.plan, boundary);
      shard.found.resize(shard.decisions.size());
      stream.Copy(shard.found.data(), shard.decisions.data(), shard.decisions.size_bytes());
      stream.Synchronize();
    }
    ASSERT_EQ(shards[0].found.size(), shards[1].found.size());
    std::vector<int32_t> least = shards[0].found;
    for (size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], shards[1].found[i]);
    for (TestedShard& shard : shards) {
      stream.Copy(shard.decisions.data(), least.data(), shard.decisions.size_bytes());
      shard.batch->attention_out.Poison();
      RiderArgs args = shard.batch->Args(boundary, 0, kNumRows);
      args.qkv = {};
      backend.ops->GatherRiders(stream, *shard.plan, args);
      stream.Synchronize();
      const Bytes gathered = shard.batch->attention_out.Read();
      int64_t batch_row = 0;
      for (size_t i = 0; i < planned.size(); ++i) {
        if (planned[i].boundary != boundary) continue;
        const RiderMatrix& from = shard.cohorts[i]->attention_out;
        const Bytes all = from.Read();
        for (int64_t row = 0; row < planned[i].num_rows; ++row, ++batch_row) {
          const Bytes got = shard.batch->attention_out.Row(gathered, batch_row);
          EXPECT_EQ(got == from.Row(all, row), both_join(planned[i])) << "group " << i << ", row " << row;
        }
      }
    }
  }
  for (TestedShard& shard : shards) {
    backend.ops->CollectRiders(stream, shard.plan.get());
    stream.Synchronize();
    for (size_t i = 0; i < planned.size(); ++i)
      EXPECT_EQ(shard.plan->joined(static_cast<int64_t>(i)), both_join(planned[i])) << "group " << i;
  }
}

void TestRiderGraph(const RiderBackend& backend) {
  constexpr int64_t kNumRows = 9;
  const RiderCapacity capacity = {.num_boundaries = 4,
                                  .max_rows = kNumRows,
                                  .max_groups = 4,
                                  .hidden = 20,
                                  .q_width = 36,
                                  .qkv_width = 36,
                                  .dtype = DType::kBF16,
                                  .product_dtype = DType::kBF16};
  const std::unique_ptr<RiderPlan> plan = CreateTestRiderPlan(backend, capacity);
  const RiderBatch batch(backend, capacity, kNumRows);
  Stream& stream = *backend.stream;
  stream.BeginCapture();
  for (const int64_t boundary : {0, 1}) {
    const RiderArgs args = batch.Args(boundary, 0, kNumRows);
    backend.ops->GatherRiders(stream, *plan, args);
    // In place of the products.
    stream.Copy(args.qkv.data, args.attention_out.data,
                static_cast<size_t>(kNumRows * capacity.q_width) * DTypeSize(capacity.dtype));
    backend.ops->ScatterRiders(stream, *plan, args);
  }
  const std::unique_ptr<Graph> graph = stream.EndCapture();

  std::mt19937 random(3);
  const std::vector<std::vector<PlannedGroup>> contents = {
      {{0, AttentionState::kDone, 4}, {0, AttentionState::kRunning, 2}, {1, AttentionState::kDone, 9}},
      {{0, AttentionState::kRunning, 1}, {0, AttentionState::kDone, 8}, {1, AttentionState::kAborted, 3}},
      {},
      {{1, AttentionState::kRunning, 2}, {1, AttentionState::kDone, 3}}};
  for (size_t content = 0; content < contents.size(); ++content) {
    SCOPED_TRACE("content " + std::to_string(content));
    std::vector<std::unique_ptr<RiderCohort>> cohorts;
    std::vector<RiderGroup> groups;
    std::vector<Bytes> residuals;
    for (const PlannedGroup& planned : contents[content]) {
      cohorts.push_back(std::make_unique<RiderCohort>(backend, capacity, planned.num_rows));
      residuals.push_back(cohorts.back()->residual.Fill(random));
      cohorts.back()->attention_out.Fill(random);
      SetDone(planned.state, kDoneValue, cohorts.back()->done.get());
      groups.push_back(cohorts.back()->Group(capacity, planned.boundary, kDoneValue, kReadyValue));
    }
    const auto first_pass = static_cast<int64_t>(100 * content);
    backend.ops->PlanRiders(stream, groups, first_pass, plan.get());
    stream.Launch(*graph);
    backend.ops->CollectRiders(stream, plan.get());
    stream.Synchronize();
    EXPECT_EQ(plan->progress()->load(), first_pass + 2);
    for (size_t i = 0; i < cohorts.size(); ++i) {
      SCOPED_TRACE("group " + std::to_string(i));
      const bool joins = Joins(contents[content][i].state);
      EXPECT_EQ(plan->joined(static_cast<int64_t>(i)), joins);
      EXPECT_EQ(cohorts[i]->residual.Read(), residuals[i]);
      const Bytes qkv = cohorts[i]->qkv.Read();
      EXPECT_EQ(qkv, joins ? cohorts[i]->attention_out.Read() : Bytes(qkv.size(), kRiderPoison));
      EXPECT_EQ(cohorts[i]->ready->value(), joins ? kReadyValue : 0);
    }
  }
}

}  // namespace tandem
