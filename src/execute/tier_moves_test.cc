#include "execute/tier_moves.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "execute/execute_testing.h"

namespace tandem {
namespace {

constexpr int64_t kMovedLayers = 2;

// What a block holds: one number, in all its bytes.
void Fill(const KvLayerView& kv, int64_t block, int value) {
  for (int64_t head = 0; head < kv.shape.num_kv_heads; ++head)
    std::memset(kv.Head(block, head), value, kv.shape.HeadBytes());
}
int ValueOf(const KvLayerView& kv, int64_t block) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(kv.Head(block, 0));
  return bytes[kv.shape.HeadBytes() / 2];
}

// Block 2 of the gpu tier goes out, and what comes in lands there; each layer waits for its own copies only.
TEST(TierMovesTest, LaterMovesWriteWhatEarlierOnesLeave) {
  testing::ExecuteBench bench;
  const SharedParts& parts = bench.parts();
  for (int64_t layer = 0; layer < kMovedLayers; ++layer) {
    Fill(parts.kv->LayerView(Tier::kGpu, layer), 2, 10 + static_cast<int>(layer));
    Fill(parts.kv->LayerView(Tier::kCpu, layer), 5, 20 + static_cast<int>(layer));
  }
  TierMoves moves(parts.device, parts.ops, parts.kv, kMovedLayers);
  moves.Begin({}, parts.copy_stream());
  EXPECT_FALSE(moves.any());
  moves.AwaitLayer(0, parts.compute_stream());
  const std::vector<BlockMove> both = {
      {.sequence = 1, .to = Tier::kCpu, .source_blocks = {2}, .destination_blocks = {0}},
      {.sequence = 2, .to = Tier::kGpu, .source_blocks = {5}, .destination_blocks = {2}}};
  moves.Begin(both, parts.copy_stream());
  EXPECT_TRUE(moves.any());
  for (int64_t layer = 0; layer < kMovedLayers; ++layer) {
    moves.AwaitLayer(layer, parts.compute_stream());
    parts.compute_stream().Synchronize();
    EXPECT_EQ(ValueOf(parts.kv->LayerView(Tier::kCpu, layer), 0), 10 + layer);
    EXPECT_EQ(ValueOf(parts.kv->LayerView(Tier::kGpu, layer), 2), 20 + layer);
  }
  moves.End();
  EXPECT_FALSE(moves.any());
}

}  // namespace
}  // namespace tandem
