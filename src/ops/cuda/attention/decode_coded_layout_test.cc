#include "ops/cuda/attention/decode_coded_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "cpu_attention/append_token.h"
#include "ops/cuda/attention/decode_attention_kernel.h"

namespace tandem::decode {
namespace {

constexpr int kLanes = 32;
constexpr int kHeads = 8;

// Two numbers of a register.
using Pair = std::array<int64_t, 2>;
template <size_t kCount>
using Registers = std::array<std::array<Pair, kCount>, kLanes>;

// d of mma.m16n8k16 (PTX): d[16][8] += a[16][16] b[16][8], each spread over the lanes.
void AddProduct(const Registers<4>& a, const Registers<2>& b, std::array<std::array<int64_t, 4>, kLanes>* d) {
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t i = 0; i < 4; ++i) {
      const size_t row = lane / 4 + i / 2 * 8;
      const size_t col = lane % 4 * 2 + i % 2;
      for (size_t k = 0; k < 16; ++k) {
        (*d)[lane][i] +=
            a[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2][k % 2] * b[col * 4 + k % 8 / 2][k / 8][k % 2];
      }
    }
  }
}

// movmatrix: lane 4 * g + c has columns 2 c and 2 c + 1 of row g, then of row g of the transpose.
std::array<Pair, kLanes> Transposed(const std::array<Pair, kLanes>& rows) {
  std::array<Pair, kLanes> result;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t i = 0; i < 2; ++i) {
      const size_t row = lane % 4 * 2 + i;
      const size_t col = lane / 4;
      result[lane][i] = rows[row * 4 + col / 2][col % 2];
    }
  }
  return result;
}

uint8_t SelectedByte(uint32_t first, uint32_t second, unsigned selector, int i) {
  const unsigned which = selector >> (4 * i) & 0xfU;
  return static_cast<uint8_t>((which < 4 ? first : second) >> (8 * (which % 4)));
}
uint32_t BytePerm(uint32_t first, uint32_t second, unsigned selector) {
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<uint32_t>(SelectedByte(first, second, selector, i)) << (8 * i);
  return result;
}
Pair CodesOf(uint32_t word, unsigned selector) {
  return {SelectedByte(word, 0, selector, 0) - 128, SelectedByte(word, 0, selector, 2) - 128};
}

class CodedTileTest : public testing::TestWithParam<int> {
 protected:
  CodedTileTest()
      : shape_{.format = KvFormat::Int8(), .num_kv_heads = 1, .head_dim = GetParam()},
        block_(shape_.BlockBytes(), std::byte{0xff}) {
    const KvLayerView view = {.data = block_.data(), .shape = shape_, .num_blocks = 1};
    std::normal_distribution<float> normal;
    std::vector<float> rows(2 * static_cast<size_t>(head_dim()));
    for (int32_t token = 0; token < kDecodeTileTokens; ++token) {
      for (float& value : rows) value = normal(random_);
      AppendToken(view, token, 0, 1, rows.data(), rows.data() + head_dim(), DType::kF32);
    }
  }
  int head_dim() const { return GetParam(); }
  const uint8_t* part(bool is_value) const {
    return reinterpret_cast<const uint8_t*>(block_.data()) +
           (is_value ? DecodePartBytes(head_dim(), true) : 0);
  }
  int64_t KeyCode(int token, int d) const {
    return part(false)[CodedKeyIndex(kDecodeTileTokens, token, d)] - 128;
  }
  int64_t ValueCode(int token, int d) const {
    return static_cast<int8_t>(part(true)[CodedValueIndex(kDecodeTileTokens, token, d)]);
  }
  // As CopyPart leaves it in shared memory.
  std::vector<uint32_t> Shared(bool is_value) const {
    std::vector<uint32_t> words(static_cast<size_t>(CodedPieces(head_dim())) * 4);
    for (int piece = 0; piece < CodedPieces(head_dim()); ++piece) {
      std::memcpy(words.data() + static_cast<ptrdiff_t>(CodedPlace(piece)) * 4,
                  part(is_value) + static_cast<ptrdiff_t>(piece) * kPieceBytes, kPieceBytes);
    }
    return words;
  }
  std::vector<std::array<int64_t, kHeads>> SmallNumbers(int count) {
    std::vector<std::array<int64_t, kHeads>> numbers(static_cast<size_t>(count));
    for (auto& row : numbers) {
      for (int64_t& value : row) value = static_cast<int64_t>(random_() % 200) - 100;
    }
    return numbers;
  }

