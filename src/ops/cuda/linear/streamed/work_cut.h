// How the work of a streamed product is cut into equal parts. Pure arithmetic, on the host and in the kernel.
#pragma once

#include <algorithm>
#include <cstdint>

#ifdef __CUDACC__
#define TANDEM_HOST_DEVICE __host__ __device__
#else
#define TANDEM_HOST_DEVICE
#endif

namespace tandem {

// A product is num_tiles tiles of its result, each a sum over num_steps slices of in_features. Unit u is step
// u % num_steps of tile u / num_steps. Worker w has the units [Begin(w), Begin(w + 1)), so a tile's sum may
// be in parts that several workers compute: neighbours, in the order of their steps.
struct WorkCut {
  int num_tiles = 0;
  int num_steps = 0;
  int num_workers = 0;  // every one has at least one unit

  // Fewer units are not worth a worker: it would take longer to add its part than to compute it.
  static constexpr int kMinUnits = 4;

  // Whether Of can cut so many: the kernel has 32-bit integers.
  static constexpr bool Fits(int64_t num_tiles, int64_t num_steps, int64_t max_workers) {
    constexpr int64_t kMost = int64_t{1} << 31;
    return num_tiles < kMost && num_steps < kMost && num_tiles * num_steps < kMost / (max_workers + 1);
  }

  // max_workers: at least 1. Fewer are taken where parts then end with tiles, if they are nearly as many.
  static constexpr WorkCut Of(int num_tiles, int num_steps, int max_workers) {
    const int most = std::clamp(num_tiles * num_steps / kMinUnits, 1, max_workers);
    int even = 0;
    if (num_tiles <= most) {
      even = num_tiles * (most / num_tiles);
    } else {
      const int tiles_a_worker = (num_tiles + most - 1) / most;
      if (num_tiles % tiles_a_worker == 0) even = num_tiles / tiles_a_worker;
    }
    constexpr int kNearlyAsMany = 93;  // percent
    return {num_tiles, num_steps, even * 100 >= most * kNearlyAsMany ? even : most};
  }

  TANDEM_HOST_DEVICE constexpr int num_units() const { return num_tiles * num_steps; }
  TANDEM_HOST_DEVICE constexpr int Begin(int worker) const { return worker * num_units() / num_workers; }
  TANDEM_HOST_DEVICE constexpr int WorkerOf(int unit) const {
    return ((unit + 1) * num_workers - 1) / num_units();
  }

  // The workers that a tile's sum is of.
  struct Parts {
    int first_worker = 0;
    int count = 0;
    bool first_is_later = false;  // the first worker has other tiles before this one
  };
  TANDEM_HOST_DEVICE constexpr Parts PartsOf(int tile) const {
    const int begin = tile * num_steps;
    const int first = WorkerOf(begin);
    return {first, WorkerOf(begin + num_steps - 1) - first + 1, Begin(first) < begin};
  }

  // A worker has at most two parts of tiles that are not its own as a whole: of its first tile and of its
  // last. Each has a place of its own, kept until the tile's sum is done.
  static constexpr int kPlacesAWorker = 2;
  // Of the part of a worker in a tile with these parts.
  TANDEM_HOST_DEVICE static constexpr int PlaceOf(const Parts& parts, int worker) {
    return worker * kPlacesAWorker + (worker == parts.first_worker && parts.first_is_later ? 1 : 0);
  }
};

}  // namespace tandem
