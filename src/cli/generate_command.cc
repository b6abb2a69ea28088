#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "engine/engine.h"
#include "text/incremental_detokenizer.h"
#include "text/stop_strings.h"

namespace tandem {
namespace {

using Time = std::chrono::steady_clock::time_point;

// Outputs on their way from the engine thread to this one.
class OutputChannel {
 public:
  void Push(RequestOutput output) {
    const std::lock_guard lock(mutex_);
    outputs_.push_back(std::move(output));
    arrived_.notify_one();
  }
  RequestOutput Pop() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !outputs_.empty(); });
    RequestOutput output = std::move(outputs_.front());
    outputs_.pop_front();
    return output;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<RequestOutput> outputs_;
};

Result<std::vector<int32_t>> PromptTokens(const GenerateOptions& options, const Engine& engine) {
  if (!options.chat) return engine.tokenizer().Encode(options.prompt, true);
  if (engine.chat_template() == nullptr) {
    return MakeError(ErrorCode::kUnsupported, "{} has no chat template, so --chat cannot be used",
                     options.engine.model);
  }
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!options.system.empty()) messages.push_back({{"role", "system"}, {"content", options.system}});
  messages.push_back({{"role", "user"}, {"content", options.prompt}});
  TANDEM_ASSIGN_OR_RETURN(
      const RenderedChat chat,
      engine.chat_template()->Render({{"messages", std::move(messages)}, {"tools", nullptr}},
                                     {{"add_generation_prompt", true},
                                      {"bos_token", engine.tokenizer().bos_token()},
                                      {"eos_token", engine.tokenizer().eos_token()}}));
  return engine.tokenizer().Encode(chat.text, chat.provenance, false);
}

SamplingParams MakeSampling(const GenerateOptions& options, const GenerationDefaults& defaults,
                            int64_t room) {
  SamplingParams sampling;
  sampling.max_tokens = std::min(options.max_tokens, room);
  sampling.temperature =
      options.temperature ? static_cast<float>(*options.temperature) : defaults.temperature.value_or(1.0F);
  sampling.top_p = options.top_p ? static_cast<float>(*options.top_p) : defaults.top_p.value_or(1.0F);
  sampling.top_k = options.top_k ? static_cast<int32_t>(*options.top_k) : defaults.top_k.value_or(0);
  sampling.repetition_penalty = defaults.repetition_penalty.value_or(1.0F);
  sampling.ignore_eos = options.ignore_eos;
  return sampling;
}

Result<RequestSpec> MakeSpec(const GenerateOptions& options, const Engine& engine) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, PromptTokens(options, engine));
  const int64_t room = engine.max_model_len() - static_cast<int64_t>(tokens.size());
  if (tokens.empty()) return MakeError(ErrorCode::kInvalidArgument, "the prompt is empty");
  if (room < 1) {
    return MakeError(ErrorCode::kInvalidArgument, "the prompt has {} tokens, the context length is {}",
                     tokens.size(), engine.max_model_len());
  }
  SamplingParams sampling = MakeSampling(options, engine.generation_defaults(), room);
  return RequestSpec{std::move(tokens), std::move(sampling)};
}

void Print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void PrintRates(size_t num_prompt_tokens, int64_t num_tokens, Time start, Time first, Time last) {
  const auto seconds = [](Time begin, Time end) {
    return std::max(std::chrono::duration<double>(end - begin).count(), 1e-9);
  };
  fmt::print(stderr, "prompt: {} tokens in {:.2f} s ({:.1f} tok/s); generated: {} tokens", num_prompt_tokens,
             seconds(start, first), static_cast<double>(num_prompt_tokens) / seconds(start, first),
             num_tokens);
  if (num_tokens > 1) {
    fmt::print(stderr, " in {:.2f} s ({:.1f} tok/s)", seconds(first, last),
               static_cast<double>(num_tokens - 1) / seconds(first, last));
  }
  fmt::print(stderr, "\n");
}

}  // namespace

Status Generate(const GenerateOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(options.engine));
  TANDEM_ASSIGN_OR_RETURN(RequestSpec spec, MakeSpec(options, *engine));
  const size_t num_prompt_tokens = spec.prompt_tokens.size();

  auto channel = std::make_shared<OutputChannel>();
  const Time start = std::chrono::steady_clock::now();
  TANDEM_ASSIGN_OR_RETURN(
      const RequestId id,
      engine->Submit(std::move(spec), [channel](RequestOutput output) { channel->Push(std::move(output)); }));
  IncrementalDetokenizer detokenizer(&engine->tokenizer(), true);
  StopStringMatcher stop_matcher(options.stop);
  int64_t num_tokens = 0;
  Time first = start;
  Time last = start;
  for (bool ended = false; !ended;) {
    const RequestOutput output = channel->Pop();
    if (output.error) return *output.error;
    ended = output.finish_reason != FinishReason::kNone;
    for (size_t i = 0; i < output.tokens.size(); ++i) {
      last = std::chrono::steady_clock::now();
      if (num_tokens++ == 0) first = last;
      const bool is_end = output.finish_reason == FinishReason::kStop && i + 1 == output.tokens.size();
      if (is_end) continue;
      const auto shown = stop_matcher.Append(detokenizer.Append(output.tokens[i].token));
      Print(shown.text);
      if (shown.stopped) {
        engine->Cancel(id);
        Print("\n");
        PrintRates(num_prompt_tokens, num_tokens, start, first, last);
        return {};
      }
    }
  }
  const auto rest = stop_matcher.Append(detokenizer.Flush());
  Print(rest.text);
  if (!rest.stopped) Print(stop_matcher.Flush());
  Print("\n");
  PrintRates(num_prompt_tokens, num_tokens, start, first, last);
  return {};
}

}  // namespace tandem
