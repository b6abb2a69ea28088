#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "device/cuda/kernel_launch.h"
#include "ops/cuda/kv_copy/kv_copy.h"

namespace tandem {
namespace {

// Small CTAs, so that they find room beside those of the model.
constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

// A warp takes a panel at a time: the tokens of one tile, of K or of V of one head, and of each token
// kPanelUnits units of 16 bytes. One unit more in shared memory puts rows into different banks.
constexpr int kPanelUnits = 8;
constexpr int kSharedRowUnits = kPanelUnits + 1;

__device__ __forceinline__ uint32_t LowHalves(uint32_t first, uint32_t second) {
  return __byte_perm(first, second, 0x5410);
}
__device__ __forceinline__ uint32_t HighHalves(uint32_t first, uint32_t second) {
  return __byte_perm(first, second, 0x7632);
}

// In the CPU's order, 16 values of d of all tokens of a tile lie together; so do they in K and in V. This is
// such a group: a lane has one token's 16 elements, as kWords words, in the order of either side.
template <DType kDType, int kTileTokens>
struct Group {
  static constexpr int kWords = kDType == DType::kF32 ? 16 : 8;
  static constexpr int kUnits = kWords / 4;

  uint32_t words[kWords];

  // Of K: word i of this lane is word i * kTileTokens + KeyLane of the group. fp32: [d][token]; bf16:
  // [d / 2][token][2]; fp16: [d][token], so that after SwapKeys the even lane of a pair has two tokens of
  // d = 2 i and the odd lane those of d = 2 i + 1.
  __device__ __forceinline__ static int KeyLane(int token) {
    return kDType == DType::kF16 ? token % 2 * (kTileTokens / 2) + token / 2 : token;
  }
  // From a token's row to what KeyLane says, and back. All lanes of the warp.
  __device__ __forceinline__ void SwapKeys(bool odd) {
    if constexpr (kDType == DType::kF16) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const uint32_t other = __shfl_xor_sync(~0U, words[i], 1);
        words[i] = odd ? HighHalves(other, words[i]) : LowHalves(words[i], other);
      }
    }
  }

  // Of V: the words of token t are words [t * kWords, (t + 1) * kWords) of the group. fp32 and fp16:
  // [token][16], a row as it is; bf16: [token / 2][16][2], so that of a pair of lanes the even one has both
  // tokens of the first 8 values of d and the odd one those of the last. All lanes of the warp.
  __device__ __forceinline__ void PairValues(bool odd) {
    if constexpr (kDType == DType::kBF16) {
      uint32_t even_token[4];
      uint32_t odd_token[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t own = odd ? words[4 + i] : words[i];
        const uint32_t other = __shfl_xor_sync(~0U, odd ? words[i] : words[4 + i], 1);
        even_token[i] = odd ? other : own;
        odd_token[i] = odd ? own : other;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[2 * i] = LowHalves(even_token[i], odd_token[i]);
        words[2 * i + 1] = HighHalves(even_token[i], odd_token[i]);
      }
    }
  }
  __device__ __forceinline__ void UnpairValues(bool odd) {
    if constexpr (kDType == DType::kBF16) {
      uint32_t own[4];
      uint32_t other[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t even_token = LowHalves(words[2 * i], words[2 * i + 1]);
        const uint32_t odd_token = HighHalves(words[2 * i], words[2 * i + 1]);
        own[i] = odd ? odd_token : even_token;
        other[i] = __shfl_xor_sync(~0U, odd ? even_token : odd_token, 1);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = odd ? other[i] : own[i];
        words[4 + i] = odd ? own[i] : other[i];
      }
    }
  }

  __device__ __forceinline__ void LoadRow(const uint4* row) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const uint4 unit = row[i];
      words[4 * i] = unit.x;
      words[4 * i + 1] = unit.y;
      words[4 * i + 2] = unit.z;
      words[4 * i + 3] = unit.w;
    }
  }
  __device__ __forceinline__ void StoreRow(uint4* row) const {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      row[i] = make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
    }
  }
};

