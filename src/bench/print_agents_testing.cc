// The table of agents by predicted times: print_agents [SESSIONS [LOAD [GPU_TOKENS [WORKLOAD]]]].
// docs/prefix_cache.md has it. LOAD: of what gpu-only sustains with a full gpu tier.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/agent_sessions.h"
#include "bench/agents_play_testing.h"
#include "perf/analytic_costs.h"

namespace tandem {
namespace {

struct Kind {
  const char* name;
  const char* strategy;
  bool caching;
  bool has_cpu_tier;
};
constexpr Kind kKinds[] = {{"gpu-only, no cache", "gpu-only", false, false},
                           {"gpu-only, cache", "gpu-only", true, false},
                           {"auto, both tiers", "auto", true, true}};

constexpr int64_t kCpuTokens = 600'000;
// What gpu-only sustains is played with as many at least.
constexpr int64_t kEnoughSessions = 300;

struct Played {
  int64_t num_sessions = 300;
  double load = 0.6;
  int64_t gpu_tokens = 26'400;
  std::string workload = AgentsLoad().workload;
};

void PrintRow(const char* name, double times, int64_t gpu_tokens, const AgentsPlayed& played) {
  std::printf("| %.0fx | %s | %.1f (%.1f) | %.2f | %.2f | %.2f | %.2f | %.1f | %lld | %lld | %.2f | %.2f |\n",
              times, name, played.mean_sessions, played.mean_kv_tokens / static_cast<double>(gpu_tokens),
              played.turn_p50_s, played.turn_p99_s, played.first_token_p50_s, played.first_token_p99_s,
              played.turns_per_minute, static_cast<long long>(played.computed_twice),
              static_cast<long long>(played.num_preemptions),
              static_cast<double>(played.rows_cpu) / static_cast<double>(played.rows_gpu + played.rows_cpu),
              played.most_in_use);
  std::string shapes;
  for (const auto& [shape, count] : played.shapes) shapes += shape + " " + std::to_string(count) + "  ";
  std::fprintf(stderr, "  %s: %s; gpu %.0f s, cpu attention %.0f s, plan %.0f us, copied down %lld blocks\n",
               name, shapes.c_str(), played.gpu_s, played.cpu_attention_s, played.plan_us,
               static_cast<long long>(played.copied_down));
  std::fflush(stdout);
}

int Print(const Played& what) {
  const Result<SessionStyle> style = ParseSessionStyle(what.workload);
  if (!style.ok()) {
    std::fprintf(stderr, "%s\n", style.error().message.c_str());
    return 1;
  }
  AnalyticCosts costs = SmallSliceCosts(30, 110);
  costs.further_reader = 0.15;  // bf16, four queries a head, AMX
  const auto machine_of = [&](const Kind& kind) {
    return AgentsMachine{.costs = &costs,
                         .gpu_tokens = what.gpu_tokens,
                         .cpu_tokens = kind.has_cpu_tier ? kCpuTokens : 0,
                         .caching = kind.caching};
  };
  // What gpu-only sustains with as many sessions as fill its tier once.
  const int64_t enough = std::max(what.num_sessions, kEnoughSessions);
  const AgentsPlayed alone =
      PlayAgents("gpu-only", machine_of(kKinds[1]),
                 {.workload = what.workload, .num_sessions = enough, .num_at_once = 1});
  const auto system_tokens = static_cast<double>(style->system_tokens);
  const double session_kv = alone.mean_kv_tokens - system_tokens;
  const auto sessions_for = [&](double times) {
    return (times * static_cast<double>(what.gpu_tokens) - system_tokens) / session_kv;
  };
  const AgentsPlayed full = PlayAgents("gpu-only", machine_of(kKinds[1]),
                                       {.workload = what.workload,
                                        .num_sessions = enough,
                                        .num_at_once = static_cast<int64_t>(sessions_for(1))});
  const double rate = what.load * full.sessions_per_minute / 60;
  std::printf(
      "%.0f KV tokens a session, %.0f sessions fill the gpu tier; gpu-only sustains %.2f sessions a minute\n",
      session_kv, sessions_for(1), full.sessions_per_minute);
  std::printf(
      "| KV | | sessions (KV measured) | turn p50, s | p99, s | first token p50, s | p99, s | turns a minute "
      "| "
      "computed twice | preemptions | cpu rows | most in use "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const double times : {1.0, 2.0, 3.0, 5.0}) {
    const double session_s = sessions_for(times) / rate;
    const auto num_turns = static_cast<double>(style->num_turns);
    const double pause_s = std::max(0.0, (session_s - num_turns * alone.turn_p50_s) / (num_turns - 1));
    std::fprintf(stderr, "%.0fx: pauses of %.2f s, %.2f sessions a minute, %.1f s each\n", times, pause_s,
                 60 * rate, session_s);
    for (const Kind& kind : kKinds) {
      const AgentsPlayed played = PlayAgents(kind.strategy, machine_of(kind),
                                             {.workload = what.workload,
                                              .num_sessions = what.num_sessions,
                                              .sessions_per_s = rate,
                                              .pause_s = pause_s});
      PrintRow(kind.name, times, what.gpu_tokens, played);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Played what;
  if (argc > 1) what.num_sessions = std::atoll(argv[1]);
  if (argc > 2) what.load = std::atof(argv[2]);
  if (argc > 3) what.gpu_tokens = std::atoll(argv[3]);
  if (argc > 4) what.workload = argv[4];
  return tandem::Print(what);
}
