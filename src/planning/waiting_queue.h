// The queue of those that wait, as strategies see it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <utility>

#include "planning/scheduled_sequence.h"

namespace tandem {

// In order of arrival; a preempted sequence waits at the front again. A copy is cheap however many wait: the
// engine plans ahead with one. It shares the items until either is changed.
class WaitingQueue {
 public:
  using Items = std::deque<ScheduledSequence>;
  WaitingQueue() : items_(std::make_shared<Items>()) {}
  WaitingQueue(std::initializer_list<ScheduledSequence> sequences) : WaitingQueue() {
    for (const ScheduledSequence& each : sequences) push_back(each);
  }

  bool empty() const { return items_->empty(); }
  size_t size() const { return items_->size(); }
  Items::const_iterator begin() const { return items_->cbegin(); }
  Items::const_iterator end() const { return items_->cend(); }
  const ScheduledSequence& front() const { return items_->front(); }
  const ScheduledSequence& operator[](size_t index) const { return (*items_)[index]; }
  // Those that ScheduleLimits::max_tpot_us is not for.
  int64_t num_flexible() const { return num_flexible_; }

  void push_back(const ScheduledSequence& sequence) {
    Own().push_back(sequence);
    num_flexible_ += sequence.flexible ? 1 : 0;
  }
  void push_front(const ScheduledSequence& sequence) {
    Own().push_front(sequence);
    num_flexible_ += sequence.flexible ? 1 : 0;
  }
  void pop_front() {
    num_flexible_ -= front().flexible ? 1 : 0;
    Own().pop_front();
  }
  // Absent if it does not wait. Looks from the front: that is where plans admit.
  Items::const_iterator Find(SequenceId id) const {
    return std::find_if(begin(), end(), [id](const ScheduledSequence& each) { return each.id == id; });
  }
  // False if it does not wait.
  bool Erase(SequenceId id) {
    const auto found = Find(id);
    if (found == end()) return false;
    const std::ptrdiff_t index = found - begin();
    num_flexible_ -= found->flexible ? 1 : 0;
    Items& items = Own();
    items.erase(items.begin() + index);
    return true;
  }

  bool operator==(const WaitingQueue& other) const { return *items_ == *other.items_; }

 private:
  Items& Own() {
    if (items_.use_count() > 1) items_ = std::make_shared<Items>(*items_);
    return *items_;
  }

  std::shared_ptr<Items> items_;
  int64_t num_flexible_ = 0;
};

}  // namespace tandem
