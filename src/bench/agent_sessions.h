// Workloads of sessions: agents and chats, whose every turn sends the whole history again and something new.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "bench/workload.h"

namespace tandem {

// What "agents:sessions=20,turns=6" says, with the defaults of its kind for what it does not. Lengths in
// tokens.
struct SessionStyle {
  int64_t num_sessions = 0;   // 0: it does not say
  int64_t system_tokens = 0;  // at the beginning of every session, the same ones
  int64_t num_turns = 0;
  int64_t user_tokens = 0;    // new in the first turn, mean
  int64_t later_tokens = 0;   // new in each later turn, mean: a tool's result, or the user's next message
  int64_t output_tokens = 0;  // of an answer, mean
  double pause_s = 0;         // from an answer to the next turn, mean
  bool seeded_answers = false;
};

// Whether the name is one of a workload of sessions ("agents:...", "chat:...", or without a colon).
bool NamesSessions(const std::string& workload);

// Errors: kInvalidArgument, param "workload".
Result<SessionStyle> ParseSessionStyle(const std::string& workload);

// The turns of each session in their order, one session behind the other. Lengths are uniform within 10 % of
// their means, but for the system prompt, which is of that length, and the number of turns; pauses are
// exponential. A function of the arguments only: the first sessions do not depend on how many follow, nor
// lengths on the pause.
Workload DrawSessions(const std::string& name, const SessionStyle& style, int64_t num_sessions,
                      uint64_t seed);

// Takes out the sessions whose last turn exceeds max_model_len tokens. num_dropped counts sessions.
void DropLongSessions(int64_t max_model_len, Workload* workload);

}  // namespace tandem
