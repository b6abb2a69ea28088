// The plans of all scenarios and planned workloads are those that tests/plans/digests.txt remembers. A change
// that is meant to leave plans alone leaves the file alone; one that is not renews it, and says why:
//
//   build/host-release/src/simulate/print_plans >tests/plans/digests.txt
//
// With --text FILE print_plans says which rows are different.

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>

#include "base/sanitizers.h"
#include "simulate/plan_digest_testing.h"

namespace tandem::testing {
namespace {

TEST(PlanDigests, AreAsRemembered) {
  // All of them take a minute there.
  const std::string_view only = kSanitized ? "tiny slice" : "";
  const auto digests = DigestPlans(TANDEM_SOURCE_DIR "/tests/scenarios", only, [](std::string_view) {});
  ASSERT_TRUE(digests.ok()) << digests.error().message;
  std::ifstream in(TANDEM_SOURCE_DIR "/tests/plans/digests.txt");
  size_t num_remembered = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.substr(0, line.find(": ")).find(only) == std::string::npos) continue;
    ASSERT_LT(num_remembered, digests->size()) << line;
    EXPECT_EQ((*digests)[num_remembered++].Text(), line);
  }
  EXPECT_EQ(num_remembered, digests->size());
  EXPECT_GE(num_remembered, kSanitized ? 2 : 30);
}

}  // namespace
}  // namespace tandem::testing
