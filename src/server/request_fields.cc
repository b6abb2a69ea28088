#include "server/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/http_message.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxUnknownFields = 64;
constexpr size_t kMaxNameInMessage = 64;
constexpr size_t kMaxHeaderBytes = 1024;
constexpr size_t kMaxNameLength = 40;  // of a known name, and two more
constexpr size_t kMinLikeLength = 4;   // shorter known names look like too much

// Damerau's distance, in which two letters beside each other may have changed places, up to max_edits.
size_t EditDistance(std::string_view a, std::string_view b, size_t max_edits) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > max_edits) return max_edits + 1;
  // Rows i - 2, i - 1 and i of the table of distances between beginnings of both.
  std::array<std::array<size_t, kMaxNameLength + 1>, 3> rows{};
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& before = rows[(i - 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t other = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, before[j - 1] + other});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

size_t MaxEdits(std::string_view name) {
  if (name.size() < 3) return 0;
  return name.size() < 5 ? 1 : 2;
}

std::string Shortened(std::string_view name) {
  if (name.size() <= kMaxNameInMessage) return std::string(name);
  return std::string(name.substr(0, kMaxNameInMessage)) + "...";
}

// But for members that are null, which are as good as not there.
bool IsSame(const ordered_json& value, const ordered_json& harmless) {
  if (!value.is_object()) return value == harmless;
  ordered_json rest = ordered_json::object();
  for (const auto& [key, member] : value.items()) {
    if (!member.is_null()) rest[key] = member;
  }
  return rest == harmless;
}

bool IsHarmless(const RequestField& field, const ordered_json& value) {
  const auto harmless = ordered_json::parse(fmt::format("[{}]", field.harmless));
  return std::any_of(harmless.begin(), harmless.end(),
                     [&](const ordered_json& one) { return IsSame(value, one); });
}

ApiError RefusedField(const std::string& name, std::string_view note) {
  ApiError error = InvalidRequest(name, fmt::format("{} is not supported: {}", name, note));
  error.code = "unsupported_field";
  return error;
}

ApiError UnknownField(const std::string& name, std::string_view like) {
  ApiError error = InvalidRequest(
      name, like.empty() ? fmt::format("there is no field {}", Shortened(name))
                         : fmt::format("there is no field {}: did you mean {}?", Shortened(name), like));
  error.code = "unknown_field";
  return error;
}

// prefix: "" or the name of the object and a dot.
std::optional<ApiError> JudgeObject(const ordered_json& object, const std::string& prefix, RequestRoute route,
                                    bool reject_unknown, std::vector<std::string>* ignored) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_null()) continue;  // as everywhere: it is not there
    const std::string name = prefix + key;
    // The table's dots are members: no key has one.
    const bool is_dotted = key.find('.') != std::string::npos;
    if (const RequestField* field = is_dotted ? nullptr : FindRequestField(route, name)) {
      if (field->state == FieldState::kRefused && !IsHarmless(*field, value)) {
        return RefusedField(name, field->note);
      }
      continue;
    }
    const std::string_view like = KnownNameLike(key, route, prefix);
    if (reject_unknown || !like.empty()) return UnknownField(name, like);
    if (ignored->size() == kMaxUnknownFields) {
      return InvalidRequest(
          "", fmt::format("the request has more than {} fields that are unknown", kMaxUnknownFields));
    }
    ignored->push_back(name);
  }
  return std::nullopt;
}

std::string_view StateText(FieldState state) {
  switch (state) {
    case FieldState::kImplemented:
      return "implemented";
    case FieldState::kNoEffect:
      return "without effect";
    case FieldState::kRefused:
      return "refused";
  }
  return {};
}

std::string_view RoutesText(const RequestField& field) {
  if (field.IsFor(RequestRoute::kMessages)) return "messages";
  if (field.IsFor(RequestRoute::kEmbeddings)) return "embeddings";
  if (field.IsFor(RequestRoute::kResponses)) return "responses";
  if (!field.IsFor(RequestRoute::kChat)) return "completions";
  return field.IsFor(RequestRoute::kCompletions) ? "both" : "chat";
}

}  // namespace

std::string_view KnownNameLike(std::string_view name, RequestRoute route, std::string_view prefix) {
  if (name.size() > kMaxNameLength) return {};
  const std::string lower = LowerAscii(name);
  size_t least = MaxEdits(name) + 1;
  std::string_view found;
  for (const RequestField& field : RequestFieldTable(route)) {
    if (field.state == FieldState::kNoEffect || !field.IsFor(route)) continue;
    const size_t prefix_length = field.name.find('.') + 1;  // 0: no prefix
    const std::string_view known = field.name.substr(prefix_length);
    if (field.name.substr(0, prefix_length) != prefix || known.size() < kMinLikeLength ||
        known.size() > kMaxNameLength) {
      continue;
    }
    const size_t distance = EditDistance(lower, known, least - 1);
    if (distance >= least) continue;
    found = field.name;
    if (distance == 0) break;  // but for capitals
    least = distance;
  }
  return found;
}

std::optional<ApiError> JudgeFields(const ordered_json& body, RequestRoute route, bool reject_unknown,
                                    std::vector<std::string>* ignored) {
  if (auto error = JudgeObject(body, "", route, reject_unknown, ignored)) return error;
  for (const std::string name : {"stream_options", "structured_outputs", "text", "reasoning"}) {
    const auto object = body.find(name);
    if (object == body.end() || !object->is_object()) continue;
    if (auto error = JudgeObject(*object, name + ".", route, reject_unknown, ignored)) return error;
  }
  return std::nullopt;
}

std::string IgnoredFieldsHeader(const std::vector<std::string>& names) {
  std::string header;
  for (const std::string& name : names) {
    std::string text;
    for (const char c : Shortened(name)) {
      const bool plain = c > ' ' && c <= '~' && c != ',' && c != '%';
      text += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    if (header.size() + text.size() > kMaxHeaderBytes) return header + ", ...";
    if (!header.empty()) header += ", ";
    header += text;
  }
  return header;
}

std::string RequestFieldsMarkdown(std::span<const RequestRoute> tables) {
  struct Row {
    const RequestField* first;
    std::string names;
  };
  // Fields that the same is said of share a row.
  std::vector<Row> rows;
  for (const RequestRoute table : tables) {
    for (const RequestField& field : RequestFieldTable(table)) {
      auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
        return other.first->state == field.state && other.first->routes == field.routes &&
               other.first->note == field.note;
      });
      if (row == rows.end()) row = rows.insert(rows.end(), {&field, ""});
      row->names += fmt::format("{}`{}`", row->names.empty() ? "" : ", ", field.name);
      if (!field.harmless.empty()) row->names += fmt::format(" (`{}`)", field.harmless);
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.first->state < b.first->state; });
  std::string table = "| fields | route | state | |\n|---|---|---|---|\n";
  for (const Row& row : rows) {
    table += fmt::format("| {} | {} | {} | {} |\n", row.names, RoutesText(*row.first),
                         StateText(row.first->state), row.first->note);
  }
  return table;
}

}  // namespace tandem