  KvShape shape_;
  std::vector<std::byte> block_;
  std::mt19937 random_{3};
};

TEST_P(CodedTileTest, APartIsKOrVOfAHeadOfABlock) {
  EXPECT_EQ(static_cast<size_t>(DecodePartBytes(head_dim(), true)), shape_.HeadBytes() / 2);
  EXPECT_EQ(CodedScalesBegin(head_dim()) + kScalePieces * kPieceBytes, DecodePartBytes(head_dim(), true));
  for (int token = 0; token < kDecodeTileTokens; ++token) {
    EXPECT_EQ(CodedScaleIndex(kDecodeTileTokens, head_dim(), token),
              CodedScalesBegin(head_dim()) + 2 * token);
  }
}

// Every piece has a place, and eight lanes that read at once find theirs in different ones of the eight
// sixteenths of a bank row.
TEST_P(CodedTileTest, PiecesDoNotCollide) {
  std::set<int> places;
  for (int piece = 0; piece < CodedPieces(head_dim()); ++piece) places.insert(CodedPlace(piece));
  EXPECT_EQ(places.size(), static_cast<size_t>(CodedPieces(head_dim())));
  EXPECT_EQ(*places.rbegin(), CodedPieces(head_dim()) - 1);
  const auto expect_apart = [](const auto& piece_of) {
    for (int first = 0; first < kLanes; first += 8) {
      std::set<int> columns;
      for (int lane = first; lane < first + 8; ++lane) columns.insert(CodedPlace(piece_of(lane)) % 8);
      EXPECT_EQ(columns.size(), 8U) << "lanes from " << first << " on";
    }
  };
  for (int k = 0; k < head_dim() / 16; ++k) expect_apart([&](int lane) { return KeyPiece(k, lane); });
  for (int m = 0; m < head_dim() / 32; ++m) {
    for (const int e : {0, 1}) expect_apart([&](int lane) { return ValuePiece(m, e, lane); });
  }
}

// The kernel adds the same offset in every lane.
TEST_P(CodedTileTest, StepsAreAsFarApartInEveryLane) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int k = 0; k < head_dim() / 16; ++k) {
      EXPECT_EQ(CodedPlace(KeyPiece(k, lane)),
                CodedPlace(KeyPiece(0, lane)) + KeyPiece(k, 0) - KeyPiece(0, 0));
    }
    for (int m = 0; m < head_dim() / 32; ++m) {
      for (const int e : {0, 1}) {
        EXPECT_EQ(CodedPlace(ValuePiece(m, e, lane)),
                  CodedPlace(ValuePiece(0, e, lane)) + ValuePiece(m, 0, 0) - ValuePiece(0, 0, 0));
      }
    }
  }
}

TEST_P(CodedTileTest, KeysAreMultipliedWithTheirElements) {
  const std::vector<uint32_t> shared = Shared(false);
  const auto q = SmallNumbers(head_dim());  // [d][head]
  for (int half = 0; half < 2; ++half) {
    std::array<std::array<int64_t, 4>, kLanes> scores = {};
    for (int k = 0; k < head_dim() / 16; ++k) {
      Registers<4> a;
      Registers<2> b;
      for (int lane = 0; lane < kLanes; ++lane) {
        const uint32_t* words = shared.data() + static_cast<ptrdiff_t>(CodedPlace(KeyPiece(k, lane))) * 4;
        const auto at = static_cast<size_t>(lane);
        a[at] = {CodesOf(words[2 * half], kLowTwoBytes), CodesOf(words[2 * half + 1], kLowTwoBytes),
                 CodesOf(words[2 * half], kHighTwoBytes), CodesOf(words[2 * half + 1], kHighTwoBytes)};
        const auto element = static_cast<size_t>(KeyElement(k, lane));
        const size_t head = at / 4;
        b[at] = {Pair{q[element][head], q[element + 1][head]},
                 Pair{q[element + 2][head], q[element + 3][head]}};
      }
      AddProduct(a, b, &scores);
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int token = LaneToken(lane, 2 * half + i / 2);
        const auto head = static_cast<size_t>(lane % 4 * 2 + i % 2);
        int64_t want = 0;
        for (int d = 0; d < head_dim(); ++d) want += KeyCode(token, d) * q[static_cast<size_t>(d)][head];
        ASSERT_EQ(scores[static_cast<size_t>(lane)][static_cast<size_t>(i)], want)
            << "token " << token << ", head " << head;
      }
    }
  }
}

