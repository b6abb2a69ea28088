// Compiled grammars by their specs, the least recently used of them dropped when they take too much memory.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "request/grammar.h"

namespace tandem {

// Not thread-safe.
class CompiledCache {
 public:
  // A grammar, or why there is none.
  using Value = Result<std::shared_ptr<const Grammar>>;

  explicit CompiledCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Null if it is not there. Valid until the next Insert.
  const Value* Find(std::string_view key);
  // A value that takes more than everything that the cache may hold is not kept.
  void Insert(std::string key, Value value);

  size_t bytes() const { return bytes_; }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string key;
    Value value;
    size_t bytes;
  };
  void DropLast();

  size_t max_bytes_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;                                                 // the most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> places_;  // keys: those of entries_
};

}  // namespace tandem
