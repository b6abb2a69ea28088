// Looks at the engine's books for those who watch it, and does nothing while nobody does.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "engine/live_view.h"
#include "engine/request_books.h"
#include "kv/kv_books.h"
#include "request/request.h"

namespace tandem {

class LiveWatch {
 public:
  // Any thread. Begins and ends without a view.
  void Watch(bool watched);
  // Any thread. Null if there is none.
  std::shared_ptr<const LiveView> View() const;

  // Engine thread, between two iterations, while the books do not change. Makes a view if somebody watches
  // and the last one is old, or if there is nothing left to do: until that changes, nobody looks. stats: with
  // the gauges of this moment.
  void Look(RequestBooks* books, const KvBooks& kv, const EngineStats& stats);

 private:
  std::atomic<bool> watched_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<const LiveView> view_;
  Clock::time_point next_look_;  // engine thread
};

}  // namespace tandem
