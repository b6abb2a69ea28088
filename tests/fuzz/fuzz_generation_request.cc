// The body of a request, with a chat template and a tokenizer behind it. The first byte says which route.
#include <nlohmann/json.hpp>

#include "fuzz/fuzzer_input.h"
#include "server/generation_request.h"
#include "server/json_text.h"

namespace {

tandem::ModelContext* MakeContext() {
  auto tokenizer = tandem::Tokenizer::FromTokenizerJson(
      std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/text/qwen3.tokenizer.json", "");
  tandem::Expect(tokenizer.ok(), "the tokenizer loads");
  auto chat_template = tandem::ChatTemplate::Parse(tandem::FixtureBytes("chat_templates/qwen3.jinja"));
  tandem::Expect(chat_template.ok(), "the template parses");
  auto* const context = new tandem::ModelContext;
  context->served_model_name = "m";
  context->tokenizer = std::move(tokenizer).value().release();
  context->chat_template = std::move(chat_template).value().release();
  context->max_model_len = 512;
  return context;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tandem::ModelContext* const context = MakeContext();
  if (size < 1) return 0;
  const auto body = tandem::ParseJson(tandem::AsText(data + 1, size - 1));
  if (!body.ok()) return 0;
  tandem::GenerationRequest request;
  const auto error = data[0] % 2 == 0 ? tandem::ParseChatRequest(*body, *context, &request)
                                      : tandem::ParseCompletionRequest(*body, *context, &request);
  if (error) {
    tandem::Expect(error->status >= 400 && error->status < 500, "what a client sends is the client's error");
    tandem::Expect(!tandem::ErrorBody(*error).empty(), "an error can be worded");
    return 0;
  }
  tandem::Expect(!request.prompts.empty(), "an accepted request has a prompt");
  for (const auto& prompt : request.prompts) {
    tandem::Expect(
        !prompt.tokens.empty() && prompt.max_tokens >= 1 &&
            static_cast<int64_t>(prompt.tokens.size()) + prompt.max_tokens <= context->max_model_len,
        "an accepted prompt and its output fit the context");
    for (const int32_t token : prompt.tokens) {
      tandem::Expect(token >= 0 && token < context->tokenizer->vocab_size(), "tokens are of the vocabulary");
    }
  }
  const tandem::Status valid = request.sampling.Validate(context->tokenizer->vocab_size());
  tandem::Expect(valid.ok(), "accepted sampling is valid for the engine");
  return 0;
}
