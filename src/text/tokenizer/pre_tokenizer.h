// Cuts text into the pieces that BPE merges never cross.
#pragma once

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer/split_regex.h"

namespace tandem {

// GPT-2's pattern, which ByteLevel splits by unless told otherwise.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Immutable once built; any thread.
class PreTokenizer {
 public:
  // Leaves the text whole.
  PreTokenizer() = default;

  // The "pre_tokenizer" of a tokenizer.json (null, ByteLevel, Split, Digits, Metaspace, Sequence).
  // Errors: kMalformedFile, kUnsupported for other types and for steps behind ByteLevel.
  static Result<PreTokenizer> FromJson(const nlohmann::json& spec);
  // Splits by each pattern in turn (behavior Isolated), then byte-level.
  static Result<PreTokenizer> ByteLevelWithPatterns(const std::vector<std::string_view>& patterns);
  enum class Prepend { kAlways, kFirst, kNever };
  // Spaces become U+2581; one is prepended to texts that do not begin with it.
  static PreTokenizer Metaspace(Prepend prepend);

  // Whether the vocabulary spells bytes (byte_alphabet.h). The pieces are raw bytes in any case.
  bool byte_level() const { return byte_level_; }

  // Appends the pieces of text, none of them empty, to *pieces. They are views of text or of a string
  // in *storage. at_text_start: no added token and no text lies before it.
  void Split(std::string_view text, bool at_text_start, std::deque<std::string>* storage,
             std::vector<std::string_view>* pieces) const;

 private:
  enum class Kind { kSplit, kPrefixSpace, kMetaspace };
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Step {
    Kind kind = Kind::kSplit;
    std::optional<SplitRegex> pattern;  // kSplit; also kMetaspace when it splits
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;                 // kSplit: the gaps are the matches
    std::string replacement;             // kMetaspace
    Prepend prepend = Prepend::kAlways;  // kMetaspace
  };

  Status Append(const nlohmann::json& spec, int depth);
  Status AppendByteLevel(const nlohmann::json& spec);
  Status AppendSplit(const nlohmann::json& spec);
  Status AppendMetaspace(const nlohmann::json& spec);
  static void SplitByPattern(const Step& step, std::string_view text, std::vector<std::string_view>* pieces);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace tandem
