#include "text/tokenizer/pre_tokenizer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/typed_json.h"

namespace tandem {
namespace {

using nlohmann::json;

// Every prompt of such a tokenizer goes through this: three times as fast as SplitRegex::ReplaceAll, which
// looks for the next match after every word.
std::string WithSpacesReplaced(std::string_view text, std::string_view replacement) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == ' ') {
      out += replacement;
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::FromJson(const json& spec) {
  PreTokenizer pre_tokenizer;
  TANDEM_RETURN_IF_ERROR(pre_tokenizer.Append(spec, 0));
  return pre_tokenizer;
}

Result<PreTokenizer> PreTokenizer::ByteLevelWithPatterns(const std::vector<std::string_view>& patterns) {
  PreTokenizer pre_tokenizer;
  for (const std::string_view pattern : patterns) {
    TANDEM_ASSIGN_OR_RETURN(SplitRegex regex, SplitRegex::Compile(pattern));
    Step step;
    step.pattern = std::move(regex);
    pre_tokenizer.steps_.push_back(std::move(step));
  }
  pre_tokenizer.byte_level_ = true;
  return pre_tokenizer;
}

PreTokenizer PreTokenizer::Metaspace(Prepend prepend) {
  PreTokenizer pre_tokenizer;
  Step step;
  step.kind = Kind::kMetaspace;
  step.replacement = std::string(kSpaceMark);
  step.prepend = prepend;
  pre_tokenizer.steps_.push_back(std::move(step));
  return pre_tokenizer;
}

Status PreTokenizer::Append(const json& spec, int depth) {
  if (spec.is_null()) return {};
  if (depth > kMaxNesting)
    return MakeError(ErrorCode::kMalformedFile, "pre-tokenizers are nested too deeply");
  TANDEM_ASSIGN_OR_RETURN(const std::string_view type, GetStringField(spec, "type"));
  if (type == "Sequence") {
    TANDEM_ASSIGN_OR_RETURN(const json* list, GetArrayField(spec, "pretokenizers"));
    for (const json& step : *list) TANDEM_RETURN_IF_ERROR(Append(step, depth + 1));
    return {};
  }
  // Behind ByteLevel the text would be spelled in the byte alphabet, and patterns mean something else.
  if (byte_level_) return MakeError(ErrorCode::kUnsupported, "pre-tokenizer \"{}\" behind ByteLevel", type);
  if (type == "ByteLevel") return AppendByteLevel(spec);
  if (type == "Split") return AppendSplit(spec);
  if (type == "Metaspace") return AppendMetaspace(spec);
  if (type == "Digits") {
    TANDEM_ASSIGN_OR_RETURN(const bool individual, GetBoolField(spec, "individual_digits", false));
    TANDEM_ASSIGN_OR_RETURN(SplitRegex regex, SplitRegex::Compile(R"(\p{N})"));
    Step step;
    step.pattern = std::move(regex);
    step.behavior = individual ? Behavior::kIsolated : Behavior::kContiguous;
    steps_.push_back(std::move(step));
    return {};
  }
  return MakeError(ErrorCode::kUnsupported, "pre-tokenizer \"{}\" is not supported", type);
}

Status PreTokenizer::AppendByteLevel(const json& spec) {
  TANDEM_ASSIGN_OR_RETURN(const bool add_prefix_space, GetBoolField(spec, "add_prefix_space", true));
  TANDEM_ASSIGN_OR_RETURN(const bool use_regex, GetBoolField(spec, "use_regex", true));
  if (add_prefix_space) {
    Step step;
    step.kind = Kind::kPrefixSpace;
    steps_.push_back(std::move(step));
  }
  if (use_regex) {
    TANDEM_ASSIGN_OR_RETURN(SplitRegex regex, SplitRegex::Compile(kGpt2Pattern));
    Step step;
    step.pattern = std::move(regex);
    steps_.push_back(std::move(step));
  }
  byte_level_ = true;
  return {};
}

Status PreTokenizer::AppendSplit(const json& spec) {
  Step step;
  TANDEM_ASSIGN_OR_RETURN(step.pattern, GetPatternField(spec, "pattern"));
  TANDEM_ASSIGN_OR_RETURN(step.invert, GetBoolField(spec, "invert", false));
  TANDEM_ASSIGN_OR_RETURN(const std::string_view behavior, GetStringField(spec, "behavior"));
  if (behavior == "Removed") {
    step.behavior = Behavior::kRemoved;
  } else if (behavior == "Isolated") {
    step.behavior = Behavior::kIsolated;
  } else if (behavior == "MergedWithPrevious") {
    step.behavior = Behavior::kMergedWithPrevious;
  } else if (behavior == "MergedWithNext") {
    step.behavior = Behavior::kMergedWithNext;
  } else if (behavior == "Contiguous") {
    step.behavior = Behavior::kContiguous;
  } else {
    return MakeError(ErrorCode::kMalformedFile, "field \"behavior\": \"{}\" is none of Split's", behavior);
  }
  steps_.push_back(std::move(step));
  return {};
}

Status PreTokenizer::AppendMetaspace(const json& spec) {
  Step step;
  step.kind = Kind::kMetaspace;
  TANDEM_ASSIGN_OR_RETURN(step.replacement, GetStringField(spec, "replacement"));
  if (step.replacement.empty())
    return MakeError(ErrorCode::kMalformedFile, "field \"replacement\" is an empty string");
  if (spec.contains("prepend_scheme")) {
    TANDEM_ASSIGN_OR_RETURN(const std::string_view scheme, GetStringField(spec, "prepend_scheme"));
    if (scheme == "always") {
      step.prepend = Prepend::kAlways;
    } else if (scheme == "first") {
      step.prepend = Prepend::kFirst;
    } else if (scheme == "never") {
      step.prepend = Prepend::kNever;
    } else {
      return MakeError(ErrorCode::kMalformedFile, "field \"prepend_scheme\": \"{}\" is no scheme", scheme);
    }
  } else {
    TANDEM_ASSIGN_OR_RETURN(const bool add_prefix_space, GetBoolField(spec, "add_prefix_space", true));
    step.prepend = add_prefix_space ? Prepend::kAlways : Prepend::kNever;
  }
  TANDEM_ASSIGN_OR_RETURN(const bool split, GetBoolField(spec, "split", true));
  if (split) {
    step.pattern = SplitRegex::Literal(step.replacement);
    step.behavior = Behavior::kMergedWithNext;
  }
  steps_.push_back(std::move(step));
  return {};
}

void PreTokenizer::Split(std::string_view text, bool at_text_start, std::deque<std::string>* storage,
                         std::vector<std::string_view>* pieces) const {
  if (text.empty()) return;
  std::vector<std::string_view> current = {text};
  std::vector<std::string_view> next;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    next.clear();
    for (size_t p = 0; p < current.size(); ++p) {
      std::string_view piece = current[p];
      if (step.kind == Kind::kPrefixSpace && piece.front() != ' ') {
        piece = storage->emplace_back(1, ' ').append(piece);
      } else if (step.kind == Kind::kMetaspace) {
        std::string& marked = storage->emplace_back(WithSpacesReplaced(piece, step.replacement));
        const bool prepend =
            step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && at_text_start && p == 0);
        if (prepend && !marked.starts_with(step.replacement)) marked.insert(0, step.replacement);
        piece = marked;
      }
      if (step.pattern) {
        SplitByPattern(step, piece, &next);
      } else {
        next.push_back(piece);
      }
    }
    current.swap(next);
  }
  pieces->insert(pieces->end(), current.begin(), current.end());
}

