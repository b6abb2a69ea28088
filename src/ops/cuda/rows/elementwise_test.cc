#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/hashed_uniform.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/rows/elementwise_test_bench.h"

namespace tandem {
namespace {

TEST_F(CudaElementwiseTest, EmbeddingCopiesRows) {
  const TypePair types[] = {{DType::kBF16, DType::kBF16},
                            {DType::kF16, DType::kF16},
                            {DType::kF32, DType::kF32},
                            {DType::kBF16, DType::kF32},
                            {DType::kF16, DType::kF32}};
  for (const TypePair& pair : types) {
    for (const int64_t cols : {8, 37, 576, 4096}) {
      CudaMatrix table(device(), pair.in, 50, cols);
      table.Fill(random());
      std::vector<int32_t> ids = {49, 0, 3, 3, 50, -1};  // the last two: not in the vocabulary
      for (int32_t i = 0; i < 40; ++i) ids.push_back(i * 7 % 50);
      const CudaArray<int32_t> device_ids(device(), ids);
      CudaMatrix out(device(), pair.out, std::ssize(ids), cols + 8);
      ops().Embedding(stream(), {table.view(), device_ids.data(), out.view().Columns(0, cols)});
      stream().Synchronize();
      out.Download();
      for (int64_t r = 0; r < out.rows(); ++r) {
        const int32_t id = ids[static_cast<size_t>(r)];
        for (int64_t c = 0; c < cols; ++c) {
          ASSERT_EQ(out.At(r, c), id >= 0 && id < 50 ? table.At(id, c) : 0.0F)
              << Name(pair) << ", " << cols << " columns: row " << r << " col " << c << " id " << id;
        }
      }
      ExpectPoisonAfter(out, cols);
    }
  }
}

// A shard's part of a vocabulary: ids of others give zeros.
TEST_F(CudaElementwiseTest, EmbeddingOfAPartCopiesItsRows) {
  const TypePair types[] = {
      {DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}, {DType::kF16, DType::kF32}};
  constexpr int32_t kFirst = 30;
  constexpr int64_t kRows = 20;
  for (const TypePair& pair : types) {
    for (const int64_t cols : {37, 576}) {
      CudaMatrix table(device(), pair.in, kRows, cols);
      table.Fill(random());
      const std::vector<int32_t> ids = {30, 49, 29, 50, 0, 37, -1, 1000};
      const CudaArray<int32_t> device_ids(device(), ids);
      CudaMatrix out(device(), pair.out, std::ssize(ids), cols);
      ops().Embedding(stream(), {.table = table.view(),
                                 .ids = device_ids.data(),
                                 .out = out.view(),
                                 .is_part = true,
                                 .first_id = kFirst});
      stream().Synchronize();
      out.Download();
      for (int64_t r = 0; r < out.rows(); ++r) {
        const int64_t row = int64_t{ids[static_cast<size_t>(r)]} - kFirst;
        for (int64_t c = 0; c < cols; ++c) {
          ASSERT_EQ(out.At(r, c), row >= 0 && row < kRows ? table.At(row, c) : 0.0F)
              << Name(pair) << ", " << cols << " columns: row " << r << " col " << c;
        }
      }
    }
  }
}

TEST_F(CudaElementwiseTest, GatherRowsCopies) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t cols : {1, 19, 64, 5000}) {
      CudaMatrix in(device(), dtype, 8, cols, cols % 2);
      in.Fill(random());
      const std::vector<int32_t> indices = {7, 0, 7, 4, 1, 8, -3};
      const CudaArray<int32_t> device_indices(device(), indices);
      CudaMatrix out(device(), dtype, std::ssize(indices), cols + 2);
      ops().GatherRows(stream(), {in.view(), device_indices.data(), out.view().Columns(0, cols)});
      stream().Synchronize();
      out.Download();
      for (int64_t r = 0; r < out.rows(); ++r) {
        const int32_t index = indices[static_cast<size_t>(r)];
        for (int64_t c = 0; c < cols; ++c) {
          ASSERT_EQ(out.At(r, c), index >= 0 && index < 8 ? in.At(index, c) : 0.0F)
              << DTypeName(dtype) << ", " << cols << " columns: row " << r << " col " << c;
        }
      }
      ExpectPoisonAfter(out, cols);
    }
  }
}

