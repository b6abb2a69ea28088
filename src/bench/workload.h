// What a benchmark asks of an engine: request lengths, and when they arrive.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace tandem {

// Where in a session a request stands (agent_sessions.h).
struct SessionTurn {
  int64_t session = 0;
  int64_t number = 0;  // from 0
  bool is_last = false;
  int64_t new_tokens =
      0;               // the end of its prompt; before them: all that the turn before sent, and its answer
  double pause_s = 0;  // from the end of the turn before until this one is due
};

struct WorkloadRequest {
  int64_t prompt_tokens = 0;        // at least 1
  int64_t output_tokens = 0;        // at least 1
  std::optional<double> arrival_s;  // the trace's own time; absent if it has none
  // Is amid its output when the benchmark begins (steady_start.h): so many of its output tokens are there.
  bool begun = false;
  int64_t made_tokens = 0;
  // Of the prompt's blocks, where the trace says which are alike (traces/mooncake_trace.h).
  std::vector<int64_t> block_ids = {};
  // At the prompt's beginning, where an earlier request has computed them: they are no work, if nothing is
  // given up. Of these, what requests that run at the same time may have in common.
  int64_t possible_hit_tokens = 0;
  int64_t shared_tokens = 0;
  // Of a session: prompt_tokens are then those of the whole history. Absent: it depends on no other request.
  std::optional<SessionTurn> turn = std::nullopt;
};

struct Workload {
  std::string name;  // as it was asked for
  std::vector<WorkloadRequest> requests;
  int64_t num_dropped = 0;  // requests that DropTooLong took out, or sessions
  // The histories of sessions have random tokens where the answers would be.
  bool seeded_answers = false;

  bool has_sessions() const { return !requests.empty() && requests.front().turn.has_value(); }
};

// name: azure-code, azure-conv, osc, "synthetic:in=1000,out=100" (lengths uniform within 10 % of these, drawn
// from seed), reasoning (prompts of 300 tokens within 10 %, outputs log-normal with mean 1500 and sigma 0.6,
// from 64 to 8192), "trace:FILE" of requests that share beginnings (traces/mooncake_trace.h), or the path of
// a CSV file (traces/trace_csv.h). The trace's first num_requests requests, begun again from its start when
// there are not as many; the arrival times then go on after its last, and nothing is shared with the round
// before. A trace's prompts with other outputs, or its outputs with other prompts: "osc:out=100",
// "osc:in=500", drawn as synthetic lengths are. Not sessions, of which only agent_sessions.h knows. Errors:
// kInvalidArgument, kNotFound, kIo or kMalformedFile; param is "workload".
Result<Workload> LoadWorkload(const std::string& name, int64_t num_requests, uint64_t seed);

// Of the decoded tokens of requests, each with a prompt and an output.
struct MeanLengths {
  double prompt_per_output = 0;    // tokens of prompts for each token of outputs
  double computed_per_output = 0;  // the same without possible hits
  double context = 0;              // tokens that a decoding row reads
  double own_context = 0;          // the same without shared tokens
  double prompt = 0;
  double output = 0;
};
MeanLengths MeanLengthsOf(std::span<const WorkloadRequest> requests);

// Takes out the requests whose prompt and output exceed max_model_len tokens together; of sessions those with
// such a turn.
void DropTooLong(int64_t max_model_len, Workload* workload);

// The same, and says in the log how many. Error: kInvalidArgument (param "workload"): none is left.
Status KeepFitting(int64_t max_model_len, Workload* workload);

// Writes {"workload", "seed", "dropped", "requests": [{"prompt_tokens", "output_tokens", "arrival_s"}]}, and
// what says which tokens are shared ("hash_ids"; "session", "new_tokens", "pause_s"), for
// programs that are to do the same work. Errors: kIo.
Status WriteWorkloadJson(const Workload& workload, uint64_t seed, const std::string& path);

}  // namespace tandem
