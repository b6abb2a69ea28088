// Splitting and replacing as Python's str does it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/runtime.h"

namespace tandem::jinja {

// max_splits: negative for no limit. from_right: the limit counts from the end; the order stays.
std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t max_splits, bool from_right);
// separator is not empty.
std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator, int64_t max_splits,
                                      bool from_right);

// max_count: negative for no limit. An empty old matches before every code point and at the end.
SourcedText ReplaceText(Runtime& runtime, const SourcedText& text, std::string_view old_text,
                        const SourcedText& new_text, int64_t max_count);

}  // namespace tandem::jinja
