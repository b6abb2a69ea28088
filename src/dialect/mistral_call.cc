#include "dialect/mistral_call.h"

#include <utility>

namespace tandem {

MistralSyntax::MistralSyntax(std::vector<std::string> tools)
    : JsonBlockSyntax({.opening = {kMistralCalls}, .marked = {.arguments_may_lack = true, .any_keys = true}},
                      std::move(tools)) {}

CallHead MistralSyntax::MatchHead(std::string_view text, bool in_block) const {
  size_t pos = 0;
  if (in_block || ScanMarker(text, kMistralCalls, &pos) != Scan::kDone) {
    return JsonBlockSyntax::MatchHead(text, in_block);
  }
  pos = SkipSpace(text, pos);
  if (pos >= text.size()) return {.verdict = Scan::kMore};
  if (text[pos] == '[' || text[pos] == '{') return JsonBlockSyntax::MatchHead(text, in_block);

  CallHead head;
  head.verdict = ScanToolName(text, tools(), &pos, &head.name);
  if (head.verdict != Scan::kDone) return head;
  pos = SkipSpace(text, pos);
  if (pos < text.size() && text[pos] == '[') {
    size_t id = pos;
    if (const Scan scan = ScanMarker(text, kMistralCallId, &id); scan == Scan::kDone) {
      pos = text.find('[', id);
      if (pos == std::string_view::npos) return {.verdict = Scan::kMore};
    } else if (scan == Scan::kMore) {
      return {.verdict = Scan::kMore};
    }
    if (const Scan scan = ScanMarker(text, kMistralArguments, &pos); scan != Scan::kDone)
      return {.verdict = scan};
    pos = SkipSpace(text, pos);
  }
  if (pos >= text.size()) return {.verdict = Scan::kMore};
  if (text[pos] != '{') return {.verdict = Scan::kNo};
  head.used = pos;
  return head;
}

CallTail MistralSyntax::MatchTail(std::string_view text, bool is_object) const {
  return is_object ? JsonBlockSyntax::MatchTail(text, is_object) : CallTail{};
}

}  // namespace tandem
