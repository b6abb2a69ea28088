#include "device/touch_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

#include "base/qemu_testing.h"

namespace tandem {
namespace {

size_t ResidentPages(void* data, size_t size_bytes) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident(size_bytes / page_bytes);
  EXPECT_EQ(mincore(data, size_bytes, resident.data()), 0);
  size_t count = 0;
  for (const unsigned char each : resident) count += each & 1U;
  return count;
}

TEST(TouchPagesTest, AllPagesAreThereAndWhatTheyHeld) {
  if (IsUnderQemu()) GTEST_SKIP() << "qemu does not say which pages are there";
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  constexpr size_t kBytes = size_t{200} << 20;
  void* data =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  auto* bytes = static_cast<unsigned char*>(data);
  bytes[12345] = 7;
  bytes[12345 + 5 * page_bytes] = 7;
  ASSERT_LT(ResidentPages(data, kBytes), kBytes / page_bytes / 2);
  // Not from a page's beginning: the page that it begins in may be left out.
  TouchPages(bytes + 100, kBytes - 200);
  EXPECT_GE(ResidentPages(data, kBytes), kBytes / page_bytes - 2);
  EXPECT_EQ(bytes[12345], 7);
  EXPECT_EQ(bytes[kBytes - 1], 0);
  munmap(data, kBytes);
}

TEST(TouchPagesTest, LessThanAPageIsLeftAlone) {
  std::vector<unsigned char> few(100, 5);
  TouchPages(few.data(), few.size());
  EXPECT_EQ(few, std::vector<unsigned char>(100, 5));
}

}  // namespace
}  // namespace tandem
