#include "text/tokenizer/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/utf8.h"
#include "text/tokenizer/byte_alphabet.h"

namespace tandem {
namespace {

// Up to this many symbols rescanning all pairs is faster than a queue.
constexpr size_t kMaxScannedSymbols = 24;
constexpr size_t kMaxCachedWordBytes = 64;
constexpr size_t kMaxCachedWords = 1 << 15;

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// A space mark behind something else than a space mark.
bool HasInnerSpaceMark(std::string_view token) {
  for (size_t at = token.find(kSpaceMark, 1); at != std::string_view::npos;
       at = token.find(kSpaceMark, at + 1))
    if (!token.substr(0, at).ends_with(kSpaceMark)) return true;
  return false;
}

}  // namespace

Result<BpeModel> BpeModel::Create(const Vocabulary& vocabulary, const Merges& merges,
                                  const BpeOptions& options) {
  BpeModel model;
  model.options_ = options;
  StringMap<int32_t> id_of_spelling;
  id_of_spelling.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary) id_of_spelling.insert_or_assign(token, id);

  model.byte_ids_.fill(-1);
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling = options.byte_level ? BytesToAlphabet(std::string(1, static_cast<char>(byte)))
                                                    : fmt::format("<0x{:02X}>", byte);
    if (const auto it = id_of_spelling.find(spelling); it != id_of_spelling.end())
      model.byte_ids_[byte] = it->second;
  }

  bool inner_space_mark = false;
  std::vector<Merge> ranked;
  ranked.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const std::string merged = left + right;
    const auto id_of = [&](const std::string& token) {
      const auto it = id_of_spelling.find(token);
      return it == id_of_spelling.end() ? -1 : it->second;
    };
    const int32_t left_id = id_of(left);
    const int32_t right_id = id_of(right);
    const int32_t merged_id = id_of(merged);
    if (left_id < 0 || right_id < 0 || merged_id < 0)
      return MakeError(ErrorCode::kMalformedFile, "merge {} (\"{}\" with \"{}\"): not all in the vocabulary",
                       rank, left, right);
    ranked.push_back({PairKey(left_id, right_id), static_cast<uint32_t>(rank), merged_id});
    inner_space_mark = inner_space_mark || HasInnerSpaceMark(merged);
  }
  model.BuildMergeTable(ranked);

  if (options.byte_level) {
    for (const auto& [token, id] : vocabulary)
      if (auto bytes = BytesFromAlphabet(token)) model.id_of_token_.insert_or_assign(std::move(*bytes), id);
  } else {
    model.id_of_token_ = std::move(id_of_spelling);
    model.splits_at_space_mark_ =
        !inner_space_mark && !options.ignore_merges && model.id_of_token_.contains(kSpaceMark);
  }
  return model;
}

void BpeModel::BuildMergeTable(const std::vector<Merge>& merges) {
  const size_t capacity = std::bit_ceil(std::max<size_t>(merges.size() * 2, 16));
  merge_table_.assign(capacity, Merge{});
  merge_table_shift_ = 64 - std::countr_zero(capacity);
  for (const Merge& merge : merges) {
    size_t slot = (merge.pair * 0x9E3779B97F4A7C15ULL) >> merge_table_shift_;
    while (merge_table_[slot].pair != UINT64_MAX && merge_table_[slot].pair != merge.pair)
      slot = (slot + 1) & (capacity - 1);
    merge_table_[slot] = merge;
  }
}

const BpeModel::Merge* BpeModel::FindMerge(int32_t left, int32_t right) const {
  const uint64_t pair = PairKey(left, right);
  size_t slot = (pair * 0x9E3779B97F4A7C15ULL) >> merge_table_shift_;
  while (true) {
    const Merge& merge = merge_table_[slot];
    if (merge.pair == pair) return &merge;
    if (merge.pair == UINT64_MAX) return nullptr;
    slot = (slot + 1) & (merge_table_.size() - 1);
  }
}

void BpeModel::Encode(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* ids) const {
  if (!splits_at_space_mark_) {
    EncodeWord(piece, scratch, ids);
    return;
  }
  size_t begin = 0;
  for (size_t at = piece.find(kSpaceMark); at != std::string_view::npos;
       at = piece.find(kSpaceMark, at + kSpaceMark.size())) {
    if (at == begin || piece.substr(begin, at - begin).ends_with(kSpaceMark)) continue;
    EncodeWord(piece.substr(begin, at - begin), scratch, ids);
    begin = at;
  }
  if (begin < piece.size()) EncodeWord(piece.substr(begin), scratch, ids);
}

std::vector<bool> BpeModel::ReachableIds(size_t num_ids) const {
  std::vector<bool> reachable(num_ids, false);
  for (const Merge& merge : merge_table_)
    if (merge.pair != UINT64_MAX) reachable[static_cast<size_t>(merge.merged_id)] = true;
  for (const auto& [token, id] : id_of_token_) {
    const bool one_character = !options_.byte_level && !token.empty() && Utf8Length(token[0]) == token.size();
    if (options_.ignore_merges || one_character) reachable[static_cast<size_t>(id)] = true;
  }
  for (const int32_t id : byte_ids_)
    if (id >= 0) reachable[static_cast<size_t>(id)] = true;
  return reachable;
}

