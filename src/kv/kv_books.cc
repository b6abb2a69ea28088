#include "kv/kv_books.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <new>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/param_error.h"
#include "kv/tier_flag.h"

namespace tandem {
namespace {

// Moves the first of the sequences that the tier has room for, and takes them out. False: there is none.
bool MoveFirst(Tier to, std::deque<SequenceId>* sequences, KvBooks* books, std::vector<BlockMove>* moved) {
  const size_t num_before = moved->size();
  while (!sequences->empty()) {
    const BlockMove* move = books->BeginMove(sequences->front(), to);
    if (move == nullptr) break;
    moved->push_back(*move);
    sequences->pop_front();
  }
  for (size_t i = num_before; i < moved->size(); ++i) books->EndMove((*moved)[i].sequence);
  return moved->size() > num_before;
}

}  // namespace

int64_t KvBooks::MaxBlocks(int64_t block_size) {
  return std::min(BlockPool::kMaxBlocks, std::numeric_limits<int32_t>::max() / block_size);
}

Result<std::unique_ptr<KvBooks>> KvBooks::Create(int64_t block_size,
                                                 const std::array<int64_t, kNumTiers>& num_blocks) {
  TANDEM_CHECK(block_size > 0, "blocks of {} tokens", block_size);
  auto books = std::unique_ptr<KvBooks>(new KvBooks(block_size));
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    const int64_t of_tier = num_blocks[static_cast<size_t>(tier)];
    TANDEM_CHECK(of_tier >= 0 && of_tier <= MaxBlocks(block_size), "{} blocks in the {} tier", of_tier,
                 TierName(tier));
    try {
      books->books(tier).pool = BlockPool(of_tier);
    } catch (const std::bad_alloc&) {
      return MakeParamError(ErrorCode::kResourceExhausted, TierFlag(tier),
                            "not enough memory for the books of {} blocks of the {} tier; make --{} smaller",
                            of_tier, TierName(tier), TierFlag(tier));
    }
  }
  return books;
}

int64_t KvBooks::held_blocks(SequenceId sequence) const {
  return static_cast<int64_t>(block_table(sequence).size());
}

int64_t KvBooks::blocks_freed_by(SequenceId sequence) const {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return 0;
  const std::vector<int32_t>& blocks = found->second.blocks;
  // Who shares a block shares all before it, and gives up all at once: the shared ones come first.
  const auto own = std::partition_point(
      blocks.begin(), blocks.end(), [&](int32_t block) { return references(found->second.tier, block) > 1; });
  return blocks.end() - own;
}

std::optional<Tier> KvBooks::tier_of(SequenceId sequence) const {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return std::nullopt;
  return found->second.tier;
}

bool KvBooks::Reserve(SequenceId sequence, Tier tier, int64_t num_tokens) {
  const auto found = tables_.find(sequence);
  const int64_t held = found == tables_.end() ? 0 : static_cast<int64_t>(found->second.blocks.size());
  TANDEM_CHECK(found == tables_.end() || found->second.tier == tier, "sequence {} is not in the {} tier",
               sequence, TierName(tier));
  const int64_t missing = BlocksFor(num_tokens) - held;
  if (missing <= 0) return true;
  if (missing > free_blocks(tier)) return false;
  Table& table = tables_[sequence];
  table.tier = tier;
  return books(tier).pool.Allocate(missing, &table.blocks);
}

void KvBooks::ShareBlocks(SequenceId from, SequenceId to, int64_t num_tokens, int64_t num_computed) {
  const auto found = tables_.find(from);
  TANDEM_CHECK(found != tables_.end() && !found->second.move, "sequence {} is unknown or moves", from);
  TANDEM_CHECK(!tables_.contains(to), "sequence {} has blocks already", to);
  const std::vector<int32_t>& blocks = found->second.blocks;
  const int64_t count = num_tokens / block_size_;
  TANDEM_CHECK(num_tokens > 0 && num_tokens % block_size_ == 0 && num_tokens <= num_computed &&
                   count <= static_cast<int64_t>(blocks.size()),
               "{} tokens of sequence {} are to be shared: {} computed, {} blocks of {}", num_tokens, from,
               num_computed, blocks.size(), block_size_);
  const auto shared = std::span(blocks).first(static_cast<size_t>(count));
  books(found->second.tier).pool.Share(shared);
  Table table{.tier = found->second.tier, .blocks = {shared.begin(), shared.end()}, .move = nullptr};
  tables_.emplace(to, std::move(table));
}

