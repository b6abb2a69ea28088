// Ids that nobody has had before.
#pragma once

#include <string>
#include <string_view>

#include "dialect/dialect.h"

namespace tandem {

// 24 hexadecimal digits: no two alike, and not guessable from one another at a glance. Any thread.
std::string NewId();
// Of a call of a tool: "call_..."; nine letters and digits where the templates of the format demand that.
std::string NewCallId(ToolFormat format);

}  // namespace tandem
