#include "engine/live_watch.h"

#include <chrono>
#include <utility>

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kLookInterval{100};
// Nobody reads more of a queue.
constexpr size_t kMaxWaitingShown = 256;

LiveRequest RowOf(const Request& request, LiveRequest::State state, const KvBooks& kv) {
  return {.id = request.id,
          .state = state,
          .tier = kv.tier_of(request.id),
          .prompt_tokens = static_cast<int64_t>(request.prompt_tokens.size()),
          .computed_tokens = request.num_computed_tokens,
          .generated_tokens = static_cast<int64_t>(request.output_tokens.size()),
          .max_tokens = request.sampling.max_tokens,
          .blocks = kv.held_blocks(request.id),
          .preemptions = request.num_preemptions};
}

}  // namespace

void LiveWatch::Watch(bool watched) {
  const std::lock_guard lock(mutex_);
  watched_ = watched;
  view_ = nullptr;
}

std::shared_ptr<const LiveView> LiveWatch::View() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

void LiveWatch::Look(RequestBooks* books, const KvBooks& kv, const EngineStats& stats) {
  if (!watched_.load(std::memory_order_relaxed)) return;
  const Clock::time_point now = Clock::now();
  if (now < next_look_ && !books->empty()) return;
  next_look_ = now + kLookInterval;
  auto view = std::make_shared<LiveView>();
  view->stats = stats;
  const ScheduleState& state = books->state();
  for (const ScheduledSequence& each : state.running) {
    const auto step = each.decoding() ? LiveRequest::State::kDecode : LiveRequest::State::kPrefill;
    view->requests.push_back(RowOf(books->At(each.id), step, kv));
  }
  size_t num_shown = 0;
  for (const ScheduledSequence& each : state.waiting) {
    if (num_shown++ == kMaxWaitingShown) break;
    view->requests.push_back(RowOf(books->At(each.id), LiveRequest::State::kWaiting, kv));
  }
  view->num_left_off =
      static_cast<int64_t>(state.running.size() + state.waiting.size() - view->requests.size());
  const std::lock_guard lock(mutex_);
  // Watching may have ended meanwhile.
  if (watched_) view_ = std::move(view);
}

}  // namespace tandem