void KvBooks::Release(SequenceId sequence) {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return;
  if (found->second.move) FreeSource(&found->second);
  books(found->second.tier).pool.Free(found->second.blocks);
  tables_.erase(found);
}

const std::vector<int32_t>& KvBooks::block_table(SequenceId sequence) const {
  static const std::vector<int32_t> empty;
  const auto found = tables_.find(sequence);
  return found == tables_.end() ? empty : found->second.blocks;
}

const KvBooks::Table& KvBooks::TableOf(SequenceId sequence) const {
  const auto found = tables_.find(sequence);
  TANDEM_CHECK(found != tables_.end(), "sequence {} has no blocks", sequence);
  return found->second;
}

int32_t KvBooks::BlockToWrite(SequenceId sequence, const Table& table, int64_t position) const {
  const auto index = static_cast<size_t>(position / block_size_);
  TANDEM_CHECK(index < table.blocks.size(), "sequence {}: position {} is not reserved", sequence, position);
  const int32_t block = table.blocks[index];
  TANDEM_CHECK(references(table.tier, block) == 1, "sequence {}: position {} lies in a shared block",
               sequence, position);
  return block;
}

int32_t KvBooks::SlotToWrite(SequenceId sequence, int64_t position) const {
  const int32_t block = BlockToWrite(sequence, TableOf(sequence), position);
  return static_cast<int32_t>(block * block_size_ + position % block_size_);
}

void KvBooks::CheckWritable(SequenceId sequence, int64_t begin, int64_t end) const {
  const Table& table = TableOf(sequence);
  for (int64_t position = begin; position < end; position += block_size_ - position % block_size_)
    BlockToWrite(sequence, table, position);
}

const BlockMove* KvBooks::BeginMove(SequenceId sequence, Tier to) {
  const auto found = tables_.find(sequence);
  TANDEM_CHECK(found != tables_.end() && found->second.tier != to && !found->second.move,
               "sequence {} cannot move to the {} tier", sequence, TierName(to));
  Table& table = found->second;
  std::vector<int32_t> new_blocks;
  if (!books(to).pool.Allocate(static_cast<int64_t>(table.blocks.size()), &new_blocks)) return nullptr;
  books(table.tier).in_flight_blocks += static_cast<int64_t>(table.blocks.size());
  table.move = std::make_unique<BlockMove>(BlockMove{.sequence = sequence,
                                                     .to = to,
                                                     .source_blocks = std::move(table.blocks),
                                                     .destination_blocks = new_blocks});
  table.tier = to;
  table.blocks = std::move(new_blocks);
  return table.move.get();
}

const BlockMove* KvBooks::move_of(SequenceId sequence) const {
  const auto found = tables_.find(sequence);
  return found == tables_.end() ? nullptr : found->second.move.get();
}

KvBooks::Table& KvBooks::MovingTable(SequenceId sequence) {
  const auto found = tables_.find(sequence);
  TANDEM_CHECK(found != tables_.end() && found->second.move, "sequence {} does not move", sequence);
  return found->second;
}

void KvBooks::FreeSource(Table* table) {
  TierBooks& source = books(table->move->from());
  source.pool.Free(table->move->source_blocks);
  source.in_flight_blocks -= static_cast<int64_t>(table->move->source_blocks.size());
  table->move.reset();
}

void KvBooks::EndMove(SequenceId sequence) {
  FreeSource(&MovingTable(sequence));
}

void KvBooks::CancelMove(SequenceId sequence) {
  Table& table = MovingTable(sequence);
  books(table.tier).pool.Free(table.blocks);
  table.tier = table.move->from();
  table.blocks = std::move(table.move->source_blocks);
  books(table.tier).in_flight_blocks -= static_cast<int64_t>(table.blocks.size());
  table.move.reset();
}

std::vector<BlockMove> ApplyMoves(const std::vector<Move>& moves, KvBooks* books) {
  std::deque<SequenceId> out;
  std::deque<SequenceId> in;
  for (const Move& move : moves) (move.to == Tier::kCpu ? out : in).push_back(move.sequence);
  std::vector<BlockMove> moved;
  moved.reserve(moves.size());
  // What comes in may need the blocks of what goes out, and the other way round.
  while (!out.empty() || !in.empty()) {
    const bool went_out = MoveFirst(Tier::kCpu, &out, books, &moved);
    const bool came_in = MoveFirst(Tier::kGpu, &in, books, &moved);
    TANDEM_CHECK(went_out || came_in, "no room for {} moves to the cpu tier and {} to the gpu tier",
                 out.size(), in.size());
  }
  return moved;
}

}  // namespace tandem
