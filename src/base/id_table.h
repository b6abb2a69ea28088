// A small hash table from ids to values, made for one look at some hundred of them: no allocation an entry.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

template <typename Value>
class IdTable {
 public:
  // most: entries that are inserted at most.
  explicit IdTable(size_t most) : slots_(std::bit_ceil(2 * most + 1)) {}

  // Does nothing where the id is known.
  void Insert(uint64_t id, const Value& value) {
    Slot& slot = slots_[PlaceOf(id)];
    if (!slot.taken) slot = {id, value, true};
  }
  // Null: it is not known.
  const Value* Find(uint64_t id) const {
    const Slot& slot = slots_[PlaceOf(id)];
    return slot.taken ? &slot.value : nullptr;
  }

 private:
  struct Slot {
    uint64_t id = 0;
    Value value = {};
    bool taken = false;
  };

  // Where it is, or would be. Half of the slots are free.
  size_t PlaceOf(uint64_t id) const {
    const size_t last = slots_.size() - 1;
    size_t place = static_cast<size_t>(id * 0x9e3779b97f4a7c15 >> 32) & last;
    while (slots_[place].taken && slots_[place].id != id) place = (place + 1) & last;
    return place;
  }

  std::vector<Slot> slots_;
};

}  // namespace tandem
