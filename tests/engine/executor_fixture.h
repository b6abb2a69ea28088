// Sequences on a real executor, and the tokens that they must give whatever the plans do.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"
#include "plan/iteration_plan.h"

namespace tandem {

inline constexpr int kNumSequences = 6;
inline constexpr size_t kNumTokens = 12;

inline std::vector<int32_t> PromptOf(SequenceId id) {
  std::vector<int32_t> prompt(5 + 11 * static_cast<size_t>(id));
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>((i * 37 + id * 101 + 3) % 300);
  return prompt;
}

struct Machine {
  std::string device;
  int64_t cpu_parts = 0;  // of the cpu tier (NUMA nodes)
};

inline std::string NameOfMachine(const ::testing::TestParamInfo<Machine>& info) {
  return info.param.device + "_" + std::to_string(info.param.cpu_parts);
}

inline bool IsHere(const Machine& machine) {
  return machine.device == "host" || DecoderHarness::HasCuda();
}

// All prompts are computed in the gpu tier. On the cuda backend at fp32 the same tokens, if not the same
// bits.
class ExecutorFixture : public ::testing::TestWithParam<Machine> {
 protected:
  // Where the device is not there, only the skip runs.
  explicit ExecutorFixture(DecoderHarness::Options options = {})
      : harness_(FixturePath("families/llama3"), OnMachine(options)) {
    if (!IsHere(GetParam())) return;
    for (SequenceId id = 0; id < kNumSequences; ++id) {
      harness_.AddRequest(id, PromptOf(id));
      harness_.Prefill(id);
    }
    // The reference: one sequence at a time, gpu tier only.
    DecoderHarness reference(FixturePath("families/llama3"),
                             {.num_threads = 1, .random_layers = options.random_layers});
    for (SequenceId id = 0; id < kNumSequences; ++id) {
      reference.AddRequest(id, PromptOf(id));
      reference.Prefill(id);
      while (reference.request(id).output_tokens.size() < kNumTokens) {
        IterationPlan plan;
        plan.main.spans.push_back(reference.NextRow(id));
        reference.Run(plan);
      }
      expected_.push_back(reference.request(id).output_tokens);
    }
  }

  void SetUp() override {
    if (!IsHere(GetParam())) GTEST_SKIP() << "no GPU";
  }

  void MoveToCpu(const std::vector<SequenceId>& ids) {
    IterationPlan plan;
    for (const SequenceId id : ids) plan.moves.push_back({id, Tier::kCpu});
    harness_.Run(plan);
  }

  bool Unfinished(SequenceId id) const { return harness_.request(id).output_tokens.size() < kNumTokens; }

  void ExpectReferenceTokens() {
    for (SequenceId id = 0; id < kNumSequences; ++id) {
      std::vector<int32_t> tokens = harness_.request(id).output_tokens;
      tokens.resize(std::min(tokens.size(), kNumTokens));
      EXPECT_EQ(tokens, expected_[id]) << "sequence " << id;
    }
  }

  int64_t num_layers() const { return harness_.config().num_layers; }

  DecoderHarness harness_;
  std::vector<std::vector<int32_t>> expected_;

 private:
  static DecoderHarness::Options OnMachine(DecoderHarness::Options options) {
    options.device = IsHere(GetParam()) ? GetParam().device : "host";
    options.cpu_parts = GetParam().cpu_parts;
    return options;
  }
};

}  // namespace tandem
