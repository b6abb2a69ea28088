#include "kv/kv_books.h"

#include <algorithm>
#include <deque>
#include <iterator>
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

std::optional<Holding> KvBooks::holding_of(SequenceId sequence) const {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return std::nullopt;
  return Holding{found->second.tier, std::ssize(found->second.blocks)};
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

bool KvBooks::Reserve(SequenceId sequence, Tier tier, int64_t num_tokens) {
  const auto found = tables_.find(sequence);
  const int64_t held = found == tables_.end() ? 0 : static_cast<int64_t>(found->second.blocks.size());
  TANDEM_CHECK(found == tables_.end() || found->second.tier == tier, "sequence {} is not in the {} tier",
               sequence, TierName(tier));
  const int64_t missing = BlocksFor(num_tokens) - held;
  if (missing <= 0) return true;
  if (missing > free_blocks(tier)) return false;
  Table& table = tables_[sequence];
  if (held == 0) Expect(ChainOf(sequence), 0, num_identified(sequence));
  table.tier = tier;
  return Allocate(tier, missing, &table.blocks);
}

bool KvBooks::Allocate(Tier tier, int64_t count, std::vector<int32_t>* blocks) {
  if (count > free_blocks(tier)) return false;
  BlockPool& pool = books(tier).pool;
  PrefixIndex& prefixes = books(tier).prefixes;
  std::vector<int32_t> given_up;
  while (count > pool.num_free() + std::ssize(given_up)) {
    if (listener_ != nullptr) listener_->Removed(tier, prefixes.HashOf(prefixes.oldest_unused()));
    given_up.push_back(prefixes.GiveUpOldest());
  }
  // The last blocks of a chain come first: in the order of their places they come free as runs.
  std::ranges::reverse(given_up);
  pool.Free(given_up);
  return pool.Allocate(count, blocks);
}

void KvBooks::TierBooks::Use(std::span<const int32_t> blocks) {
  pool.Share(blocks);
  for (const int32_t block : blocks) prefixes.Use(block);
}

void KvBooks::TierBooks::Free(const std::vector<int32_t>& blocks) {
  pool.Free(blocks);
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    if (prefixes.Knows(*block) && pool.references(*block) == 1) prefixes.LetGo(*block);
  }
}

void KvBooks::Release(SequenceId sequence) {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return;
  ExpectNoMore(sequence, found->second);
  if (found->second.leaving) FreeSource(&found->second);
  books(found->second.tier).Free(found->second.blocks);
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
  TANDEM_CHECK(references(table.tier, block) == 1 && !books(table.tier).prefixes.Knows(block),
               "sequence {}: position {} lies in a shared block", sequence, position);
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
  TANDEM_CHECK(found != tables_.end() && found->second.tier != to && !found->second.leaving,
               "sequence {} cannot move to the {} tier", sequence, TierName(to));
  Table& table = found->second;
  TierBooks& there = books(to);
  const auto published = ChainOf(sequence).first(static_cast<size_t>(table.num_published));
  const auto num_known = static_cast<size_t>(there.prefixes.NumKnown(published));
  const std::vector<int32_t> known = KnownBlocks(to, published.first(num_known));
  const int64_t num_copies = std::ssize(table.blocks) - std::ssize(known);
  if (num_copies > free_blocks(to) - there.prefixes.NumUnused(published.first(num_known))) return nullptr;
  // In use before anything is given up for the others.
  there.Use(known);
  std::vector<int32_t> copies;
  Allocate(to, num_copies, &copies);
  books(table.tier).in_flight_blocks += std::ssize(table.blocks);
  const auto first_copied = table.blocks.begin() + static_cast<std::ptrdiff_t>(num_known);
  table.leaving =
      std::make_unique<Leaving>(Leaving{.move = {.sequence = sequence,
                                                 .to = to,
                                                 .source_blocks = {first_copied, table.blocks.end()},
                                                 .destination_blocks = copies},
                                        .blocks = std::move(table.blocks),
                                        .num_published = table.num_published});
  table.tier = to;
  table.blocks = known;
  table.blocks.insert(table.blocks.end(), copies.begin(), copies.end());
  table.num_published = std::ssize(known);
  return &table.leaving->move;
}

const BlockMove* KvBooks::move_of(SequenceId sequence) const {
  const auto found = tables_.find(sequence);
  if (found == tables_.end() || !found->second.leaving) return nullptr;
  return &found->second.leaving->move;
}

KvBooks::Table& KvBooks::MovingTable(SequenceId sequence) {
  const auto found = tables_.find(sequence);
  TANDEM_CHECK(found != tables_.end() && found->second.leaving, "sequence {} does not move", sequence);
  return found->second;
}

void KvBooks::FreeSource(Table* table) {
  TierBooks& source = books(table->leaving->move.from());
  source.Free(table->leaving->blocks);
  source.in_flight_blocks -= std::ssize(table->leaving->blocks);
  table->leaving.reset();
}

void KvBooks::EndMove(SequenceId sequence) {
  Table& table = MovingTable(sequence);
  const int64_t num_published = table.leaving->num_published;
  FreeSource(&table);
  PublishBlocks(sequence, num_published, &table);
}

void KvBooks::CancelMove(SequenceId sequence) {
  Table& table = MovingTable(sequence);
  books(table.tier).Free(table.blocks);
  table.tier = table.leaving->move.from();
  table.blocks = std::move(table.leaving->blocks);
  table.num_published = table.leaving->num_published;
  books(table.tier).in_flight_blocks -= std::ssize(table.blocks);
  table.leaving.reset();
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
  std::erase_if(moved, [](const BlockMove& move) { return move.source_blocks.empty(); });
  return moved;
}

}  // namespace tandem
