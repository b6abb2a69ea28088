// Answers of /v1/completions and /v1/chat/completions.
#pragma once

#include <string>
#include <vector>

#include "server/answer_writer.h"
#include "server/openai_response.h"

namespace tandem {

class OpenAiWriter : public AnswerWriter {
 public:
  explicit OpenAiWriter(const AnswerWriterContext& context);

  std::string BeginStream() override { return {}; }
  // Tokens without text have a chunk too: clients measure the time between them.
  std::string Delta(size_t choice_index, const CompletionStream::Delta& delta, const CompletionStream& stream,
                    bool has_tokens) override;
  std::string EndStream(const Usage& usage) override;
  std::string FailStream(const ApiError& error) override;
  std::string Body(const std::vector<Choice>& choices, const std::vector<CompletionStream>& streams,
                   const Usage& usage) override;

 private:
  AnswerWriterContext context_;
  ChunkWriter chunks_;
  std::vector<bool> role_sent_;  // of each choice of a chat
};

}  // namespace tandem
