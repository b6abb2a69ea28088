#include "dialect/dialect.h"

#include <algorithm>
#include <array>
#include <utility>

#include "dialect/scan.h"

namespace tandem {
namespace {

constexpr std::array<std::pair<ToolFormat, std::string_view>, 7> kToolFormatNames = {{
    {ToolFormat::kNone, "none"},
    {ToolFormat::kHermes, "hermes"},
    {ToolFormat::kLlamaJson, "llama3_json"},
    {ToolFormat::kPythonic, "pythonic"},
    {ToolFormat::kMistral, "mistral"},
    {ToolFormat::kMistralArgs, "mistral_args"},
    {ToolFormat::kGeneric, "generic"},
}};

bool HasText(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool IsWordByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Whether the template's code, without comments and strings, has this name.
bool CodeHasName(std::string_view source, std::string_view name) {
  size_t pos = 0;
  while ((pos = source.find('{', pos)) != std::string_view::npos && pos + 1 < source.size()) {
    const char kind = source[pos + 1];
    if (kind != '%' && kind != '{' && kind != '#') {
      ++pos;
      continue;
    }
    const std::string closing = {kind == '{' ? '}' : kind, '}'};
    if (kind == '#') {
      pos = std::min(source.find(closing, pos), source.size() - 1) + 1;
      continue;
    }
    pos += 2;
    while (pos < source.size() && !source.substr(pos).starts_with(closing)) {
      const char c = source[pos];
      if (c == '\'' || c == '"') {
        for (++pos; pos < source.size() && source[pos] != c; ++pos) {
          if (source[pos] == '\\') ++pos;
        }
        ++pos;
      } else if (IsWordByte(c)) {
        const size_t begin = pos;
        while (pos < source.size() && IsWordByte(source[pos])) ++pos;
        if (source.substr(begin, pos - begin) == name) return true;
      } else {
        ++pos;
      }
    }
    pos = std::min(pos, source.size());
  }
  return false;
}

}  // namespace

std::string_view ToolFormatName(ToolFormat format) {
  for (const auto& [known, name] : kToolFormatNames) {
    if (known == format) return name;
  }
  return "";
}

Result<ToolFormat> ParseToolFormat(std::string_view name) {
  std::string known_names;
  for (const auto& [format, known] : kToolFormatNames) {
    if (known == name) return format;
    if (!known_names.empty()) known_names += ", ";
    known_names += known;
  }
  return MakeError(ErrorCode::kInvalidArgument, "there is no tool call parser '{}'; known are {}", name,
                   known_names);
}

ToolFormat ChooseToolFormat(std::string_view source) {
  if (!CodeHasName(source, "tools")) return ToolFormat::kGeneric;
  if (HasText(source, kMistralCalls)) {
    return HasText(source, kMistralArguments) ? ToolFormat::kMistralArgs : ToolFormat::kMistral;
  }
  // Templates that write <function=f><parameter=a> put that between the same markers.
  if (HasText(source, kToolCallBegin)) {
    return HasText(source, "<function=") || HasText(source, "<arg_key>") ? ToolFormat::kGeneric
                                                                         : ToolFormat::kHermes;
  }
  for (const std::string_view pythonic :
       {"<|python_start|>", "<|tool_call_start|>", "[func_name", "[func1("}) {
    if (HasText(source, pythonic)) return ToolFormat::kPythonic;
  }
  for (const std::string_view llama : {R"("parameters": )", R"(\"parameters\": )", "<|python_tag|>"}) {
    if (HasText(source, llama)) return ToolFormat::kLlamaJson;
  }
  return ToolFormat::kGeneric;
}

bool ReasoningInTemplate(std::string_view source) {
  return HasText(source, kThinkEnd);
}

bool PromptEndsInReasoning(std::string_view prompt) {
  return prompt.substr(0, TrimmedSize(prompt)).ends_with(kThinkBegin);
}

std::vector<std::string> MarkersOf(ToolFormat format) {
  std::vector<std::string_view> markers = {kThinkBegin, kThinkEnd};
  const auto add = [&](std::initializer_list<std::string_view> more) { markers.insert(markers.end(), more); };
  switch (format) {
    case ToolFormat::kNone:
      break;
    case ToolFormat::kHermes:
    case ToolFormat::kGeneric:
      add({kToolCallBegin, kToolCallEnd});
      break;
    case ToolFormat::kLlamaJson:
      add({kPythonTag});
      break;
    case ToolFormat::kPythonic:
      add({kPythonTag});
      for (const auto& [begin, end] : kPythonicMarkers) add({begin, end});
      break;
    case ToolFormat::kMistral:
    case ToolFormat::kMistralArgs:
      add({kMistralCalls, kMistralArguments, kMistralCallId});
      break;
  }
  return {markers.begin(), markers.end()};
}

}  // namespace tandem
