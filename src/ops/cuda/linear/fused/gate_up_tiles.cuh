// Which tile of the fused gate-up product a thread block computes next: CUTLASS's static persistent schedule
// with a walk of our own, in which no tile is added to fill a group.
#pragma once

#include <cutlass/arch/arch.h>

#include <cstdint>
#include <cute/tensor.hpp>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>
#include <cutlass/kernel_hardware_info.hpp>
#include <cutlass/pipeline/pipeline.hpp>

namespace tandem {

// The tiles of one cluster count as one. They are walked in groups of columns, each from the first row to the
// last: the clusters that run together then share weights and rows of x in the L2.
class GateUpTileScheduler {
 public:
  struct Arguments {
    int group_columns = 1;
  };
  struct Params {
    int32_t row_tiles = 0;
    int32_t column_tiles = 0;
    int32_t group_columns = 1;
    int32_t cluster_rows = 1;
    int32_t cluster_columns = 1;

    CUTLASS_HOST_DEVICE int32_t num_tiles() const { return row_tiles * column_tiles; }
  };
  struct WorkTileInfo {
    int32_t M_idx = 0;
    int32_t N_idx = 0;
    int32_t L_idx = 0;
    bool valid = false;

    CUTLASS_DEVICE bool is_valid() const { return valid; }
    CUTLASS_DEVICE int32_t reduction_subtile_idx() const { return -1; }
  };

  // What a schedule that is decided on the GPU would need.
  static constexpr bool IsDynamicPersistent = false;
  using Pipeline = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90::Pipeline;
  using ThrottlePipeline = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90::ThrottlePipeline;
  using SharedStorage = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90::SharedStorage;

  template <typename Problem, typename Tile, typename Cluster>
  static Params to_underlying_arguments(Problem problem, Tile tile, Cluster cluster,
                                        const cutlass::KernelHardwareInfo& /*hardware*/,
                                        const Arguments& arguments, void* /*workspace*/ = nullptr,
                                        uint32_t /*epilogue_subtiles*/ = 1) {
    const auto tiles = [](int32_t size, int32_t tile_size) { return (size + tile_size - 1) / tile_size; };
    Params params;
    params.cluster_rows = cute::size<0>(cluster);
    params.cluster_columns = cute::size<1>(cluster);
    params.row_tiles = tiles(cute::get<0>(problem), cute::size<0>(tile) * params.cluster_rows);
    params.column_tiles = tiles(cute::get<1>(problem), cute::size<1>(tile) * params.cluster_columns);
    params.group_columns = arguments.group_columns;
    return params;
  }
  // Clusters lie along x.
  static dim3 Grid(const Params& params, int num_sms) {
    const int32_t resident = num_sms / (params.cluster_rows * params.cluster_columns);
    const int32_t clusters = std::max(1, std::min(resident, params.num_tiles()));
    return dim3(static_cast<unsigned>(clusters * params.cluster_rows),
                static_cast<unsigned>(params.cluster_columns));
  }
  template <typename Problem, typename Accumulator>
  static size_t get_workspace_size(const Arguments&, Problem, const cutlass::KernelHardwareInfo&, uint32_t,
                                   uint32_t = 1) {
    return 0;
  }

  CUTLASS_DEVICE explicit GateUpTileScheduler(const Params& params)
      : params_(params), tile_(static_cast<int32_t>(blockIdx.x) / params.cluster_rows) {}

  template <typename Cluster>
  CUTLASS_DEVICE WorkTileInfo initial_work_tile_info(Cluster) const {
    return get_current_work();
  }
  CUTLASS_DEVICE WorkTileInfo get_current_work() const {
    if (tile_ >= params_.num_tiles()) return {};
    const int32_t group_tiles = params_.group_columns * params_.row_tiles;
    const int32_t group = tile_ / group_tiles;
    const int32_t in_group = tile_ - group * group_tiles;
    const int32_t first_column = group * params_.group_columns;
    const int32_t width = min(params_.group_columns, params_.column_tiles - first_column);
    const int32_t row = in_group / width;
    const int32_t column = first_column + in_group - row * width;
    return {row * params_.cluster_rows + static_cast<int32_t>(blockIdx.x) % params_.cluster_rows,
            column * params_.cluster_columns + static_cast<int32_t>(blockIdx.y), 0, true};
  }
  CUTLASS_DEVICE void advance_to_next_work(int32_t count = 1) { tile_ += count * num_clusters(); }
  CUTLASS_DEVICE auto fetch_next_work(const WorkTileInfo&) {
    advance_to_next_work();
    return cute::make_tuple(get_current_work(), true);
  }
  template <typename AnyPipeline, typename AnyState>
  CUTLASS_DEVICE auto fetch_next_work(const WorkTileInfo& work, AnyPipeline&, AnyState) {
    return fetch_next_work(work);
  }
  CUTLASS_DEVICE bool is_last_tile(const WorkTileInfo&, int32_t count = 1) const {
    return tile_ + count * num_clusters() >= params_.num_tiles();
  }

  // A tile is computed by one thread block from the first k to the last.
  CUTLASS_DEVICE static bool valid_warpgroup_in_work_tile(const WorkTileInfo&) { return true; }
  CUTLASS_DEVICE static bool requires_separate_reduction(const Params&) { return false; }
  CUTLASS_DEVICE static bool compute_epilogue(const WorkTileInfo&, const Params&) { return true; }
  CUTLASS_DEVICE static uint32_t get_work_k_tile_start(const WorkTileInfo&) { return 0; }
  template <typename Problem, typename Tile>
  CUTLASS_DEVICE static int get_work_k_tile_count(const WorkTileInfo&, Problem problem, Tile tile) {
    return cute::size(cute::ceil_div(cute::get<2>(problem), cute::get<2>(tile)));
  }
  template <typename Accumulators>
  CUTLASS_DEVICE static void fixup(const Params&, const WorkTileInfo&, Accumulators&, uint32_t, uint32_t) {}

 private:
  CUTLASS_DEVICE int32_t num_clusters() const {
    return static_cast<int32_t>(gridDim.x) / params_.cluster_rows;
  }

  Params params_;
  int32_t tile_;
};

}  // namespace tandem

// How CUTLASS's kernels are told of it: as its own tag.
template <typename Tile, typename Cluster, uint32_t kStages>
struct cutlass::gemm::kernel::detail::TileSchedulerSelector<tandem::GateUpTileScheduler, cutlass::arch::Sm90,
                                                            Tile, Cluster, kStages> {
  using Scheduler = tandem::GateUpTileScheduler;
};
