#include "text/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.h"
#include "text/tokenizer/normalization_barriers.h"
#include "text/tokenizer/typed_json.h"

namespace tandem {
namespace {

// Below U+0300 every text is NFC already (bytes up to 0xCB start characters below U+0300).
bool IsTriviallyNfc(std::string_view text) {
  for (const char c : text)
    if (static_cast<uint8_t>(c) >= 0xCC) return false;
  return true;
}

void AppendUnicodeForm(int options, std::string_view text, std::string* out) {
  if (text.empty()) return;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                               static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                               static_cast<utf8proc_option_t>(options));
  TANDEM_CHECK(length >= 0, "utf8proc: {}", utf8proc_errmsg(length));
  out->append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
  std::free(mapped);  // NOLINT: utf8proc allocates with malloc
}

void ApplyUnicodeForm(int options, std::string* text) {
  std::string out;
  out.reserve(text->size());
  const std::string_view view = *text;
  size_t begin = 0;
  size_t length = 0;
  for (size_t pos = 0; pos < view.size(); pos += length) {
    length = Utf8Length(view[pos]);
    if (length == 1 || !IsNormalizationBarrier(DecodeUtf8(view, pos))) continue;
    AppendUnicodeForm(options, view.substr(begin, pos - begin), &out);
    out += view.substr(pos, length);
    begin = pos + length;
  }
  AppendUnicodeForm(options, view.substr(begin), &out);
  *text = std::move(out);
}

// What ApplyUnicodeForm does to text. A character of ASCII begins anew: nothing before it composes with it or
// moves across it.
void AlignUnicodeForm(int options, std::string_view text, Alignment* alignment) {
  const auto is_ascii = [&](size_t at) { return static_cast<uint8_t>(text[at]) < 0x80; };
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + 1;
    while (end < text.size() && !is_ascii(end)) ++end;
    const std::string_view before = text.substr(begin, end - begin);
    std::string after(before);
    if (before.size() > 1) ApplyUnicodeForm(options, &after);
    // The characters that stay where they were, from both ends.
    const size_t shorter = std::min(before.size(), after.size());
    size_t head = static_cast<size_t>(
        std::mismatch(before.begin(), before.begin() + static_cast<ptrdiff_t>(shorter), after.begin()).first -
        before.begin());
    const auto inside_character = [](std::string_view bytes, size_t at) {
      return at < bytes.size() && (static_cast<uint8_t>(bytes[at]) & 0xC0U) == 0x80U;
    };
    while (head > 0 && (inside_character(before, head) || inside_character(after, head))) --head;
    size_t tail = 0;
    while (tail < shorter - head && before[before.size() - tail - 1] == after[after.size() - tail - 1])
      ++tail;
    while (tail > 0 && inside_character(before, before.size() - tail)) --tail;
    alignment->Keep(head);
    alignment->Change(before.size() - head - tail, after.size() - head - tail);
    alignment->Keep(tail);
    begin = end;
  }
}

}  // namespace

Normalizer Normalizer::Nfc() {
  Normalizer normalizer;
  normalizer.steps_.push_back({Kind::kNfc, std::nullopt, {}});
  return normalizer;
}

Result<Normalizer> Normalizer::FromJson(const nlohmann::json& spec) {
  Normalizer normalizer;
  TANDEM_RETURN_IF_ERROR(normalizer.Append(spec, 0));
  return normalizer;
}

Status Normalizer::Append(const nlohmann::json& spec, int depth) {
  if (spec.is_null()) return {};
  if (depth > kMaxNesting) return MakeError(ErrorCode::kMalformedFile, "normalizers are nested too deeply");
  TANDEM_ASSIGN_OR_RETURN(const std::string_view type, GetStringField(spec, "type"));
  if (type == "Sequence") {
    TANDEM_ASSIGN_OR_RETURN(const nlohmann::json* list, GetArrayField(spec, "normalizers"));
    for (const nlohmann::json& step : *list) TANDEM_RETURN_IF_ERROR(Append(step, depth + 1));
  } else if (type == "NFC") {
    steps_.push_back({Kind::kNfc, std::nullopt, {}});
  } else if (type == "NFD") {
    steps_.push_back({Kind::kNfd, std::nullopt, {}});
  } else if (type == "Prepend") {
    TANDEM_ASSIGN_OR_RETURN(const std::string_view prefix, GetStringField(spec, "prepend"));
    steps_.push_back({Kind::kPrepend, std::nullopt, std::string(prefix)});
  } else if (type == "Replace") {
    TANDEM_ASSIGN_OR_RETURN(SplitRegex pattern, GetPatternField(spec, "pattern"));
    TANDEM_ASSIGN_OR_RETURN(const std::string_view content, GetStringField(spec, "content"));
    steps_.push_back({Kind::kReplace, std::move(pattern), std::string(content)});
  } else {
    return MakeError(ErrorCode::kUnsupported, "normalizer \"{}\" is not supported", type);
  }
  return {};
}

void Normalizer::Apply(std::string* text) const {
  for (const Step& step : steps_) ApplyStep(step, text, nullptr);
}

void Normalizer::Apply(std::string* text, Provenance* provenance) const {
  if (provenance->is_uniform()) return Apply(text);
  for (const Step& step : steps_) {
    Alignment alignment;
    ApplyStep(step, text, &alignment);
    *provenance = provenance->Through(alignment);
  }
}

void Normalizer::ApplyStep(const Step& step, std::string* text, Alignment* alignment) {
  switch (step.kind) {
    case Kind::kNfc:
    case Kind::kNfd: {
      const int form = step.kind == Kind::kNfc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
      if (alignment != nullptr) AlignUnicodeForm(UTF8PROC_STABLE | form, *text, alignment);
      if (step.kind == Kind::kNfd || !IsTriviallyNfc(*text)) ApplyUnicodeForm(UTF8PROC_STABLE | form, text);
      break;
    }
    case Kind::kReplace:
      *text = step.pattern->ReplaceAll(std::move(*text), step.content, alignment);
      break;
    case Kind::kPrepend: {
      const size_t prepended = text->empty() ? 0 : step.content.size();
      if (alignment != nullptr) {
        alignment->Change(0, prepended);
        alignment->Keep(text->size());
      }
      text->insert(0, step.content, 0, prepended);
      break;
    }
  }
}

}  // namespace tandem
