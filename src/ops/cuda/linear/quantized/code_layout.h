// Where the codes, scales and minimums of a quantized weight lie in GPU memory.
//
// A record is what a warp multiplies at a time: 16 outputs, the codes of a slice of 64 or 128 elements of
// in_features and then their scales. Panels of 64 outputs follow each other; a panel is its slices one after
// the other, each of 4 records:
//
//   [panel][slice][4 tiles of 16 outputs]{codes, scales}
//
// Codes lie as the tensor core's products of 16 outputs and 16 elements want them, those of a warp (mma) as
// those of four (wgmma, for which a panel's 64 outputs are one operand). With lane = 4 * r + t, a lane holds
// of outputs r and r + 8 elements 2t, 2t + 1, 2t + 8 and 2t + 9 of each step of 16. 16 bytes of a lane are 4
// steps of 4 bits or 2 of 8 bits. Every output has bytes of its own: rows are packed without regard to who
// packs the others.
//
// Scales: for each r and group {scale of r, scale of r + 8[, minimum of r, minimum of r + 8]} in fp16. They
// count times the factor of their output, a power of two: fp16 alone would not reach.
//
// In plain numbers, for host and device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/weight_format.h"

namespace tandem {

constexpr int kRecordOutputs = 16;
constexpr int kPanelRecords = 4;
constexpr int kCodePanelOutputs = kRecordOutputs * kPanelRecords;

// Of a code: the byte from the beginning of all records, and the bit in it.
struct CodePlace {
  int64_t byte = 0;
  int shift = 0;
};

struct CodeLayout {
  int bits = 4;
  // Of elements that share a stored scale: 16, 32 or 128 of 4 bits, 16, 32 or 64 of 8 bits. Larger groups,
  // and those in between, are stored in parts.
  int group_size = 32;
  bool has_minimum = false;
  int in_features = 0;  // the last slice is filled up with codes whose scales are 0

  constexpr int slice_size() const { return group_size == 128 ? 128 : 64; }
  constexpr int num_slices() const { return (in_features + slice_size() - 1) / slice_size(); }
  constexpr int groups_per_slice() const { return slice_size() / group_size; }
  constexpr int numbers_per_group() const { return has_minimum ? 2 : 1; }
  constexpr int code_bytes() const { return kRecordOutputs * slice_size() * bits / 8; }
  constexpr int scale_bytes() const { return kRecordOutputs * groups_per_slice() * numbers_per_group() * 2; }
  constexpr int record_bytes() const { return code_bytes() + scale_bytes(); }
  constexpr int zero_code() const { return has_minimum ? 0 : 1 << (bits - 1); }
  constexpr int64_t TotalBytes(int64_t out_features) const {
    const int64_t panels = (out_features + kCodePanelOutputs - 1) / kCodePanelOutputs;
    return panels * num_slices() * kPanelRecords * record_bytes();
  }
  constexpr int64_t RecordBegin(int64_t output, int64_t slice) const {
    const int64_t panel = output / kCodePanelOutputs;
    const int64_t tile = output % kCodePanelOutputs / kRecordOutputs;
    return ((panel * num_slices() + slice) * kPanelRecords + tile) * record_bytes();
  }

  // Of element i (0 to 3) that a lane with t holds in a step of a slice.
  static constexpr int ElementOf(int step, int t, int i) { return step * 16 + i / 2 * 8 + t * 2 + i % 2; }
  // Code of (output, k).
  constexpr CodePlace PlaceOfCode(int64_t output, int64_t k) const {
    const auto e = static_cast<int>(k % slice_size());
    const int step = e / 16;
    const int t = e % 8 / 2;
    const int i = e % 16 / 8 * 2 + e % 2;
    const auto row = static_cast<int>(output % kRecordOutputs);
    const int lane = row % 8 * 4 + t;
    const int upper = row / 8;
    const int64_t begin = RecordBegin(output, k / slice_size()) + lane * 16;
    // A word of 4 bits is a step: elements 0 and 1 of r in the low nibbles of bytes 0 and 2, elements 2 and 3
    // (8 behind them) in the high ones; those of r + 8 in bytes 1 and 3.
    if (bits == 4) return {begin + step / 4 * 512 + step % 4 * 4 + upper + i % 2 * 2, i / 2 * 4};
    // Two words of 8 bits are a step: elements 0 and 1 of r in bytes 0 and 2 and of r + 8 in bytes 1 and 3,
    // then elements 2 and 3.
    return {begin + step / 2 * 512 + step % 2 * 8 + i / 2 * 4 + i % 2 * 2 + upper, 0};
  }
  // Byte of the fp16 scale, or minimum (number 1), of the group that begins at k.
  constexpr int64_t PlaceOfNumber(int64_t output, int64_t k, int number) const {
    const auto row = static_cast<int>(output % kRecordOutputs);
    const auto group = static_cast<int>(k % slice_size()) / group_size;
    const int at = ((row % 8 * groups_per_slice() + group) * numbers_per_group() + number) * 2 + row / 8;
    return RecordBegin(output, k / slice_size()) + code_bytes() + at * 2;
  }
};

// A weight's codes in GPU memory.
struct CodesView {
  CodeLayout layout;
  int64_t out_features = 0;
  std::byte* records = nullptr;  // 256-byte aligned; unused places are 0
  float* factors = nullptr;      // [out_features]
};

// Whether weights of a format, with rows of in_features, can lie so: groups of 16 and its multiples.
constexpr bool HasCodeLayout(const WeightFormat& format, int64_t in_features) {
  if (!format.has_integers() || format.group_size <= 0 || in_features > (1 << 24)) return false;
  return format.group_size % 16 == 0 && in_features % format.group_size == 0;
}

// Of a format that HasCodeLayout.
constexpr CodeLayout MakeCodeLayout(const WeightFormat& format, int64_t in_features) {
  const bool is_int4 = format.encoding == WeightEncoding::kInt4;
  const int64_t group = format.group_size;
  CodeLayout layout;
  layout.bits = is_int4 ? 4 : 8;
  layout.has_minimum = format.has_minimum;
  layout.in_features = static_cast<int>(in_features);
  if (is_int4) {
    layout.group_size = group % 128 == 0 ? 128 : group % 32 == 0 ? 32 : 16;
  } else {
    layout.group_size = group % 64 == 0 ? 64 : group % 32 == 0 ? 32 : 16;
  }
  return layout;
}

}  // namespace tandem
