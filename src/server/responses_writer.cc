#include "server/responses_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "server/json_text.h"
#include "server/response_store.h"
#include "server/sse.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

ordered_json TextPart(std::string text, ordered_json logprobs) {
  return {{"type", "output_text"},
          {"text", std::move(text)},
          {"annotations", ordered_json::array()},
          {"logprobs", std::move(logprobs)}};
}

ordered_json SummaryPart(std::string text) {
  return {{"type", "summary_text"}, {"text", std::move(text)}};
}

ordered_json ReasoningPart(std::string text) {
  return {{"type", "reasoning_text"}, {"text", std::move(text)}};
}

}  // namespace

ordered_json EmptyResponse(const ResponsesContext& context, std::string_view status) {
  ordered_json response = {{"id", context.id},
                           {"object", "response"},
                           {"created_at", context.created},
                           {"status", status},
                           {"background", false},
                           {"completed_at", nullptr},
                           {"error", nullptr},
                           {"incomplete_details", nullptr},
                           {"model", context.model},
                           {"output", ordered_json::array()},
                           {"usage", nullptr}};
  for (const auto& [key, value] : context.echo.items()) response[key] = value;
  return response;
}

ordered_json ResponseErrorJson(const ApiError& error) {
  std::string code = "server_error";
  if (error.status < 500) code = error.code == "context_length_exceeded" ? error.code : "invalid_prompt";
  return {{"code", code}, {"message", error.message}};
}

std::string FailedResponseStream(const ResponsesContext& context, const ApiError& error) {
  ordered_json failed = EmptyResponse(context, "failed");
  failed["error"] = ResponseErrorJson(error);
  const auto event = [](std::string_view type, int64_t number, ordered_json response) {
    return SseEvent(
        type, DumpJson({{"type", type}, {"sequence_number", number}, {"response", std::move(response)}}));
  };
  return event("response.created", 0, EmptyResponse(context, "in_progress")) +
         event("response.failed", 1, std::move(failed));
}

ResponsesWriter::ResponsesWriter(const AnswerWriterContext& writer_context,
                                 std::shared_ptr<const ResponsesContext> context)
    : request_(writer_context.request), tokenizer_(writer_context.tokenizer), context_(std::move(context)) {}

std::string ResponsesWriter::BeginStream() {
  begun_ = true;
  const ordered_json response = EmptyResponse(*context_, "in_progress");
  Emit("response.created", {{"response", response}});
  Emit("response.in_progress", {{"response", response}});
  return TakeEvents();
}

std::string ResponsesWriter::Delta(size_t /*choice_index*/, const CompletionStream::Delta& delta,
                                   const CompletionStream& stream, bool /*has_tokens*/) {
  size_t num_calls = 0;
  bool has_records = !delta.records.empty();
  for (const AnswerPart& part : delta.parts) {
    // Records are of the whole delta: its first text gets them.
    const bool takes_records = has_records && part.kind == AnswerPart::Kind::kText;
    AddPart(part, takes_records ? delta.records : std::vector<TokenRecord>{}, delta.call_ids, &num_calls);
    if (takes_records) has_records = false;
  }
  if (delta.finished) finish_reason_ = stream.finish_reason();
  return TakeEvents();
}

std::string ResponsesWriter::EndStream(const Usage& usage) {
  const ordered_json response = Complete(usage);
  Emit(response["status"] == "incomplete" ? "response.incomplete" : "response.completed",
       {{"response", response}});
  return TakeEvents();
}

std::string ResponsesWriter::FailStream(const ApiError& error) {
  std::string events = begun_ ? "" : BeginStream();
  CloseItem("incomplete");
  ordered_json response = EmptyResponse(*context_, "failed");
  response["error"] = ResponseErrorJson(error);
  response["output"] = output_;
  Emit("response.failed", {{"response", std::move(response)}});
  return events + TakeEvents();
}

std::string ResponsesWriter::Body(const std::vector<Choice>& choices,
                                  const std::vector<CompletionStream>& streams, const Usage& usage) {
  using Kind = AnswerPart::Kind;
  writes_events_ = false;
  const Choice& choice = choices[0];
  std::vector<std::string> call_ids;
  std::vector<AnswerPart> parts;
  if (!choice.reasoning.empty()) parts.push_back({Kind::kReasoning, choice.reasoning});
  if (!choice.text.empty()) parts.push_back({Kind::kText, choice.text});
  for (const ToolCall& call : choice.tool_calls) {
    call_ids.push_back(call.id);
    parts.push_back({Kind::kCallBegin, call.name});
    parts.push_back({Kind::kCallArguments, call.arguments});
    parts.push_back({Kind::kCallEnd, {}});
  }
  size_t num_calls = 0;
  for (const AnswerPart& part : parts) AddPart(part, choice.records, call_ids, &num_calls);
  finish_reason_ = streams[0].finish_reason();
  return DumpJson(Complete(usage));
}

