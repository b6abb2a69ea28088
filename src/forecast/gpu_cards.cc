#include "forecast/gpu_cards.h"

#include <array>

#include "forecast/named_entry.h"
#include "forecast/units.h"

namespace tandem {
namespace {

// PCI Express, each way, PCI-SIG's rates after encoding.
constexpr double kGen3x16 = 15.75 * kGB;
constexpr double kGen4x8 = 15.75 * kGB;
constexpr double kGen4x16 = 31.5 * kGB;
constexpr double kGen5x16 = 63 * kGB;
constexpr double kNvlinkC2C = 450 * kGB;
// NVLink of SXM modules, half of what their data sheets say for both ways.
constexpr double kNvlink2 = 150 * kGB;
constexpr double kNvlink3 = 300 * kGB;
constexpr double kNvlink4 = 450 * kGB;
constexpr double kNvlink5 = 900 * kGB;

// Where GDDR6 corrects errors, a sixteenth of the memory holds the codes.
constexpr int64_t WithEcc(int64_t gib) {
  return gib * kGiB / 16 * 15;
}

// Watts are what card or module may draw; of a GH200 only those of GPU, CPU and memory together are
// published. GeForce cards make half as many operations with sums of 32 bits as with sums of 16, which their
// pages quote.
constexpr auto kCards = std::to_array<GpuCard>({
    {"t4", "NVIDIA T4", 75, 40, 65 * kTera, 65 * kTera, 320 * kGB, WithEcc(16), kGen3x16, 70,
     "NVIDIA T4 product brief (PB-09256)"},
    {"v100", "NVIDIA V100 SXM2 16 GB", 70, 80, 125 * kTera, 125 * kTera, 900 * kGB, 16 * kGiB, kGen3x16, 300,
     "NVIDIA V100 data sheet", kNvlink2},
    {"a10", "NVIDIA A10", 86, 72, 125 * kTera, 125 * kTera, 600 * kGB, WithEcc(24), kGen4x16, 150,
     "NVIDIA A10 data sheet"},
    {"a10g", "NVIDIA A10G", 86, 80, 70 * kTera, 70 * kTera, 600 * kGB, WithEcc(24), kGen4x16, 300,
     "NVIDIA A10G data sheet; AWS EC2 G5 page"},
    {"l4", "NVIDIA L4", 89, 58, 121 * kTera, 242.5 * kTera, 300 * kGB, WithEcc(24), kGen4x16, 72,
     "NVIDIA L4 data sheet (half of its figures with sparsity)"},
    {"l40s", "NVIDIA L40S", 89, 142, 362 * kTera, 733 * kTera, 864 * kGB, WithEcc(48), kGen4x16, 350,
     "NVIDIA L40S data sheet"},
    {"rtx-3090", "GeForce RTX 3090", 86, 82, 71 * kTera, 71 * kTera, 936 * kGB, 24 * kGiB, kGen4x16, 350,
     "NVIDIA Ampere GA102 whitepaper, appendix A"},
    {"rtx-4090", "GeForce RTX 4090", 89, 128, 165.2 * kTera, 330.3 * kTera, 1008 * kGB, 24 * kGiB, kGen4x16,
     450, "NVIDIA Ada whitepaper, appendix A"},
    {"rtx-4060-ti", "GeForce RTX 4060 Ti 16 GB", 89, 34, 44.1 * kTera, 88.2 * kTera, 288 * kGB, 16 * kGiB,
     kGen4x8, 165, "GeForce RTX 4060 family page (353 AI TOPS: FP8 with sums of 16 bits and sparsity)"},
    {"rtx-5090", "GeForce RTX 5090", 120, 170, 209.5 * kTera, 419 * kTera, 1792 * kGB, 32 * kGiB, kGen5x16,
     575, "NVIDIA RTX Blackwell whitepaper, appendix A"},
    {"a100", "NVIDIA A100 SXM 80 GB", 80, 108, 312 * kTera, 312 * kTera, 2039 * kGB, 80 * kGiB, kGen4x16, 400,
     "NVIDIA A100 data sheet", kNvlink3},
    {"h100", "NVIDIA H100 SXM", 90, 132, 989.5 * kTera, 1979 * kTera, 3350 * kGB, 80 * kGiB, kGen5x16, 700,
     "NVIDIA H100 data sheet (half of its figures with sparsity)", kNvlink4},
    {"h200", "NVIDIA H200 SXM", 90, 132, 989.5 * kTera, 1979 * kTera, 4800 * kGB, 140 * kGiB, kGen5x16, 700,
     "NVIDIA H200 data sheet (half of its figures with sparsity)", kNvlink4},
    {"gh200", "NVIDIA GH200 96 GB", 90, 132, 989.5 * kTera, 1979 * kTera, 4000 * kGB, 96 * kGiB, kNvlinkC2C,
     0, "NVIDIA GH200 data sheet (half of its figures with sparsity)"},
    {"b200", "NVIDIA B200 SXM", 100, 148, 2250 * kTera, 4500 * kTera, 8000 * kGB, 180 * kGiB, kGen5x16, 1000,
     "NVIDIA HGX B200 data sheet (half of its figures with sparsity)", kNvlink5},
});

}  // namespace

std::span<const GpuCard> GpuCards() {
  return kCards;
}

Result<GpuCard> FindGpuCard(std::string_view name) {
  return FindNamed(GpuCards(), name, "gpu");
}

}  // namespace tandem
