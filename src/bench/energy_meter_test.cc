#include "bench/energy_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

namespace tandem {
namespace {

using testing::DoubleNear;
using testing::Optional;

constexpr const char* kGpu = "0000:1b:00.0";
constexpr const char* kGpuCounter = "TANDEM_TEST_GPU_MILLIJOULES";

// A folder that looks like /sys/class/powercap.
class EnergyTest : public testing::Test {
 protected:
  EnergyTest() {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / (std::string("powercap_") + test->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~EnergyTest() override {
    std::filesystem::remove_all(folder_);
    unsetenv(kGpuCounter);
  }

  void Write(const std::string& zone, const std::string& file, const std::string& text) {
    std::filesystem::create_directories(folder_ / zone);
    std::ofstream(folder_ / zone / file) << text << '\n';
  }
  void AddZone(const std::string& zone, const std::string& name, uint64_t uj, uint64_t range_uj) {
    Write(zone, "name", name);
    Write(zone, "max_energy_range_uj", std::to_string(range_uj));
    SetCounter(zone, uj);
  }
  void SetCounter(const std::string& zone, uint64_t uj) { Write(zone, "energy_uj", std::to_string(uj)); }
  static void SetGpuCounter(uint64_t mj) { setenv(kGpuCounter, std::to_string(mj).c_str(), 1); }
  std::string folder() const { return folder_.string(); }
  EnergyOptions Options() const { return {.rapl_folder = folder(), .nvml_library = TANDEM_NVML_STAND_IN}; }

 private:
  std::filesystem::path folder_;
};

TEST_F(EnergyTest, PackagesAndTheirMemoryAddUp) {
  AddZone("intel-rapl:0", "package-0", 1'000'000, 262'143'328'850);
  AddZone("intel-rapl:0:0", "core", 500'000, 262'143'328'850);
  AddZone("intel-rapl:0:1", "dram", 200'000, 65'712'999'613);
  AddZone("intel-rapl:1", "package-1", 7'000'000, 262'143'328'850);
  AddZone("intel-rapl:2", "psys", 9'000'000, 262'143'328'850);
  AddZone("intel-rapl-mmio:0", "package-0", 1'000'000, 262'143'328'850);
  RaplCounters rapl(folder());
  ASSERT_TRUE(rapl.readable());
  EXPECT_THAT(rapl.ReadJoules(), Optional(0.0));
  SetCounter("intel-rapl:0", 4'000'000);
  SetCounter("intel-rapl:0:1", 700'000);
  SetCounter("intel-rapl:1", 9'000'000);
  // Of the package already, of the whole system, and of the package again.
  SetCounter("intel-rapl:0:0", 900'000'000);
  SetCounter("intel-rapl:2", 900'000'000);
  SetCounter("intel-rapl-mmio:0", 900'000'000);
  EXPECT_THAT(rapl.ReadJoules(), Optional(DoubleNear(5.5, 1e-9)));
  EXPECT_THAT(rapl.ReadJoules(), Optional(DoubleNear(5.5, 1e-9)));
}

TEST_F(EnergyTest, CountersWrap) {
  AddZone("intel-rapl:0", "package-0", 9'000'000, 10'000'000);
  RaplCounters rapl(folder());
  SetCounter("intel-rapl:0", 2'000'000);
  EXPECT_THAT(rapl.ReadJoules(), Optional(DoubleNear(3.0, 1e-9)));
  SetCounter("intel-rapl:0", 1'500'000);
  EXPECT_THAT(rapl.ReadJoules(), Optional(DoubleNear(12.5, 1e-9)));
}

TEST_F(EnergyTest, WhatCannotBeReadIsNoTerm) {
  EXPECT_FALSE(RaplCounters(folder() + "/nothing").readable());
  EXPECT_FALSE(RaplCounters(folder()).readable());
  AddZone("intel-rapl:0", "package-0", 1, 10);
  AddZone("intel-rapl:1", "package-1", 1, 10);
  std::filesystem::remove(folder() + "/intel-rapl:1/energy_uj");
  RaplCounters half(folder());
  EXPECT_FALSE(half.readable());
  EXPECT_EQ(half.ReadJoules(), std::nullopt);
}

TEST_F(EnergyTest, AZoneThatGoesAwayEndsTheSum) {
  AddZone("intel-rapl:0", "package-0", 1, 10);
  RaplCounters rapl(folder());
  ASSERT_TRUE(rapl.readable());
  std::filesystem::remove_all(folder() + "/intel-rapl:0");
  EXPECT_EQ(rapl.ReadJoules(), std::nullopt);
  SetCounter("intel-rapl:0", 5);
  EXPECT_EQ(rapl.ReadJoules(), std::nullopt);
}

TEST_F(EnergyTest, TheGpuCountsFromWhenTheMeterWasMade) {
  SetGpuCounter(5'000);
  const NvmlCounter gpu(kGpu, TANDEM_NVML_STAND_IN);
  ASSERT_TRUE(gpu.readable());
  EXPECT_THAT(gpu.ReadJoules(), Optional(0.0));
  SetGpuCounter(12'500);
  EXPECT_THAT(gpu.ReadJoules(), Optional(DoubleNear(7.5, 1e-9)));
}

TEST_F(EnergyTest, WithoutNvmlOrItsCounterThereIsNoGpuTerm) {
  EXPECT_FALSE(NvmlCounter(kGpu, "libnothing_of_this_name.so").readable());
  // A card without a counter, and another card.
  EXPECT_FALSE(NvmlCounter(kGpu, TANDEM_NVML_STAND_IN).readable());
  SetGpuCounter(1);
  EXPECT_FALSE(NvmlCounter("0000:99:00.0", TANDEM_NVML_STAND_IN).readable());
}

TEST_F(EnergyTest, RaplGoesBeforeWattsPerCore) {
  AddZone("intel-rapl:0", "package-0", 0, 100'000'000);
  EnergyOptions options = Options();
  options.watts_per_core = 1000;
  EnergyMeter meter(options);
  EXPECT_EQ(meter.host_source(), HostEnergySource::kRapl);
  SetCounter("intel-rapl:0", 2'000'000);
  EXPECT_THAT(meter.Read().host_j, Optional(DoubleNear(2.0, 1e-9)));
  EXPECT_EQ(meter.Read().gpu_j, std::nullopt);
}

TEST_F(EnergyTest, BusyCoresCostWhatIsStated) {
  EnergyOptions options = Options();
  options.watts_per_core = 5;
  options.gpu_pci_bus_id = kGpu;
  SetGpuCounter(0);
  EnergyMeter meter(options);
  EXPECT_EQ(meter.host_source(), HostEnergySource::kWattsPerCore);
  const std::clock_t begin = std::clock();
  // CPU time of the whole process, in which this loop is part.
  while (std::clock() - begin < CLOCKS_PER_SEC / 20) {
  }
  EXPECT_GE(meter.Read().host_j.value_or(0), 5 * 0.04);
  SetGpuCounter(3'000);
  EXPECT_THAT(meter.Read().gpu_j, Optional(DoubleNear(3.0, 1e-9)));
}

TEST_F(EnergyTest, NothingIsMadeUp) {
  EnergyMeter meter(Options());
  EXPECT_EQ(meter.host_source(), HostEnergySource::kNone);
  const EnergyReading reading = meter.Read();
  EXPECT_EQ(reading.gpu_j, std::nullopt);
  EXPECT_EQ(reading.host_j, std::nullopt);
}

}  // namespace
}  // namespace tandem
