// What a format of calls is to the parser that all formats share (call_parser.h): how a call begins, how its
// arguments are read and what stands after them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/dialect.h"
#include "dialect/scan.h"

namespace tandem {

// The arguments of one call, while they arrive.
class ArgumentsReader {
 public:
  virtual ~ArgumentsReader() = default;
  enum class Status { kMore, kDone, kBroken };
  // Reads from the start of text, appends JSON to *json and says in *used how many bytes it took; the rest is
  // to come again. kMore: the rest may be part of the arguments. kDone: it is not. kBroken: it ought to be,
  // and cannot.
  virtual Status Read(std::string_view text, size_t* used, std::string* json) = 0;
};

// How a call begins. A verdict but kMore holds whatever follows.
struct CallHead {
  Scan verdict = Scan::kNo;
  std::string name;
  size_t used = 0;                       // bytes up to the arguments, or to the end of what was read
  std::optional<std::string> arguments;  // all of them, if they are known; else they begin after `used` bytes
  bool is_object = false;                // the call is a JSON object, whose end is still to come
};

// What ends a call, after its arguments.
struct CallTail {
  bool needs_more = false;
  // What belongs to the call, also if needs_more and nothing more comes: a closing marker may be cut off.
  size_t used = 0;
  bool in_block = false;  // another call may follow without a marker
};

// Immutable.
class CallSyntax {
 public:
  virtual ~CallSyntax() = default;
  // Where a call may begin in text, be it by a marker's first byte at its end; npos if nowhere. at_start: the
  // answer has had nothing but white space before.
  virtual size_t Find(std::string_view text, bool at_start) const = 0;
  // text: from there on. in_block: it follows a call whose tail said so.
  virtual CallHead MatchHead(std::string_view text, bool in_block) const = 0;
  virtual CallTail MatchTail(std::string_view text, bool is_object) const = 0;
  virtual std::unique_ptr<ArgumentsReader> NewArguments() const = 0;
};

// tools: names of those that may be called. format must not be kNone.
std::unique_ptr<CallSyntax> MakeCallSyntax(ToolFormat format, std::vector<std::string> tools);

}  // namespace tandem
