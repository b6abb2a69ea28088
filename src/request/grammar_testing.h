// A grammar that tests can follow by head.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "request/grammar.h"

namespace tandem::testing {

// The i-th token of an answer is i modulo `stride`; after `length` of them it ends with end_token.
class StrideGrammar : public Grammar {
 public:
  struct Options {
    int32_t stride = 7;
    int64_t length = 20;
    int32_t end_token = 0;
    // This one is refused although the mask has it; -1: none.
    int64_t refused_index = -1;
  };

  explicit StrideGrammar(const Options& options) : options_(options) {}
  size_t memory_bytes() const override { return sizeof(*this); }
  std::unique_ptr<GrammarState> Begin() const override { return std::make_unique<State>(options_); }

  static bool Has(const Options& options, int64_t index, int32_t token) {
    if (index >= options.length) return token == options.end_token;
    return token % options.stride == static_cast<int32_t>(index % options.stride) &&
           token != options.end_token;
  }

 private:
  class State : public GrammarState {
   public:
    explicit State(const Options& options) : options_(options) {}
    bool Accept(int32_t token) override {
      if (ended() || index_ == options_.refused_index || !Has(options_, index_, token)) return false;
      ++index_;
      return true;
    }
    void FillMask(std::span<uint32_t> mask) override {
      constexpr int32_t kWordBits = 32;
      std::fill(mask.begin(), mask.end(), 0);
      for (int32_t token = 0; token < kWordBits * static_cast<int32_t>(mask.size()); ++token) {
        if (ended() || Has(options_, index_, token))
          mask[static_cast<size_t>(token / kWordBits)] |= 1U << (token % kWordBits);
      }
    }
    bool ended() const override { return index_ > options_.length; }
    bool may_end() const override { return index_ == options_.length; }

   private:
    Options options_;
    int64_t index_ = 0;
  };

  Options options_;
};

}  // namespace tandem::testing
