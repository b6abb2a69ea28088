// What compiling grammars may cost.
#pragma once

#include <chrono>
#include <cstddef>

namespace tandem {

struct GrammarLimits {
  size_t max_spec_bytes = size_t{256} << 10;
  // Of one compiled grammar.
  size_t max_compiled_bytes = size_t{128} << 20;
  // From the request to its answer; a compilation that takes longer goes on, and nobody waits for it.
  std::chrono::milliseconds max_compile_time{10'000};
  int num_threads = 2;
  // Specs that wait for a thread.
  size_t max_waiting_specs = 64;
  // Of all compiled grammars that are kept.
  size_t cache_bytes = size_t{256} << 20;
};

}  // namespace tandem
