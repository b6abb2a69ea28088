#include "ops/kv_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "cpu_attention/append_token.h"
#include "ops/host/op_test_bench.h"

namespace tandem {
namespace {

// One layer of a tier in host memory, 0xff (NaN) until it is written.
struct TestTier {
  TestTier(const KvShape& shape, int64_t num_blocks, int64_t num_parts) {
    const KvParts parts = SplitHeads(shape.num_kv_heads, num_parts);
    // Parts do not follow each other directly.
    const size_t part_bytes =
        static_cast<size_t>(num_blocks * parts.heads_per_part) * shape.HeadBytes() + 4096;
    bytes.assign(static_cast<size_t>(parts.num_parts) * part_bytes, std::byte{0xff});
    view = {.data = bytes.data(), .shape = shape, .num_blocks = num_blocks};
    if (parts.num_parts > 1) {
      view.heads_per_part = parts.heads_per_part;
      view.part_stride_bytes = part_bytes;
    }
  }

  std::vector<std::byte> bytes;
  KvLayerView view;
};

class HostKvCopyTest : public testing::Test {
 protected:
  // The sequence's tokens, appended to `blocks`; always the same ones for heads and blocks of a size.
  static void Append(const TestTier& tier, const std::vector<int32_t>& blocks) {
    const KvShape& shape = tier.view.shape;
    std::mt19937 random(5);
    TestMatrix rows(DType::kF32, 2, shape.num_kv_heads * shape.head_dim);
    for (const int32_t block : blocks) {
      for (int64_t token = 0; token < shape.block_size; ++token) {
        rows.Fill(random);
        AppendToken(tier.view, static_cast<int32_t>(block * shape.block_size + token), 0, shape.num_kv_heads,
                    rows.view().RowData(0), rows.view().RowData(1), DType::kF32);
      }
    }
  }

  // K, then V of a token and head.
  static std::vector<float> Read(const KvLayerView& view, int64_t slot, int64_t head) {
    std::vector<float> rows(2 * static_cast<size_t>(view.shape.head_dim));
    ReadToken(view, static_cast<int32_t>(slot), head, rows.data(), rows.data() + view.shape.head_dim);
    return rows;
  }
  static void AppendWhatIsIn(const KvLayerView& from, const std::vector<int32_t>& from_blocks,
                             const KvLayerView& to, const std::vector<int32_t>& to_blocks) {
    const int64_t block_size = from.shape.block_size;
    for (size_t i = 0; i < from_blocks.size(); ++i) {
      for (int64_t token = 0; token < block_size; ++token) {
        for (int64_t head = 0; head < from.shape.num_kv_heads; ++head) {
          const std::vector<float> rows = Read(from, from_blocks[i] * block_size + token, head);
          AppendToken(to, static_cast<int32_t>(to_blocks[i] * block_size + token), head, 1, rows.data(),
                      rows.data() + from.shape.head_dim, DType::kF32);
        }
      }
    }
  }

  void Check(const KvShape& shape, int64_t num_parts, const std::vector<int32_t>& gpu_blocks,
             const std::vector<int32_t>& cpu_blocks, int64_t num_runs) {
    SCOPED_TRACE(testing::Message() << DTypeName(shape.plain_dtype()) << ", blocks of " << shape.block_size
                                    << ", " << shape.num_kv_heads << " heads of " << shape.head_dim << ", "
                                    << num_parts << " parts, " << gpu_blocks.size() << " blocks");
    TestTier gpu(shape, 20, 1);
    TestTier cpu(shape, 30, num_parts);
    Append(gpu, gpu_blocks);
    CopyKvArgs args = {
        .gpu = gpu.view, .cpu = cpu.view, .gpu_blocks = gpu_blocks, .cpu_blocks = cpu_blocks, .to_cpu = true};
    const CopyKvCount count = bench_.ops().CopyKv(bench_.stream(), args);
    bench_.Synchronize();
    EXPECT_EQ(count.num_copies, num_runs * std::min(num_parts, shape.num_kv_heads));
    EXPECT_EQ(count.num_bytes, static_cast<int64_t>(gpu_blocks.size() * shape.BlockBytes()));
    // What the CPU's kernels themselves would have written, and nothing anywhere else.
    TestTier expected(shape, 30, num_parts);
    Append(expected, cpu_blocks);
    EXPECT_EQ(cpu.bytes, expected.bytes);

    // And back, to a tier of nothing else.
    TestTier back(shape, 20, 1);
    args.gpu = back.view;
    args.to_cpu = false;
    bench_.ops().CopyKv(bench_.stream(), args);
    bench_.Synchronize();
    EXPECT_EQ(back.bytes, gpu.bytes);
  }

  OpTestBench& bench() { return bench_; }

