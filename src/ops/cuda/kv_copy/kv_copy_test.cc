#include "ops/cuda/kv_copy/kv_copy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cpu_attention/append_token.h"
#include "ops/cuda/cuda_op_test_bench.h"

namespace tandem {
namespace {

constexpr std::byte kUntouched{0xa5};

std::vector<int32_t> Range(int32_t first, size_t count) {
  std::vector<int32_t> blocks(count);
  std::iota(blocks.begin(), blocks.end(), first);
  return blocks;
}

int64_t NumRuns(const std::vector<int32_t>& blocks) {
  int64_t num_runs = 0;
  for (size_t i = 0; i < blocks.size(); ++i) num_runs += i == 0 || blocks[i] != blocks[i - 1] + 1 ? 1 : 0;
  return num_runs;
}

// K of a token and head where numbers are row-major; V is KeyBytes behind it.
std::byte* RowOf(const KvLayerView& view, int32_t slot, int64_t head) {
  const KvShape& shape = view.shape;
  return view.Head(slot / shape.block_size, head) +
         BytesFor(shape.plain_dtype(), slot % shape.block_size * shape.head_dim);
}
float NumberAt(const KvLayerView& view, const std::byte* row, size_t d) {
  const DType dtype = view.shape.plain_dtype();
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, row + 4 * d, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, row + 2 * d, 2);
  return dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
}
void PutNumber(const KvLayerView& view, std::byte* row, size_t d, float value) {
  const DType dtype = view.shape.plain_dtype();
  if (dtype == DType::kF32) {
    std::memcpy(row + 4 * d, &value, 4);
    return;
  }
  const uint16_t bits = dtype == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
  std::memcpy(row + 2 * d, &bits, 2);
}

class CudaKvCopyTest : public CudaOpTest {
 protected:
  Buffer Allocate(size_t size_bytes, MemoryKind kind) {
    auto buffer = device().Allocate(size_bytes, kind, "test");
    TANDEM_CHECK(buffer.ok(), "{}", buffer.error().message);
    return std::move(buffer).value();
  }

  // The K and V rows ([kv head][d] each) of every token of num_blocks blocks, as bits: every value but NaNs.
  std::vector<std::byte> RandomRows(const KvShape& shape, size_t num_blocks) {
    std::vector<std::byte> rows(num_blocks * shape.BlockBytes());
    std::normal_distribution<float> normal;
    const size_t element_bytes = DTypeSize(shape.plain_dtype());
    for (size_t at = 0; at < rows.size(); at += element_bytes) {
      const float value = normal(random());
      const uint16_t bits = shape.plain_dtype() == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
      if (element_bytes == 4) {
        std::memcpy(rows.data() + at, &value, 4);
      } else {
        std::memcpy(rows.data() + at, &bits, 2);
      }
    }
    return rows;
  }

  // Writes the rows into blocks of the gpu tier's order.
  static void WriteRowMajor(const KvLayerView& view, const std::vector<int32_t>& blocks,
                            const std::vector<std::byte>& rows) {
    const KvShape& shape = view.shape;
    const size_t row_bytes = shape.HeadBytes() / static_cast<size_t>(2 * shape.block_size);
    const std::byte* from = rows.data();
    for (const int32_t block : blocks) {
      for (int64_t token = 0; token < shape.block_size; ++token) {
        for (const int64_t value : {0, 1}) {
          for (int64_t head = 0; head < shape.num_kv_heads; ++head, from += row_bytes) {
            std::memcpy(
                view.Head(block, head) + static_cast<size_t>(value * shape.block_size + token) * row_bytes,
                from, row_bytes);
          }
        }
      }
    }
  }

