#include "grammar/compiled_cache.h"

#include <utility>

namespace tandem {
namespace {

constexpr size_t kEntryBytes = 256;  // the nodes of the list and the map

}  // namespace

const CompiledCache::Value* CompiledCache::Find(std::string_view key) {
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &entries_.front().value;
}

void CompiledCache::Insert(std::string key, Value value) {
  if (const auto found = places_.find(key); found != places_.end()) {
    entries_.splice(entries_.end(), entries_, found->second);
    DropLast();
  }
  const size_t value_bytes = value.ok() ? value.value()->memory_bytes() : value.error().message.size();
  const size_t bytes = kEntryBytes + key.size() + value_bytes;
  if (bytes > max_bytes_) return;
  while (bytes_ + bytes > max_bytes_) DropLast();
  entries_.push_front({std::move(key), std::move(value), bytes});
  places_.emplace(entries_.front().key, entries_.begin());
  bytes_ += bytes;
}

void CompiledCache::DropLast() {
  bytes_ -= entries_.back().bytes;
  places_.erase(entries_.back().key);
  entries_.pop_back();
}

}  // namespace tandem
