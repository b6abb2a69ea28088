#include "cli/gpu_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(GpuProbeTest, TellsHowGpusReachEachOther) {
  const GpuProbe probe = ProbeGpus(TANDEM_TESTING_GPU_DRIVER);
  EXPECT_EQ(probe.reason, "");
  ASSERT_EQ(probe.gpus.size(), 3U);
  EXPECT_EQ(probe.gpus[2].name, "Card 2");
  EXPECT_EQ(probe.gpus[0].memory_bytes, int64_t{24} << 30);
  // Nothing is at that place of the bus.
  EXPECT_EQ(probe.gpus[0].numa_node, -1);
  ASSERT_EQ(probe.links.size(), 3U);
  const auto kind_of = [&](int from, int to) {
    for (const GpuLink& link : probe.links) {
      if (link.from == from && link.to == to) return link.kind;
    }
    ADD_FAILURE() << "no link from " << from << " to " << to;
    return GpuLinkKind::kNone;
  };
  EXPECT_EQ(kind_of(0, 1), GpuLinkKind::kNvlink);
  EXPECT_EQ(kind_of(1, 2), GpuLinkKind::kPcie);
  EXPECT_EQ(kind_of(0, 2), GpuLinkKind::kNone);
}

TEST(GpuProbeTest, SaysWhyThereIsNoGpu) {
  const GpuProbe probe = ProbeGpus("libcuda-that-is-not-there.so.1");
  EXPECT_TRUE(probe.gpus.empty());
  EXPECT_EQ(probe.reason, "no NVIDIA driver: libcuda-that-is-not-there.so.1 cannot be loaded");
}

}  // namespace
}  // namespace tandem
