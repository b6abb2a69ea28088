// Against what the kernel says by other calls.
#include "server/process_metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "base/qemu_testing.h"

namespace tandem {
namespace {

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

TEST(ProcessMetricsTest, CpuTimeIsThatOfTheProcess) {
  if (IsUnderQemu()) GTEST_SKIP() << "qemu invents /proc/self/stat";
  // Two of the kernel's ticks.
  constexpr double kSlackSeconds = 0.021;
  const double begin = CpuSeconds();
  while (CpuSeconds() < begin + 0.1) {
  }
  const double before = CpuSeconds();
  const double said = ReadProcessUsage().cpu_seconds;
  EXPECT_GE(said, before - kSlackSeconds);
  EXPECT_LE(said, CpuSeconds() + kSlackSeconds);
}

TEST(ProcessMetricsTest, MemoryGrowsByWhatIsTouched) {
  if (IsUnderQemu()) GTEST_SKIP() << "qemu invents /proc/self/stat";
  constexpr int64_t kBytes = int64_t{64} << 20;
  const ProcessUsage before = ReadProcessUsage();
  EXPECT_GT(before.resident_memory_bytes, 0);
  EXPECT_LT(before.resident_memory_bytes, before.virtual_memory_bytes);
  const std::vector<char> touched(static_cast<size_t>(kBytes), 1);
  const ProcessUsage after = ReadProcessUsage();
  EXPECT_EQ(touched.back(), 1);
  EXPECT_GE(after.resident_memory_bytes, before.resident_memory_bytes + kBytes * 9 / 10);
  EXPECT_GE(after.virtual_memory_bytes, before.virtual_memory_bytes);
}

TEST(ProcessMetricsTest, OpenFilesAreCounted) {
  const int64_t before = ReadProcessUsage().open_fds;
  EXPECT_GE(before, 1);
  EXPECT_EQ(ReadProcessUsage().open_fds, before);  // reading leaves none open
  std::array<int, 3> opened{};
  for (int& fd : opened) fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(ReadProcessUsage().open_fds, before + 3);
  for (const int fd : opened) close(fd);
  EXPECT_EQ(ReadProcessUsage().open_fds, before);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(ReadProcessUsage().max_fds, static_cast<int64_t>(limit.rlim_cur));
}

TEST(ProcessMetricsTest, StartsBeforeNow) {
  const double start = ReadProcessUsage().start_time_seconds;
  const auto now = static_cast<double>(std::time(nullptr));
  EXPECT_LE(start, now + 2);
  EXPECT_GT(start, now - 3600);
}

TEST(ProcessMetricsTest, TheProgramsNameIsNoField) {
  if (IsUnderQemu()) GTEST_SKIP() << "qemu invents /proc/self/stat";
  const ProcessUsage before = ReadProcessUsage();
  std::array<char, 16> name{};
  ASSERT_EQ(prctl(PR_GET_NAME, name.data()), 0);
  ASSERT_EQ(prctl(PR_SET_NAME, ") 1 (2) 3 4"), 0);
  const ProcessUsage odd = ReadProcessUsage();
  prctl(PR_SET_NAME, name.data());
  EXPECT_EQ(odd.start_time_seconds, before.start_time_seconds);
  EXPECT_GT(odd.resident_memory_bytes, before.resident_memory_bytes / 2);
}

TEST(ProcessMetricsTest, NumbersAreExact) {
  const std::string text = RenderProcessMetrics({.cpu_seconds = 1.25,
                                                 .start_time_seconds = 1763974475.5,
                                                 .resident_memory_bytes = 123456789012,
                                                 .virtual_memory_bytes = 1,
                                                 .open_fds = 2,
                                                 .max_fds = 3});
  EXPECT_NE(text.find("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.25\n"),
            std::string::npos);
  EXPECT_NE(text.find("\nprocess_start_time_seconds 1763974475.5\n"), std::string::npos);
  EXPECT_NE(
      text.find("# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes 123456789012\n"),
      std::string::npos);
}

}  // namespace
}  // namespace tandem
