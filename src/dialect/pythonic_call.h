// Calls as Python writes them: [f(a=1, b="x"), g()].
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dialect/call_syntax.h"

namespace tandem {

// Keyword arguments, from behind the parenthesis, into a JSON object. Values are literals of Python (or
// JSON): strings, numbers, True, False, None, lists and dicts. Strings arrive piece by piece, other values
// whole.
class PythonArguments : public ArgumentsReader {
 public:
  Status Read(std::string_view text, size_t* used, std::string* json) override;

 private:
  enum class Place { kArgument, kValue, kAfterValue, kDictKey, kColon, kString };
  // Reads what is at *pos, which moves past what needs no second look. kDone: goes on.
  Scan Step(std::string_view text, size_t* pos, std::string* json);
  Scan ReadArgumentName(std::string_view text, size_t* pos, std::string* json);
  Scan ReadValue(std::string_view text, size_t* pos, std::string* json);
  Scan ReadScalar(std::string_view text, size_t* pos, std::string* json);
  Scan OpenString(std::string_view text, size_t* pos, std::string* json);
  Scan ReadString(std::string_view text, size_t* pos, std::string* json);
  Scan Close(size_t* pos, std::string* json);
  void Separate(std::string* json);

  Place place_ = Place::kArgument;
  std::string closers_;       // of what is open
  bool needs_comma_ = false;  // something precedes in the innermost bracket
  std::string_view quote_;    // of the string at hand
  bool string_is_key_ = false;
};

class PythonicSyntax : public CallSyntax {
 public:
  explicit PythonicSyntax(std::vector<std::string> tools);
  size_t Find(std::string_view text, bool at_start) const override;
  CallHead MatchHead(std::string_view text, bool in_block) const override;
  CallTail MatchTail(std::string_view text, bool is_object) const override;
  std::unique_ptr<ArgumentsReader> NewArguments() const override;

 private:
  const std::vector<std::string> tools_;
};

}  // namespace tandem
