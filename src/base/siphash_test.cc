#include "base/siphash.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

// Key 00 .. 0f, input the bytes 0, 1, .. of the length: the first two are the authors', OpenSSL gives all
// four.
TEST(SipHashTest, ReferenceVectors) {
  const SipHashKey key = {0x0706050403020100U, 0x0f0e0d0c0b0a0908U};
  const auto hash = [&](size_t length) {
    std::vector<std::byte> bytes(length);
    for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(i);
    return SipHash128(key, bytes);
  };
  using Halves = std::array<uint64_t, 2>;
  // a3817f04ba25a8e66df67214c7550293
  EXPECT_EQ(hash(0), (Halves{0xe6a825ba047f81a3U, 0x930255c71472f66dU}));
  // da87c1d86b99af44347659119b22fc45
  EXPECT_EQ(hash(1), (Halves{0x44af996bd8c187daU, 0x45fc229b11597634U}));
  // 5493e99933b0a8117e08ec0f97cfc3d9
  EXPECT_EQ(hash(15), (Halves{0x11a8b03399e99354U, 0xd9c3cf970fec087eU}));
  // 5150d1772f50834a503e069a973fbd7c
  EXPECT_EQ(hash(63), (Halves{0x4a83502f77d15051U, 0x7cbd3f979a063e50U}));
}

}  // namespace
}  // namespace tandem
