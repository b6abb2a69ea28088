// No GPU needed.
#include "ops/cuda/linear/quantized/code_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tandem {
namespace {

const std::vector<WeightFormat>& Formats() {
  static const std::vector<WeightFormat> formats = {
      Int4Format(32, false), Int4Format(32, true),  Int4Format(128, false), Int4Format(128, true),
      Int4Format(16, true),  Int4Format(64, true),  Int4Format(384, true),  Int8Format(16, false),
      Int8Format(16, true),  Int8Format(32, false), Int8Format(32, true),   Int8Format(64, false),
      Int8Format(48, true)};
  return formats;
}

// Every code and number has a place of its own, and an output's bytes hold nothing of other outputs.
TEST(CodeLayoutTest, PlacesAreApart) {
  for (const WeightFormat& format : Formats()) {
    constexpr int64_t kOutputs = 130;
    const int64_t in_features = format.group_size * 3;
    const CodeLayout layout = MakeCodeLayout(format, in_features);
    std::vector<int64_t> owner(static_cast<size_t>(layout.TotalBytes(kOutputs)), -1);
    std::vector<uint8_t> used(owner.size(), 0);
    const auto take = [&](int64_t output, int64_t byte, uint8_t bits) {
      ASSERT_LT(byte, static_cast<int64_t>(owner.size()));
      int64_t& own = owner[static_cast<size_t>(byte)];
      ASSERT_TRUE(own == -1 || own == output) << DescribeWeightFormat(format) << " byte " << byte;
      own = output;
      ASSERT_EQ(used[static_cast<size_t>(byte)] & bits, 0)
          << DescribeWeightFormat(format) << " byte " << byte;
      used[static_cast<size_t>(byte)] |= bits;
    };
    for (int64_t output = 0; output < kOutputs; ++output) {
      for (int64_t k = 0; k < in_features; ++k) {
        const CodePlace place = layout.PlaceOfCode(output, k);
        take(output, place.byte, static_cast<uint8_t>((layout.bits == 4 ? 15 : 255) << place.shift));
      }
      for (int64_t k = 0; k < in_features; k += layout.group_size) {
        for (int number = 0; number < layout.numbers_per_group(); ++number) {
          const int64_t byte = layout.PlaceOfNumber(output, k, number);
          ASSERT_EQ(byte % 2, 0);
          take(output, byte, 255);
          take(output, byte + 1, 255);
        }
      }
    }
  }
}

// The kernels' view of a record, taken apart word by word: what a lane hands to the tensor core as a0 to a3
// are the elements of outputs r and r + 8 that it multiplies with what it reads of x.
TEST(CodeLayoutTest, WordsOfALaneAreTheFragmentsOfAStep) {
  for (const WeightFormat& format : Formats()) {
    const CodeLayout layout = MakeCodeLayout(format, format.group_size);
    for (int step = 0; step < layout.slice_size() / 16; ++step) {
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
          const int k = layout.ElementOf(step, lane % 4, i);
          if (k >= layout.in_features) continue;
          for (const int upper : {0, 1}) {
            const CodePlace place = layout.PlaceOfCode(lane / 4 + upper * 8, k);
            const int steps_in_16_bytes = layout.bits == 4 ? 4 : 2;
            const int64_t chunk = step / steps_in_16_bytes * 512 + lane * 16;
            if (layout.bits == 4) {
              const int64_t word = chunk + step % 4 * 4;
              // Nibble pairs at bits 4p and 16 + 4p: a0, a2, a1, a3 for p = 0 to 3.
              const int p = upper * 2 + i / 2;
              EXPECT_EQ((place.byte - word) * 8 + place.shift, 4 * p + 16 * (i % 2));
            } else {
              const int64_t word = chunk + step % 2 * 8 + i / 2 * 4;
              EXPECT_EQ(place.byte - word, i % 2 * 2 + upper);
            }
          }
        }
      }
    }
  }
}

// All elements are there once, and those of a step belong to one group.
TEST(CodeLayoutTest, AStepIsOfOneGroup) {
  for (const WeightFormat& format : Formats()) {
    const CodeLayout layout = MakeCodeLayout(format, format.group_size);
    std::vector<int> seen(static_cast<size_t>(layout.slice_size()), 0);
    for (int step = 0; step < layout.slice_size() / 16; ++step) {
      const int group = step * 16 / layout.group_size;
      for (int t = 0; t < 4; ++t) {
        for (int i = 0; i < 4; ++i) {
          const int k = layout.ElementOf(step, t, i);
          EXPECT_EQ(k / layout.group_size, group);
          ++seen[static_cast<size_t>(k)];
        }
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), layout.slice_size());
  }
}

TEST(CodeLayoutTest, TakesTheBytesOfCodesAndScales) {
  EXPECT_EQ(MakeCodeLayout(Int4Format(32, true), 4096).TotalBytes(4096),
            QuantizedBytes(Int4Format(32, true), 4096, 4096));
  EXPECT_EQ(MakeCodeLayout(Int4Format(128, true), 4096).TotalBytes(4096),
            QuantizedBytes(Int4Format(128, true), 4096, 4096));
  EXPECT_EQ(MakeCodeLayout(Int8Format(32, false), 576).TotalBytes(960),
            QuantizedBytes(Int8Format(32, false), 960, 576));
  // A scale for each output is stored for every 64.
  EXPECT_EQ(MakeCodeLayout(Int8Format(576, false), 576).TotalBytes(64),
            QuantizedBytes(Int8Format(64, false), 64, 576));
}

TEST(CodeLayoutTest, SaysWhatItHolds) {
  EXPECT_TRUE(HasCodeLayout(Int4Format(576, false), 576));
  EXPECT_TRUE(HasCodeLayout(Int8Format(16, false), 48));
  EXPECT_TRUE(HasCodeLayout(Int4Format(48, true), 48));
  EXPECT_TRUE(HasCodeLayout(Int4Format(16, true), 48));
  EXPECT_FALSE(HasCodeLayout(Int4Format(128, true), 576));
  EXPECT_FALSE(HasCodeLayout(Int8Format(8, false), 64));
  EXPECT_FALSE(HasCodeLayout(WeightFormat(), 64));
}

}  // namespace
}  // namespace tandem