TEST_F(CudaElementwiseTest, AddRmsNormMatchesReference) {
  struct Shape {
    int64_t rows, cols, gap;
  };
  // Few and many rows; every kernel, and the widths at which they change; widths and strides that wide
  // accesses do not fit.
  const Shape shapes[] = {{1, 5, 3},      {65, 64, 0},     {33, 100, 4},  {7, 576, 0},   {5, 4088, 0},
                          {1, 4096, 0},   {300, 4096, 8},  {3, 4104, 1},  {9, 4104, 0},  {2, 8192, 0},
                          {40, 12296, 0}, {290, 14336, 0}, {2, 16384, 0}, {3, 16392, 0}, {2, 20000, 0}};
  for (const Shape& shape : shapes) {
    for (const TypePair& types : kEngineTypes) {
      for (const bool has_delta : {false, true}) {
        CudaMatrix residual(device(), DType::kF32, shape.rows, shape.cols, shape.gap);
        residual.Fill(random(), 3.0F);
        CudaMatrix delta(device(), types.in, shape.rows, shape.cols, shape.gap * 2);
        delta.Fill(random());
        CudaMatrix weight(device(), DType::kF32, 1, shape.cols);
        weight.Fill(random());
        CudaMatrix out(device(), types.out, shape.rows, shape.cols + 8);
        std::vector<float> sums;
        for (int64_t r = 0; r < shape.rows; ++r) {
          for (int64_t c = 0; c < shape.cols; ++c) {
            sums.push_back(residual.At(r, c) + (has_delta ? delta.At(r, c) : 0.0F));
          }
        }
        AddRmsNormArgs args;
        args.residual = residual.view();
        if (has_delta) args.delta = delta.view();
        args.weight = static_cast<const float*>(weight.view().data);
        args.eps = 1e-5F;
        args.out = out.view().Columns(0, shape.cols);
        ops().AddRmsNorm(stream(), args);
        stream().Synchronize();
        residual.Download();
        out.Download();
        for (int64_t r = 0; r < shape.rows; ++r) {
          const float* sum = sums.data() + r * shape.cols;
          double squares = 0;
          for (int64_t c = 0; c < shape.cols; ++c) squares += static_cast<double>(sum[c]) * sum[c];
          const double factor = 1.0 / std::sqrt(squares / static_cast<double>(shape.cols) + 1e-5);
          for (int64_t c = 0; c < shape.cols; ++c) {
            const auto where = [&] {
              return Name(types) + ", [" + std::to_string(shape.rows) + ", " + std::to_string(shape.cols) +
                     "], delta " + std::to_string(has_delta) + ": row " + std::to_string(r) + " col " +
                     std::to_string(c);
            };
            ASSERT_EQ(residual.At(r, c), sum[c]) << where();
            const double expected = sum[c] * factor * weight.At(0, c);
            ASSERT_NEAR(out.At(r, c), expected, Tolerance(types.out, expected)) << where();
          }
        }
        ExpectPoisonAfter(out, shape.cols);
      }
    }
  }
}

// Strategies are compared bit by bit.
TEST_F(CudaElementwiseTest, ANormedRowDoesNotDependOnTheNumberOfRows) {
  constexpr int64_t kRows = 700;
  for (const int64_t cols : {96, 4096, 5120, 8200}) {
    CudaMatrix residual(device(), DType::kF32, kRows, cols);
    residual.Fill(random());
    CudaMatrix weight(device(), DType::kF32, 1, cols);
    weight.Fill(random());
    const auto norm = [&](int64_t first, int64_t num_rows) {
      CudaMatrix out(device(), DType::kF32, num_rows, cols);
      AddRmsNormArgs args;
      args.residual = residual.view().Rows(first, num_rows);
      args.weight = static_cast<const float*>(weight.view().data);
      args.out = out.view();
      ops().AddRmsNorm(stream(), args);
      stream().Synchronize();
      out.Download();
      return out;
    };
    const CudaMatrix all = norm(0, kRows);
    for (const int64_t num_rows : {1, 8, 33, 133, 265}) {
      const int64_t first = kRows - num_rows;
      const CudaMatrix some = norm(first, num_rows);
      for (int64_t r = 0; r < num_rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          ASSERT_EQ(some.At(r, c), all.At(first + r, c))
              << num_rows << " rows of " << cols << ": row " << r << " col " << c;
        }
      }
    }
  }
}

TEST_F(CudaElementwiseTest, SiluMulMatchesReference) {
  struct Shape {
    int64_t rows, cols, gap;
  };
  const Shape shapes[] = {{70, 7, 2}, {70, 8, 0},    {70, 96, 0},     {3, 333, 1},
                          {5, 40, 1}, {1, 14336, 0}, {300, 14336, 16}};
  for (const Shape& shape : shapes) {
    for (const TypePair& types : kEngineTypes) {
      const GateUpOrder order(shape.cols);
      CudaMatrix gate_up(device(), types.in, shape.rows, 2 * shape.cols, shape.gap);
      gate_up.Fill(random(), 4.0F);
      // exp overflows if it is not guarded.
      gate_up.At(0, 0) = -100.0F;
      gate_up.At(0, 1) = 100.0F;
      gate_up.At(0, 2) = 0.0F;
      gate_up.At(0, 3) = -88.0F;
      gate_up.Upload();
      CudaMatrix out(device(), types.out, shape.rows, shape.cols + 8);
      ops().SiluMul(stream(), {gate_up.view(), out.view().Columns(0, shape.cols)});
      stream().Synchronize();
      out.Download();
      for (int64_t r = 0; r < shape.rows; ++r) {
        for (int64_t c = 0; c < shape.cols; ++c) {
          const double gate = gate_up.At(r, order.PlaceOf(c));
          const double expected =
              gate / (1.0 + std::exp(-gate)) * gate_up.At(r, order.PlaceOf(shape.cols + c));
          ASSERT_NEAR(out.At(r, c), expected, Tolerance(types.out, expected))
              << Name(types) << ", [" << shape.rows << ", " << shape.cols << "]: row " << r << " col " << c
              << " gate " << gate;
        }
      }
      ExpectPoisonAfter(out, shape.cols);
    }
  }
}

