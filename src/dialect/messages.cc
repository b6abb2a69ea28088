#include "dialect/messages.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fnv1a.h"
#include "dialect/tool_messages.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// Words that no template has of its own.
constexpr const char* kFirstProbe = "vosk-kelt-first";
constexpr const char* kSecondProbe = "vosk-kelt-second";

Json Message(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

std::string RoleOf(const Json& message) {
  if (!message.is_object()) return {};
  const auto role = message.find("role");
  return role != message.end() && role->is_string() ? role->get<std::string>() : std::string();
}

std::string ContentText(const Json& message) {
  return message.contains("content") ? TextOfContent(message["content"]) : std::string();
}

bool HasCalls(const Json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

std::string Joined(const std::string& before, const std::string& after) {
  return before.empty() || after.empty() ? before + after : before + "\n\n" + after;
}

// Renders small conversations.
class Probe {
 public:
  Probe(const ChatTemplate& chat_template, Json own) : template_(chat_template), own_(std::move(own)) {
    own_["add_generation_prompt"] = true;
  }
  bool Renders(const Json& messages) const { return Text(messages).has_value(); }
  bool Shows(const Json& messages, std::string_view word) const {
    const auto text = Text(messages);
    return text && text->find(word) != std::string::npos;
  }

 private:
  std::optional<std::string> Text(const Json& messages) const {
    auto rendered = template_.Render({{"messages", messages}}, own_);
    if (!rendered.ok()) return std::nullopt;
    return std::move(rendered).value().text;
  }

  const ChatTemplate& template_;
  Json own_;
};

// A question, calls that answer it, and their results.
Json ConversationWithCalls(size_t count) {
  Json messages = {Message("user", "Q"), Message("assistant", "")};
  for (size_t i = 0; i < count; ++i) {
    const std::string id = "abcdefgh" + std::to_string(i);
    messages[1]["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", Json::object()}}}});
    messages.push_back({{"role", "tool"}, {"tool_call_id", id}, {"name", "f"}, {"content", "R"}});
  }
  return messages;
}

void ParseArguments(Json* message) {
  if (!HasCalls(*message)) return;
  for (Json& call : (*message)["tool_calls"]) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    const auto arguments = call["function"].find("arguments");
    if (arguments == call["function"].end() || !arguments->is_string()) continue;
    const auto& text = arguments->get_ref<const std::string&>();
    Json parsed = text.empty() ? Json::object() : Json::parse(text, nullptr, false);
    if (parsed.is_object()) *arguments = std::move(parsed);
  }
}

// Takes the system messages from *messages, the one in front too if `all`; returns their texts.
std::string TakeSystemTexts(bool all, Json* messages) {
  std::string texts;
  Json kept = Json::array();
  for (Json& message : *messages) {
    if (RoleOf(message) == "system" && (all || !kept.empty())) {
      texts = Joined(texts, ContentText(message));
    } else {
      kept.push_back(std::move(message));
    }
  }
  *messages = std::move(kept);
  return texts;
}

void PutBefore(Json message, Json* messages) {
  messages->insert(messages->begin(), std::move(message));
}

void PlaceSystemTexts(const TemplateHabits& habits, Json* messages) {
  if (!habits.has_system) {
    const std::string texts = TakeSystemTexts(true, messages);
    if (texts.empty()) return;
    const auto user = std::ranges::find(*messages, "user", RoleOf);
    if (user == messages->end()) {
      PutBefore({{"role", "user"}, {"content", texts}}, messages);
    } else {
      (*user)["content"] = Joined(texts, ContentText(*user));
    }
  } else if (!habits.has_later_system) {
    const std::string texts = TakeSystemTexts(false, messages);
    if (texts.empty()) return;
    if (!messages->empty() && RoleOf(messages->front()) == "system") {
      messages->front()["content"] = Joined(ContentText(messages->front()), texts);
    } else {
      PutBefore({{"role", "system"}, {"content", texts}}, messages);
    }
  }
}

