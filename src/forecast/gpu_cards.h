// Published figures of GPUs: the one table of them. What of a figure is reached is in sheet_costs.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace tandem {

struct GpuCard {
  std::string_view name;  // as --gpu takes it: lower case
  std::string_view title;
  int compute_capability = 0;  // times ten
  int64_t num_sms = 0;
  // Dense products, operations a second: 16-bit operands with sums of 32 bits; FP8 likewise, and what 16-bit
  // ones make where the card has no FP8.
  double flops_16bit = 0;
  double flops_fp8 = 0;
  double bytes_per_s = 0;       // of its memory
  int64_t memory_bytes = 0;     // without what error correction takes of it
  double link_bytes_per_s = 0;  // to the host, each way
  double watts = 0;             // at most, its memory included; 0: not published of the GPU alone
  std::string_view source;      // of these figures
  // NVLink to the other GPUs of a board of eight, each way; 0: they exchange over PCI Express.
  double peer_bytes_per_s = 0;
};

std::span<const GpuCard> GpuCards();

// name: in any case. Error: kNotFound, with the names that there are; param is "gpu".
Result<GpuCard> FindGpuCard(std::string_view name);

}  // namespace tandem
