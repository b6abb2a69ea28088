// Work in pieces on all cores, for what is done once, at the start.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/topology.h"

namespace tandem {

// Calls work(piece, memory of the thread) for every piece of [0, num_pieces), on as many threads as there are
// cores. Returns when all are done.
template <typename Memory, typename Work>
void ForEachOnAllCores(int64_t num_pieces, const Work& work) {
  std::atomic<int64_t> next{0};
  const auto run = [&] {
    Memory memory;
    for (int64_t piece = next++; piece < num_pieces; piece = next++) work(piece, &memory);
  };
  std::vector<std::thread> threads;
  const auto num_threads = std::min<int64_t>(num_pieces, MachineTopology().num_physical_cores);
  for (int64_t i = 1; i < num_threads; ++i) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tandem
