#include "server/embedding_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/field_reader.h"
#include "server/json_text.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxInputs = 2048;
constexpr std::array<std::string_view, 2> kEncodingFormats = {"float", "base64"};

class InputReader {
 public:
  InputReader(FieldReader* fields, const ModelContext& model, bool add_special_tokens,
              GenerationRequest::Truncation cut, EmbeddingRequest* request)
      : fields_(fields),
        model_(model),
        add_special_tokens_(add_special_tokens),
        cut_(cut),
        request_(request) {}

  void Read() {
    const ordered_json* input = fields_->Find("input");
    if (input == nullptr) return Fail("input is missing");
    if (input->is_string()) return AddText(*input);
    if (!input->is_array()) {
      return Fail(
          fmt::format("input must be a string, a list of strings, a list of token ids or a list of such "
                      "lists, not {}",
                      JsonTypeName(*input)));
    }
    if (input->empty()) return Fail("input must not be empty");
    const ordered_json& first = input->front();
    if (first.is_number()) return AddTokens(*input);
    if (input->size() > kMaxInputs)
      return Fail(fmt::format("a request takes at most {} inputs, got {}", kMaxInputs, input->size()));
    for (const ordered_json& item : *input) {
      if (item.type() != first.type()) return Fail("the items of input must all be of the same type");
      if (item.is_string()) {
        AddText(item);
      } else if (item.is_array()) {
        AddTokens(item);
      } else {
        return Fail(
            fmt::format("the items of input must be strings or token ids, not {}", JsonTypeName(item)));
      }
      if (fields_->error()) return;
    }
  }

 private:
  void Fail(std::string message) { fields_->Fail("input", std::move(message)); }

  void AddText(const ordered_json& item) {
    const auto& text = item.get_ref<const std::string&>();
    if (text.empty()) return Fail("input must not be an empty string");
    std::vector<int32_t> tokens = model_.tokenizer->Encode(text, add_special_tokens_);
    const std::vector<int32_t> added =
        cut_.num_tokens ? model_.tokenizer->Encode("", add_special_tokens_) : std::vector<int32_t>();
    Add(std::move(tokens), added);
  }

  void AddTokens(const ordered_json& array) {
    std::vector<int32_t> tokens;
    std::string problem;
    if (!ReadTokenIds(array, model_.tokenizer->vocab_size(), &tokens, &problem)) {
      return Fail("input: " + problem);
    }
    Add(std::move(tokens), {});
  }

  // added: what the tokenizer puts before and behind a text, which stays.
  void Add(std::vector<int32_t> tokens, const std::vector<int32_t>& added) {
    if (tokens.empty()) return Fail("input must not be empty");
    Shorten(added, &tokens);
    if (std::ssize(tokens) > model_.max_model_len) {
      ApiError error = InvalidRequest(
          "input", fmt::format("This model's maximum context length is {} tokens, however input {} has {}. "
                               "Please shorten it, or use truncate_prompt_tokens.",
                               model_.max_model_len, request_->inputs.size(), tokens.size()));
      error.code = "context_length_exceeded";
      too_long_ = std::move(error);
      return Fail("input is too long");
    }
    request_->inputs.push_back(std::move(tokens));
  }

  void Shorten(const std::vector<int32_t>& added, std::vector<int32_t>* tokens) const {
    if (!cut_.num_tokens) return;
    const int64_t wanted =
        *cut_.num_tokens < 0 ? model_.max_model_len : std::min(*cut_.num_tokens, model_.max_model_len);
    const int64_t num_dropped = std::ssize(*tokens) - wanted;
    if (num_dropped <= 0) return;
    const auto before = std::ranges::mismatch(added, *tokens).in1 - added.begin();
    auto behind = std::ranges::mismatch(added.rbegin(), added.rend(), tokens->rbegin(), tokens->rend()).in1 -
                  added.rbegin();
    behind = std::min(behind, std::ssize(added) - before);
    const bool has_room = before + behind < wanted;
    const auto begin = cut_.keeps_first ? tokens->end() - num_dropped - (has_room ? behind : 0)
                                        : tokens->begin() + (has_room ? before : 0);
    tokens->erase(begin, begin + num_dropped);
  }

