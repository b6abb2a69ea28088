// Calls that are JSON objects: {"name": "f", "arguments": {...}}.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dialect/call_syntax.h"

namespace tandem {

struct CallObjectRules {
  bool arguments_may_lack = false;  // {"name": "f"} is a call with the arguments {}
  bool any_keys = false;            // else only those that a call has
};

// The object at text[pos], up to its arguments, which may be named "arguments" or "parameters" and may be
// written before the name. They may also be a string that holds an object, or null.
CallHead MatchCallObject(std::string_view text, size_t pos, const std::vector<std::string>& tools,
                         CallObjectRules rules);

// The rest of a call object after its arguments: other keys and the brace, as far as they are there.
Scan ScanCallObjectEnd(std::string_view text, size_t* pos);

// Arguments as JSON, passed on as they are.
class JsonArguments : public ArgumentsReader {
 public:
  Status Read(std::string_view text, size_t* used, std::string* json) override;

 private:
  JsonNesting nesting_;
};

// A block of call objects: an opening marker, maybe "[", objects with separators between them, maybe "]", a
// closing marker.
struct JsonBlockForm {
  std::vector<std::string_view> opening;
  std::string_view closing;    // empty: there is none
  bool bare_at_start = false;  // the answer may begin with the first object, without a marker
  CallObjectRules marked;
  CallObjectRules bare;
};

class JsonBlockSyntax : public CallSyntax {
 public:
  JsonBlockSyntax(JsonBlockForm form, std::vector<std::string> tools);
  size_t Find(std::string_view text, bool at_start) const override;
  CallHead MatchHead(std::string_view text, bool in_block) const override;
  CallTail MatchTail(std::string_view text, bool is_object) const override;
  std::unique_ptr<ArgumentsReader> NewArguments() const override;

 protected:
  const std::vector<std::string>& tools() const { return tools_; }

 private:
  const JsonBlockForm form_;
  const std::vector<std::string> tools_;
};

}  // namespace tandem
