#include "dialect/json_call.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "dialect/dialect.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, 5> kCallKeys = {"name", "arguments", "parameters", "type", "id"};

bool BeginsOneOf(std::string_view beginning, const auto& names) {
  return std::ranges::any_of(names, [&](std::string_view name) { return name.starts_with(beginning); });
}

// The value of a JSON string, quotes included; nullopt if it is not one.
std::optional<std::string> DecodeJsonString(std::string_view literal) {
  const auto value = nlohmann::json::parse(literal, nullptr, false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

// What arguments that are complete stand for; nullopt if they cannot be arguments.
std::optional<std::string> ArgumentsFromValue(std::string_view value) {
  if (value.starts_with('{')) return std::string(value);
  if (value == "null") return "{}";
  auto inner = DecodeJsonString(value);
  if (!inner || !nlohmann::json::parse(*inner, nullptr, false).is_object()) return std::nullopt;
  return inner;
}

// One object, key by key.
class CallObjectMatcher {
 public:
  CallObjectMatcher(std::string_view text, size_t pos, const std::vector<std::string>& tools,
                    CallObjectRules rules)
      : text_(text), pos_(pos), tools_(tools), rules_(rules) {}

  CallHead Match() {
    if (pos_ >= text_.size()) return Verdict(Scan::kMore);
    if (text_[pos_] != '{') return Verdict(Scan::kNo);
    ++pos_;
    for (;;) {
      std::string_view key;
      if (const Scan scan = ReadKey(&key); scan != Scan::kDone) return Verdict(scan);
      if (const Scan scan = ReadValue(key); scan != Scan::kDone) return Verdict(scan);
      if (is_streaming_ || (name_ && arguments_)) return Call();
      pos_ = SkipSpace(text_, pos_);
      if (pos_ >= text_.size()) return Verdict(Scan::kMore);
      if (text_[pos_] == '}') break;
      if (text_[pos_] != ',') return Verdict(Scan::kNo);
      ++pos_;
    }
    if (!name_ || !rules_.arguments_may_lack) return Verdict(Scan::kNo);
    arguments_ = "{}";
    return Call();
  }

 private:
  static CallHead Verdict(Scan scan) { return {.verdict = scan}; }

  CallHead Call() {
    return {.verdict = Scan::kDone,
            .name = *std::move(name_),
            .used = pos_,
            .arguments = std::move(arguments_),
            .is_object = true};
  }

  // Leaves pos_ at the value.
  Scan ReadKey(std::string_view* key) {
    pos_ = SkipSpace(text_, pos_);
    const size_t begin = pos_;
    if (const Scan scan = ScanJsonString(text_, &pos_); scan != Scan::kDone) {
      const bool may_be_key =
          begin >= text_.size() || rules_.any_keys || BeginsOneOf(text_.substr(begin + 1), kCallKeys);
      return scan == Scan::kMore && may_be_key ? Scan::kMore : Scan::kNo;
    }
    *key = text_.substr(begin + 1, pos_ - begin - 2);
    if (!rules_.any_keys && std::ranges::find(kCallKeys, *key) == kCallKeys.end()) return Scan::kNo;
    pos_ = SkipSpace(text_, pos_);
    const Scan colon = ScanMarker(text_, ":", &pos_);
    pos_ = SkipSpace(text_, pos_);
    return colon;
  }

  Scan ReadValue(std::string_view key) {
    if (key == "name" && !name_) return ReadName();
    if ((key == "arguments" || key == "parameters") && !arguments_) {
      if (pos_ < text_.size() && text_[pos_] == '{' && name_) {
        is_streaming_ = true;
        return Scan::kDone;
      }
      const size_t begin = pos_;
      if (const Scan scan = ScanJsonValue(text_, &pos_); scan != Scan::kDone) return scan;
      arguments_ = ArgumentsFromValue(text_.substr(begin, pos_ - begin));
      return arguments_ ? Scan::kDone : Scan::kNo;
    }
    return ScanJsonValue(text_, &pos_);
  }

  Scan ReadName() {
    const size_t begin = pos_;
    if (const Scan scan = ScanJsonString(text_, &pos_); scan != Scan::kDone) {
      if (scan == Scan::kNo || begin >= text_.size()) return scan;
      const std::string_view beginning = text_.substr(begin + 1);
      const bool may_be_tool = beginning.find('\\') != std::string_view::npos
                                   ? beginning.size() < kMaxEscapedNameBytes
                                   : BeginsOneOf(beginning, tools_);
      return may_be_tool ? Scan::kMore : Scan::kNo;
    }
    name_ = DecodeJsonString(text_.substr(begin, pos_ - begin));
    return name_ && std::ranges::find(tools_, *name_) != tools_.end() ? Scan::kDone : Scan::kNo;
  }

  static constexpr size_t kMaxEscapedNameBytes = 512;

  const std::string_view text_;
  size_t pos_;
  const std::vector<std::string>& tools_;
  const CallObjectRules rules_;
  std::optional<std::string> name_;
  std::optional<std::string> arguments_;
  bool is_streaming_ = false;  // the arguments begin at pos_
};

}  // namespace

CallHead MatchCallObject(std::string_view text, size_t pos, const std::vector<std::string>& tools,
                         CallObjectRules rules) {
  return CallObjectMatcher(text, pos, tools, rules).Match();
}

Scan ScanCallObjectEnd(std::string_view text, size_t* pos) {
  for (;;) {
    size_t at = SkipSpace(text, *pos);
    if (at >= text.size()) return Scan::kMore;
    if (text[at] == '}') {
      *pos = at + 1;
      return Scan::kDone;
    }
    if (text[at] != ',') return Scan::kNo;
    at = SkipSpace(text, at + 1);
    Scan scan = ScanJsonString(text, &at);
    if (scan != Scan::kDone) return scan;
    at = SkipSpace(text, at);
    scan = ScanMarker(text, ":", &at);
    if (scan != Scan::kDone) return scan;
    at = SkipSpace(text, at);
    scan = ScanJsonValue(text, &at);
    if (scan != Scan::kDone) return scan;
    *pos = at;
  }
}

ArgumentsReader::Status JsonArguments::Read(std::string_view text, size_t* used, std::string* json) {
  for (*used = 0; *used < text.size(); ++*used) {
    const char c = text[*used];
    // Outside a string no JSON has it, and a closing marker begins with it.
    if (c == '<' && !nesting_.in_string()) return Status::kBroken;
    if (!nesting_.Add(c)) return Status::kBroken;
    json->push_back(c);
    if (nesting_.depth() == 0) {
      ++*used;
      return Status::kDone;
    }
  }
  return Status::kMore;
}

JsonBlockSyntax::JsonBlockSyntax(JsonBlockForm form, std::vector<std::string> tools)
    : form_(std::move(form)), tools_(std::move(tools)) {}

size_t JsonBlockSyntax::Find(std::string_view text, bool at_start) const {
  if (at_start && form_.bare_at_start) {
    const size_t first = SkipSpace(text, 0);
    if (first < text.size() && (text[first] == '{' || text[first] == '[')) return first;
  }
  size_t found = std::string_view::npos;
  for (const std::string_view marker : form_.opening) found = std::min(found, FindMarker(text, marker));
  return found;
}

CallHead JsonBlockSyntax::MatchHead(std::string_view text, bool in_block) const {
  size_t pos = 0;
  if (in_block) {
    pos = SkipSpace(text, pos);
    if (pos < text.size() && (text[pos] == ',' || text[pos] == ';')) ++pos;
    return MatchCallObject(text, SkipSpace(text, pos), tools_, form_.marked);
  }
  CallObjectRules rules = form_.bare;
  if (text.empty()) return {.verdict = Scan::kMore};
  if (!form_.bare_at_start || (text[0] != '{' && text[0] != '[')) {
    rules = form_.marked;
    Scan scan = Scan::kNo;
    for (const std::string_view marker : form_.opening) {
      const Scan one = ScanMarker(text, marker, &pos);
      if (one == Scan::kNo) continue;
      scan = one;
      if (one == Scan::kDone) break;
    }
    if (scan != Scan::kDone) return {.verdict = scan};
    pos = SkipSpace(text, pos);
  }
  if (pos < text.size() && text[pos] == '[') pos = SkipSpace(text, pos + 1);
  return MatchCallObject(text, pos, tools_, rules);
}

CallTail JsonBlockSyntax::MatchTail(std::string_view text, bool /*is_object*/) const {
  CallTail tail;
  if (ScanCallObjectEnd(text, &tail.used) == Scan::kMore) return {.needs_more = true, .used = tail.used};
  const auto next = [&] { return SkipSpace(text, tail.used); };
  if (next() >= text.size()) return {.needs_more = true, .used = tail.used};
  const char c = text[next()];
  if (c == ',' || c == ';' || c == '{') {
    tail.in_block = true;
    return tail;
  }
  if (c == ']') tail.used = next() + 1;
  if (form_.closing.empty()) return tail;
  size_t pos = next();
  const Scan closing = ScanMarker(text, form_.closing, &pos);
  if (closing == Scan::kMore) return {.needs_more = true, .used = text.size()};
  if (closing == Scan::kDone) tail.used = pos;
  return tail;
}

std::unique_ptr<ArgumentsReader> JsonBlockSyntax::NewArguments() const {
  return std::make_unique<JsonArguments>();
}

}  // namespace tandem
