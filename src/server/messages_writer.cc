#include "server/messages_writer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "server/json_text.h"
#include "server/messages_error.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

// Thinking comes back with a signature, which the API demands to be there; this one says nothing.
constexpr std::string_view kThinkingSignature = "unsigned";

// type: of the event and of its data, whose members follow `"type":...`.
std::string MessagesEvent(std::string_view type, std::string_view members = {}) {
  return fmt::format("event: {0}\ndata: {{\"type\":\"{0}\"{1}}}\n\n", type, members);
}

// "call_1" -> "toolu_1"; ids of other forms are those that the model's template demands.
std::string ToolUseId(std::string_view id) {
  constexpr std::string_view kCall = "call_";
  return id.starts_with(kCall) ? "toolu_" + std::string(id.substr(kCall.size())) : std::string(id);
}

// input_tokens are those of the prompt that no cache had: the API's three numbers of input add up to all.
ordered_json MessagesUsage(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens},
          {"service_tier", "standard"}};
}

ordered_json MessageOf(const ResponseIdentity& identity, ordered_json content, ordered_json stop_reason,
                       ordered_json stop_sequence, const Usage& usage) {
  return {{"id", identity.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", identity.model},
          {"content", std::move(content)},
          {"stop_reason", std::move(stop_reason)},
          {"stop_sequence", std::move(stop_sequence)},
          {"usage", MessagesUsage(usage)}};
}

std::string_view MessagesStopReason(const CompletionStream& stream, bool has_calls) {
  if (stream.finish_reason() == "length") return "max_tokens";
  if (stream.stop_string()) return "stop_sequence";
  return has_calls ? "tool_use" : "end_turn";
}

ordered_json MessagesStopSequence(const CompletionStream& stream) {
  return stream.stop_string() ? ordered_json(*stream.stop_string()) : ordered_json(nullptr);
}

ordered_json TextBlock(std::string_view text) {
  return {{"type", "text"}, {"text", text}};
}

// A call that cannot be made, as the model may have written it.
std::string CallAsText(const ToolCall& call) {
  return fmt::format("<tool_call>\n{{\"name\": {}, \"arguments\": {}", DumpJson(call.name), call.arguments);
}

class MessagesWriter : public AnswerWriter {
 public:
  MessagesWriter(const AnswerWriterContext& context, MessagesWriterOptions options)
      : identity_(context.identity), options_(options) {}

  // message_start says how much of the prompt was cached, which is known with the first output.
  std::string BeginStream() override { return {}; }

  std::string Delta(size_t /*choice_index*/, const CompletionStream::Delta& delta,
                    const CompletionStream& stream, bool /*has_tokens*/) override {
    std::string events = begun_ ? "" : Start(stream);
    size_t num_calls = 0;
    for (const AnswerPart& part : delta.parts) {
      switch (part.kind) {
        case AnswerPart::Kind::kText:
          Enter(Block::kText, TextBlock(""), &events);
          AppendDelta("text_delta", "text", part.text, &events);
          break;
        case AnswerPart::Kind::kReasoning:
          Enter(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, &events);
          if (!options_.omits_thinking) AppendDelta("thinking_delta", "thinking", part.text, &events);
          break;
        case AnswerPart::Kind::kCallBegin:
          has_calls_ = true;
          CloseBlock(&events);
          Enter(Block::kToolUse,
                {{"type", "tool_use"},
                 {"id", ToolUseId(delta.call_ids.at(num_calls++))},
                 {"name", part.text},
                 {"input", ordered_json::object()}},
                &events);
          break;
        case AnswerPart::Kind::kCallArguments:
          AppendDelta("input_json_delta", "partial_json", part.text, &events);
          break;
        case AnswerPart::Kind::kCallEnd:
          CloseBlock(&events);
          break;
      }
    }
    if (delta.finished) {
      CloseBlock(&events);
      stop_reason_ = MessagesStopReason(stream, has_calls_);
      stop_sequence_ = MessagesStopSequence(stream);
    }
    return events;
  }

  std::string EndStream(const Usage& usage) override {
    const ordered_json delta = {{"stop_reason", stop_reason_}, {"stop_sequence", stop_sequence_}};
    return MessagesEvent("message_delta", fmt::format(",\"delta\":{},\"usage\":{}", DumpJson(delta),
                                                      DumpJson(MessagesUsage(usage)))) +
           MessagesEvent("message_stop");
  }

  std::string FailStream(const ApiError& error) override {
    return fmt::format("event: error\ndata: {}\n\n", MessagesErrorBody(error));
  }

  std::string Body(const std::vector<Choice>& choices, const std::vector<CompletionStream>& streams,
                   const Usage& usage) override {
    const Choice& choice = choices.front();
    const CompletionStream& stream = streams.front();
    ordered_json content = ordered_json::array();
    if (!choice.reasoning.empty()) {
      content.push_back({{"type", "thinking"},
                         {"thinking", options_.omits_thinking ? "" : choice.reasoning},
                         {"signature", kThinkingSignature}});
    }
    if (!choice.text.empty()) content.push_back(TextBlock(choice.text));
    bool has_calls = false;
    for (const ToolCall& call : choice.tool_calls) {
      auto input = ParseJson(call.arguments);
      if (!input.ok() || !input->is_object()) {
        content.push_back(TextBlock(CallAsText(call)));
        continue;
      }
      has_calls = true;
      content.push_back({{"type", "tool_use"},
                         {"id", ToolUseId(call.id)},
                         {"name", call.name},
                         {"input", std::move(input).value()}});
    }
    return DumpJson(MessageOf(identity_, std::move(content), MessagesStopReason(stream, has_calls),
                              MessagesStopSequence(stream), usage));
  }

 private:
  enum class Block { kNone, kText, kThinking, kToolUse };

  std::string Start(const CompletionStream& stream) {
    begun_ = true;
    const ordered_json message =
        MessageOf(identity_, ordered_json::array(), nullptr, nullptr,
                  {.prompt_tokens = stream.num_prompt_tokens(), .cached_tokens = stream.num_cached_tokens()});
    return MessagesEvent("message_start", ",\"message\":" + DumpJson(message)) + MessagesEvent("ping");
  }

  // Opens a block of this kind, if none is open.
  void Enter(Block kind, const ordered_json& start, std::string* events) {
    if (open_ == kind) return;
    CloseBlock(events);
    open_ = kind;
    *events += MessagesEvent("content_block_start",
                             fmt::format(",\"index\":{},\"content_block\":{}", index_, DumpJson(start)));
  }

  void CloseBlock(std::string* events) {
    if (open_ == Block::kNone) return;
    if (open_ == Block::kThinking) AppendDelta("signature_delta", "signature", kThinkingSignature, events);
    *events += MessagesEvent("content_block_stop", fmt::format(",\"index\":{}", index_));
    open_ = Block::kNone;
    ++index_;
  }

  void AppendDelta(std::string_view type, std::string_view member, std::string_view text,
                   std::string* events) const {
    std::string members = fmt::format(R"(,"index":{},"delta":{{"type":"{}","{}":)", index_, type, member);
    AppendJsonString(text, &members);
    members += '}';
    *events += MessagesEvent("content_block_delta", members);
  }

  const ResponseIdentity& identity_;
  MessagesWriterOptions options_;
  bool begun_ = false;
  Block open_ = Block::kNone;
  int index_ = 0;  // of the open block, or the next
  bool has_calls_ = false;
  std::string_view stop_reason_ = "end_turn";
  ordered_json stop_sequence_ = nullptr;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeMessagesWriter(const AnswerWriterContext& context,
                                                 MessagesWriterOptions options) {
  return std::make_unique<MessagesWriter>(context, options);
}

}  // namespace tandem
