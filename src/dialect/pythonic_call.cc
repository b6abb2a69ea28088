#include "dialect/pythonic_call.h"

#include <algorithm>
#include <utility>

namespace tandem {

PythonicSyntax::PythonicSyntax(std::vector<std::string> tools) : tools_(std::move(tools)) {}

size_t PythonicSyntax::Find(std::string_view text, bool at_start) const {
  if (at_start) {
    const size_t first = SkipSpace(text, 0);
    if (first < text.size() && text[first] == '[') return first;
  }
  size_t found = FindMarker(text, kPythonTag);
  for (const auto& [begin, end] : kPythonicMarkers) found = std::min(found, FindMarker(text, begin));
  return found;
}

CallHead PythonicSyntax::MatchHead(std::string_view text, bool in_block) const {
  size_t pos = 0;
  if (in_block) {
    pos = SkipSpace(text, pos);
    if (pos >= text.size()) return {.verdict = Scan::kMore};
    if (text[pos] == ',') ++pos;
  } else if (!text.starts_with('[')) {
    Scan scan = ScanMarker(text, kPythonTag, &pos);
    for (const auto& [begin, end] : kPythonicMarkers) {
      if (scan == Scan::kDone) break;
      const Scan one = ScanMarker(text, begin, &pos);
      if (one != Scan::kNo) scan = one;
    }
    if (scan != Scan::kDone) return {.verdict = scan};
    pos = SkipSpace(text, pos);
  }
  if (!in_block && pos < text.size() && text[pos] == '[') ++pos;
  pos = SkipSpace(text, pos);

  CallHead head;
  head.verdict = ScanToolName(text, tools_, &pos, &head.name);
  if (head.verdict != Scan::kDone) return head;
  pos = SkipSpace(text, pos);
  head.verdict = ScanMarker(text, "(", &pos);
  head.used = pos;
  return head;
}

CallTail PythonicSyntax::MatchTail(std::string_view text, bool /*is_object*/) const {
  CallTail tail;
  const auto next = [&] { return SkipSpace(text, tail.used); };
  if (next() >= text.size()) return {.needs_more = true};
  if (text[next()] == ',') {
    const size_t behind = SkipSpace(text, next() + 1);
    if (behind >= text.size()) return {.needs_more = true};
    tail.in_block = text[behind] != ']';
    if (tail.in_block) return tail;
    tail.used = behind;
  }
  if (text[next()] == ']') tail.used = next() + 1;
  for (const auto& [begin, end] : kPythonicMarkers) {
    size_t pos = next();
    if (pos >= text.size()) return {.needs_more = true, .used = tail.used};
    const Scan closing = ScanMarker(text, end, &pos);
    if (closing == Scan::kMore) return {.needs_more = true, .used = text.size()};
    if (closing == Scan::kDone) return {.used = pos};
  }
  return tail;
}

std::unique_ptr<ArgumentsReader> PythonicSyntax::NewArguments() const {
  return std::make_unique<PythonArguments>();
}

}  // namespace tandem
