// A submitted task inside of CpuAttention.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "cpu_attention/cpu_attention.h"

namespace tandem {

struct CpuAttention::Task {
  static constexpr int64_t kMaxParts = 8;

  AttentionTask task;
  int32_t slot = 0;              // of all_tasks_
  int32_t armed_place = -1;      // in armed_, -1: not there; by mutex_
  Task* next_of_flag = nullptr;  // by mutex_
  bool finished = false;         // by mutex_
  int64_t armed_ns = 0;
  int users = 0;  // workers that hold a pointer; by mutex_
  int64_t num_parts = 0;
  std::array<int64_t, kMaxParts> num_items = {};
  struct alignas(64) Cursor {
    std::atomic<int64_t> next{0};
  };
  std::array<Cursor, kMaxParts> cursors;
  alignas(64) std::atomic<int64_t> num_left{0};

  bool HasItems() const {
    for (int64_t part = 0; part < num_parts; ++part) {
      const auto p = static_cast<size_t>(part);
      if (cursors[p].next.load(std::memory_order_relaxed) < num_items[p]) return true;
    }
    return false;
  }
};

}  // namespace tandem
