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
  return books(tier).Allocate(missing, &table.blocks);
}

bool KvBooks::TierBooks::Allocate(int64_t count, std::vector<int32_t>* blocks) {
  if (count > pool.num_free() + prefixes.num_unused()) return false;
  std::vector<int32_t> given_up;
  while (count > pool.num_free() + static_cast<int64_t>(given_up.size()))
    given_up.push_back(prefixes.GiveUpOldest());
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

void KvBooks::ShareBlocks(SequenceId from, SequenceId to, int64_t num_tokens, int64_t num_computed) {
  const auto found = tables_.find(from);
  TANDEM_CHECK(found != tables_.end() && !found->second.leaving, "sequence {} is unknown or moves", from);
  TANDEM_CHECK(!tables_.contains(to), "sequence {} has blocks already", to);
  const std::vector<int32_t>& blocks = found->second.blocks;
  const int64_t count = num_tokens / block_size_;
  TANDEM_CHECK(num_tokens > 0 && num_tokens % block_size_ == 0 && num_tokens <= num_computed &&
                   count <= static_cast<int64_t>(blocks.size()),
               "{} tokens of sequence {} are to be shared: {} computed, {} blocks of {}", num_tokens, from,
               num_computed, blocks.size(), block_size_);
  const auto shared = std::span(blocks).first(static_cast<size_t>(count));
  books(found->second.tier).pool.Share(shared);
  Table table{.tier = found->second.tier,
              .blocks = {shared.begin(), shared.end()},
              .num_published = std::min(count, found->second.num_published),
              .publishes = found->second.publishes,
              .leaving = nullptr};
  tables_.emplace(to, std::move(table));
}

void KvBooks::Release(SequenceId sequence) {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return;
  if (found->second.leaving) FreeSource(&found->second);
  books(found->second.tier).Free(found->second.blocks);
  tables_.erase(found);
}

void KvBooks::Identify(SequenceId sequence, std::span<const BlockHash> hashes) {
  std::vector<BlockHash>& chain = chains_[sequence];
  chain.insert(chain.end(), hashes.begin(), hashes.end());
}

std::span<const BlockHash> KvBooks::ChainOf(SequenceId sequence) const {
  const auto found = chains_.find(sequence);
  return found == chains_.end() ? std::span<const BlockHash>() : found->second;
}

int64_t KvBooks::num_identified(SequenceId sequence) const {
  return std::ssize(ChainOf(sequence));
}

std::optional<BlockHash> KvBooks::last_hash(SequenceId sequence) const {
  const auto chain = ChainOf(sequence);
  return chain.empty() ? std::nullopt : std::optional(chain.back());
}

void KvBooks::Forget(SequenceId sequence) {
  Release(sequence);
  chains_.erase(sequence);
}

void KvBooks::Publish(SequenceId sequence, int64_t num_computed) {
  const auto found = tables_.find(sequence);
  if (found == tables_.end() || found->second.leaving) return;
  const auto chain = ChainOf(sequence);
  const int64_t num_blocks = std::min(num_computed / block_size_, std::ssize(chain));
  PublishBlocks(chain, num_blocks, &found->second);
}

void KvBooks::PublishBlocks(std::span<const BlockHash> chain, int64_t num_blocks, Table* table) {
  if (!table->publishes) return;
  TierBooks& of_tier = books(table->tier);
  for (int64_t& i = table->num_published; i < num_blocks; ++i) {
    int32_t& block = table->blocks[static_cast<size_t>(i)];
    const BlockHash& hash = chain[static_cast<size_t>(i)];
    const int32_t known = of_tier.prefixes.Find(hash);
    if (known < 0) {
      of_tier.pool.Share({&block, 1});
      of_tier.prefixes.Add(hash, block, i == 0 ? -1 : table->blocks[static_cast<size_t>(i) - 1]);
    } else if (known != block) {
      of_tier.Use({&known, 1});
      of_tier.Free({block});
      block = known;
    }
  }
}

CachedPrefix KvBooks::cached_prefix(SequenceId sequence, Tier tier, int64_t max_tokens) const {
  const auto chain = ChainOf(sequence);
  const auto most = static_cast<size_t>(std::min(max_tokens / block_size_, std::ssize(chain)));
  const PrefixIndex& prefixes = books(tier).prefixes;
  CachedPrefix prefix{.num_blocks = prefixes.NumKnown(chain.first(most))};
  prefix.num_unused = prefixes.NumUnused(chain.first(static_cast<size_t>(prefix.num_blocks)));
  return prefix;
}

std::vector<int32_t> KvBooks::KnownBlocks(Tier tier, std::span<const BlockHash> chain) const {
  std::vector<int32_t> blocks;
  blocks.reserve(chain.size());
  for (const BlockHash& hash : chain) {
    blocks.push_back(books(tier).prefixes.Find(hash));
    TANDEM_CHECK(blocks.back() >= 0, "block {} of a prefix is not in the {} tier", blocks.size() - 1,
                 TierName(tier));
  }
  return blocks;
}

void KvBooks::Attach(SequenceId sequence, Tier tier, int64_t num_tokens) {
  const auto chain = ChainOf(sequence);
  TANDEM_CHECK(!tables_.contains(sequence), "sequence {} has blocks already", sequence);
  const int64_t count = num_tokens / block_size_;
  TANDEM_CHECK(count > 0 && num_tokens % block_size_ == 0 && count <= std::ssize(chain),
               "sequence {} is to begin with {} tokens: blocks of {}, {} identified", sequence, num_tokens,
               block_size_, chain.size());
  std::vector<int32_t> blocks = KnownBlocks(tier, chain.first(static_cast<size_t>(count)));
  books(tier).Use(blocks);
  tables_.emplace(sequence, Table{.tier = tier, .blocks = std::move(blocks), .num_published = count});
}

BlockMove KvBooks::CopyUnused(const CopyDown& wanted) {
  TierBooks& gpu = books(Tier::kGpu);
  BlockMove copies{.to = Tier::kCpu};
  while (gpu.pool.num_free() + gpu.prefixes.num_settled() < wanted.margin) {
    const int32_t oldest = gpu.prefixes.NextToSettle();
    if (oldest < 0) break;
    std::vector<int32_t> chain;
    for (int32_t block = oldest; block >= 0; block = gpu.prefixes.Before(block)) chain.push_back(block);
    std::ranges::reverse(chain);
    const uint64_t draw = gpu.prefixes.HashOf(chain.front()).halves[1];
    if (draw % static_cast<uint64_t>(wanted.one_in) != 0) {
      gpu.prefixes.Settle();
      continue;
    }
    const int64_t num_left =
        CopyChainDown(chain, wanted.max_blocks - std::ssize(copies.source_blocks), &copies);
    // What there is no room for is not asked for again.
    if (num_left == 0 || free_blocks(Tier::kCpu) < num_left) gpu.prefixes.Settle();
    if (num_left > 0) break;
  }
  return copies;
}

int64_t KvBooks::CopyChainDown(std::span<const int32_t> chain, int64_t max_blocks, BlockMove* copies) {
  const PrefixIndex& gpu = books(Tier::kGpu).prefixes;
  TierBooks& cpu = books(Tier::kCpu);
  // What is there already is used while more is added behind it.
  std::vector<int32_t> blocks;
  for (const int32_t block : chain) {
    const int32_t known = cpu.prefixes.Find(gpu.HashOf(block));
    if (known < 0) break;
    blocks.push_back(known);
  }
  cpu.Use(blocks);
  const size_t num_known = blocks.size();
  const int64_t num_missing = std::ssize(chain) - std::ssize(blocks);
  const int64_t num_copies = std::min({num_missing, max_blocks, free_blocks(Tier::kCpu)});
  cpu.Allocate(num_copies, &blocks);
  for (size_t i = num_known; i < blocks.size(); ++i) {
    cpu.pool.Share({&blocks[i], 1});
    cpu.prefixes.Add(gpu.HashOf(chain[i]), blocks[i], i == 0 ? -1 : blocks[i - 1]);
    copies->source_blocks.push_back(chain[i]);
    copies->destination_blocks.push_back(blocks[i]);
  }
  cpu.Free(blocks);
  return num_missing - num_copies;
}

void KvBooks::ForgetPrefixes() {
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    const std::vector<int32_t> known = books(tier).prefixes.Clear();
    books(tier).pool.Free(known);
  }
  for (auto& [sequence, table] : tables_) {
    table.publishes = false;
    table.num_published = 0;
    if (table.leaving) table.leaving->num_published = 0;
  }
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
  there.Allocate(num_copies, &copies);
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
  PublishBlocks(ChainOf(sequence), num_published, &table);
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
