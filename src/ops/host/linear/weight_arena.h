// Memory of packed weights: pieces of large mappings, so that small weights lie in huge pages too.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

namespace tandem {

class WeightArena {
 public:
  // Zeroed, aligned to 64 bytes; nullptr if there is none. The mapping that it is a piece of goes when the
  // last piece does. Any thread.
  std::shared_ptr<std::byte> Allocate(size_t size_bytes);

 private:
  std::mutex mutex_;
  std::shared_ptr<std::byte> chunk_;
  size_t chunk_bytes_ = 0;
  size_t used_bytes_ = 0;
};

}  // namespace tandem
