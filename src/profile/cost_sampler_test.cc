#include "profile/cost_sampler.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>
#include <vector>

namespace tandem {
namespace {

using std::chrono::milliseconds;

constexpr double kCostUs = 100;

// A point of a section: its first run also loads code where that has not been done.
class LoadedRuns {
 public:
  explicit LoadedRuns(milliseconds loading) : loading_(loading) {}

  double Run(int64_t code) {
    const bool loads = loaded_.insert(code).second;
    std::this_thread::sleep_for(milliseconds(1) + (loads ? loading_ : milliseconds(0)));
    return kCostUs + (loads ? static_cast<double>(loading_.count()) * 1000 : 0);
  }

 private:
  const milliseconds loading_;
  std::set<int64_t> loaded_;
};

TEST(CostSamplerTest, CodeThatIsLoadedIsNoCostAndTakesNoTimeFromOthers) {
  CostSampler sampler(1.2, nullptr);
  std::vector<CostLine> lines(1);
  for (int64_t count = 1; count <= 8; ++count) lines[0].points.push_back({count, 0});
  sampler.BeginSection("points", 1, 8);
  // Together they take twice the whole budget.
  LoadedRuns runs(milliseconds(300));
  sampler.MeasureLines(
      GrowthOfCounts,
      [&](const CostLine& /*line*/, int64_t count) {
        return sampler.MedianUs([&](bool /*warm*/) { return runs.Run(count); });
      },
      &lines);
  ASSERT_EQ(lines.size(), 1U);
  ASSERT_EQ(lines[0].points.size(), 8U);
  for (const CostPoint& point : lines[0].points) EXPECT_EQ(point.us, kCostUs) << point.count;
}

// What a point costs in earnest is spent, and ends a section when it is used up.
TEST(CostSamplerTest, ASectionEndsWhenItsTimeIsUsed) {
  CostSampler sampler(0.1, nullptr);
  std::vector<CostLine> lines(1);
  for (int64_t count = 1; count <= 64; count *= 2) lines[0].points.push_back({count, 0});
  sampler.BeginSection("points", 1, static_cast<int64_t>(lines[0].points.size()));
  sampler.MeasureLines(
      GrowthOfCounts,
      [&](const CostLine& /*line*/, int64_t count) {
        return sampler.MedianUs([&](bool /*warm*/) {
          std::this_thread::sleep_for(milliseconds(4 * count));
          return kCostUs * static_cast<double>(count);
        });
      },
      &lines);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_LT(lines[0].points.size(), 7U);
  EXPECT_GE(lines[0].points.size(), 1U);
}

}  // namespace
}  // namespace tandem
