// The table of agents by predicted times: print_agents [SESSIONS [LOAD]]. docs/prefix_cache.md has it. LOAD:
// of what gpu-only sustains with a full gpu tier.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

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

constexpr int64_t kGpuTokens = 26'400;
constexpr int64_t kCpuTokens = 600'000;

void PrintRow(const char* name, double times, const AgentsPlayed& played) {
  std::printf("| %.0fx | %s | %.1f (%.1f) | %.2f | %.2f | %.2f | %.2f | %.1f | %lld | %lld | %.2f | %.2f |\n",
              times, name, played.mean_sessions, played.mean_kv_tokens / kGpuTokens, played.turn_p50_s,
              played.turn_p99_s, played.first_token_p50_s, played.first_token_p99_s, played.turns_per_minute,
              static_cast<long long>(played.computed_twice), static_cast<long long>(played.num_preemptions),
              static_cast<double>(played.rows_cpu) / static_cast<double>(played.rows_gpu + played.rows_cpu),
              played.most_in_use);
  std::string shapes;
  for (const auto& [shape, count] : played.shapes) shapes += shape + " " + std::to_string(count) + "  ";
  std::fprintf(stderr, "  %s: %s; gpu %.0f s, cpu attention %.0f s, plan %.0f us, copied down %lld blocks\n",
               name, shapes.c_str(), played.gpu_s, played.cpu_attention_s, played.plan_us,
               static_cast<long long>(played.copied_down));
  std::fflush(stdout);
}

void Print(int64_t num_sessions, double load) {
  AnalyticCosts costs = SmallSliceCosts(30, 110);
  costs.further_reader = 0.15;  // bf16, four queries a head, AMX
  const auto machine_of = [&](const Kind& kind) {
    return AgentsMachine{.costs = &costs,
                         .gpu_tokens = kGpuTokens,
                         .cpu_tokens = kind.has_cpu_tier ? kCpuTokens : 0,
                         .caching = kind.caching};
  };
  // What gpu-only sustains with as many sessions as fill its tier once.
  constexpr int64_t kSystemTokens = 4000;
  constexpr int64_t kNumTurns = 12;
  const AgentsPlayed alone =
      PlayAgents("gpu-only", machine_of(kKinds[1]), {.num_sessions = num_sessions, .num_at_once = 1});
  const double session_kv = alone.mean_kv_tokens - kSystemTokens;
  const auto sessions_for = [&](double times) { return (times * kGpuTokens - kSystemTokens) / session_kv; };
  const AgentsPlayed full =
      PlayAgents("gpu-only", machine_of(kKinds[1]),
                 {.num_sessions = num_sessions, .num_at_once = static_cast<int64_t>(sessions_for(1))});
  const double rate = load * full.sessions_per_minute / 60;
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
    const double pause_s = std::max(0.0, (session_s - kNumTurns * alone.turn_p50_s) / (kNumTurns - 1));
    for (const Kind& kind : kKinds) {
      const AgentsPlayed played =
          PlayAgents(kind.strategy, machine_of(kind),
                     {.num_sessions = num_sessions, .sessions_per_s = rate, .pause_s = pause_s});
      PrintRow(kind.name, times, played);
    }
  }
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Print(argc > 1 ? std::atoll(argv[1]) : 300, argc > 2 ? std::atof(argv[2]) : 0.6);
  return 0;
}
