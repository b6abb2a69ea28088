// Ops::GateUp as one kernel, for many rows: the product's accumulators become silu(gate) * up in registers,
// so that a result of twice the width is never written or read.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

// Kernels that differ in speed only. Named after the tile of a thread block (rows of x, rows of weight).
enum class FusedGateUp : uint8_t {
  kNone,                // not fused
  kCooperative128x256,  // both groups of warps compute one tile
  kCooperative256x128,
  kPingpong128x128,  // each computes one of its own: one's results are written beside the other's products
};
inline constexpr std::array kFusedGateUps = {FusedGateUp::kCooperative128x256,
                                             FusedGateUp::kCooperative256x128, FusedGateUp::kPingpong128x128};

// As it stands in files and tables.
std::string_view FusedGateUpName(FusedGateUp kernel);
std::optional<FusedGateUp> FusedGateUpFromName(std::string_view name);

// Columns of clusters that are walked together (GateUpTileScheduler): two waves of thread blocks share 8
// columns of weights and as many rows of x as fit the L2 with them.
constexpr int kFusedGroupColumns = 8;

// Fewer are not measured: what the weights take to read hides SiluMul.
constexpr int64_t kMinFusedRows = 256;

// Whether the build has the kernels at all (TANDEM_FUSED_GATE_UP).
bool HasFusedGateUp();
// True if LaunchFusedGateUp can do the product: compute capability 9.0, bf16 or fp16 throughout, in_features
// and mlp multiples of 8, x, y and their rows aligned to 16 bytes, no bias.
bool FusedGateUpSupports(const CudaTarget& target, const MatrixView& x, const MatrixView& weight,
                         bool has_bias, const MatrixView& y);

// y[rows, mlp] = silu(x Wg^T) * (x Wu^T), rounded once. weight: [2 mlp, in] dense, its rows in GateUpOrder.
// kernel: not kNone. Takes as many thread blocks as the stream's slice has SMs. A row's bits do not depend on
// the other rows. The kernel is part of programmatic dependent launch.
void LaunchFusedGateUp(CudaStream& stream, FusedGateUp kernel, const MatrixView& x, const MatrixView& weight,
                       const MatrixView& y, int group_columns = kFusedGroupColumns);

// Its kernels for one type, in a unit each.
void LaunchFusedGateUpBf16(CudaStream& stream, FusedGateUp kernel, const MatrixView& x,
                           const MatrixView& weight, const MatrixView& y, int group_columns);
void LaunchFusedGateUpFp16(CudaStream& stream, FusedGateUp kernel, const MatrixView& x,
                           const MatrixView& weight, const MatrixView& y, int group_columns);

}  // namespace tandem
