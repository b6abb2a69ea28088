#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/split_regex.h"

#include <pcre2.h>

#include <array>
#include <cstdint>
#include <utility>

#include "base/utf8.h"

namespace tandem {

struct SplitRegex::Code {
  explicit Code(pcre2_code* compiled) : regex(compiled) {}
  ~Code() { pcre2_code_free(regex); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* regex;
  bool jit = false;
};

namespace {

constexpr size_t kMinJitStackBytes = size_t{32} << 10;
constexpr size_t kMaxJitStackBytes = size_t{8} << 20;

// What a match needs and may not be shared between threads.
struct ThreadState {
  ThreadState()
      : match_data(pcre2_match_data_create(1, nullptr)),
        match_context(pcre2_match_context_create(nullptr)),
        jit_stack(pcre2_jit_stack_create(kMinJitStackBytes, kMaxJitStackBytes, nullptr)) {
    // The patterns of tokenizers are linear; a limit would only cut a long run of spaces in two.
    pcre2_set_match_limit(match_context, UINT32_MAX);
    pcre2_set_depth_limit(match_context, UINT32_MAX);
    pcre2_jit_stack_assign(match_context, nullptr, jit_stack);
  }
  ~ThreadState() {
    pcre2_jit_stack_free(jit_stack);
    pcre2_match_context_free(match_context);
    pcre2_match_data_free(match_data);
  }
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

  pcre2_match_data* match_data;
  pcre2_match_context* match_context;
  pcre2_jit_stack* jit_stack;
};

ThreadState& State() {
  thread_local ThreadState state;
  return state;
}

}  // namespace

Result<SplitRegex> SplitRegex::Compile(std::string_view oniguruma_pattern) {
  if (!IsValidUtf8(oniguruma_pattern))
    return MakeError(ErrorCode::kMalformedFile, "a regular expression is not valid UTF-8");
  TANDEM_ASSIGN_OR_RETURN(const std::string pattern, TranslateOniguruma(oniguruma_pattern));
  int error_code = 0;
  PCRE2_SIZE error_offset = 0;
  // MULTILINE: ^ and $ match at every line in Ruby syntax.
  pcre2_code* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                       PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                       &error_code, &error_offset, nullptr);
  if (compiled == nullptr) {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error_code, message.data(), message.size());
    return MakeError(ErrorCode::kMalformedFile, "regular expression \"{}\": {}", oniguruma_pattern,
                     reinterpret_cast<const char*>(message.data()));
  }
  auto code = std::make_shared<Code>(compiled);
  code->jit = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
  SplitRegex regex;
  regex.code_ = std::move(code);
  return regex;
}

SplitRegex SplitRegex::Literal(std::string_view literal) {
  TANDEM_CHECK(!literal.empty());
  SplitRegex regex;
  regex.literal_ = std::string(literal);
  return regex;
}

std::optional<SplitRegex::Match> SplitRegex::Find(std::string_view text, size_t from) const {
  if (code_ == nullptr) {
    const size_t at = text.find(literal_, from);
    if (at == std::string_view::npos) return std::nullopt;
    return Match{at, at + literal_.size()};
  }
  ThreadState& state = State();
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  while (from < text.size()) {
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code_->jit)
      rc =
          pcre2_jit_match(code_->regex, subject, text.size(), from, 0, state.match_data, state.match_context);
    // Without JIT the backtracking state lives on the heap, so this has no such limit.
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
      rc = pcre2_match(code_->regex, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       state.match_data, state.match_context);
    if (rc < 0) return std::nullopt;
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(state.match_data);
    if (offsets[1] > offsets[0]) return Match{offsets[0], offsets[1]};
    if (offsets[0] >= text.size()) return std::nullopt;
    from = offsets[0] + Utf8Length(text[offsets[0]]);
  }
  return std::nullopt;
}

std::string SplitRegex::ReplaceAll(std::string text, std::string_view content, Alignment* alignment) const {
  auto match = Find(text, 0);
  if (alignment != nullptr && !match) alignment->Keep(text.size());
  if (!match) return text;
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  size_t pos = 0;
  while (match) {
    out.append(text, pos, match->begin - pos).append(content);
    if (alignment != nullptr) {
      alignment->Keep(match->begin - pos);
      alignment->Change(match->end - match->begin, content.size());
    }
    pos = match->end;
    match = Find(text, pos);
  }
  if (alignment != nullptr) alignment->Keep(text.size() - pos);
  return out.append(text, pos);
}

}  // namespace tandem
