#include "grammar/xgrammar_state.h"

#include <xgrammar/matcher.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace tandem {
namespace {

// What all states of a grammar share.
struct SharedGrammar {
  xgrammar::CompiledGrammar compiled;
  int64_t vocab_size;
  // Control tokens that the grammar does not name, end tokens not among them.
  TokenMask forbidden;
  TokenMask end_tokens;
};

class XgrammarState : public GrammarState {
 public:
  explicit XgrammarState(std::shared_ptr<const SharedGrammar> shared)
      : shared_(std::move(shared)), matcher_(shared_->compiled) {}

  bool Accept(int32_t token) override {
    if (ended_ || token < 0 || token >= shared_->vocab_size) return false;
    const auto id = static_cast<size_t>(token);
    if (IsInMask(shared_->forbidden, id)) return false;
    if (IsInMask(shared_->end_tokens, id)) {
      ended_ = may_end() || IsStuck();
      return ended_;
    }
    try {
      return matcher_.AcceptToken(token);
    } catch (const std::exception& error) {
      LogWarn("a grammar failed at token {}: {}", token, error.what());
      return false;
    }
  }

  void FillMask(std::span<uint32_t> mask) override {
    TANDEM_CHECK(mask.size() == NumMaskWords(shared_->vocab_size),
                 "a mask of {} words for a vocabulary of {}", mask.size(), shared_->vocab_size);
    if (ended_) {
      std::ranges::fill(mask, ~0U);
      return;
    }
    if (!FillFromMatcher(mask)) std::ranges::copy(shared_->end_tokens, mask.begin());
  }

  bool ended() const override { return ended_; }

  bool may_end() const override {
    if (ended_) return true;
    try {
      return matcher_.IsCompleted();
    } catch (const std::exception&) {
      return false;
    }
  }

 private:
  // False: the grammar has no token here.
  bool FillFromMatcher(std::span<uint32_t> mask) {
    int64_t shape = static_cast<int64_t>(mask.size());
    DLTensor view{};
    view.data = mask.data();
    view.device = {kDLCPU, 0};
    view.ndim = 1;
    view.dtype = xgrammar::GetBitmaskDLType();
    view.shape = &shape;
    try {
      matcher_.FillNextTokenBitmask(&view);
    } catch (const std::exception& error) {
      LogWarn("a grammar failed to say what comes next: {}", error.what());
      return false;
    }
    if (const auto rest = shared_->vocab_size % 32; rest != 0) mask.back() &= (1U << rest) - 1;
    uint32_t any = 0;
    for (size_t i = 0; i < mask.size(); ++i) {
      mask[i] &= ~shared_->forbidden[i];
      any |= mask[i];
    }
    return any != 0;
  }

  // The vocabulary lacks what the grammar wants: then the answer ends, and FillMask says so.
  bool IsStuck() {
    TokenMask mask(NumMaskWords(shared_->vocab_size));
    return !FillFromMatcher(mask);
  }

  std::shared_ptr<const SharedGrammar> shared_;
  xgrammar::GrammarMatcher matcher_;
  bool ended_ = false;
};

class XgrammarGrammar : public Grammar {
 public:
  explicit XgrammarGrammar(SharedGrammar shared)
      : shared_(std::make_shared<const SharedGrammar>(std::move(shared))),
        memory_bytes_(shared_->compiled.MemorySizeBytes() + sizeof(SharedGrammar) +
                      2 * sizeof(uint32_t) * shared_->forbidden.size()) {}

  std::unique_ptr<GrammarState> Begin() const override { return std::make_unique<XgrammarState>(shared_); }
  size_t memory_bytes() const override { return memory_bytes_; }

 private:
  std::shared_ptr<const SharedGrammar> shared_;
  size_t memory_bytes_;
};

}  // namespace

std::shared_ptr<const Grammar> WrapCompiledGrammar(const xgrammar::CompiledGrammar& compiled,
                                                   const GrammarVocabulary& vocabulary,
                                                   const TokenMask& named) {
  TokenMask end_tokens = MakeTokenMask(vocabulary.end_tokens, vocabulary.vocab_size);
  TokenMask forbidden = vocabulary.control_tokens;
  for (size_t i = 0; i < forbidden.size(); ++i) forbidden[i] &= ~(named[i] | end_tokens[i]);
  return std::make_shared<XgrammarGrammar>(
      SharedGrammar{compiled, vocabulary.vocab_size, std::move(forbidden), std::move(end_tokens)});
}

}  // namespace tandem