void PreTokenizer::SplitByPattern(const Step& step, std::string_view text,
                                  std::vector<std::string_view>* pieces) {
  const auto emit = [&](size_t begin, size_t end) {
    if (end > begin) pieces->push_back(text.substr(begin, end - begin));
  };
  size_t pos = 0;          // end of what has been looked at
  size_t piece_begin = 0;  // begin of what has not been emitted
  bool previous_is_match = false;
  // Alternately a gap and a match; either may be the delimiter.
  const auto add = [&](size_t begin, size_t end, bool is_match) {
    if (begin == end) return;
    if (step.invert) is_match = !is_match;
    switch (step.behavior) {
      case Behavior::kIsolated:
        emit(begin, end);
        break;
      case Behavior::kRemoved:
        if (!is_match) emit(begin, end);
        break;
      case Behavior::kContiguous:
        if (begin > 0 && is_match != previous_is_match) {
          emit(piece_begin, begin);
          piece_begin = begin;
        }
        break;
      case Behavior::kMergedWithPrevious:
        // A match joins the gap before it; a match behind a match stands alone.
        if (begin > 0 && (!is_match || previous_is_match)) {
          emit(piece_begin, begin);
          piece_begin = begin;
        }
        break;
      case Behavior::kMergedWithNext:
        // A match joins the gap behind it.
        if (begin > 0 && (is_match || !previous_is_match)) {
          emit(piece_begin, begin);
          piece_begin = begin;
        }
        break;
    }
    previous_is_match = is_match;
  };
  while (pos < text.size()) {
    const auto match = step.pattern->Find(text, pos);
    if (!match) break;
    add(pos, match->begin, false);
    add(match->begin, match->end, true);
    pos = match->end;
  }
  add(pos, text.size(), false);
  if (step.behavior != Behavior::kIsolated && step.behavior != Behavior::kRemoved)
    emit(piece_begin, text.size());
}

}  // namespace tandem
