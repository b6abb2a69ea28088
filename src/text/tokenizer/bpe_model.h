// Byte-pair encoding of one piece of text by merge ranks.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tandem {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
template <typename T>
using StringMap = std::unordered_map<std::string, T, StringHash, std::equal_to<>>;

struct BpeOptions {
  // Symbols are bytes and the vocabulary spells them in the byte alphabet; otherwise symbols are characters.
  bool byte_level = false;
  // A piece that is itself in the vocabulary is not taken apart.
  bool ignore_merges = false;
  // Characters outside the vocabulary become tokens "<0x00>" to "<0xFF>".
  bool byte_fallback = false;
  // Neighbouring unknown symbols become one unknown token.
  bool fuse_unknown = false;
  std::optional<int32_t> unknown_id;  // none: unknown symbols yield nothing
};

// Reused from piece to piece; one per thread at a time.
class BpeScratch {
 private:
  friend class BpeModel;

  struct Symbol {
    int32_t id;
    int32_t previous;  // index, -1: none
    int32_t next;      // index, -1: none
  };
  struct Candidate {
    uint32_t rank;
    int32_t position;  // index of the left symbol
    int32_t left_id;   // the pair when it was queued
    int32_t right_id;
    int32_t merged_id;
  };
  std::vector<Symbol> symbols_;
  std::vector<Candidate> queue_;
  // Tokens of pieces seen before.
  StringMap<std::vector<int32_t>> cache_;
};

// Immutable once built; any thread, each with its own scratch.
class BpeModel {
 public:
  using Vocabulary = std::vector<std::pair<std::string, int32_t>>;
  using Merges = std::vector<std::pair<std::string, std::string>>;

  // Merges in order of rank. Errors: kMalformedFile if a merge or its result is not in the vocabulary.
  static Result<BpeModel> Create(const Vocabulary& vocabulary, const Merges& merges,
                                 const BpeOptions& options);

  // Appends the tokens of piece (raw bytes if byte-level, else valid UTF-8).
  void Encode(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* ids) const;

  // By id: what Encode can give, besides the unknown token.
  std::vector<bool> ReachableIds(size_t num_ids) const;

 private:
  // Open addressing: the merge of a pair of ids.
  struct Merge {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = 0;
    int32_t merged_id = 0;
  };

  BpeModel() = default;
  void BuildMergeTable(const std::vector<Merge>& merges);
  const Merge* FindMerge(int32_t left, int32_t right) const;
  void EncodeWord(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const;
  void AppendSymbols(std::string_view word, std::vector<BpeScratch::Symbol>* symbols) const;
  void MergeByScan(std::vector<BpeScratch::Symbol>* symbols) const;
  void MergeByQueue(BpeScratch* scratch) const;

  BpeOptions options_;
  StringMap<int32_t> id_of_token_;       // keys: raw bytes if byte-level
  std::array<int32_t, 256> byte_ids_{};  // byte-level: the byte's token; byte fallback: "<0xNN>"; -1: none
  std::vector<Merge> merge_table_;       // size: a power of two
  int merge_table_shift_ = 0;
  // No merge joins a symbol without U+2581 at its end with one that begins with it, so that words
  // can be encoded one by one.
  bool splits_at_space_mark_ = false;
};

}  // namespace tandem
