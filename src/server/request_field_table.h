// Every field that a body of an API may have, and what becomes of it. The one place that says so: bodies are
// judged by it (request_fields.h), and docs/request_fields.md and its like are made from it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tandem {

enum class RequestRoute : uint8_t {
  kCompletions = 1,
  kChat = 2,
  kResponses = 4,
  kMessages = 8,
  kEmbeddings = 16
};

enum class FieldState : uint8_t {
  kImplemented,  // read where requests are parsed
  kNoEffect,     // accepted and dropped: without it the answer would be the same
  kRefused,      // would change the answer, and is not served
};

struct RequestField {
  std::string_view name;  // with a dot: a member of the object of that name
  uint8_t routes = 0;     // those that the row is about, as a sum of RequestRoute
  FieldState state = FieldState::kImplemented;
  // Implemented: what it is. Without effect: why. Refused: why, or what to use instead.
  std::string_view note;
  // Refused only: values that ask for nothing and are accepted, beside null, as items of a JSON list.
  std::string_view harmless;

  bool IsFor(RequestRoute route) const { return (routes & static_cast<uint8_t>(route)) != 0; }
};

// The table that has the rows of a route, maybe beside those of others. By name; one row for each route of a
// name at most.
std::span<const RequestField> RequestFieldTable(RequestRoute route);

// That of /v1/embeddings alone.
std::span<const RequestField> EmbeddingFieldTable();
// That of /v1/messages alone.
std::span<const RequestField> MessagesFieldTable();
// That of /v1/responses alone.
std::span<const RequestField> ResponsesFieldTable();

// nullptr if the route has no such field.
const RequestField* FindRequestField(RequestRoute route, std::string_view name);

}  // namespace tandem