  // The same in the CPU's order, by the code that the CPU's kernels read after.
  static void Append(const KvLayerView& view, const std::vector<int32_t>& blocks,
                     const std::vector<std::byte>& rows) {
    const KvShape& shape = view.shape;
    const size_t token_bytes = shape.BlockBytes() / static_cast<size_t>(2 * shape.block_size);
    const std::byte* from = rows.data();
    for (const int32_t block : blocks) {
      for (int64_t token = 0; token < shape.block_size; ++token, from += 2 * token_bytes) {
        AppendToken(view, static_cast<int32_t>(block * shape.block_size + token), 0, shape.num_kv_heads, from,
                    from + token_bytes, shape.plain_dtype());
      }
    }
  }

  // "" if all bytes are equal, else where they are not.
  static std::string Difference(const KvLayerView& got, const std::byte* got_bytes, const std::byte* want,
                                size_t size_bytes) {
    const auto at =
        static_cast<size_t>(std::mismatch(got_bytes, got_bytes + size_bytes, want).first - got_bytes);
    if (at == size_bytes) return "";
    size_t num_different = 0;
    for (size_t i = at; i < size_bytes; ++i) num_different += got_bytes[i] != want[i] ? 1 : 0;
    const size_t part = got.part_stride_bytes == 0 ? 0 : at / got.part_stride_bytes;
    const size_t in_part = at - part * got.part_stride_bytes;
    const auto heads = static_cast<size_t>(PartsOf(got).heads_per_part);
    const size_t head_bytes = got.shape.HeadBytes();
    return fmt::format(
        "{} bytes differ, first in part {}, block {}, head {} of the part, byte {} of {}: got {:02x}, want "
        "{:02x}",
        num_different, part, in_part / head_bytes / heads, in_part / head_bytes % heads, in_part % head_bytes,
        head_bytes, static_cast<int>(got_bytes[at]), static_cast<int>(want[at]));
  }

  // wanted_parts parts of the cpu tier, with num_blocks blocks on either side.
  void Check(const KvShape& shape, int64_t num_blocks, int64_t wanted_parts,
             const std::vector<int32_t>& gpu_blocks, const std::vector<int32_t>& cpu_blocks) {
    SCOPED_TRACE(testing::Message() << DTypeName(shape.plain_dtype()) << ", blocks of " << shape.block_size
                                    << " tokens, " << shape.num_kv_heads << " heads of " << shape.head_dim
                                    << ", " << wanted_parts << " parts, " << gpu_blocks.size() << " blocks");
    const std::vector<std::byte> rows = RandomRows(shape, gpu_blocks.size());
    const size_t gpu_bytes = static_cast<size_t>(num_blocks) * shape.BlockBytes();
    const KvParts parts = SplitHeads(shape.num_kv_heads, wanted_parts);
    const size_t part_stride =
        static_cast<size_t>(num_blocks * parts.heads_per_part) * shape.HeadBytes() + 4096;
    const size_t cpu_bytes = static_cast<size_t>(parts.num_parts) * part_stride;

    std::vector<std::byte> gpu_want(gpu_bytes, kUntouched);
    KvLayerView gpu = {.data = gpu_want.data(), .shape = shape, .num_blocks = num_blocks};
    WriteRowMajor(gpu, gpu_blocks, rows);
    std::vector<std::byte> cpu_want(cpu_bytes, kUntouched);
    KvLayerView cpu = gpu;
    cpu.data = cpu_want.data();
    if (parts.num_parts > 1) {
      cpu.heads_per_part = parts.heads_per_part;
      cpu.part_stride_bytes = part_stride;
    }
    Append(cpu, cpu_blocks, rows);

    const Buffer gpu_memory = Allocate(gpu_bytes, MemoryKind::kDevice);
    const Buffer cpu_memory = Allocate(cpu_bytes, MemoryKind::kPinned);
    gpu.data = gpu_memory.data();
    cpu.data = cpu_memory.data();
    std::memset(cpu_memory.data(), static_cast<int>(kUntouched), cpu_bytes);
    stream().Copy(gpu.data, gpu_want.data(), gpu_bytes);
    CopyKvArgs args = {
        .gpu = gpu, .cpu = cpu, .gpu_blocks = gpu_blocks, .cpu_blocks = cpu_blocks, .to_cpu = true};
    const CopyKvCount count = ops().CopyKv(stream(), args);
    stream().Synchronize();
    ASSERT_EQ(Difference(cpu, cpu_memory.as<std::byte>(), cpu_want.data(), cpu_bytes), "") << "to the cpu";
    EXPECT_EQ(count.num_bytes, static_cast<int64_t>(rows.size()));
    EXPECT_GE(count.num_copies, NumRuns(cpu_blocks) * parts.num_parts);

    // And back, to memory of nothing else.
    const std::vector<std::byte> untouched(gpu_bytes, kUntouched);
    stream().Copy(gpu.data, untouched.data(), gpu_bytes);
    args.to_cpu = false;
    const CopyKvCount back = ops().CopyKv(stream(), args);
    std::vector<std::byte> gpu_got(gpu_bytes);
    stream().Copy(gpu_got.data(), gpu.data, gpu_bytes);
    stream().Synchronize();
    ASSERT_EQ(Difference(gpu, gpu_got.data(), gpu_want.data(), gpu_bytes), "") << "to the gpu";
    EXPECT_EQ(back.num_copies, count.num_copies);
    EXPECT_EQ(back.num_bytes, count.num_bytes);
  }

