#include "server/openai_writer.h"

#include "server/sse.h"

namespace tandem {

OpenAiWriter::OpenAiWriter(const AnswerWriterContext& context)
    : context_(context),
      chunks_(context.identity, &context.tokenizer, &context.request),
      role_sent_(context.request.prompts.size() * static_cast<size_t>(context.request.n)) {}

std::string OpenAiWriter::Delta(size_t choice_index, const CompletionStream::Delta& delta,
                                const CompletionStream& stream, bool has_tokens) {
  if (delta.text.empty() && delta.records.empty() && !delta.finished && !has_tokens) return {};
  std::string events;
  if (context_.request.kind == GenerationRequest::Kind::kChat && !role_sent_[choice_index]) {
    role_sent_[choice_index] = true;
    events = SseEvent(chunks_.Role(choice_index, stream));
  }
  return events + SseEvent(chunks_.Delta(choice_index, delta, stream));
}

std::string OpenAiWriter::EndStream(const Usage& usage) {
  std::string events;
  if (context_.request.include_usage) events = SseEvent(chunks_.FinalUsage(usage));
  events += kSseDone;
  return events;
}

std::string OpenAiWriter::FailStream(const ApiError& error) {
  return SseEvent(ErrorBody(error));
}

std::string OpenAiWriter::Body(const std::vector<Choice>& choices,
                               const std::vector<CompletionStream>& streams, const Usage& usage) {
  return ResponseBody(context_.identity, context_.tokenizer, context_.request, choices, streams, usage);
}

}  // namespace tandem
