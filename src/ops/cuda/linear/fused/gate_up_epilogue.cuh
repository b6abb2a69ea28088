// What the fused gate-up product does with its accumulators: silu(gate) * up, rounded once, to memory.
#pragma once

#include <cutlass/cutlass.h>

#include <cstdint>
#include <cute/tensor.hpp>

#include "ops/cuda/fragments.cuh"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/linear/transpose_in_quad.cuh"
#include "ops/cuda/row_access.h"
#include "ops/cuda/rows/silu.h"

namespace tandem {

// For CUTLASS's Sm90TmaWarpSpecializedAdapter. T: Bf16 or Fp16. Uses no shared memory.
template <typename T>
class GateUpEpilogue {
 public:
  using ElementC = T;
  using ElementD = T;
  using StrideC = cute::Stride<int64_t, cute::Int<1>, int64_t>;
  using StrideD = StrideC;
  struct SharedStorage {};
  struct Arguments {
    T* y = nullptr;  // [rows, mlp], rows aligned to 16 bytes
    int64_t y_stride = 0;
  };
  using Params = Arguments;

  template <typename Problem>
  static Params to_underlying_arguments(const Problem&, const Arguments& arguments, void* /*workspace*/) {
    return arguments;
  }
  template <typename Problem>
  static size_t get_workspace_size(const Problem&, const Arguments&) {
    return 0;
  }

  CUTLASS_HOST_DEVICE explicit GateUpEpilogue(const Params& params) : params_(params) {}

  // The first mode of accumulators is that of wgmma: (2 adjacent columns, 2 rows 8 apart, blocks of 8
  // columns). Blocks of gate and up alternate, so a thread holds both of an element. Of a row's 32 elements
  // in 8 blocks it computes four pairs 8 apart, and gets 8 in sequence from its quad: one store of 16 bytes.
  template <typename Problem, typename Tile, typename Coordinates, typename Engine, typename Layout,
            typename TiledMma, typename Residue>
  CUTLASS_DEVICE void operator()(const Problem& problem, Tile tile, const Coordinates& coordinates,
                                 const cute::Tensor<Engine, Layout>& accumulators, TiledMma tiled_mma,
                                 const Residue&, int thread, char*) {
    static_assert(kGateUpBlock == 8);
    constexpr int kBlocks = decltype(cute::size<0, 2>(accumulators))::value;
    static_assert(decltype(cute::size<0, 0>(accumulators))::value == 2 &&
                  decltype(cute::size<0, 1>(accumulators))::value == 2 && kBlocks % 8 == 0);
    const int rows = cute::get<0>(problem);
    const int mlp = cute::get<1>(problem) / 2;
    const auto places =
        tiled_mma.get_thread_slice(thread).partition_C(cute::make_identity_tensor(cute::take<0, 2>(tile)));
    const int first_row = static_cast<int>(cute::get<0>(coordinates)) * cute::size<0>(tile);
    const int first_column = static_cast<int>(cute::get<1>(coordinates)) * cute::size<1>(tile);
    const int q = thread % 4;
#pragma unroll
    for (int m = 0; m < cute::size<1>(accumulators); ++m) {
#pragma unroll
      for (int n = 0; n < cute::size<2>(accumulators); ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int block = 0; block < kBlocks; block += 8) {
            uint32_t words[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              float pair[2];
#pragma unroll
              for (int c = 0; c < 2; ++c) {
                pair[c] = SiluMulOne(accumulators(cute::make_coord(c, half, block + 2 * i), m, n),
                                     accumulators(cute::make_coord(c, half, block + 2 * i + 1), m, n));
              }
              words[i] = PackPair<T>(pair[0], pair[1]);
            }
            TransposeInQuad(words, q);
            const auto place = places(cute::make_coord(0, half, block), m, n);
            const int row = first_row + static_cast<int>(cute::get<0>(place));
            // The quad's first thread has the first column of the block.
            const int block_column = first_column + static_cast<int>(cute::get<1>(place)) - 2 * q;
            const int column = block_column / 2 + 8 * q;
            if (row < rows && column < mlp) {
              *reinterpret_cast<uint4*>(params_.y + row * params_.y_stride + column) =
                  make_uint4(words[0], words[1], words[2], words[3]);
            }
          }
        }
      }
    }
  }

 private:
  Params params_;
};

}  // namespace tandem