  // One token and head of a tier: the gpu tier's numbers are row-major.
  static void Read(const KvLayerView& view, bool row_major, int32_t slot, int64_t head,
                   std::vector<float>* key, std::vector<float>* value) {
    if (!row_major) return ReadToken(view, slot, head, key->data(), value->data());
    const std::byte* row = RowOf(view, slot, head);
    for (size_t d = 0; d < key->size(); ++d) {
      (*key)[d] = NumberAt(view, row, d);
      (*value)[d] = NumberAt(view, row + view.shape.KeyBytes(), d);
    }
  }
  static void Write(const KvLayerView& view, bool row_major, int32_t slot, int64_t head,
                    const std::vector<float>& key, const std::vector<float>& value) {
    if (!row_major) return AppendToken(view, slot, head, 1, key.data(), value.data(), DType::kF32);
    std::byte* row = RowOf(view, slot, head);
    for (size_t d = 0; d < key.size(); ++d) {
      PutNumber(view, row, d, key[d]);
      PutNumber(view, row + view.shape.KeyBytes(), d, value[d]);
    }
  }
  // As the host converts: every token is read and appended.
  static void Convert(const KvLayerView& from, bool from_row_major, const std::vector<int32_t>& from_blocks,
                      const KvLayerView& to, bool to_row_major, const std::vector<int32_t>& to_blocks) {
    const int64_t block_size = from.shape.block_size;
    std::vector<float> key(static_cast<size_t>(from.shape.head_dim));
    std::vector<float> value(key.size());
    for (size_t i = 0; i < from_blocks.size(); ++i) {
      for (int64_t token = 0; token < block_size; ++token) {
        for (int64_t head = 0; head < from.shape.num_kv_heads; ++head) {
          Read(from, from_row_major, static_cast<int32_t>(from_blocks[i] * block_size + token), head, &key,
               &value);
          Write(to, to_row_major, static_cast<int32_t>(to_blocks[i] * block_size + token), head, key, value);
        }
      }
    }
  }