void ResponsesWriter::AddPart(const AnswerPart& part, const std::vector<TokenRecord>& records,
                              const std::vector<std::string>& call_ids, size_t* num_calls) {
  switch (part.kind) {
    case AnswerPart::Kind::kText:
      return AddText(part, records);
    case AnswerPart::Kind::kReasoning:
      return AddReasoning(part);
    case AnswerPart::Kind::kCallBegin:
      return BeginCall(part.text, call_ids.at((*num_calls)++));
    case AnswerPart::Kind::kCallArguments:
      return AddArguments(part.text);
    case AnswerPart::Kind::kCallEnd:
      return CloseItem("incomplete");  // unless it is whole
  }
}

void ResponsesWriter::AddText(const AnswerPart& part, const std::vector<TokenRecord>& records) {
  if (open_ != ItemKind::kMessage) {
    CloseItem("completed");
    OpenItem(ItemKind::kMessage, "msg",
             {{"type", "message"},
              {"status", "in_progress"},
              {"role", "assistant"},
              {"content", ordered_json::array()}});
    ordered_json fields = ItemFields("content_index");
    fields["part"] = TextPart("", ordered_json::array());
    Emit("response.content_part.added", fields);
  }
  if (part.text.empty()) return;
  text_ += part.text;
  const ordered_json logprobs = LogprobList(records);
  for (const ordered_json& entry : logprobs) logprobs_.push_back(entry);
  EmitDelta("response.output_text.delta", "content_index", part.text, &logprobs);
}

void ResponsesWriter::AddReasoning(const AnswerPart& part) {
  if (open_ != ItemKind::kReasoning) {
    CloseItem("completed");
    OpenItem(ItemKind::kReasoning, "rs",
             {{"type", "reasoning"},
              {"summary", ordered_json::array()},
              {"content", ordered_json::array()},
              {"encrypted_content", nullptr}});
    ordered_json fields = ItemFields(context_->shows_summary ? "summary_index" : "content_index");
    fields["part"] = context_->shows_summary ? SummaryPart("") : ReasoningPart("");
    Emit(context_->shows_summary ? "response.reasoning_summary_part.added" : "response.content_part.added",
         fields);
  }
  text_ += part.text;
  all_reasoning_ += part.text;
  if (context_->shows_summary) {
    EmitDelta("response.reasoning_summary_text.delta", "summary_index", part.text);
  } else {
    EmitDelta("response.reasoning_text.delta", "content_index", part.text);
  }
}

void ResponsesWriter::BeginCall(const std::string& function_name, const std::string& call_id) {
  CloseItem("completed");
  tool_ = context_->tools.Find(function_name);
  ordered_json item = {{"type", tool_.is_custom ? "custom_tool_call" : "function_call"},
                       {"status", "in_progress"},
                       {"call_id", call_id},
                       {"name", tool_.name}};
  if (!tool_.name_space.empty()) item["namespace"] = tool_.name_space;
  item[tool_.is_custom ? "input" : "arguments"] = "";
  OpenItem(ItemKind::kCall, tool_.is_custom ? "ctc" : "fc", item);
}

void ResponsesWriter::AddArguments(const std::string& piece) {
  text_ += piece;
  // A custom tool's text is within them: it comes whole.
  if (!tool_.is_custom) EmitDelta("response.function_call_arguments.delta", "", piece);
}

void ResponsesWriter::OpenItem(ItemKind kind, std::string_view id_prefix, const ordered_json& item) {
  open_ = kind;
  item_id_ = ResponseItemId(id_prefix, context_->id, std::to_string(output_.size()));
  item_ = {{"id", item_id_}};
  item_.update(item);
  text_.clear();
  logprobs_ = ordered_json::array();
  Emit("response.output_item.added", {{"output_index", output_.size()}, {"item", item_}});
}

void ResponsesWriter::CloseItem(std::string_view status) {
  switch (std::exchange(open_, ItemKind::kNone)) {
    case ItemKind::kNone:
      return;
    case ItemKind::kMessage:
      CloseMessage();
      break;
    case ItemKind::kReasoning:
      CloseReasoning();
      break;
    case ItemKind::kCall:
      if (CloseCall()) status = "completed";
      break;
  }
  if (item_.contains("status")) item_["status"] = status;
  Emit("response.output_item.done", {{"output_index", output_.size()}, {"item", item_}});
  output_.push_back(std::move(item_));
}