void BpeModel::EncodeWord(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const {
  const bool cacheable = word.size() <= kMaxCachedWordBytes;
  if (cacheable) {
    if (const auto it = scratch->cache_.find(word); it != scratch->cache_.end()) {
      ids->insert(ids->end(), it->second.begin(), it->second.end());
      return;
    }
  }
  const size_t first = ids->size();
  const auto whole = options_.ignore_merges ? id_of_token_.find(word) : id_of_token_.end();
  if (whole != id_of_token_.end()) {
    ids->push_back(whole->second);
  } else {
    std::vector<BpeScratch::Symbol>& symbols = scratch->symbols_;
    symbols.clear();
    AppendSymbols(word, &symbols);
    if (symbols.size() <= kMaxScannedSymbols) {
      MergeByScan(&symbols);
      for (const BpeScratch::Symbol& symbol : symbols) ids->push_back(symbol.id);
    } else {
      MergeByQueue(scratch);
      for (int32_t at = 0; at >= 0; at = symbols[at].next) ids->push_back(symbols[at].id);
    }
  }
  if (cacheable) {
    if (scratch->cache_.size() >= kMaxCachedWords) scratch->cache_.clear();
    scratch->cache_.emplace(std::string(word),
                            std::vector<int32_t>(ids->begin() + static_cast<ptrdiff_t>(first), ids->end()));
  }
}

void BpeModel::AppendSymbols(std::string_view word, std::vector<BpeScratch::Symbol>* symbols) const {
  bool previous_unknown = false;
  const auto append = [&](int32_t id) { symbols->push_back({id, -1, -1}); };
  size_t length = 1;
  for (size_t pos = 0; pos < word.size(); pos += length) {
    int32_t id = -1;
    if (options_.byte_level) {
      id = byte_ids_[static_cast<uint8_t>(word[pos])];
    } else {
      length = Utf8Length(word[pos]);
      const auto it = id_of_token_.find(word.substr(pos, length));
      if (it != id_of_token_.end()) id = it->second;
    }
    if (id >= 0) {
      append(id);
      previous_unknown = false;
      continue;
    }
    if (options_.byte_fallback && !options_.byte_level) {
      const std::string_view bytes = word.substr(pos, length);
      const auto has_token = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)] >= 0; };
      if (std::all_of(bytes.begin(), bytes.end(), has_token)) {
        for (const char byte : bytes) append(byte_ids_[static_cast<uint8_t>(byte)]);
        previous_unknown = false;
        continue;
      }
    }
    if (!options_.unknown_id) continue;
    if (!(previous_unknown && options_.fuse_unknown)) append(*options_.unknown_id);
    previous_unknown = true;
  }
}

void BpeModel::MergeByScan(std::vector<BpeScratch::Symbol>* symbols) const {
  std::array<const Merge*, kMaxScannedSymbols> merges{};  // merges[i]: of symbols i and i + 1
  size_t count = symbols->size();
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = FindMerge((*symbols)[i].id, (*symbols)[i + 1].id);
  while (count > 1) {
    size_t best = count;
    uint32_t best_rank = std::numeric_limits<uint32_t>::max();
    for (size_t i = 0; i + 1 < count; ++i) {
      if (merges[i] != nullptr && merges[i]->rank < best_rank) {
        best = i;
        best_rank = merges[i]->rank;
      }
    }
    if (best == count) break;
    (*symbols)[best].id = merges[best]->merged_id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      (*symbols)[i] = (*symbols)[i + 1];
      merges[i] = merges[i + 1];
    }
    --count;
    if (best > 0) merges[best - 1] = FindMerge((*symbols)[best - 1].id, (*symbols)[best].id);
    merges[best] = best + 1 < count ? FindMerge((*symbols)[best].id, (*symbols)[best + 1].id) : nullptr;
  }
  symbols->resize(count);
}

void BpeModel::MergeByQueue(BpeScratch* scratch) const {
  using Candidate = BpeScratch::Candidate;
  std::vector<BpeScratch::Symbol>& symbols = scratch->symbols_;
  std::vector<Candidate>& queue = scratch->queue_;
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto candidate_at = [&](int32_t position) -> std::optional<Candidate> {
    const int32_t next = symbols[position].next;
    if (next < 0) return std::nullopt;
    const Merge* merge = FindMerge(symbols[position].id, symbols[next].id);
    if (merge == nullptr) return std::nullopt;
    return Candidate{merge->rank, position, symbols[position].id, symbols[next].id, merge->merged_id};
  };
  const auto push_at = [&](int32_t position) {
    if (const auto candidate = candidate_at(position)) {
      queue.push_back(*candidate);
      std::push_heap(queue.begin(), queue.end(), later);
    }
  };

  const auto count = static_cast<int32_t>(symbols.size());
  queue.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i < count; ++i)
    if (const auto candidate = candidate_at(i)) queue.push_back(*candidate);
  std::make_heap(queue.begin(), queue.end(), later);

  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), later);
    const Candidate top = queue.back();
    queue.pop_back();
    BpeScratch::Symbol& left = symbols[top.position];
    // Stale if either symbol has been merged since; an absorbed symbol has id -1.
    if (left.id != top.left_id || left.next < 0 || symbols[left.next].id != top.right_id) continue;
    BpeScratch::Symbol& right = symbols[left.next];
    left.id = top.merged_id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = top.position;
    if (left.previous >= 0) push_at(left.previous);
    push_at(top.position);
  }
}

}  // namespace tandem
