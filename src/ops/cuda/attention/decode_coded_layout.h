// Which bytes of a tile of codes (cpu_attention/kv_block.h, 32 tokens) a lane of the decode kernel reads, and
// what they are. Pure arithmetic, on the host and in the kernel.
//
// K is the left side of an mma (tokens x elements) and so is V (elements x tokens). Which token or element
// stands in which of its rows and columns is free, as long as the right side has the same: here those are
// together that the layout has together, so that a lane reads 16 bytes at once and no lane needs those of
// another. Lane 4 * g + c:
//
//   K, step k        the 16 bytes of tokens 4 g .. 4 g + 3, elements 16 k + 4 c .. + 3: a word a token
//   V, step m, e     the 16 bytes of elements 32 m + 4 g .. + 3, tokens 8 c + 4 e .. + 3: a word an element
#pragma once

#include <cstdint>

#include "cpu_attention/kv_block.h"
#include "ops/cuda/attention/attention_plan_layout.h"

namespace tandem {
namespace decode {

constexpr int kPieceBytes = 16;

// Pieces of 16 bytes that hold codes; the scales follow.
constexpr int CodedPieces(int head_dim) {
  return kDecodeTileTokens * head_dim / kPieceBytes;
}
constexpr int CodedScalesBegin(int head_dim) {
  return CodedPieces(head_dim) * kPieceBytes;
}
constexpr int kScalePieces = kDecodeTileTokens * 2 / kPieceBytes;

// Where in shared memory a piece lies, in pieces: eight lanes that read at once find theirs in different
// banks. The first 32 pieces stay the first 32, and so on.
constexpr int CodedPlace(int piece) {
  return piece ^ (piece / 8 % 4 * 2);
}

// The piece of K that a lane reads in step k of head_dim / 16.
constexpr int KeyPiece(int k, int lane) {
  return (4 * k + lane % 4) * 8 + lane / 4;
}
// The pieces of V, e 0 and 1, that it reads in step m of head_dim / 32.
constexpr int ValuePiece(int m, int e, int lane) {
  return (2 * m + lane / 4 / 4) * 32 + (2 * (lane % 4) + e) * 4 + lane / 4 % 4;
}

// Word t of a piece of K, whose bytes are elements from KeyElement on.
constexpr int LaneToken(int lane, int t) {
  return lane / 4 * 4 + t;
}
constexpr int KeyElement(int k, int lane) {
  return 16 * k + lane % 4 * 4;
}
// Word i of a piece of V, whose bytes are tokens from ValueToken on.
constexpr int LaneElement(int m, int lane, int i) {
  return 32 * m + lane / 4 * 4 + i;
}
constexpr int ValueToken(int e, int lane) {
  return lane % 4 * 8 + 4 * e;
}

// Selectors of __byte_perm. Two bytes of a word, each with a byte of the other word above it:
constexpr unsigned kLowTwoBytes = 0x4140;
constexpr unsigned kHighTwoBytes = 0x4342;
// The low, or high, bytes of two words: first, second, first, second.
constexpr unsigned kInterleaveLow = 0x5140;
constexpr unsigned kInterleaveHigh = 0x7362;
// Two 16-bit halves, low ones and high ones.
constexpr unsigned kLowHalves = 0x5410;
constexpr unsigned kHighHalves = 0x7632;

}  // namespace decode
}  // namespace tandem
