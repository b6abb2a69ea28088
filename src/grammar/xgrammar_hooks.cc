// What xgrammar asks of the program that it is part of; compiled into its library (cmake/xgrammar.cmake).
// Nothing is printed: what is wrong is in the error that a caller gets.
#include <lark_converter.h>
#include <support/logging.h>

#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace xgrammar {

void LogFatalImpl(const std::string& file, int lineno, const std::string& message) {
  // Of this type because xgrammar itself catches some; its constructor uses std::localtime.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  throw LogFatalError(file, lineno, message, 0);
}

void LogMessageImpl(const std::string& /*file*/, int /*lineno*/, int /*level*/,
                    const std::string& /*message*/) {}

// The converter itself is left out of the build.
Grammar LarkToGrammar(const std::string& /*lark_string*/,
                      const std::optional<TokenizerInfo>& /*tokenizer_info*/,
                      const std::vector<NamedGrammar>& /*named_grammars*/) {
  throw std::runtime_error("grammars in Lark's syntax are not supported");
}

}  // namespace xgrammar
