#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "forecast/gpu_cards.h"
#include "forecast/host_machines.h"

namespace tandem {
namespace {

using testing::HasSubstr;

bool IsLower(std::string_view name) {
  return std::ranges::none_of(name, [](char c) { return c >= 'A' && c <= 'Z'; });
}

TEST(GpuCardsTest, EachHasAllFiguresAndTheirSource) {
  std::set<std::string_view> names;
  for (const GpuCard& card : GpuCards()) {
    SCOPED_TRACE(card.name);
    EXPECT_TRUE(names.insert(card.name).second);
    EXPECT_TRUE(IsLower(card.name)) << "is never found";
    EXPECT_FALSE(card.title.empty());
    EXPECT_GE(card.compute_capability, 70);
    EXPECT_GT(card.num_sms, 0);
    EXPECT_GE(card.flops_16bit, 40e12);
    EXPECT_GE(card.flops_fp8, card.flops_16bit);
    EXPECT_GE(card.bytes_per_s, 250e9);
    EXPECT_LE(card.bytes_per_s, 10e12);
    EXPECT_GE(card.memory_bytes, int64_t{15} << 30);
    EXPECT_GT(card.link_bytes_per_s, 10e9);
    // A byte read at full rate costs 50 to 650 pJ on every card.
    if (card.name != "gh200") {
      EXPECT_GE(card.watts, 70);
      EXPECT_GT(card.watts / card.bytes_per_s, 50e-12);
      EXPECT_LT(card.watts / card.bytes_per_s, 650e-12);
    }
    EXPECT_FALSE(card.source.empty());
    // The ridge of every card lies between 70 and 420 rows of 16-bit weights.
    EXPECT_GT(card.flops_16bit / card.bytes_per_s, 70);
    EXPECT_LT(card.flops_16bit / card.bytes_per_s, 420);
  }
  for (const char* name : {"t4", "a10", "a10g", "v100", "l4", "l40s", "rtx-3090", "rtx-4090", "rtx-4060-ti",
                           "rtx-5090", "a100", "h100", "h200", "gh200", "b200"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(HostMachinesTest, EachHasAllFiguresAndTheirSource) {
  std::set<std::string_view> names;
  for (const HostMachine& host : HostMachines()) {
    SCOPED_TRACE(host.name);
    EXPECT_TRUE(names.insert(host.name).second);
    EXPECT_TRUE(IsLower(host.name)) << "is never found";
    EXPECT_FALSE(host.title.empty());
    EXPECT_GT(host.num_cores, 0);
    EXPECT_GE(host.bytes_per_s, 30e9);
    EXPECT_GT(host.memory_bytes, 0);
    EXPECT_LE(host.read_bytes_per_s, host.bytes_per_s) << "reads more than there is";
    if (host.watts > 0) {
      EXPECT_GT(host.watts / static_cast<double>(host.num_cores), 2);
      EXPECT_LT(host.watts / static_cast<double>(host.num_cores), 20);
    }
    EXPECT_FALSE(host.source.empty());
  }
  for (const char* name : {"g4dn.4xlarge", "g5.2xlarge", "g5.4xlarge", "g5.8xlarge", "g5.16xlarge",
                           "hgx-h100", "2x-gold-6130", "2x-gold-6342", "graviton4", "grace"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(MachinesTest, NamesAreFoundInAnyCase) {
  EXPECT_EQ(FindGpuCard("RTX-4090").value().name, "rtx-4090");
  EXPECT_EQ(FindGpuCard("t4").value().title, "NVIDIA T4");
  EXPECT_EQ(FindHostMachine("G5.16xLarge").value().num_cores, 32);
}

TEST(MachinesTest, UnknownNamesListThoseThatThereAre) {
  const auto gpu = FindGpuCard("t44");
  ASSERT_FALSE(gpu.ok());
  EXPECT_EQ(gpu.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(gpu.error().param, "gpu");
  EXPECT_THAT(gpu.error().message, HasSubstr("there is no gpu 't44' in the table; there are t4, v100, a10,"));
  EXPECT_THAT(gpu.error().message, HasSubstr("b200"));
  const auto host = FindHostMachine("");
  ASSERT_FALSE(host.ok());
  EXPECT_EQ(host.error().param, "host");
  EXPECT_THAT(host.error().message, HasSubstr("graviton4, grace"));
}

}  // namespace
}  // namespace tandem
