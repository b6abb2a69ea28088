#include "grammar/engine_draws.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/utf8.h"

namespace tandem {
namespace {

struct DrawnAnswer {
  std::vector<int32_t> tokens;
  FinishReason finish_reason = FinishReason::kNone;
  std::string error;
};

// Answers on their way; the engine thread fills them in.
class Answers {
 public:
  explicit Answers(size_t count) : answers_(count), num_open_(count) {}

  OutputCallback CallbackOf(size_t index) {
    return [this, index](const RequestOutput& output) {
      const std::lock_guard lock(mutex_);
      DrawnAnswer& answer = answers_[index];
      for (const SampledToken& token : output.tokens) answer.tokens.push_back(token.token);
      answer.finish_reason = output.finish_reason;
      if (output.error) answer.error = output.error->message;
      if (output.finish_reason != FinishReason::kNone) Close();
    };
  }
  void Refuse(size_t index, const Error& error) {
    const std::lock_guard lock(mutex_);
    answers_[index] = {.finish_reason = FinishReason::kError, .error = error.message};
    Close();
  }
  const std::vector<DrawnAnswer>& Wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return num_open_ == 0; });
    return answers_;
  }

 private:
  void Close() {
    if (--num_open_ == 0) done_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<DrawnAnswer> answers_;
  size_t num_open_;
};

void Judge(const Grammar& grammar, const Tokenizer& tokenizer, const DrawnAnswer& answer,
           EngineDraws* draws) {
  const std::unique_ptr<GrammarState> state = grammar.Begin();
  std::string text;
  draws->num_tokens += static_cast<int64_t>(answer.tokens.size());
  for (const int32_t token : answer.tokens) {
    if (!state->Accept(token)) {
      draws->problems.push_back(fmt::format("token {} is not the grammar's after {}", token, text));
      return;
    }
    if (!state->ended()) text += tokenizer.TokenBytes(token);
  }
  if (!IsValidUtf8(text) && state->ended()) {
    draws->problems.push_back("no UTF-8: " + text);
  } else if (answer.finish_reason == FinishReason::kStop && state->ended()) {
    draws->texts.push_back(std::move(text));
  } else if (answer.finish_reason == FinishReason::kLength && !state->ended()) {
    ++draws->num_beginnings;
  } else {
    draws->problems.push_back(fmt::format("ends as {} ({}), {} the grammar's end, after {}",
                                          FinishReasonName(answer.finish_reason), answer.error,
                                          state->ended() ? "at" : "before", text));
  }
}

}  // namespace

Result<std::unique_ptr<EngineDrawer>> EngineDrawer::Create(const std::string& model, int64_t max_tokens) {
  EngineOptions options;
  options.model = model;
  options.strategy = "gpu-only";
  options.cpu_threads = 1;
  options.max_num_seqs = kMaxBatch;
  options.max_num_queued_reqs = 4 * kMaxBatch;
  options.gpu_kv_cache = CacheSize{.unit = CacheSize::Unit::kTokens, .amount = kMaxBatch * (max_tokens + 64)};
  options.show_progress = false;
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Create(options));
  if (engine->generation_defaults().eos_token_ids.empty())
    return MakeError(ErrorCode::kInvalidArgument, "{}: there is no end token, so no answer would end", model);
  return std::unique_ptr<EngineDrawer>(new EngineDrawer(std::move(engine), max_tokens));
}

EngineDraws EngineDrawer::Draw(const std::shared_ptr<const Grammar>& grammar, int count, uint64_t seed) {
  EngineDraws draws;
  for (int first = 0; first < count; first += kMaxBatch) {
    const auto batch = static_cast<size_t>(std::min<int64_t>(count - first, kMaxBatch));
    Answers answers(batch);
    for (size_t i = 0; i < batch; ++i) {
      const uint64_t answer_seed = seed + static_cast<uint64_t>(first) + i;
      RequestSpec spec;
      // Answers begin differently not only by their draws.
      for (int shift = 0; shift < 24; shift += 8)
        spec.prompt_tokens.push_back(static_cast<int32_t>((answer_seed >> shift) % 256));
      spec.sampling.temperature = 1.0F;
      spec.sampling.max_tokens = max_tokens_;
      spec.sampling.seed = answer_seed;
      spec.grammar = grammar;
      const auto id = engine_->Submit(std::move(spec), answers.CallbackOf(i));
      if (!id.ok()) answers.Refuse(i, id.error());
    }
    for (const DrawnAnswer& answer : answers.Wait()) Judge(*grammar, engine_->tokenizer(), answer, &draws);
  }
  return draws;
}

}  // namespace tandem