  // From a gpu tier of one type to a cpu tier of another, or the same, and back.
  void CheckTypes(DType gpu_type, DType cpu_type, KvShape shape, int64_t wanted_parts,
                  const std::vector<int32_t>& gpu_blocks, const std::vector<int32_t>& cpu_blocks,
                  int64_t num_blocks) {
    SCOPED_TRACE(testing::Message() << DTypeName(gpu_type) << " in the gpu tier, " << DTypeName(cpu_type)
                                    << " in the cpu tier, blocks of " << shape.block_size << " tokens, "
                                    << shape.num_kv_heads << " heads of " << shape.head_dim << ", "
                                    << wanted_parts << " parts, " << gpu_blocks.size() << " blocks");
    const bool row_major = IsFloatType(gpu_type);
    shape.format = KvFormat::Of(gpu_type);
    const size_t gpu_bytes = static_cast<size_t>(num_blocks) * shape.BlockBytes();
    std::vector<std::byte> gpu_start(gpu_bytes, kUntouched);
    KvLayerView gpu = {.data = gpu_start.data(), .shape = shape, .num_blocks = num_blocks};
    std::normal_distribution<float> normal;
    std::vector<float> key(static_cast<size_t>(shape.head_dim));
    std::vector<float> value(key.size());
    for (const int32_t block : gpu_blocks) {
      for (int64_t token = 0; token < shape.block_size; ++token) {
        for (int64_t head = 0; head < shape.num_kv_heads; ++head) {
          for (float& number : key) number = normal(random());
          key[3] *= 40.0F;
          for (float& number : value) number = normal(random());
          value[5] *= 1e-3F;
          Write(gpu, row_major, static_cast<int32_t>(block * shape.block_size + token), head, key, value);
        }
      }
    }
    const bool of_fp8 = gpu_type == DType::kF8E4M3 && IsFloatType(cpu_type);
    shape.format = of_fp8 ? KvFormat::PlainOfFp8(cpu_type) : KvFormat::Of(cpu_type);
    const KvParts parts = SplitHeads(shape.num_kv_heads, wanted_parts);
    const size_t part_stride =
        static_cast<size_t>(num_blocks * parts.heads_per_part) * shape.HeadBytes() + 4096;
    std::vector<std::byte> cpu_want(static_cast<size_t>(parts.num_parts) * part_stride, kUntouched);
    KvLayerView cpu = {.data = cpu_want.data(), .shape = shape, .num_blocks = num_blocks};
    if (parts.num_parts > 1) {
      cpu.heads_per_part = parts.heads_per_part;
      cpu.part_stride_bytes = part_stride;
    }
    Convert(gpu, row_major, gpu_blocks, cpu, false, cpu_blocks);
    std::vector<std::byte> gpu_want(gpu_bytes, kUntouched);
    KvLayerView back = gpu;
    back.data = gpu_want.data();
    Convert(cpu, false, cpu_blocks, back, row_major, gpu_blocks);

    const Buffer gpu_memory = Allocate(gpu_bytes, MemoryKind::kDevice);
    const Buffer cpu_memory = Allocate(cpu_want.size(), MemoryKind::kPinned);
    std::memset(cpu_memory.data(), static_cast<int>(kUntouched), cpu_want.size());
    stream().Copy(gpu_memory.data(), gpu_start.data(), gpu_bytes);
    gpu.data = gpu_memory.data();
    cpu.data = cpu_memory.data();
    CopyKvArgs args = {
        .gpu = gpu, .cpu = cpu, .gpu_blocks = gpu_blocks, .cpu_blocks = cpu_blocks, .to_cpu = true};
    const CopyKvCount count = ops().CopyKv(stream(), args);
    stream().Synchronize();
    ASSERT_EQ(Difference(cpu, cpu_memory.as<std::byte>(), cpu_want.data(), cpu_want.size()), "")
        << "to the cpu";
    EXPECT_EQ(count.num_bytes, static_cast<int64_t>(gpu_blocks.size() * shape.BlockBytes()));

    const std::vector<std::byte> untouched(gpu_bytes, kUntouched);
    stream().Copy(gpu.data, untouched.data(), gpu_bytes);
    args.to_cpu = false;
    ops().CopyKv(stream(), args);
    std::vector<std::byte> gpu_got(gpu_bytes);
    stream().Copy(gpu_got.data(), gpu.data, gpu_bytes);
    stream().Synchronize();
    ASSERT_EQ(Difference(gpu, gpu_got.data(), gpu_want.data(), gpu_bytes), "") << "to the gpu";
  }

