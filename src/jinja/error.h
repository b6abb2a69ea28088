// The exception inside the Jinja interpreter. ChatTemplate turns it into an Error; it never leaves this
// folder.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace tandem::jinja {

// line: of the template, 1-based; 0 while it is not known yet (the evaluator fills it in).
class TemplateError : public std::runtime_error {
 public:
  explicit TemplateError(const std::string& message, int error_line = 0)
      : std::runtime_error(message), line(error_line) {}

  int line;
  bool raised_by_template = false;  // raise_exception: the message is the template author's, shown as it is
};

}  // namespace tandem::jinja
