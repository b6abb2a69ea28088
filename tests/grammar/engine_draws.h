// Answers that an engine gives at temperature 1: its own sampler, masks and batches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "request/grammar.h"

namespace tandem {

struct EngineDraws {
  std::vector<std::string> texts;     // of answers that ended by themselves
  std::vector<std::string> problems;  // what should not be
  int num_beginnings = 0;             // answers that ran into their length, and that the grammar goes on from
  int64_t num_tokens = 0;
};

class EngineDrawer {
 public:
  static constexpr int64_t kMaxBatch = 128;

  // model: a folder or a file. One thread computes. Errors: Engine::Create's; kInvalidArgument if the model
  // has no end token.
  static Result<std::unique_ptr<EngineDrawer>> Create(const std::string& model, int64_t max_tokens);

  const Engine& engine() const { return *engine_; }
  // Answers 0 to count - 1 of the seed, all under way at once; the next tokens of each are also followed with
  // a state of the grammar that the engine does not know.
  EngineDraws Draw(const std::shared_ptr<const Grammar>& grammar, int count, uint64_t seed);

 private:
  EngineDrawer(std::unique_ptr<Engine> engine, int64_t max_tokens)
      : engine_(std::move(engine)), max_tokens_(max_tokens) {}

  std::unique_ptr<Engine> engine_;
  int64_t max_tokens_;
};

}  // namespace tandem
