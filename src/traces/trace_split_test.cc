#include "traces/trace_split.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "traces/embedded_traces.h"

namespace tandem {
namespace {

TEST(TraceSplit, TheLastThirdIsHeldOut) {
  std::vector<TraceRequest> trace(8);
  EXPECT_EQ(TuningPart(trace).data(), trace.data());
  EXPECT_EQ(TuningPart(trace).size(), 6U);
  EXPECT_EQ(HeldOutPart(trace).data(), trace.data() + 6);
  EXPECT_EQ(HeldOutPart(trace).size(), 2U);
  trace.resize(2);
  EXPECT_EQ(TuningPart(trace).size(), 2U);
  EXPECT_TRUE(HeldOutPart(trace).empty());
}

// The numbers that docs/held_out.md has: a trace that grows moves its parts.
TEST(TraceSplit, PartsOfTheEmbeddedTraces) {
  struct Parts {
    std::string_view file_name;
    size_t tuning;
    size_t held_out;
  };
  constexpr Parts kParts[] = {
      {"azure_code.csv", 3528, 1763}, {"azure_conv.csv", 7746, 3873}, {"osc.csv", 800, 400}};
  ASSERT_EQ(EmbeddedTraces().size(), std::size(kParts));
  for (size_t i = 0; i < std::size(kParts); ++i) {
    const EmbeddedTrace& trace = EmbeddedTraces()[i];
    EXPECT_EQ(trace.file_name, kParts[i].file_name);
    const auto requests = ParseTraceCsv(trace.content, std::string(trace.file_name)).value();
    EXPECT_EQ(TuningPart(requests).size(), kParts[i].tuning) << trace.file_name;
    EXPECT_EQ(HeldOutPart(requests).size(), kParts[i].held_out) << trace.file_name;
  }
}

}  // namespace
}  // namespace tandem