TEST_P(CodedTileTest, ValuesAreMultipliedWithTheirTokens) {
  const std::vector<uint32_t> shared = Shared(true);
  const auto weights = SmallNumbers(kDecodeTileTokens);  // [token][head]
  // Weights lie in the lanes as scores do.
  std::array<std::array<Pair, kLanes>, 4> p;
  for (int t = 0; t < 4; ++t) {
    std::array<Pair, kLanes> rows;
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto& of_token = weights[static_cast<size_t>(LaneToken(lane, t))];
      rows[static_cast<size_t>(lane)] = {of_token[static_cast<size_t>(lane % 4 * 2)],
                                         of_token[static_cast<size_t>(lane % 4 * 2 + 1)]};
    }
    p[static_cast<size_t>(t)] = Transposed(rows);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (const int e : {0, 1}) {
        EXPECT_EQ(p[static_cast<size_t>(t)][static_cast<size_t>(lane)][static_cast<size_t>(e)],
                  weights[static_cast<size_t>(ValueToken(e, lane) + t)][static_cast<size_t>(lane / 4)]);
      }
    }
  }
  constexpr uint32_t kSigns = 0x80808080U;
  for (int m = 0; m < head_dim() / 32; ++m) {
    for (int t = 0; t < 2; ++t) {
      std::array<std::array<int64_t, 4>, kLanes> outputs = {};
      for (const bool high : {false, true}) {
        Registers<4> a;
        Registers<2> b;
        for (int lane = 0; lane < kLanes; ++lane) {
          const auto piece = [&](int e) {
            return shared.data() + static_cast<ptrdiff_t>(CodedPlace(ValuePiece(m, e, lane))) * 4;
          };
          std::array<uint32_t, 2> rows;
          for (int row = 0; row < 2; ++row) {
            rows[static_cast<size_t>(row)] = BytePerm(piece(0)[2 * t + row], piece(1)[2 * t + row],
                                                      high ? kInterleaveHigh : kInterleaveLow) ^
                                             kSigns;
          }
          const auto at = static_cast<size_t>(lane);
          a[at] = {CodesOf(rows[0], kLowTwoBytes), CodesOf(rows[1], kLowTwoBytes),
                   CodesOf(rows[0], kHighTwoBytes), CodesOf(rows[1], kHighTwoBytes)};
          b[at] = {p[high ? 2 : 0][at], p[high ? 3 : 1][at]};
        }
        AddProduct(a, b, &outputs);
      }
      for (int lane = 0; lane < kLanes; ++lane) {
        for (int i = 0; i < 4; ++i) {
          const int d = LaneElement(m, lane, 2 * t + i / 2);
          const auto head = static_cast<size_t>(lane % 4 * 2 + i % 2);
          int64_t want = 0;
          for (int token = 0; token < kDecodeTileTokens; ++token)
            want += weights[static_cast<size_t>(token)][head] * ValueCode(token, d);
          ASSERT_EQ(outputs[static_cast<size_t>(lane)][static_cast<size_t>(i)], want)
              << "element " << d << ", head " << head;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, CodedTileTest, testing::Values(64, 128, 256));

}  // namespace
}  // namespace tandem::decode