void ResponsesWriter::CloseMessage() {
  ordered_json fields = ItemFields("content_index");
  fields["text"] = text_;
  fields["logprobs"] = logprobs_;
  Emit("response.output_text.done", fields);
  const ordered_json part = TextPart(std::move(text_), std::move(logprobs_));
  fields = ItemFields("content_index");
  fields["part"] = part;
  Emit("response.content_part.done", fields);
  item_["content"].push_back(part);
}

void ResponsesWriter::CloseReasoning() {
  const bool is_summary = context_->shows_summary;
  ordered_json fields = ItemFields(is_summary ? "summary_index" : "content_index");
  fields["text"] = text_;
  Emit(is_summary ? "response.reasoning_summary_text.done" : "response.reasoning_text.done", fields);
  const ordered_json part = is_summary ? SummaryPart(std::move(text_)) : ReasoningPart(std::move(text_));
  fields = ItemFields(is_summary ? "summary_index" : "content_index");
  fields["part"] = part;
  Emit(is_summary ? "response.reasoning_summary_part.done" : "response.content_part.done", fields);
  item_[is_summary ? "summary" : "content"].push_back(part);
}

bool ResponsesWriter::CloseCall() {
  const bool is_whole = ordered_json::accept(text_);
  if (tool_.is_custom) {
    text_ = CustomToolInput(text_);
    EmitDelta("response.custom_tool_call_input.delta", "", text_);
  }
  const char* const member = tool_.is_custom ? "input" : "arguments";
  ordered_json fields = ItemFields("");
  fields[member] = text_;
  item_[member] = std::move(text_);
  if (!tool_.is_custom) fields["name"] = tool_.name;
  Emit(tool_.is_custom ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done",
       fields);
  return is_whole;
}

ordered_json ResponsesWriter::Complete(const Usage& usage) {
  const bool is_cut = finish_reason_ == "length";
  // An answer has something in it, even if the model said nothing.
  if (open_ == ItemKind::kNone && output_.empty()) AddText({}, {});
  CloseItem(is_cut ? "incomplete" : "completed");
  ordered_json response = EmptyResponse(*context_, is_cut ? "incomplete" : "completed");
  if (is_cut) {
    response["incomplete_details"] = {{"reason", "max_output_tokens"}};
  } else {
    response["completed_at"] = static_cast<int64_t>(std::time(nullptr));
  }
  response["output"] = std::move(output_);
  // Counted by their text: the tokens' bounds may differ by one or two from those that were drawn.
  const int64_t num_reasoning =
      all_reasoning_.empty() ? 0 : std::ssize(tokenizer_.Encode(all_reasoning_, false));
  response["usage"] = {
      {"input_tokens", usage.prompt_tokens},
      {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
      {"output_tokens", usage.completion_tokens},
      {"output_tokens_details", {{"reasoning_tokens", std::min(num_reasoning, usage.completion_tokens)}}},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  if (context_->keep) context_->keep(response);
  return response;
}

void ResponsesWriter::Emit(std::string_view type, const ordered_json& fields) {
  if (!writes_events_) return;
  ordered_json event = {{"type", type}, {"sequence_number", sequence_number_++}};
  event.update(fields);
  events_ += SseEvent(type, DumpJson(event));
}

ordered_json ResponsesWriter::ItemFields(std::string_view index) const {
  ordered_json fields = {{"item_id", item_id_}, {"output_index", output_.size()}};
  if (!index.empty()) fields[std::string(index)] = 0;
  return fields;
}

void ResponsesWriter::EmitDelta(std::string_view type, std::string_view index, std::string_view delta,
                                const ordered_json* logprobs) {
  if (!writes_events_) return;
  // One for each token: written without an object of JSON.
  std::string data = fmt::format(R"({{"type":"{}","sequence_number":{},"item_id":"{}","output_index":{})",
                                 type, sequence_number_++, item_id_, output_.size());
  if (!index.empty()) data += fmt::format(R"(,"{}":0)", index);
  data += R"(,"delta":)";
  AppendJsonString(delta, &data);
  if (logprobs != nullptr) data += fmt::format(R"(,"logprobs":{})", DumpJson(*logprobs));
  data += '}';
  events_ += SseEvent(type, data);
}

std::string ResponsesWriter::TakeEvents() {
  return std::exchange(events_, {});
}

ordered_json ResponsesWriter::LogprobList(const std::vector<TokenRecord>& records) const {
  if (request_.num_logprobs < 0 || records.empty()) return ordered_json::array();
  return ChatLogprobs({&tokenizer_, request_.return_tokens_as_token_ids}, records,
                      request_.num_logprobs)["content"];
}

}  // namespace tandem
