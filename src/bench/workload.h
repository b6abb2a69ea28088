// What a benchmark asks of an engine: request lengths, and when they arrive.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace tandem {

struct WorkloadRequest {
  int64_t prompt_tokens = 0;        // at least 1
  int64_t output_tokens = 0;        // at least 1
  std::optional<double> arrival_s;  // the trace's own time; absent if it has none
  // Is amid its output when the benchmark begins (steady_start.h): so many of its output tokens are there.
  bool begun = false;
  int64_t made_tokens = 0;
};

struct Workload {
  std::string name;  // as it was asked for
  std::vector<WorkloadRequest> requests;
  int64_t num_dropped = 0;  // requests that DropTooLong took out
};

// name: azure-code, azure-conv, osc, "synthetic:in=1000,out=100" (lengths uniform within 10 % of these, drawn
// from seed), reasoning (prompts of 300 tokens within 10 %, outputs log-normal with mean 1500 and sigma 0.6,
// from 64 to 8192), or the path of a CSV file (traces/trace_csv.h). The trace's first num_requests requests,
// begun again from its start when there are not as many; the arrival times then go on after its last. A
// trace's prompts with other outputs, or its outputs with other prompts: "osc:out=100", "osc:in=500", drawn
// as synthetic lengths are. Errors: kInvalidArgument, kNotFound, kIo or kMalformedFile; param is "workload".
Result<Workload> LoadWorkload(const std::string& name, int64_t num_requests, uint64_t seed);

// Of the decoded tokens of requests, each with a prompt and an output.
struct MeanLengths {
  double prompt_per_output = 0;  // tokens of prompts for each token of outputs
  double context = 0;            // tokens that a decoding row reads
  double prompt = 0;
};
MeanLengths MeanLengthsOf(std::span<const WorkloadRequest> requests);

// Takes out the requests whose prompt and output exceed max_model_len tokens together.
void DropTooLong(int64_t max_model_len, Workload* workload);

// The same, and says in the log how many. Error: kInvalidArgument (param "workload"): none is left.
Status KeepFitting(int64_t max_model_len, Workload* workload);

// Random tokens of request `index`, each of [0, vocab_size): a function of the arguments only. No two
// requests share a prefix that a cache could use.
std::vector<int32_t> RandomPrompt(uint64_t seed, int64_t index, int64_t num_tokens, int64_t vocab_size);

// Writes {"workload", "seed", "dropped", "requests": [{"prompt_tokens", "output_tokens", "arrival_s"}]}, for
// programs that are to do the same work. Errors: kIo.
Status WriteWorkloadJson(const Workload& workload, uint64_t seed, const std::string& path);

}  // namespace tandem
