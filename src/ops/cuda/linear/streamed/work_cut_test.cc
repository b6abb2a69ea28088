#include "ops/cuda/linear/streamed/work_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace tandem {
namespace {

struct Sizes {
  int num_tiles, num_steps, max_workers;
};

std::vector<Sizes> AllSizes() {
  std::vector<Sizes> all;
  for (const int tiles : {1, 2, 3, 16, 24, 32, 48, 66, 67, 112, 128, 132, 133, 501, 1002}) {
    for (const int steps : {1, 2, 3, 9, 64, 172, 224}) {
      for (const int workers : {1, 2, 3, 4, 12, 65, 66, 132}) all.push_back({tiles, steps, workers});
    }
  }
  return all;
}

TEST(WorkCutTest, EveryUnitHasOneWorkerAndAllHaveAsMany) {
  for (const auto& [tiles, steps, workers] : AllSizes()) {
    const WorkCut cut = WorkCut::Of(tiles, steps, workers);
    SCOPED_TRACE(testing::Message() << tiles << " tiles of " << steps << " steps, " << workers << " workers");
    ASSERT_GE(cut.num_workers, 1);
    ASSERT_LE(cut.num_workers, workers);
    ASSERT_EQ(cut.Begin(0), 0);
    ASSERT_EQ(cut.Begin(cut.num_workers), tiles * steps);
    const int share = cut.num_units() / cut.num_workers;
    for (int w = 0; w < cut.num_workers; ++w) {
      const int units = cut.Begin(w + 1) - cut.Begin(w);
      ASSERT_GE(units, 1);
      ASSERT_TRUE(units == share || units == share + 1) << "worker " << w << " has " << units;
      ASSERT_EQ(cut.WorkerOf(cut.Begin(w)), w);
      ASSERT_EQ(cut.WorkerOf(cut.Begin(w + 1) - 1), w);
    }
    // As many as are wanted, or nearly, where there is work for them.
    if (tiles * steps >= workers * WorkCut::kMinUnits) {
      EXPECT_GE(cut.num_workers * 100, workers * 93);
    }
  }
}

TEST(WorkCutTest, PartsOfATileAreThoseThatWorkersCompute) {
  for (const auto& [tiles, steps, workers] : AllSizes()) {
    const WorkCut cut = WorkCut::Of(tiles, steps, workers);
    SCOPED_TRACE(testing::Message() << tiles << " tiles of " << steps << " steps, " << workers << " workers");
    // Walks as the kernel does.
    std::map<int, std::vector<int>> workers_of_tile;
    std::map<int, int> steps_of_tile;
    std::set<int> places;
    for (int w = 0; w < cut.num_workers; ++w) {
      int num_parts = 0;
      for (int unit = cut.Begin(w); unit < cut.Begin(w + 1);) {
        const int tile = unit / steps;
        const int end = std::min(cut.Begin(w + 1), (tile + 1) * steps);
        workers_of_tile[tile].push_back(w);
        steps_of_tile[tile] += end - unit;
        const WorkCut::Parts parts = cut.PartsOf(tile);
        ASSERT_EQ(parts.count == 1, end - unit == steps) << "tile " << tile;
        if (parts.count > 1) {
          ++num_parts;
          const int place = WorkCut::PlaceOf(parts, w);
          EXPECT_TRUE(places.insert(place).second) << "place " << place << " twice";
          EXPECT_EQ(place / WorkCut::kPlacesAWorker, w);
        }
        unit = end;
      }
      EXPECT_LE(num_parts, WorkCut::kPlacesAWorker);
    }
    const int share = cut.num_units() / cut.num_workers;
    std::set<int> first_workers;
    for (int tile = 0; tile < tiles; ++tile) {
      ASSERT_EQ(steps_of_tile[tile], steps) << "tile " << tile;
      const WorkCut::Parts parts = cut.PartsOf(tile);
      const std::vector<int>& got = workers_of_tile[tile];
      ASSERT_EQ(static_cast<int>(got.size()), parts.count) << "tile " << tile;
      for (int i = 0; i < parts.count; ++i) ASSERT_EQ(got[static_cast<size_t>(i)], parts.first_worker + i);
      EXPECT_LE(parts.count, steps / share + 2) << "tile " << tile;
      // What counts the parts that are there is found by the first worker.
      if (parts.count > 1) {
        EXPECT_TRUE(first_workers.insert(parts.first_worker).second) << tile;
      }
    }
  }
}

TEST(WorkCutTest, WhatDoesNotFitIsKnown) {
  EXPECT_TRUE(WorkCut::Fits(501, 64, 66));
  EXPECT_TRUE(WorkCut::Fits(16384, 512, 132));
  EXPECT_FALSE(WorkCut::Fits(16384, 1024, 132));
  EXPECT_FALSE(WorkCut::Fits(int64_t{1} << 40, int64_t{1} << 40, 1));
}

TEST(WorkCutTest, PartsEndWithTilesWhereThatTakesNearlyAsManyWorkers) {
  struct Case {
    Sizes sizes;
    int num_workers;
    bool ends_with_tiles;
  };
  for (const auto& [sizes, num_workers, ends_with_tiles] :
       {Case{{16, 64, 66}, 64, true}, Case{{16, 224, 66}, 64, true}, Case{{128, 64, 66}, 64, true},
        Case{{24, 64, 66}, 66, false}, Case{{112, 64, 66}, 66, false}, Case{{66, 64, 66}, 66, true}}) {
    const WorkCut cut = WorkCut::Of(sizes.num_tiles, sizes.num_steps, sizes.max_workers);
    EXPECT_EQ(cut.num_workers, num_workers) << sizes.num_tiles;
    bool all_end = true;
    for (int tile = 0; tile < sizes.num_tiles; ++tile) {
      const int begin = tile * sizes.num_steps;
      all_end = all_end && cut.Begin(cut.WorkerOf(begin)) % sizes.num_steps == 0;
    }
    EXPECT_EQ(all_end, ends_with_tiles) << sizes.num_tiles;
  }
}

}  // namespace
}  // namespace tandem