 private:
  OpTestBench bench_;
};

TEST_F(HostKvCopyTest, BlocksArriveAsTheCpuWritesThem) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t num_parts : {1, 2, 3}) {
      const KvShape shape = {
          .format = KvFormat::Plain(dtype), .block_size = 32, .num_kv_heads = 3, .head_dim = 48};
      Check(shape, num_parts, {4, 5, 6, 7}, {10, 11, 12, 13}, 1);
      // Neighbours on one side only do not move together.
      Check(shape, num_parts, {3, 4, 9, 10, 11, 0}, {29, 7, 8, 9, 10, 11}, 4);
      Check(shape, num_parts, {19}, {0}, 1);
      Check({.format = KvFormat::Plain(dtype), .block_size = 16, .num_kv_heads = 2, .head_dim = 16},
            num_parts, {2, 1, 0}, {0, 1, 2}, 3);
    }
  }
}

// Between tiers of different types: as if what one holds had been appended to the other, and back.
TEST_F(HostKvCopyTest, TypesAreConverted) {
  struct Types {
    KvFormat gpu;
    KvFormat cpu;
  };
  for (const Types& types :
       {Types{KvFormat::Plain(DType::kF32), KvFormat::Int8()},
        Types{KvFormat::Int8(), KvFormat::Plain(DType::kF32)}, Types{KvFormat::Fp8(), KvFormat::Int8()},
        Types{KvFormat::Fp8(), KvFormat::PlainOfFp8(DType::kF32)},
        Types{KvFormat::Fp8(), KvFormat::PlainOfFp8(DType::kBF16)}}) {
    for (const int64_t num_parts : {1, 2}) {
      for (const int64_t block_size : {16, 32, 64}) {
        SCOPED_TRACE(testing::Message() << KvFormatName(types.gpu) << ", " << KvFormatName(types.cpu) << ", "
                                        << num_parts << " parts, blocks of " << block_size);
        KvShape shape = {.format = types.gpu, .block_size = block_size, .num_kv_heads = 3, .head_dim = 48};
        const std::vector<int32_t> gpu_blocks = {3, 4, 0};
        const std::vector<int32_t> cpu_blocks = {7, 1, 2};
        TestTier gpu(shape, 5, 1);
        Append(gpu, gpu_blocks);
        shape.format = types.cpu;
        TestTier cpu(shape, 8, num_parts);
        CopyKvArgs args = {.gpu = gpu.view,
                           .cpu = cpu.view,
                           .gpu_blocks = gpu_blocks,
                           .cpu_blocks = cpu_blocks,
                           .to_cpu = true};
        const CopyKvCount count = bench().ops().CopyKv(bench().stream(), args);
        bench().Synchronize();
        EXPECT_EQ(count.num_bytes, static_cast<int64_t>(gpu_blocks.size() * shape.BlockBytes()));
        TestTier expected(shape, 8, num_parts);
        AppendWhatIsIn(gpu.view, gpu_blocks, expected.view, cpu_blocks);
        EXPECT_EQ(cpu.bytes, expected.bytes);
        const std::vector<std::byte> before = gpu.bytes;

        std::fill(gpu.bytes.begin(), gpu.bytes.end(), std::byte{0xff});
        args.to_cpu = false;
        bench().ops().CopyKv(bench().stream(), args);
        bench().Synchronize();
        shape.format = types.gpu;
        TestTier back(shape, 5, 1);
        AppendWhatIsIn(cpu.view, cpu_blocks, back.view, gpu_blocks);
        EXPECT_EQ(gpu.bytes, back.bytes);
        // What fp8 holds is there as if it had been appended there.
        if (types.cpu.numbers != NumberRange::kOfFp8) continue;
        TestTier appended(cpu.view.shape, 8, num_parts);
        Append(appended, cpu_blocks);
        EXPECT_EQ(cpu.bytes, appended.bytes);
        // And is the same again.
        if (types.cpu.k_type == DType::kF32) {
          EXPECT_EQ(gpu.bytes, before);
        }
      }
    }
  }
}

TEST_F(HostKvCopyTest, NoBlocksNoCopies) {
  Check({.format = KvFormat::Plain(DType::kBF16), .block_size = 16, .num_kv_heads = 2, .head_dim = 16}, 2, {},
        {}, 0);
}

TEST(HostKvCopyDeathTest, ListsAndViewsMustFit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const KvShape shape = {
      .format = KvFormat::Plain(DType::kBF16), .block_size = 16, .num_kv_heads = 2, .head_dim = 16};
  const TestTier gpu(shape, 4, 1);
  const TestTier cpu(shape, 6, 2);
  const std::vector<int32_t> blocks = {0, 5};
  const std::vector<int32_t> fewer = {0};
  CopyKvArgs args = {.gpu = gpu.view, .cpu = cpu.view, .gpu_blocks = fewer, .cpu_blocks = blocks};
  EXPECT_DEATH(CheckCopyKv(args), "1 gpu blocks, 2 cpu blocks");
  args.gpu_blocks = blocks;
  EXPECT_DEATH(CheckCopyKv(args), "gpu block 5 of 4");
  args.gpu_blocks = fewer;
  args.cpu_blocks = fewer;
  CheckCopyKv(args);
  args.cpu.shape.head_dim = 32;
  EXPECT_DEATH(CheckCopyKv(args), "2 heads of 16; cpu blocks");
  args.gpu = cpu.view;
  args.cpu = cpu.view;
  EXPECT_DEATH(CheckCopyKv(args), "gpu blocks lie in 2 parts");
}

}  // namespace
}  // namespace tandem
