#include "forecast/host_machines.h"

#include <array>

#include "forecast/named_entry.h"
#include "forecast/units.h"

namespace tandem {
namespace {

// Channels of 8 bytes at so many megatransfers a second.
constexpr double Channels(double count, double mega_transfers) {
  return count * 8 * mega_transfers * 1e6;
}

// A socket of the instances that NEO used (table 1). Its section 5.4 says which sizes of g5 have how much of
// the bandwidth of each other.
constexpr double kXeon8259 = Channels(6, 2933);  // 24 cores
constexpr double kEpyc7R32 = Channels(8, 3200);  // 48 cores
constexpr double kXeon8462 = Channels(8, 4800);  // 32 cores

constexpr auto kHosts = std::to_array<HostMachine>({
    {"g4dn.4xlarge", "8 of 24 cores of a Xeon Platinum 8259CL", 8, kXeon8259 * 8 / 24, 64 * kGiB, 0, 0,
     "NEO table 1; Intel: 6 channels of DDR4-2933 a socket"},
    {"g5.2xlarge", "4 of 48 cores of an EPYC 7R32", 4, kEpyc7R32 * 8 / 48, 32 * kGiB, 0, 0,
     "NEO table 1; AMD: 8 channels of DDR4-3200 a socket; as much bandwidth as g5.4xlarge (NEO section 5.4)"},
    {"g5.4xlarge", "8 of 48 cores of an EPYC 7R32", 8, kEpyc7R32 * 8 / 48, 64 * kGiB, 0, 0,
     "NEO table 1; AMD: 8 channels of DDR4-3200 a socket"},
    {"g5.8xlarge", "16 of 48 cores of an EPYC 7R32", 16, kEpyc7R32 * 16 / 48, 128 * kGiB, 0, 0,
     "NEO table 1; AMD: 8 channels of DDR4-3200 a socket"},
    {"g5.16xlarge", "32 of 48 cores of an EPYC 7R32", 32, kEpyc7R32 * 32 / 48, 256 * kGiB, 0, 0,
     "NEO table 1; AMD: 8 channels of DDR4-3200 a socket"},
    {"hgx-h100", "an eighth of 2 x Xeon Platinum 8462Y+", 8, 2 * kXeon8462 / 8, 256 * kGiB, 0, 2 * 300.0 / 8,
     "NEO table 1: 64 cores and 2 TB for 8 GPUs; Intel: 8 channels of DDR5-4800 and 300 W a socket"},
    {"2x-gold-6130", "2 x Xeon Gold 6130", 32, 2 * Channels(6, 2666), 180 * kGiB, 0, 2 * 125,
     "APEX table 1; Intel: 6 channels of DDR4-2666 and 125 W a socket"},
    {"2x-gold-6342", "2 x Xeon Gold 6342", 48, 2 * Channels(8, 3200), 250 * kGiB, 0, 2 * 230,
     "APEX table 1; Intel: 8 channels of DDR4-3200 and 230 W a socket"},
    {"graviton4", "AWS Graviton4, one socket", 96, Channels(12, 5600), 768 * kGiB, 0, 0,
     "AWS: 12 channels of DDR5-5600; memory of r8g.24xlarge"},
    {"grace", "NVIDIA Grace of a GH200", 72, 512 * kGB, 480 * kGiB, 0, 250,
     "NVIDIA GH200 data sheet; Grace CPU Superchip data sheet: 500 W for two, memory included"},
    {"ddr4-desktop", "8 cores, 2 channels of DDR4-3200", 8, Channels(2, 3200), 64 * kGiB, 0, 0,
     "JEDEC DDR4-3200; --host-memory says how much there is"},
    {"ddr5-desktop", "8 cores, 2 channels of DDR5-5600", 8, Channels(2, 5600), 64 * kGiB, 0, 0,
     "JEDEC DDR5-5600; --host-memory says how much there is"},
    // Its model is not told to guests, so neither are its channels.
    {"xeon-16", "16 cores of a Xeon with AMX, lent with an H200", 16, 181 * kGB, 126 * kGiB, 126 * kGB, 0,
     "docs/performance.md: reads 120 to 181 GB/s; the median of its profile"},
});

}  // namespace

std::span<const HostMachine> HostMachines() {
  return kHosts;
}

Result<HostMachine> FindHostMachine(std::string_view name) {
  return FindNamed(HostMachines(), name, "host");
}

}  // namespace tandem
