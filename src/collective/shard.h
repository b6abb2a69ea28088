// One of several that compute a model together, each with its slice of every weight and of every KV head.
#pragma once

namespace tandem {

struct Shard {
  int rank = 0;
  int size = 1;

  bool is_whole() const { return size == 1; }
  bool operator==(const Shard&) const = default;
};

}  // namespace tandem