// One row more and less at each number of elements an SM from which on threads, CTAs or the kernel are
// others.
TEST_F(CudaElementwiseTest, SiluMulOfAnyNumberOfRows) {
  constexpr int64_t kCols = 1032;
  constexpr int64_t kRowRuns = kCols / 8;
  const int64_t num_sms = AsCudaStream(stream()).target().num_sms;
  std::vector<int64_t> row_counts = {1, 2, 9};
  for (const int64_t runs_per_sm : {256, 512, 1024, 1536, 2048, 3072, 4096}) {
    const int64_t num_rows = runs_per_sm * num_sms / kRowRuns;
    for (const int64_t more : {-1, 0, 1}) row_counts.push_back(std::max<int64_t>(1, num_rows + more));
  }
  const int64_t most = row_counts.back();
  const GateUpOrder order(kCols);
  for (const TypePair& types : {kEngineTypes[0], kEngineTypes[1], kEngineTypes[3]}) {
    CudaMatrix gate_up(device(), types.in, most, 2 * kCols);
    gate_up.Fill(random(), 3.0F);
    std::vector<double> expected;
    expected.reserve(static_cast<size_t>(most * kCols));
    for (int64_t r = 0; r < most; ++r) {
      for (int64_t c = 0; c < kCols; ++c) {
        const double gate = gate_up.At(r, order.PlaceOf(c));
        expected.push_back(gate / (1.0 + std::exp(-gate)) * gate_up.At(r, order.PlaceOf(kCols + c)));
      }
    }
    for (const int64_t num_rows : row_counts) {
      CudaMatrix out(device(), types.out, num_rows + 1, kCols);
      ops().SiluMul(stream(), {gate_up.view().Rows(0, num_rows), out.view().Rows(0, num_rows)});
      stream().Synchronize();
      out.Download();
      for (int64_t r = 0; r < num_rows; ++r) {
        for (int64_t c = 0; c < kCols; ++c) {
          const double want = expected[static_cast<size_t>(r * kCols + c)];
          // Not ASSERT_NEAR: there are many.
          if (std::abs(out.At(r, c) - want) <= Tolerance(types.out, want)) continue;
          FAIL() << Name(types) << ", " << num_rows << " rows: row " << r << " col " << c << " got "
                 << out.At(r, c) << " want " << want;
        }
      }
      for (int64_t c = 0; c < kCols; ++c) {
        ASSERT_TRUE(std::isnan(out.At(num_rows, c))) << "written past row " << num_rows << " at " << c;
      }
    }
  }
}

TEST_F(CudaElementwiseTest, FillRandomGivesHashedUniform) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {100, 333}, {1024, 4096}}) {
      CudaMatrix matrix(device(), dtype, rows, cols);
      ops().FillRandom(stream(), matrix.view(), {77, 0.3F});
      stream().Synchronize();
      matrix.Download();
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          ASSERT_EQ(matrix.At(r, c),
                    Rounded(dtype, HashedUniform(77, static_cast<uint64_t>(r * cols + c), 0.3F)))
              << DTypeName(dtype) << ", [" << rows << ", " << cols << "]: row " << r << " col " << c;
        }
      }
    }
  }
}

// Of three runs of rows, as a shard's part of qkv.
TEST_F(CudaElementwiseTest, FillRandomGivesAPartOfALargerMatrix) {
  constexpr int64_t kColumns = 100;
  const MatrixCut part = {.rows = {{20, 10}, {40, 5}, {90, 5}}, .columns = {30, 41}, .num_columns = kColumns};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    CudaMatrix matrix(device(), dtype, part.num_rows(), part.columns.count);
    ops().FillRandom(stream(), matrix.view(), {77, 0.3F, &part});
    stream().Synchronize();
    matrix.Download();
    int64_t row = 0;
    for (const Slice& run : part.rows) {
      for (int64_t i = 0; i < run.count; ++i, ++row) {
        for (int64_t c = 0; c < part.columns.count; ++c) {
          const int64_t index = (run.begin + i) * kColumns + part.columns.begin + c;
          ASSERT_EQ(matrix.At(row, c), Rounded(dtype, HashedUniform(77, static_cast<uint64_t>(index), 0.3F)))
              << DTypeName(dtype) << ": row " << row << " col " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem
