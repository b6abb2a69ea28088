#include "bench/agent_sessions.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "base/param_error.h"
#include "bench/seeded_draws.h"

namespace tandem {
namespace {

constexpr std::string_view kAgents = "agents";
constexpr std::string_view kChat = "chat";
constexpr int64_t kMaxSessionCount = int64_t{1} << 20;
constexpr int64_t kMaxSessionTokens = int64_t{1} << 30;
constexpr double kMaxPauseSeconds = 86400;

constexpr SessionStyle kAgentStyle = {.system_tokens = 4000,
                                      .num_turns = 12,
                                      .user_tokens = 300,
                                      .later_tokens = 400,
                                      .output_tokens = 150,
                                      .pause_s = 5};
constexpr SessionStyle kChatStyle = {.system_tokens = 500,
                                     .num_turns = 6,
                                     .user_tokens = 100,
                                     .later_tokens = 100,
                                     .output_tokens = 250,
                                     .pause_s = 30};

std::string_view KindOfSessions(const std::string& workload) {
  return std::string_view(workload).substr(0, workload.find(':'));
}

class StyleReader {
 public:
  explicit StyleReader(const std::string& workload)
      : workload_(workload), is_chat_(KindOfSessions(workload) == kChat) {}

  Result<SessionStyle> Read() {
    style_ = is_chat_ ? kChatStyle : kAgentStyle;
    std::string_view text = workload_;
    text.remove_prefix(std::min(text.size(), KindOfSessions(workload_).size() + 1));
    while (!text.empty()) {
      const size_t comma = text.find(',');
      TANDEM_RETURN_IF_ERROR(ReadPart(text.substr(0, comma)));
      text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    }
    return style_;
  }

 private:
  template <typename... Args>
  Error Malformed(fmt::format_string<Args...> format, Args&&... args) const {
    return MakeParamError(ErrorCode::kInvalidArgument, "workload", "'{}': {}", workload_,
                          fmt::format(format, std::forward<Args>(args)...));
  }

  Status ReadPart(std::string_view part) {
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view name = part.substr(0, equals);
    const std::string_view value = part.substr(std::min(equals + 1, part.size()));
    if (std::find(seen_.begin(), seen_.end(), name) != seen_.end()) {
      return Malformed("there is a second {}", name);
    }
    seen_.push_back(name);
    if (name == "sessions") return ReadCount(part, value, 1, kMaxSessionCount, &style_.num_sessions);
    if (name == "turns") return ReadCount(part, value, 1, kMaxSessionCount, &style_.num_turns);
    if (name == "system") return ReadCount(part, value, 0, kMaxSessionTokens, &style_.system_tokens);
    if (name == "out") return ReadCount(part, value, 1, kMaxSessionTokens, &style_.output_tokens);
    if (name == "user") {
      TANDEM_RETURN_IF_ERROR(ReadCount(part, value, 1, kMaxSessionTokens, &style_.user_tokens));
      if (is_chat_) style_.later_tokens = style_.user_tokens;
      return {};
    }
    if (name == "tool" && !is_chat_)
      return ReadCount(part, value, 1, kMaxSessionTokens, &style_.later_tokens);
    if (name == "pause") return ReadPause(value);
    if (part == "answers=seeded" || part == "answers=generated") {
      style_.seeded_answers = value == "seeded";
      return {};
    }
    return Malformed(
        "'{}' is none of sessions=N, system=N, turns=N, user=N, out=N, {}pause=SECONDS, "
        "answers=generated and answers=seeded",
        part, is_chat_ ? "" : "tool=N, ");
  }

  Status ReadCount(std::string_view part, std::string_view digits, int64_t min, int64_t max,
                   int64_t* count) const {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *count);
    if (error == std::errc() && end == digits.data() + digits.size() && *count >= min && *count <= max)
      return {};
    return Malformed("'{}' has no number from {} to {}", part, min, max);
  }

  Status ReadPause(std::string_view digits) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), style_.pause_s);
    if (error == std::errc() && end == digits.data() + digits.size() && style_.pause_s >= 0 &&
        style_.pause_s <= kMaxPauseSeconds) {
      return {};
    }
    return Malformed("'pause={}' has no number of seconds from 0 to {}", digits, kMaxPauseSeconds);
  }

  const std::string& workload_;
  const bool is_chat_;
  SessionStyle style_;
  std::vector<std::string_view> seen_;
};

}  // namespace

bool NamesSessions(const std::string& workload) {
  return KindOfSessions(workload) == kAgents || KindOfSessions(workload) == kChat;
}

Result<SessionStyle> ParseSessionStyle(const std::string& workload) {
  return StyleReader(workload).Read();
}

Workload DrawSessions(const std::string& name, const SessionStyle& style, int64_t num_sessions,
                      uint64_t seed) {
  constexpr uint64_t kPauseSeed = 0x3c6ef372fe94f82bU;
  std::mt19937_64 lengths(seed);
  std::mt19937_64 pauses(seed ^ kPauseSeed);
  Workload workload;
  workload.name = name;
  workload.seeded_answers = style.seeded_answers;
  workload.requests.reserve(static_cast<size_t>(num_sessions * style.num_turns));
  for (int64_t session = 0; session < num_sessions; ++session) {
    int64_t history = style.system_tokens;
    for (int64_t number = 0; number < style.num_turns; ++number) {
      const int64_t new_tokens = DrawLength(lengths, number == 0 ? style.user_tokens : style.later_tokens);
      WorkloadRequest request = {.prompt_tokens = history + new_tokens,
                                 .output_tokens = DrawLength(lengths, style.output_tokens)};
      request.turn = SessionTurn{.session = session,
                                 .number = number,
                                 .is_last = number + 1 == style.num_turns,
                                 .new_tokens = new_tokens,
                                 .pause_s = number == 0 ? 0 : style.pause_s * DrawExponential(pauses)};
      history = request.prompt_tokens + request.output_tokens;
      workload.requests.push_back(std::move(request));
    }
  }
  return workload;
}

void DropLongSessions(int64_t max_model_len, Workload* workload) {
  std::vector<WorkloadRequest> kept;
  kept.reserve(workload->requests.size());
  auto first = workload->requests.begin();
  while (first != workload->requests.end()) {
    const auto last = std::find_if(first, workload->requests.end(),
                                   [](const WorkloadRequest& request) { return request.turn->is_last; });
    // The last turn is the longest.
    if (last->prompt_tokens + last->output_tokens > max_model_len) {
      ++workload->num_dropped;
    } else {
      kept.insert(kept.end(), first, last + 1);
    }
    first = last + 1;
  }
  workload->requests = std::move(kept);
}

}  // namespace tandem