  // count different blocks in any order.
  std::vector<int32_t> RandomBlocks(int64_t num_blocks, size_t count) {
    std::vector<int32_t> blocks = Range(0, static_cast<size_t>(num_blocks));
    std::shuffle(blocks.begin(), blocks.end(), random());
    blocks.resize(count);
    return blocks;
  }
};

TEST_F(CudaKvCopyTest, BlocksArriveAsTheOtherSideReadsThem) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t head_dim : {16, 48, 64, 80, 128, 256}) {
      for (const int64_t block_size : {32, 16, 48, 64}) {
        for (const int64_t num_parts : {1, 2, 3}) {
          // Five heads on two parts and on three: the last part has gaps.
          const KvShape shape = {.format = KvFormat::Plain(dtype),
                                 .block_size = block_size,
                                 .num_kv_heads = 5,
                                 .head_dim = head_dim};
          Check(shape, 12, num_parts, {7, 2, 3, 11, 0}, {4, 5, 6, 1, 9});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Between all types that tiers may have side by side: the bytes that the host makes.
TEST_F(CudaKvCopyTest, TypesAreConverted) {
  struct Types {
    DType gpu;
    DType cpu;
  };
  for (const DType plain : {DType::kBF16, DType::kF32, DType::kF16}) {
    for (const Types& types :
         {Types{DType::kI8, plain}, Types{plain, DType::kI8}, Types{DType::kI8, DType::kI8},
          Types{DType::kF8E4M3, plain}, Types{DType::kF8E4M3, DType::kI8}}) {
      for (const int64_t head_dim : {16, 48, 64, 80, 128, 256}) {
        for (const int64_t block_size : {32, 16, 64}) {
          for (const int64_t num_parts : {1, 2, 3}) {
            CheckTypes(types.gpu, types.cpu,
                       {.block_size = block_size, .num_kv_heads = 5, .head_dim = head_dim}, num_parts,
                       {7, 2, 3, 11, 0}, {4, 5, 6, 1, 9}, 12);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// More blocks than staging memory holds at a time, by bytes and by the kernels' lists.
TEST_F(CudaKvCopyTest, TypesAreConvertedInPieces) {
  for (const auto& [gpu, cpu] : {std::pair{DType::kI8, DType::kBF16}, std::pair{DType::kBF16, DType::kI8},
                                 std::pair{DType::kI8, DType::kI8}, std::pair{DType::kF8E4M3, DType::kBF16},
                                 std::pair{DType::kF8E4M3, DType::kI8}}) {
    CheckTypes(gpu, cpu, {.block_size = 32, .num_kv_heads = 8, .head_dim = 128}, 2, RandomBlocks(300, 280),
               RandomBlocks(300, 280), 300);
    if (HasFatalFailure()) return;
    CheckTypes(gpu, cpu, {.block_size = 32, .num_kv_heads = 1, .head_dim = 16}, 1, RandomBlocks(1100, 1027),
               RandomBlocks(1100, 1027), 1100);
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaKvCopyTest, AnyListOfBlocks) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t num_kv_heads : {1, 2, 8}) {
      for (const size_t count : {1, 2, 31, 60}) {
        const KvShape shape = {
            .format = KvFormat::Plain(dtype), .block_size = 32, .num_kv_heads = num_kv_heads, .head_dim = 64};
        Check(shape, 64, 2, RandomBlocks(64, count), RandomBlocks(64, count));
        Check(shape, 64, 1, RandomBlocks(64, count), Range(3, count));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaKvCopyTest, MoreThanTheStagingMemoryHolds) {
  // By bytes: 128 KiB a block.
  const KvShape large = {
      .format = KvFormat::Plain(DType::kBF16), .block_size = 32, .num_kv_heads = 8, .head_dim = 128};
  ASSERT_GT(200 * large.BlockBytes(), 3 * KvCopier::kStagingBytes);
  Check(large, 220, 2, RandomBlocks(220, 200), RandomBlocks(220, 200));
  Check(large, 220, 1, RandomBlocks(220, 64), Range(10, 64));
  // By the number of blocks: 2 KiB each.
  const KvShape small = {
      .format = KvFormat::Plain(DType::kF16), .block_size = 32, .num_kv_heads = 1, .head_dim = 16};
  const size_t count = 2 * KvConversion::kMaxBlocks + 3;
  Check(small, 1100, 1, RandomBlocks(1100, count), RandomBlocks(1100, count));
}

TEST_F(CudaKvCopyTest, NeighbouringCpuBlocksMoveInOneCopyForEachPart) {
  const KvShape shape = {
      .format = KvFormat::Plain(DType::kBF16), .block_size = 32, .num_kv_heads = 3, .head_dim = 64};
  const Buffer gpu = Allocate(8 * shape.BlockBytes(), MemoryKind::kDevice);
  const Buffer cpu = Allocate(2 * 8 * 2 * shape.HeadBytes(), MemoryKind::kPinned);
  const std::vector<int32_t> gpu_blocks = {7, 0, 5, 2, 4};
  const std::vector<int32_t> cpu_blocks = {3, 4, 5, 0, 1};
  CopyKvArgs args = {.gpu = {.data = gpu.data(), .shape = shape, .num_blocks = 8},
                     .cpu = {.data = cpu.data(), .shape = shape, .num_blocks = 8},
                     .gpu_blocks = gpu_blocks,
                     .cpu_blocks = cpu_blocks,
                     .to_cpu = true};
  EXPECT_EQ(ops().CopyKv(stream(), args).num_copies, 2);
  args.cpu.heads_per_part = 2;
  args.cpu.part_stride_bytes = 8 * 2 * shape.HeadBytes();
  EXPECT_EQ(ops().CopyKv(stream(), args).num_copies, 4);
  args.gpu_blocks = {};
  args.cpu_blocks = {};
  EXPECT_EQ(ops().CopyKv(stream(), args).num_copies, 0);
  stream().Synchronize();
}

// Calls on several streams, both directions at once: staging memory is not shared before it is free.
TEST_F(CudaKvCopyTest, StreamsDoNotDisturbEachOther) {
  const KvShape shape = {
      .format = KvFormat::Plain(DType::kBF16), .block_size = 32, .num_kv_heads = 8, .head_dim = 128};
  constexpr int64_t kBlocks = 160;
  const size_t size_bytes = kBlocks * shape.BlockBytes();
  constexpr int kStreams = 4;
  struct Side {
    Buffer gpu;
    Buffer cpu;
    std::vector<std::byte> want;
    std::vector<int32_t> blocks;
    std::unique_ptr<Stream> stream;
  };
  std::vector<Side> sides(kStreams);
  for (Side& side : sides) {
    side.gpu = Allocate(size_bytes, MemoryKind::kDevice);
    side.cpu = Allocate(size_bytes, MemoryKind::kPinned);
    side.blocks = RandomBlocks(kBlocks, kBlocks);
    side.want = RandomRows(shape, kBlocks);
    side.stream = device().CreateStream(StreamKind::kCopy, "side");
    side.stream->Copy(side.gpu.data(), side.want.data(), size_bytes);
    side.stream->Synchronize();
  }
  for (const bool to_cpu : {true, false, true, false}) {
    for (const Side& side : sides) {
      const std::vector<int32_t> cpu_blocks = Range(0, kBlocks);
      ops().CopyKv(*side.stream, {.gpu = {.data = side.gpu.data(), .shape = shape, .num_blocks = kBlocks},
                                  .cpu = {.data = side.cpu.data(), .shape = shape, .num_blocks = kBlocks},
                                  .gpu_blocks = side.blocks,
                                  .cpu_blocks = cpu_blocks,
                                  .to_cpu = to_cpu});
    }
  }
  for (Side& side : sides) {
    std::vector<std::byte> got(size_bytes);
    side.stream->Copy(got.data(), side.gpu.data(), size_bytes);
    side.stream->Synchronize();
    ASSERT_EQ(Difference({.data = nullptr, .shape = shape, .num_blocks = kBlocks}, got.data(),
                         side.want.data(), size_bytes),
              "");
  }
}

}  // namespace
}  // namespace tandem