// What a warp works on.
struct Panel {
  uint4* gpu;      // row of the first token; rows are row_units apart
  uint4* staging;  // first group; groups follow each other
  int num_units;   // of each row
  bool is_value;
};

template <int kTileTokens>
__device__ __forceinline__ Panel PanelOf(const KvConversion& conversion, int index) {
  const int row_units = conversion.row_units;
  const int num_panels = (row_units + kPanelUnits - 1) / kPanelUnits;
  const int num_tiles = conversion.block_size / kTileTokens;
  const int num_heads = conversion.num_kv_heads;
  const int first_unit = index % num_panels * kPanelUnits;
  index /= num_panels;
  const int tile = index % num_tiles;
  index /= num_tiles;
  const bool is_value = index % 2 != 0;
  index /= 2;
  const int head = index % num_heads;
  const int block = index / num_heads;

  const int64_t head_units = int64_t{2} * conversion.block_size * row_units;
  // The same on both sides: only inside of a tile is the order another.
  const int64_t tile_begin =
      static_cast<int64_t>((is_value ? conversion.block_size : 0) + tile * kTileTokens) * row_units;
  const int64_t gpu_head = static_cast<int64_t>(conversion.gpu_blocks[block]) * num_heads + head;
  const int first_head = head / conversion.heads_per_part * conversion.heads_per_part;
  const int part_heads = min(conversion.heads_per_part, num_heads - first_head);
  const int64_t staging_head =
      static_cast<int64_t>(first_head) * conversion.num_blocks + block * part_heads + head - first_head;
  return {
      .gpu = static_cast<uint4*>(conversion.gpu) + gpu_head * head_units + tile_begin + first_unit,
      .staging = static_cast<uint4*>(conversion.staging) + staging_head * head_units + tile_begin +
                 first_unit * kTileTokens,
      .num_units = min(kPanelUnits, row_units - first_unit),
      .is_value = is_value,
  };
}

