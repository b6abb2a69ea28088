#include "ops/attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/attention/attention_test_problem.h"
#include "ops/cuda/cuda_op_test_bench.h"

namespace tandem {
namespace {

std::string Describe(DType dtype, const AttentionShape& shape) {
  return fmt::format("cache of {}, {}/{} heads of {}, blocks of {}, window {}", DTypeName(dtype),
                     shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.block_size, shape.window);
}

class CudaAttentionTest : public CudaOpTest {
 protected:
  std::unique_ptr<AttentionPlan> MakePlan(const AttentionCapacity& capacity) {
    auto plan = ops().CreateAttentionPlan(capacity);
    TANDEM_CHECK(plan.ok(), "{}", plan.error().message);
    return std::move(plan).value();
  }
  void RunOnce(const AttentionProblem& problem, AttentionPlan* plan, const CudaMatrix& out) {
    ops().PlanAttention(stream(), problem.batch(), plan);
    ops().PagedAttention(stream(), problem.Args(plan, out));
    stream().Synchronize();
  }
  void ExpectReference(DType dtype, const AttentionShape& shape, const std::vector<RowsAndContext>& lengths) {
    ExpectReference(dtype, shape, lengths, dtype);
  }
  void ExpectReference(DType dtype, const AttentionShape& shape, const std::vector<RowsAndContext>& lengths,
                       DType q_dtype) {
    SCOPED_TRACE(Describe(dtype, shape));
    const AttentionProblem problem(device(), random(), dtype, shape, lengths, q_dtype);
    const auto plan = MakePlan(problem.Capacity());
    CudaMatrix out = problem.MakeOut();
    RunOnce(problem, plan.get(), out);
    problem.Expect(out);
  }
  std::vector<int64_t> RandomLengths(int64_t count, int64_t max) {
    std::uniform_int_distribution<int64_t> length(1, max);
    std::vector<int64_t> lengths(static_cast<size_t>(count));
    for (int64_t& value : lengths) value = length(random());
    return lengths;
  }
};

constexpr DType kEngineDTypes[] = {DType::kBF16, DType::kF16};
constexpr DType kCodes[] = {DType::kI8, DType::kF8E4M3};

TEST_F(CudaAttentionTest, DecodesOfMixedLengths) {
  for (const DType dtype : kEngineDTypes) {
    for (const int64_t group : {1, 3, 4, 7, 8, 16}) {
      for (const int64_t head_dim : {64, 128}) {
        ExpectReference(dtype, {group * 2, 2, head_dim},
                        Decodes({1, 5000, 16, 17, 31, 32, 33, 2, 777, 48, 1024, 15, 250}));
        if (HasFatalFailure()) return;
      }
    }
    for (const int64_t group : {1, 2, 8}) {
      ExpectReference(dtype, {group * 3, 3, 256}, Decodes({1500, 1, 40, 333, 64}));
      if (HasFatalFailure()) return;
    }
  }
}

// A sequence is spread over many CTAs, or several over one.
TEST_F(CudaAttentionTest, OneDecode) {
  for (const int64_t num_kv_heads : {1, 8}) {
    for (const int64_t context_len : {1, 15, 16, 17, 64, 127, 128, 129, 1000, 1024, 1025, 5000, 20000}) {
      ExpectReference(engine_dtype(), {num_kv_heads * 4, num_kv_heads, 128}, Decodes({context_len}));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaAttentionTest, ManyDecodes) {
  for (const int64_t count : {2, 7, 33, 131, 300}) {
    ExpectReference(engine_dtype(), {8, 2, 128}, Decodes(RandomLengths(count, 40000 / count)));
    if (HasFatalFailure()) return;
    ExpectReference(DType::kF16, {5, 5, 64}, Decodes(RandomLengths(count, 10000 / count)));
    if (HasFatalFailure()) return;
  }
  // More sequences in a CTA's range than a warp looks at in one step.
  ExpectReference(engine_dtype(), {2, 1, 64}, Decodes(std::vector<int64_t>(6000, 3)));
}

TEST_F(CudaAttentionTest, SlidingWindow) {
  for (const int64_t window : {1, 15, 16, 17, 100, 1000}) {
    ExpectReference(engine_dtype(), {8, 2, 128, 32, window},
                    Decodes({1, 16, 17, 99, 100, 101, 116, 2500, 32, 1001}));
    if (HasFatalFailure()) return;
    ExpectReference(engine_dtype(), {16, 1, 128, 32, window}, Decodes({1, 47, 48, 49, 101, 2500, 1001}));
    if (HasFatalFailure()) return;
  }
  ExpectReference(DType::kF16, {3, 1, 64, 32, 70}, {{1, 300}, {90, 200}, {1, 20}, {70, 70}});
}

TEST_F(CudaAttentionTest, DecodesAndPrefillsTogether) {
  const std::vector<std::vector<RowsAndContext>> batches = {
      {{1, 100}, {1, 1}, {1, 1025}, {300, 300}, {64, 700}},
      {{20, 20}, {1, 100}, {130, 131}, {1, 5}, {1, 640}},
      {{1, 33}, {2, 2}, {1, 900}, {17, 400}},
      {{500, 1500}},
  };
  for (const DType dtype : kEngineDTypes) {
    for (const std::vector<RowsAndContext>& lengths : batches) {
      for (const int64_t head_dim : {64, 128}) {
        ExpectReference(dtype, {8, 2, head_dim}, lengths);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaAttentionTest, ShapesOfTheFallback) {
  const std::vector<RowsAndContext> lengths = {{1, 100}, {1, 1}, {40, 77}, {1, 33}, {5, 5}, {1, 300}};
  const std::vector<AttentionShape> shapes = {
      {3, 1, 16},   {4, 4, 32},  {6, 2, 80},      {2, 2, 96},         {5, 1, 8},          {12, 1, 256},
      {20, 1, 128}, {40, 2, 64}, {2, 1, 128, 16}, {2, 2, 40, 48, 17}, {4, 2, 112, 32, 50}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const AttentionShape& shape : shapes) {
      ExpectReference(dtype, shape, lengths);
      if (HasFatalFailure()) return;
    }
  }
  for (const DType dtype : kEngineDTypes) {
    ExpectReference(dtype, {8, 2, 128}, lengths, DType::kF32);
    if (HasFatalFailure()) return;
  }
  ExpectReference(DType::kF32, {8, 2, 128}, lengths);
}

TEST_F(CudaAttentionTest, PlanIsUsedForOneBatchAfterTheOther) {
  const AttentionShape shape{8, 2, 128};
  const AttentionProblem decodes(device(), random(), engine_dtype(), shape, Decodes(RandomLengths(100, 600)));
  const AttentionProblem mixed(device(), random(), engine_dtype(), shape, {{1, 900}, {200, 300}, {1, 4}});
  const AttentionProblem one(device(), random(), engine_dtype(), shape, Decodes({2000}));
  AttentionCapacity capacity = decodes.Capacity();
  for (const AttentionProblem* problem : {&mixed, &one}) {
    capacity.max_rows = std::max(capacity.max_rows, problem->Capacity().max_rows);
    capacity.max_blocks = std::max(capacity.max_blocks, problem->Capacity().max_blocks);
  }
  const auto plan = MakePlan(capacity);
  for (const AttentionProblem* problem : {&one, &decodes, &mixed, &decodes, &one, &mixed}) {
    CudaMatrix out = problem->MakeOut();
    RunOnce(*problem, plan.get(), out);
    problem->Expect(out);
    if (HasFatalFailure()) return;
  }
}

// The graph is captured while the plan is of no batch, and runs with each batch that the plan gets.
TEST_F(CudaAttentionTest, GraphRunsWithNewPlans) {
  const std::vector<std::vector<int64_t>> batches = {{700}, {1, 40, 3000, 17}, RandomLengths(64, 300), {16}};
  struct Types {
    DType cache;
    DType rows;
  };
  // The decode kernel and the fallback.
  for (const Types& types : {Types{engine_dtype(), engine_dtype()}, Types{DType::kF32, DType::kF32},
                             Types{DType::kI8, engine_dtype()}, Types{DType::kI8, DType::kF32},
                             Types{DType::kF8E4M3, engine_dtype()}, Types{DType::kF8E4M3, DType::kF32}}) {
    const AttentionShape shape{8, 2, 128};
    // One cache and one q, so that the graph's arguments fit: all sequences in one problem.
    std::vector<int64_t> all;
    for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
    const AttentionProblem problem(device(), random(), types.cache, shape, Decodes(all), types.rows);
    const auto plan = MakePlan(problem.Capacity());
    CudaMatrix out = problem.MakeOut();

    stream().BeginCapture();
    // Twice: the second launch meets what the first has left behind.
    ops().PagedAttention(stream(), problem.Args(plan.get(), out));
    ops().PagedAttention(stream(), problem.Args(plan.get(), out));
    const std::unique_ptr<Graph> graph = stream().EndCapture();

    stream().Launch(*graph);
    stream().Synchronize();
    out.Download();
    for (int64_t c = 0; c < out.cols(); ++c) {
      ASSERT_TRUE(std::isnan(out.At(kFirstRow, c))) << "written without a batch, column " << c;
    }
    auto first = problem.batch().sequences.begin();
    for (const auto& lengths : batches) {
      AttentionBatch batch;
      batch.num_rows = problem.batch().num_rows;
      const auto end = first + static_cast<std::ptrdiff_t>(lengths.size());
      batch.sequences.assign(first, end);
      first = end;
      ops().PlanAttention(stream(), batch, plan.get());
      stream().Launch(*graph);
      stream().Synchronize();
    }
    // Every batch has written its own rows.
    problem.Expect(out);
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaAttentionTest, EqualBitsEveryTime) {
  for (const auto& lengths : {std::vector<int64_t>{3000}, RandomLengths(37, 2000)}) {
    const AttentionProblem problem(device(), random(), engine_dtype(), {32, 8, 128}, Decodes(lengths));
    const auto plan = MakePlan(problem.Capacity());
    CudaMatrix expected = problem.MakeOut();
    RunOnce(problem, plan.get(), expected);
    expected.Download();
    for (int run = 0; run < 10; ++run) {
      CudaMatrix out = problem.MakeOut();
      RunOnce(problem, plan.get(), out);
      out.Download();
      for (int64_t row = kFirstRow; row < problem.batch().num_rows; ++row) {
        for (int64_t c = 0; c < out.cols(); ++c) {
          ASSERT_EQ(out.At(row, c), expected.At(row, c))
              << "run " << run << ", row " << row << ", column " << c;
        }
      }
    }
  }
}

TEST_F(CudaAttentionTest, DecodesOverCodes) {
  for (const DType codes : kCodes) {
    for (const DType rows : kEngineDTypes) {
      for (const int64_t group : {1, 3, 4, 7, 8, 16}) {
        for (const int64_t head_dim : {64, 128}) {
          ExpectReference(codes, {group * 2, 2, head_dim},
                          Decodes({1, 5000, 16, 17, 31, 32, 33, 2, 777, 48, 1024, 15, 250}), rows);
          if (HasFatalFailure()) return;
        }
      }
      for (const int64_t group : {1, 2, 8}) {
        ExpectReference(codes, {group * 3, 3, 256}, Decodes({1500, 1, 40, 333, 64}), rows);
        if (HasFatalFailure()) return;
      }
    }
    for (const int64_t context_len : {1, 31, 32, 33, 1000, 5000, 20000}) {
      ExpectReference(codes, {8, 1, 128}, Decodes({context_len}), engine_dtype());
      if (HasFatalFailure()) return;
    }
    for (const int64_t count : {2, 33, 300}) {
      ExpectReference(codes, {8, 2, 128}, Decodes(RandomLengths(count, 40000 / count)), engine_dtype());
      if (HasFatalFailure()) return;
    }
    for (const int64_t window : {1, 16, 17, 100, 1000}) {
      ExpectReference(codes, {8, 2, 128, 32, window}, Decodes({1, 17, 99, 100, 101, 2500, 32, 1001}),
                      engine_dtype());
      if (HasFatalFailure()) return;
    }
  }
}

// The plain kernel: fp32, and heads that no other takes.
TEST_F(CudaAttentionTest, CodesOfOtherShapes) {
  const std::vector<RowsAndContext> lengths = {{1, 100}, {1, 1}, {40, 77}, {1, 33}, {5, 5}, {1, 300}};
  const std::vector<AttentionShape> shapes = {
      {3, 1, 16},  {4, 4, 32},      {6, 2, 80},         {2, 2, 96},          {12, 1, 256},      {20, 1, 128},
      {40, 2, 64}, {2, 1, 128, 16}, {2, 2, 48, 48, 17}, {4, 2, 112, 64, 50}, {4, 1, 192, 32, 0}};
  for (const DType codes : kCodes) {
    for (const DType rows : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const AttentionShape& shape : shapes) {
        ExpectReference(codes, shape, lengths, rows);
        if (HasFatalFailure()) return;
      }
    }
    ExpectReference(codes, {8, 2, 128}, lengths, DType::kF32);
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaAttentionTest, DecodesAndPrefillsOverCodes) {
  const std::vector<std::vector<RowsAndContext>> batches = {
      {{1, 100}, {1, 1}, {1, 1025}, {300, 300}, {64, 700}},
      {{20, 20}, {1, 100}, {130, 131}, {1, 5}, {1, 640}},
      {{1, 33}, {2, 2}, {1, 900}, {17, 400}},
      {{700, 1500}, {600, 600}},
  };
  for (const DType codes : kCodes) {
    for (const DType rows : kEngineDTypes) {
      for (const std::vector<RowsAndContext>& lengths : batches) {
        for (const int64_t head_dim : {64, 128}) {
          ExpectReference(codes, {8, 2, head_dim}, lengths, rows);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Numbers of no more than the longest context at a time.
TEST_F(CudaAttentionTest, PrefillsOverCodesInPasses) {
  const std::vector<RowsAndContext> lengths = {{1, 600}, {70, 70},  {3, 900},   {200, 900}, {5, 33},
                                               {40, 40}, {33, 400}, {600, 800}, {1, 31},    {2, 64}};
  for (const DType codes : kCodes) {
    const AttentionProblem problem(device(), random(), codes, {8, 2, 128}, lengths, engine_dtype());
    AttentionCapacity capacity = problem.Capacity();
    capacity.max_context = 900;
    const auto plan = MakePlan(capacity);
    for (int run = 0; run < 2; ++run) {
      CudaMatrix out = problem.MakeOut();
      RunOnce(problem, plan.get(), out);
      problem.Expect(out);
      if (HasFatalFailure()) return;
    }
  }
}

// A slice has fewer CTAs, each with more sequences.
TEST(CudaAttentionSliceTest, DecodesOnFewSms) {
  auto device = CreateCudaDevice({.sm_limit = 16});
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  const auto stream = device.value()->CreateStream(StreamKind::kCompute, "test");
  const auto ops = CreateCudaOps(device.value().get(), {.tuning_folder = "", .tune_linear = false});
  std::mt19937 random(3);
  const AttentionProblem problem(*device.value(), random, EngineDType(*device.value()), {8, 2, 128},
                                 Decodes({1, 5000, 100, 16, 33, 900, 2, 2, 640}));
  auto plan = ops->CreateAttentionPlan(problem.Capacity());
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  CudaMatrix out = problem.MakeOut();
  ops->PlanAttention(*stream, problem.batch(), plan.value().get());
  ops->PagedAttention(*stream, problem.Args(plan.value().get(), out));
  stream->Synchronize();
  problem.Expect(out);
}

}  // namespace
}  // namespace tandem
