// Answers of /v1/responses: the response object, whole or as events.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer_writer.h"
#include "server/responses_tools.h"

namespace tandem {

// What the answer has of its request.
struct ResponsesContext {
  std::string id;
  std::string model;
  int64_t created = 0;  // seconds since 1970
  nlohmann::ordered_json echo =
      nlohmann::ordered_json::object();  // members of the response that repeat fields
  ResponsesTools tools;
  bool shows_summary = false;  // reasons are the summary of their item, else its content
  // Gets the complete response; empty: nobody wants it. Io thread.
  std::function<void(const nlohmann::ordered_json& response)> keep;
};

// A response without output. status: "in_progress", "completed", "incomplete" or "failed".
nlohmann::ordered_json EmptyResponse(const ResponsesContext& context, std::string_view status);
// {"code", "message"} of a response that failed.
nlohmann::ordered_json ResponseErrorJson(const ApiError& error);
// A stream that has failed before its first token, as response.created and response.failed.
std::string FailedResponseStream(const ResponsesContext& context, const ApiError& error);

class ResponsesWriter final : public AnswerWriter {
 public:
  ResponsesWriter(const AnswerWriterContext& writer_context, std::shared_ptr<const ResponsesContext> context);

  std::string BeginStream() override;
  std::string Delta(size_t choice_index, const CompletionStream::Delta& delta, const CompletionStream& stream,
                    bool has_tokens) override;
  std::string EndStream(const Usage& usage) override;
  std::string FailStream(const ApiError& error) override;
  std::string Body(const std::vector<Choice>& choices, const std::vector<CompletionStream>& streams,
                   const Usage& usage) override;

 private:
  enum class ItemKind { kNone, kReasoning, kMessage, kCall };

  void AddPart(const AnswerPart& part, const std::vector<TokenRecord>& records,
               const std::vector<std::string>& call_ids, size_t* num_calls);
  void AddText(const AnswerPart& part, const std::vector<TokenRecord>& records);
  void AddReasoning(const AnswerPart& part);
  void BeginCall(const std::string& function_name, const std::string& call_id);
  void AddArguments(const std::string& piece);

  void OpenItem(ItemKind kind, std::string_view id_prefix, const nlohmann::ordered_json& item);
  // Of the open item, if there is one.
  void CloseItem(std::string_view status);
  void CloseMessage();
  void CloseReasoning();
  // True: its arguments are whole.
  bool CloseCall();
  // The last item, and the response with its usage.
  nlohmann::ordered_json Complete(const Usage& usage);

  void Emit(std::string_view type, const nlohmann::ordered_json& fields);
  // Of the open item; index: "content_index" or "summary_index", which is 0, or empty.
  nlohmann::ordered_json ItemFields(std::string_view index) const;
  void EmitDelta(std::string_view type, std::string_view index, std::string_view delta,
                 const nlohmann::ordered_json* logprobs = nullptr);
  std::string TakeEvents();
  nlohmann::ordered_json LogprobList(const std::vector<TokenRecord>& records) const;

  const GenerationRequest& request_;
  const Tokenizer& tokenizer_;
  std::shared_ptr<const ResponsesContext> context_;
  std::string events_;
  int64_t sequence_number_ = 0;
  bool begun_ = false;
  bool writes_events_ = true;
  std::string finish_reason_;

  nlohmann::ordered_json output_ = nlohmann::ordered_json::array();
  ItemKind open_ = ItemKind::kNone;
  nlohmann::ordered_json item_;
  std::string item_id_;
  std::string text_;  // of the open item: text, reasons or arguments
  nlohmann::ordered_json logprobs_;
  ResponsesTool tool_;         // of an open call
  std::string all_reasoning_;  // for its count of tokens
};

}  // namespace tandem