template <DType kDType, int kTileTokens, bool kToCpu>
__global__ void __launch_bounds__(kThreads, 6)
    KvConversionKernel(const __grid_constant__ KvConversion conversion, int num_panels) {
  using Part = Group<kDType, kTileTokens>;
  constexpr int kRowsAtOnce = 32 / kPanelUnits;
  constexpr int kRowRounds = kTileTokens / kRowsAtOnce;
  constexpr int kGroupsAtOnce = 32 / kTileTokens;
  constexpr int kGroupRounds = kPanelUnits / Part::kUnits / kGroupsAtOnce;
  __shared__ uint4 shared[kWarps][kTileTokens * kSharedRowUnits];

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row_units = conversion.row_units;
  uint4* tile = shared[warp];
  // Between rows of the gpu tier and shared memory: eight lanes have a row.
  const int unit = lane % kPanelUnits;
  const int first_row = lane / kPanelUnits;
  // Between shared memory and staging: a lane has a token; with tiles of 16, two groups at a time.
  const int token = lane % kTileTokens;
  const int first_group = lane / kTileTokens;
  const bool odd = token % 2 != 0;
  const int key_lane = Part::KeyLane(token);

  WaitForPredecessors();
  const int num_warps = static_cast<int>(gridDim.x) * kWarps;
  for (int index = static_cast<int>(blockIdx.x) * kWarps + warp; index < num_panels; index += num_warps) {
    const Panel panel = PanelOf<kTileTokens>(conversion, index);
    const int num_groups = panel.num_units / Part::kUnits;
    if constexpr (kToCpu) {
      uint4 units[kRowRounds];
#pragma unroll
      for (int i = 0; i < kRowRounds; ++i) {
        const int row = first_row + i * kRowsAtOnce;
        if (unit < panel.num_units) {
          units[i] = panel.gpu[static_cast<int64_t>(row) * row_units + unit];
        }
      }
#pragma unroll
      for (int i = 0; i < kRowRounds; ++i) {
        const int row = first_row + i * kRowsAtOnce;
        if (unit < panel.num_units) tile[row * kSharedRowUnits + unit] = units[i];
      }
      __syncwarp();
    }

    Part groups[kGroupRounds];
    if constexpr (!kToCpu) {
#pragma unroll
      for (int i = 0; i < kGroupRounds; ++i) {
        const int group = first_group + i * kGroupsAtOnce;
        if (group >= num_groups) continue;
        const uint4* from = panel.staging + group * kTileTokens * Part::kUnits;
        if (panel.is_value) {
          groups[i].LoadRow(from + token * Part::kUnits);
        } else {
          const auto* words = reinterpret_cast<const uint32_t*>(from);
#pragma unroll
          for (int j = 0; j < Part::kWords; ++j) groups[i].words[j] = words[j * kTileTokens + key_lane];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kGroupRounds; ++i) {
      if (i * kGroupsAtOnce >= num_groups) break;  // the same for the whole warp
      const int group = first_group + i * kGroupsAtOnce;
      // A lane without a group goes along for the exchanges: the other of its pair has none either.
      if (kToCpu && group < num_groups) {
        groups[i].LoadRow(tile + token * kSharedRowUnits + group * Part::kUnits);
      }
      if (!panel.is_value) {
        groups[i].SwapKeys(odd);
      } else if constexpr (kToCpu) {
        groups[i].PairValues(odd);
      } else {
        groups[i].UnpairValues(odd);
      }
      if (group >= num_groups) continue;
      if constexpr (!kToCpu) {
        groups[i].StoreRow(tile + token * kSharedRowUnits + group * Part::kUnits);
      } else {
        uint4* to = panel.staging + group * kTileTokens * Part::kUnits;
        if (panel.is_value) {
          groups[i].StoreRow(to + token * Part::kUnits);
        } else {
          auto* words = reinterpret_cast<uint32_t*>(to);
#pragma unroll
          for (int j = 0; j < Part::kWords; ++j) words[j * kTileTokens + key_lane] = groups[i].words[j];
        }
      }
    }
    __syncwarp();

    if constexpr (!kToCpu) {
#pragma unroll
      for (int i = 0; i < kRowRounds; ++i) {
        const int row = first_row + i * kRowsAtOnce;
        if (unit < panel.num_units) {
          panel.gpu[static_cast<int64_t>(row) * row_units + unit] = tile[row * kSharedRowUnits + unit];
        }
      }
      __syncwarp();
    }
  }
}

template <DType kDType>
void Launch(CudaStream& stream, const KvConversion& conversion, bool to_cpu) {
  const int num_panels = conversion.num_blocks * conversion.num_kv_heads * 2 *
                         (conversion.block_size / conversion.tile_tokens) *
                         ((conversion.row_units + kPanelUnits - 1) / kPanelUnits);
  const int grid = std::min((num_panels + kWarps - 1) / kWarps, MaxConversionCtas(stream.target()));
  const auto launch = [&](auto kernel) {
    LaunchKernel("copy_kv", kernel, static_cast<unsigned>(grid), kThreads, 0, stream, conversion, num_panels);
  };
  if (conversion.tile_tokens == 32) {
    launch(to_cpu ? KvConversionKernel<kDType, 32, true> : KvConversionKernel<kDType, 32, false>);
  } else {
    TANDEM_CHECK(conversion.tile_tokens == 16, "copy_kv: tiles of {} tokens", conversion.tile_tokens);
    launch(to_cpu ? KvConversionKernel<kDType, 16, true> : KvConversionKernel<kDType, 16, false>);
  }
}

}  // namespace

void LaunchKvConversion(CudaStream& stream, const KvConversion& conversion, DType dtype, bool to_cpu) {
  switch (dtype) {
    case DType::kF32:
      return Launch<DType::kF32>(stream, conversion, to_cpu);
    case DType::kBF16:
      return Launch<DType::kBF16>(stream, conversion, to_cpu);
    case DType::kF16:
      return Launch<DType::kF16>(stream, conversion, to_cpu);
    default:
      break;
  }
  TANDEM_CHECK(false, "copy_kv: {}", DTypeName(dtype));
}

}  // namespace tandem