// A message for each call, each followed by its result.
Json WithOneCallEach(Json messages) {
  Json split = Json::array();
  for (size_t i = 0; i < messages.size();) {
    Json message = std::move(messages[i++]);
    if (!HasCalls(message) || message["tool_calls"].size() == 1) {
      split.push_back(std::move(message));
      continue;
    }
    std::vector<Json> results;
    while (i < messages.size() && RoleOf(messages[i]) == "tool") results.push_back(std::move(messages[i++]));
    const Json calls = std::exchange(message["tool_calls"], Json::array());
    for (const Json& call : calls) {
      message["tool_calls"] = Json::array({call});
      split.push_back(message);
      message["content"] = "";
      const Json id = call.is_object() ? call.value("id", Json()) : Json();
      const auto result = std::ranges::find_if(results, [&](const Json& one) {
        return !one.is_null() && one.value("tool_call_id", Json()) == id;
      });
      if (result != results.end()) split.push_back(std::exchange(*result, nullptr));
    }
    for (Json& result : results) {
      if (!result.is_null()) split.push_back(std::move(result));
    }
  }
  return split;
}

Json WithAlternatingRoles(Json messages) {
  Json merged = Json::array();
  for (Json& message : messages) {
    const std::string role = RoleOf(message);
    const bool may_merge = (role == "user" || role == "assistant") && !merged.empty() &&
                           RoleOf(merged.back()) == role && !HasCalls(message) && !HasCalls(merged.back());
    if (may_merge) {
      merged.back()["content"] = Joined(ContentText(merged.back()), ContentText(message));
    } else {
      merged.push_back(std::move(message));
    }
  }
  return merged;
}

}  // namespace

TemplateHabits FindTemplateHabits(const ChatTemplate& chat_template, const Json& own) {
  const Probe probe(chat_template, own);
  const Json question = Message("user", "Q");
  TemplateHabits habits;
  habits.has_system = probe.Shows({Message("system", kFirstProbe), question}, kFirstProbe);
  habits.has_later_system =
      habits.has_system && probe.Shows({Message("system", kFirstProbe), question, Message("assistant", "A"),
                                        Message("system", kSecondProbe), question},
                                       kSecondProbe);
  // Many templates write any role's name, known to the model or not.
  habits.has_developer = chat_template.source().find("developer") != std::string::npos &&
                         probe.Shows({Message("developer", kFirstProbe), question}, kFirstProbe);
  habits.may_repeat_roles =
      probe.Shows({Message("user", kFirstProbe), Message("user", kSecondProbe)}, kFirstProbe);
  habits.has_parallel_calls =
      !probe.Renders(ConversationWithCalls(1)) || probe.Renders(ConversationWithCalls(2));
  return habits;
}

Json NormalizeMessages(const Json& messages, const TemplateHabits& habits) {
  Json normal = Json::array();
  for (const Json& message : messages) {
    normal.push_back(message);
    if (RoleOf(message) == "developer" && !habits.has_developer) normal.back()["role"] = "system";
    if (message.is_object()) ParseArguments(&normal.back());
  }
  PlaceSystemTexts(habits, &normal);
  if (!habits.has_parallel_calls) normal = WithOneCallEach(std::move(normal));
  if (!habits.may_repeat_roles) normal = WithAlternatingRoles(std::move(normal));
  return normal;
}

std::string ShortCallId(std::string_view id) {
  constexpr std::string_view kDigits = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  constexpr size_t kBytes = 9;
  if (id.size() == kBytes && id.find_first_not_of(kDigits) == std::string_view::npos) return std::string(id);
  uint64_t hash = Fnv1a(id);
  std::string brief;
  while (brief.size() < kBytes) {
    brief.push_back(kDigits[hash % kDigits.size()]);
    hash /= kDigits.size();
  }
  return brief;
}

Json WithShortCallIds(const Json& messages) {
  Json brief = messages;
  const auto shorten = [](Json* object, const char* key) {
    if (!object->is_object()) return;
    const auto id = object->find(key);
    if (id != object->end() && id->is_string()) *id = ShortCallId(id->get_ref<const std::string&>());
  };
  for (Json& message : brief) {
    shorten(&message, "tool_call_id");
    if (!message.is_object() || !HasCalls(message)) continue;
    for (Json& call : message["tool_calls"]) shorten(&call, "id");
  }
  return brief;
}

}  // namespace tandem