 public:
  // Instead of the fields' error, where an input does not fit.
  const std::optional<ApiError>& too_long() const { return too_long_; }

 private:
  FieldReader* fields_;
  const ModelContext& model_;
  bool add_special_tokens_;
  GenerationRequest::Truncation cut_;
  EmbeddingRequest* request_;
  std::optional<ApiError> too_long_;
};

std::string Base64OfFloats(const std::vector<float>& values) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  bytes.reserve(values.size() * sizeof(float));
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>((bits >> shift) & 0xffU));
  }
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = i; j < i + 3; ++j)
      group = group << 8U | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0U);
    const size_t num_digits = std::min<size_t>(bytes.size() - i, 3) + 1;
    for (size_t j = 0; j < 4; ++j)
      text.push_back(j < num_digits ? kDigits[(group >> (18 - 6 * j)) & 63U] : '=');
  }
  return text;
}

void AppendNumbers(const std::vector<float>& values, std::string* text) {
  *text += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) *text += ',';
    // The shortest digits that give the same float. JSON has no NaN.
    *text += std::isfinite(values[i]) ? fmt::format("{}", values[i]) : "null";
  }
  *text += ']';
}

}  // namespace

int64_t EmbeddingRequest::num_tokens() const {
  int64_t sum = 0;
  for (const std::vector<int32_t>& input : inputs) sum += std::ssize(input);
  return sum;
}

std::optional<ApiError> ParseEmbeddingRequest(const ordered_json& body, const ModelContext& model,
                                              EmbeddingRequest* request) {
  if (auto error = JudgeBody(body, RequestRoute::kEmbeddings, model, &request->ignored_fields)) return error;
  if (auto error = CheckModelName(body, model)) return error;
  FieldReader fields(body);
  request->dimensions = fields.Int("dimensions", 1, model.hidden_size).value_or(model.hidden_size);
  request->base64 = fields.OneOf("encoding_format", kEncodingFormats) == "base64";
  request->normalize = fields.Bool("normalize").value_or(true);
  const bool add_special_tokens = fields.Bool("add_special_tokens").value_or(true);
  GenerationRequest::Truncation cut{.num_tokens = std::nullopt, .keeps_first = true};
  ReadTruncation(fields, &cut);
  if (fields.error()) return fields.error();
  InputReader inputs(&fields, model, add_special_tokens, cut, request);
  inputs.Read();
  return inputs.too_long() ? inputs.too_long() : fields.error();
}

void Shorten(const EmbeddingRequest& request, std::vector<float>* embedding) {
  embedding->resize(std::min(embedding->size(), static_cast<size_t>(request.dimensions)));
  if (!request.normalize) return;
  double sum = 0;
  for (const float value : *embedding) sum += static_cast<double>(value) * static_cast<double>(value);
  if (sum == 0) return;
  const double length = std::sqrt(sum);
  for (float& value : *embedding) value = static_cast<float>(static_cast<double>(value) / length);
}

std::string EmbeddingBody(const EmbeddingRequest& request, const std::string& model,
                          const std::vector<std::vector<float>>& embeddings) {
  std::string body = R"({"object":"list","data":[)";
  for (size_t i = 0; i < embeddings.size(); ++i) {
    body += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":)", i > 0 ? "," : "", i);
    if (request.base64) {
      body += '"' + Base64OfFloats(embeddings[i]) + '"';
    } else {
      AppendNumbers(embeddings[i], &body);
    }
    body += '}';
  }
  const int64_t num_tokens = request.num_tokens();
  body += fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                      DumpJson(ordered_json(model)), num_tokens, num_tokens);
  return body;
}

}  // namespace tandem
