// Server-sent events: the frame of streamed answers.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

inline constexpr std::string_view kSseContentType = "text/event-stream; charset=utf-8";
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

// name: of the event, for clients that tell several kinds apart.
inline std::string SseEvent(std::string_view name, std::string_view data) {
  std::string event;
  event.reserve(name.size() + data.size() + 16);
  event.append("event: ").append(name).append("\ndata: ").append(data).append("\n\n");
  return event;
}

// data: one line (JSON as DumpJson makes it has no line ends).
inline std::string SseEvent(std::string_view data) {
  std::string event;
  event.reserve(data.size() + 8);
  event.append("data: ").append(data).append("\n\n");
  return event;
}

}  // namespace tandem
