// What the parts of skinny_codes.cuh know of a format and a number of rows: how elements of x meet codes, and
// what lies where in a warp's shared memory. In plain numbers.
#pragma once

#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/quantized_linear.h"

namespace tandem {

static_assert(kMaxSkinnyCodeRows == 8);  // the width of the tensor core's product

// kMostRows: 1, 2, 4 or 8. The tensor core's 8 columns are the rows' high and low bytes in turn; 8 rows take
// two products. Lane 4 * octet + q of a warp has column `octet` of x, and sums of outputs octet and octet + 8
// of columns 2q and 2q + 1.
template <typename Format, int kMostRows>
struct SkinnyCodesShape {
  static constexpr CodeLayout kLayout = Format::kLayout;
  static constexpr int kRows = kMostRows;
  static constexpr int kRecordBytes = kLayout.record_bytes();
  // From one of a warp's records of a tile to the next, in records and bytes.
  static constexpr int kStride = kSkinnyCodesWarps * kPanelRecords;
  static constexpr int kStrideBytes = kStride * kRecordBytes;
  static constexpr int kGroups = kLayout.groups_per_slice();
  static constexpr int kWords = kLayout.code_bytes() / 512;  // of a lane, 16 bytes each

  // Of x. A piece is 32 elements, which are one k of the tensor core.
  static constexpr int kPieces = kLayout.slice_size() / 32;
  static constexpr int kSetPieces = 16;
  static constexpr int kSetSlices = kSetPieces / kPieces;
  static constexpr int kSetGroups = kSetSlices * kGroups;
  // 16 bytes a lane and step are 8 pieces of rows. A lane has neighbours in two steps.
  static constexpr int kPiecesOfStep = 8 / kRows;
  static constexpr int kSetSteps = kSetPieces / kPiecesOfStep;
  static constexpr int kTurnSteps = kRows == 8 ? 2 : kSetSteps;  // whose lanes exchange at a time
  static constexpr int kProducts = kRows == 8 ? 2 : 1;
  static constexpr int kRowsOfLane = kProducts;
  static constexpr int kSums = 2 * kRowsOfLane;  // of a lane: output octet, then octet + 8
  // Of these sets fragments are kept for all tiles, one of them in registers. Sums of x go with them.
  static constexpr int kSetsKept = kRows <= 2 ? 2 : 1;

  // A byte of two 4-bit codes, first + 16 * second, is multiplied as it is, and its low nibble apart:
  //   16 * (first * x1 + second * x2) = 16 * first * (x1 - x2 / 16) + (first + 16 * second) * x2
  // so integers are those of x1 - x2 / 16 and x2, and sums are 16 times what they stand for. Groups of 16,
  // which are half a k, take the nibbles apart.
  static constexpr bool kWholeBytes = kLayout.bits == 4 && kLayout.group_size >= 32;
  // Whether low nibbles are multiplied for themselves, two pieces at a time, rather than shifted.
  static constexpr bool kNibblesApart = kWholeBytes && kLayout.group_size >= 64;
  static constexpr float kTimes = kWholeBytes ? 16.0F : 1.0F;
  // The largest integer of x2: x1 - x2 / 16 may be 17/16 of it. Sums of a group stay below 2^31.
  static constexpr float kLimit = kWholeBytes ? 30592.0F : 32512.0F;

  // Of a warp's shared memory.
  // Of a set: x as it was loaded, then its fragments. 8 rows have these in registers only.
  static constexpr int kSetBytes = kTurnSteps * 512;
  static constexpr int kSumsOfXBytes = kSetGroups * kRows * 4;  // of a set
  // A warp's stores of sums meet no bank twice.
  static constexpr int kTilePitch = kRecordOutputs + (kRows == 8 ? 4 : 8);
  static constexpr int kTileBytes = kRows * kTilePitch * 4;
  static constexpr int kTilesAt = kSetsKept * kSetBytes;  // two take turns
  static constexpr int kSumsOfXAt = kTilesAt + 2 * kTileBytes;
  static constexpr int kUnitsAt = kSumsOfXAt + kSetsKept * kSumsOfXBytes;
  static constexpr int kRingAt = (kUnitsAt + kSetsKept * kRows * 4 + 15) / 16 * 16;
  // A stage is two records, codes before numbers.
  static constexpr int kStageBytes = 2 * kRecordBytes;
  static constexpr int kNumberChunks = kLayout.scale_bytes() / 16;
  static constexpr int kDepth = (kSkinnyCodesWarpBytes - kRingAt) / kStageBytes;
  static_assert(kDepth >= 3 && kNumberChunks <= 16 && kSkinnyCodesWarpBytes % 16 == 0);
};

}  // namespace tandem
