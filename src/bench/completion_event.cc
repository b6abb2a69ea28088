#include "bench/completion_event.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace tandem {
namespace {

using nlohmann::json;

constexpr size_t kMaxMessageBytes = 300;

// No tree is built of an event: there is one for each token.
class EventReader : public nlohmann::json_sax<json> {
 public:
  explicit EventReader(CompletionEvent* event) : event_(event) {}

  bool is_object() const { return is_object_; }

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t value) override { return Number(value); }
  bool number_unsigned(number_unsigned_t value) override { return Number(static_cast<int64_t>(value)); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }

  bool string(string_t& value) override {
    if (depth_ == 1 && root_key_ == Key::kError) event_->error = value;
    if (depth_ == 2 && root_key_ == Key::kError && key_ == Key::kMessage) event_->error = value;
    if (depth_ == 3 && root_key_ == Key::kChoices) {
      if (key_ == Key::kText) event_->has_text = !value.empty();
      if (key_ == Key::kFinishReason) event_->finish_reason = value;
    }
    return true;
  }

  bool start_object(size_t /*size*/) override {
    if (depth_ == 0) is_object_ = true;
    if (depth_ == 1 && root_key_ == Key::kError) event_->error = "an error without a message";
    if (depth_ == 2 && root_key_ == Key::kChoices) event_->has_choice = true;
    return Enter();
  }
  bool start_array(size_t /*size*/) override {
    in_token_ids_ = depth_ == 3 && root_key_ == Key::kChoices && key_ == Key::kTokenIds;
    return Enter();
  }
  bool end_object() override { return Leave(); }
  bool end_array() override {
    in_token_ids_ = false;
    return Leave();
  }

  bool key(string_t& name) override {
    const Key key = KeyOf(name);
    (depth_ == 1 ? root_key_ : key_) = key;
    return true;
  }

  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  enum class Key {
    kOther,
    kChoices,
    kUsage,
    kError,
    kText,
    kFinishReason,
    kTokenIds,
    kCompletionTokens,
    kCachedTokens,
    kMessage
  };

  static Key KeyOf(std::string_view name) {
    if (name == "choices") return Key::kChoices;
    if (name == "usage") return Key::kUsage;
    if (name == "error") return Key::kError;
    if (name == "text") return Key::kText;
    if (name == "finish_reason") return Key::kFinishReason;
    if (name == "token_ids") return Key::kTokenIds;
    if (name == "completion_tokens") return Key::kCompletionTokens;
    if (name == "cached_tokens") return Key::kCachedTokens;
    if (name == "message") return Key::kMessage;
    return Key::kOther;
  }

  bool Number(int64_t value) {
    if (depth_ == 2 && root_key_ == Key::kUsage && key_ == Key::kCompletionTokens)
      event_->completion_tokens = value;
    // In its prompt_tokens_details.
    if (depth_ == 3 && root_key_ == Key::kUsage && key_ == Key::kCachedTokens) event_->cached_tokens = value;
    if (in_token_ids_) event_->token_ids.push_back(static_cast<int32_t>(value));
    return true;
  }
  bool Enter() {
    ++depth_;
    key_ = Key::kOther;
    return true;
  }
  bool Leave() {
    --depth_;
    key_ = Key::kOther;
    return true;
  }

  CompletionEvent* event_;
  int depth_ = 0;
  bool is_object_ = false;
  bool in_token_ids_ = false;
  Key root_key_ = Key::kOther;  // of the outermost object
  Key key_ = Key::kOther;       // of the innermost
};

const json* Find(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string Shortened(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  return text.size() <= kMaxMessageBytes ? std::string(text)
                                         : std::string(text.substr(0, kMaxMessageBytes)) + "...";
}

}  // namespace

Result<CompletionEvent> ParseCompletionEvent(std::string_view text) {
  CompletionEvent event;
  EventReader reader(&event);
  if (!json::sax_parse(text, &reader) || !reader.is_object()) {
    return MakeError(ErrorCode::kInvalidArgument, "an event is no JSON object: {}", Shortened(text));
  }
  return event;
}

std::string ErrorMessageOf(std::string_view body) {
  const json root = json::parse(body, nullptr, false);
  const json* error = Find(root, "error");
  for (const json* value : {error == nullptr ? nullptr : Find(*error, "message"), error,
                            Find(root, "message"), Find(root, "detail")}) {
    if (value != nullptr && value->is_string()) return Shortened(value->get_ref<const std::string&>());
  }
  return Shortened(body);
}

}  // namespace tandem
