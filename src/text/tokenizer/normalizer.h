// What happens to text before it is split: Unicode normalization, replacements, a prefix.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/provenance.h"
#include "base/result.h"
#include "text/tokenizer/split_regex.h"

namespace tandem {

// Immutable once built; any thread.
class Normalizer {
 public:
  // Does nothing.
  Normalizer() = default;

  // The "normalizer" of a tokenizer.json (null, NFC, NFD, Replace, Prepend, Sequence).
  // Errors: kMalformedFile, kUnsupported for other types.
  static Result<Normalizer> FromJson(const nlohmann::json& spec);
  static Normalizer Nfc();

  bool empty() const { return steps_.empty(); }
  // *text must be valid UTF-8 and stays so.
  void Apply(std::string* text) const;
  // Also brings the provenance of *text along. A character that is made of several is content if any of them
  // is.
  void Apply(std::string* text, Provenance* provenance) const;

 private:
  enum class Kind { kNfc, kNfd, kReplace, kPrepend };
  struct Step {
    Kind kind;
    std::optional<SplitRegex> pattern;  // kReplace
    std::string content;                // kReplace, kPrepend
  };

  Status Append(const nlohmann::json& spec, int depth);
  // alignment: null, or gets what became what.
  static void ApplyStep(const Step& step, std::string* text, Alignment* alignment);

  std::vector<Step> steps_;
};

}  // namespace tandem
