#include "ops/cuda/kv_codes/append_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "cpu_attention/append_token.h"
#include "ops/cuda/cuda_op_test_bench.h"

namespace tandem {
namespace {

class CudaAppendCodesTest : public CudaOpTest {
 protected:
  // Of the rows that QkvPrepare leaves: the codes that the host makes of them, and nothing else is written.
  // A third of the rows goes to either of two caches, every fifth row has no slot.
  void Check(DType dtype, const KvShape& shape, int64_t num_heads, int64_t rows) {
    SCOPED_TRACE(testing::Message() << DTypeName(dtype) << ", " << KvFormatName(shape.format) << ", "
                                    << num_heads << " heads, " << shape.num_kv_heads << " of "
                                    << shape.head_dim << ", blocks of " << shape.block_size << ", " << rows
                                    << " rows");
    const int64_t head_dim = shape.head_dim;
    CudaMatrix qkv(device(), dtype, rows, (num_heads + 2 * shape.num_kv_heads) * head_dim, 8);
    qkv.Fill(random());
    // One channel is far larger than the others, and a whole row is 0.
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = head_dim - 1; col < qkv.cols(); col += head_dim) qkv.At(row, col) *= 50.0F;
      if (row % 7 != 3) continue;
      for (int64_t col = 0; col < qkv.cols(); ++col) qkv.At(row, col) = 0.0F;
    }
    qkv.Upload();
    const int64_t num_blocks = rows / shape.block_size + 2;
    std::vector<int32_t> slots(static_cast<size_t>(num_blocks * shape.block_size));
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), random());
    slots.resize(static_cast<size_t>(rows));
    for (size_t row = 4; row < slots.size(); row += 5) slots[row] = -1;
    const std::vector<int32_t> positions(static_cast<size_t>(rows), 1);
    std::vector<float> rope;  // two positions
    for (int64_t d = 0; d < 2 * head_dim; ++d)
      rope.push_back(d % head_dim < head_dim / 2
                         ? std::cos(0.1F * static_cast<float>(d))
                         : std::sin(0.1F * (static_cast<float>(d) - static_cast<float>(head_dim) / 2)));
    const CudaArray<int32_t> device_slots(device(), slots);
    const CudaArray<int32_t> device_positions(device(), positions);
    const CudaArray<float> device_rope(device(), rope);
    const std::vector<std::byte> untouched(static_cast<size_t>(num_blocks) * shape.BlockBytes(),
                                           std::byte{0xa5});
    const std::array<CudaArray<std::byte>, 2> caches = {CudaArray<std::byte>(device(), untouched),
                                                        CudaArray<std::byte>(device(), untouched)};

    QkvPrepareArgs args;
    args.qkv = qkv.view();
    args.num_heads = num_heads;
    args.num_kv_heads = shape.num_kv_heads;
    args.head_dim = head_dim;
    args.rope_table = device_rope.data();
    args.positions = device_positions.data();
    args.slots = device_slots.data();
    const int64_t third = (rows + 2) / 3;
    const int64_t behind = std::min(rows, 2 * third);
    const auto cache_at = [&](size_t i) {
      return KvLayerView{.data = caches[i].data(), .shape = shape, .num_blocks = num_blocks};
    };
    args.appends[0] = {.row_begin = 0, .num_rows = third, .kv = cache_at(0)};
    args.appends[1] = {.row_begin = behind, .num_rows = rows - behind, .kv = cache_at(1)};
    ops().QkvPrepare(stream(), args);
    stream().Synchronize();
    qkv.Download();

    for (size_t i = 0; i < caches.size(); ++i) {
      std::vector<std::byte> got(untouched.size());
      stream().Copy(got.data(), caches[i].data(), got.size());
      stream().Synchronize();
      std::vector<std::byte> want = untouched;
      const KvLayerView view = {.data = want.data(), .shape = shape, .num_blocks = num_blocks};
      const KvRows& append = args.appends[i];
      for (int64_t row = append.row_begin; row < append.row_begin + append.num_rows; ++row) {
        const float* keys = qkv.Row(row) + num_heads * head_dim;
        AppendToken(view, slots[static_cast<size_t>(row)], 0, shape.num_kv_heads, keys,
                    keys + shape.num_kv_heads * head_dim, DType::kF32);
      }
      const auto at = std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin();
      ASSERT_EQ(static_cast<size_t>(at), got.size())
          << "cache " << i << ": byte " << at << " of " << got.size() << " (blocks of " << shape.BlockBytes()
          << ", heads of " << shape.HeadBytes() << ") is " << static_cast<int>(got[static_cast<size_t>(at)])
          << " instead of " << static_cast<int>(want[static_cast<size_t>(at)]);
    }
  }
};

TEST_F(CudaAppendCodesTest, TheHostsCodes) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t head_dim : {16, 32, 48, 64, 80, 96, 128, 192, 256}) {
      for (const int64_t block_size : {32, 16, 64}) {
        for (const KvFormat& format : {KvFormat::Int8(), KvFormat::Fp8()}) {
          const KvShape shape = {
              .format = format, .block_size = block_size, .num_kv_heads = 3, .head_dim = head_dim};
          for (const int64_t rows : {1, 2, 70}) {
            Check(dtype, shape, 6, rows);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(CudaAppendCodesTest, ManyRows) {
  for (const KvFormat& format : {KvFormat::Int8(), KvFormat::Fp8()}) {
    Check(DType::kBF16, {.format = format, .block_size = 32, .num_kv_heads = 8, .head_dim = 128}, 32, 2500);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tandem
