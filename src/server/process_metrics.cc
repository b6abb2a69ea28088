#include "server/process_metrics.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>

namespace tandem {
namespace {

// The fields of /proc/self/stat, numbered as in proc(5).
void ReadStat(ProcessUsage* usage, double* start_ticks) {
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The second, the program's name, may hold spaces and parentheses.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return;
  std::istringstream fields(text.substr(name_end + 1));
  constexpr int kUserTicks = 14;
  constexpr int kSystemTicks = 15;
  constexpr int kStartTicks = 22;
  constexpr int kVirtualBytes = 23;
  constexpr int kResidentPages = 24;
  double cpu_ticks = 0;
  char state = 0;
  fields >> state;
  int64_t value = 0;
  for (int number = 4; number <= kResidentPages && fields >> value; ++number) {
    if (number == kUserTicks || number == kSystemTicks) cpu_ticks += static_cast<double>(value);
    if (number == kStartTicks) *start_ticks = static_cast<double>(value);
    if (number == kVirtualBytes) usage->virtual_memory_bytes = value;
    if (number == kResidentPages) usage->resident_memory_bytes = value * sysconf(_SC_PAGESIZE);
  }
  usage->cpu_seconds = cpu_ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Seconds since 1970; 0 if unknown.
double ReadBootTime() {
  std::ifstream file("/proc/stat");
  std::string name;
  double time = 0;
  while (file >> name) {
    if (name == "btime" && file >> time) return time;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

int64_t CountOpenFds() {
  std::error_code error;
  int64_t count = 0;
  std::filesystem::directory_iterator entries("/proc/self/fd", error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) ++count;
  // The one that reads the folder is none of the process's own.
  return count > 0 ? count - 1 : 0;
}

}  // namespace

ProcessUsage ReadProcessUsage() {
  ProcessUsage usage;
  double start_ticks = 0;
  ReadStat(&usage, &start_ticks);
  const double boot_time = ReadBootTime();
  if (boot_time > 0) {
    usage.start_time_seconds = boot_time + start_ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  usage.open_fds = CountOpenFds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) usage.max_fds = static_cast<int64_t>(limit.rlim_cur);
  return usage;
}

std::string RenderProcessMetrics(const ProcessUsage& usage) {
  std::string text;
  const auto add = [&text](std::string_view name, std::string_view help, std::string_view type, auto value) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
  };
  add("process_cpu_seconds_total", "User and system CPU time, in seconds.", "counter", usage.cpu_seconds);
  add("process_start_time_seconds", "When the process started, in seconds since 1970.", "gauge",
      usage.start_time_seconds);
  add("process_resident_memory_bytes", "Resident memory, in bytes.", "gauge", usage.resident_memory_bytes);
  add("process_virtual_memory_bytes", "Virtual memory, in bytes.", "gauge", usage.virtual_memory_bytes);
  add("process_open_fds", "Open file descriptors.", "gauge", usage.open_fds);
  add("process_max_fds", "File descriptors that may be open at most.", "gauge", usage.max_fds);
  return text;
}

}  // namespace tandem
