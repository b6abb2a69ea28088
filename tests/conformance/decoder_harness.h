// A model on a backend without the engine: logits of a prompt, and hand-made plans on a real executor.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend.h"
#include "execute/worker_group.h"
#include "kv/kv_books.h"
#include "kv/kv_memory.h"
#include "load/checkpoint.h"
#include "model/decoder.h"
#include "plan/iteration_input.h"
#include "plan/iteration_plan.h"
#include "request/request.h"

namespace tandem {

class DecoderHarness {
 public:
  struct Options {
    std::string device = "host";
    int sm_limit = 0;  // of a cuda device
    DType dtype = DType::kF32;
    Quantization quantization = Quantization::kAuto;
    int64_t max_model_len = 512;
    int64_t max_rows = 512;
    int64_t gpu_blocks = 64;
    int64_t cpu_blocks = 64;
    int64_t cpu_parts = 0;  // of the cpu tier, as KvCacheOptions has it
    int num_threads = 2;
    std::chrono::milliseconds stall_timeout{60'000};  // of CPU attention
    std::vector<int64_t> graph_batch_sizes;
    int64_t max_cpu_rows = 0;  // as ExecutorOptions has them
    int64_t max_rider_rows = 64;
    std::vector<int64_t> graph_rider_rows;
    int64_t random_layers = 0;  // instead of the checkpoint's layers so many with random weights
  };
  // CHECKs that the checkpoint loads.
  DecoderHarness(const std::string& model_path, const Options& options);
  ~DecoderHarness();

  // Whether this build has the cuda backend and this machine so many GPUs.
  static bool HasGpus(int num_gpus);
  static bool HasCuda() { return HasGpus(1); }
  // What models can be computed in on a device that is here, its default first.
  static std::vector<DType> DTypes(const std::string& device);
  // Of these the first of 16 bits: bf16, but fp16 on GPUs that have no bf16.
  static DType HalfType(const std::string& device);

  const ModelConfig& config() const { return decoder_->config(); }
  KvBooks& books() { return *books_; }
  Executor& executor() { return workers_->rank0(); }
  WorkerGroup& workers() { return *workers_; }
  Device& device() { return *backend_.device; }

  const DecoderWeights& weights() const { return decoder_->weights(); }

  // Logits of the last position, computed in chunks of chunk_size rows; straight through the decoder.
  std::vector<float> LastLogits(const std::vector<int32_t>& prompt, int64_t chunk_size);

  // A greedy request that the executor can find.
  Request& AddRequest(SequenceId id, std::vector<int32_t> prompt);
  const Request& request(SequenceId id) const { return *requests_.at(id); }

  // Drops what the plan drops, moves, reserves blocks for what it computes, runs it, appends the drawn tokens
  // to the requests: of a draft as far as it holds.
  IterationResult Run(const IterationPlan& plan);
  // Null if it is not in flight.
  const InFlightCohort* InFlight(CohortId id) const;
  // As Executor::DropCohort.
  bool DropCohort(CohortId id);
  // Prefills the whole prompt in the gpu tier and samples the first token.
  void Prefill(SequenceId id);
  RowSpan NextRow(SequenceId id, Tier tier = Tier::kGpu) const {
    return RowSpan::Decode(id, request(id).num_tokens() - 1, tier);
  }

  // Tokens that may follow those of the request: for its next span, NextDraft.
  void Draft(SequenceId id, std::vector<int32_t> tokens) { drafts_[id] = std::move(tokens); }
  RowSpan NextDraft(SequenceId id) const;

 private:
  void CheckPlan(const IterationPlan& plan) const;
  int64_t NumDrafted(SequenceId id) const;
  // The books move and reserve.
  IterationInput InputOf(const IterationPlan& plan);
  SpanInput InputOf(const RowSpan& span) const;
  void Append(const SequenceResult& result);

  Backend backend_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvMemory> memory_;
  std::unique_ptr<KvBooks> books_;
  std::unique_ptr<WorkerGroup> workers_;
  std::map<SequenceId, std::unique_ptr<Request>> requests_;
  std::map<SequenceId, std::vector<int32_t>> drafts_;
  int64_t max_rider_rows_ = 0;
  std::vector<InFlightCohort> in_flight_;
};

}  // namespace tandem
