// What the kernel says of this process, under the names that Prometheus clients give it.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

struct ProcessUsage {
  double cpu_seconds = 0;         // user and system, of all threads
  double start_time_seconds = 0;  // since 1970
  int64_t resident_memory_bytes = 0;
  int64_t virtual_memory_bytes = 0;
  int64_t open_fds = 0;
  int64_t max_fds = 0;  // soft limit
};

// Any thread. What /proc does not tell, because it is not mounted, is 0.
ProcessUsage ReadProcessUsage();
// Prometheus text format, without labels. The client library for C++ has no such collector.
std::string RenderProcessMetrics(const ProcessUsage& usage);

}  // namespace tandem
