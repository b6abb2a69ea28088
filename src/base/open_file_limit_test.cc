#include "base/open_file_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace tandem {
namespace {

TEST(OpenFileLimit, IsRaisedAsFarAsTheSystemAllows) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 128 || before.rlim_max == RLIM_INFINITY) GTEST_SKIP() << "no limit to work with";
  const auto hard = static_cast<int64_t>(before.rlim_max);
  const rlimit low{.rlim_cur = 64, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(RaiseOpenFileLimit(32), 64) << "never lower";
  EXPECT_EQ(RaiseOpenFileLimit(100), 100);
  EXPECT_EQ(RaiseOpenFileLimit(hard + 1), hard);
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace tandem
