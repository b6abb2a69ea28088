// Options of an engine, as the shared flags of the command line name them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/quantization.h"
#include "kv_events/kv_events_config.h"
#include "load/model_config.h"

namespace tandem {

class Processes;

// "--gpu-kv-cache SIZE": bytes or KV tokens.
struct CacheSize {
  enum class Unit { kBytes, kTokens };
  Unit unit = Unit::kBytes;
  int64_t amount = 0;
};

struct EngineOptions {
  std::string model;                       // a Hugging Face folder or a .gguf file
  std::string served_model_name;           // empty: derived from model
  std::vector<std::string> model_aliases;  // other names under which a server has it
  std::string dummy;                       // instead of model: seeded random weights of a known shape
  std::string tokenizer;        // tokenizer and chat template of this model instead; empty: the model's own
  std::string device = "host";  // host | cuda
  // auto | gpu-only | asymmetric | async | apex | full-offload | symmetric | simple-offload
  std::string strategy = "auto";
  Quantization quantization = Quantization::kAuto;
  std::optional<DType> dtype;             // absent: bf16 where the backend multiplies it natively
  std::optional<CacheSize> gpu_kv_cache;  // absent: from what the machine has
  std::optional<CacheSize> cpu_kv_cache;  // absent: from what the machine has, if the strategy uses it
  // Of contexts in the cpu tier that pass through the device at once; absent: 16,384 tokens or two
  // iterations.
  std::optional<CacheSize> kv_transit;
  // Types of K and V in the tiers (kv_formats.h): auto (as dtype) | fp8 (gpu tier) | int8.
  std::string kv_cache_dtype = "auto";
  std::string cpu_kv_cache_dtype = "auto";
  int64_t gpu_memory_limit_bytes = 0;   // of the GPU's memory at most; 0: no limit
  double gpu_memory_utilization = 0.9;  // share of the GPU's memory at most
  int gpu_sm_limit = 0;                 // SMs of the GPU (a slice); 0: all
  // Shards on slices of one GPU, as many as there are shards; 0: a GPU each. For tests and trials.
  int gpu_sm_slices = 0;
  // Shards that compute the model together. Sizes of tiers and numbers of threads are of all together.
  int64_t tensor_parallel_size = 1;
  // Only the first of these shards, with random weights, and what sums over all take from this file of
  // bench_collectives: for figures of a model that needs more GPUs than there are. Empty: all shards.
  std::string lone_shard;
  // That have a shard each, this one rank 0; null: all shards are in this process. Outlives the engine.
  Processes* processes = nullptr;
  // Of CPU attention, and on the host backend of all computation. 0: one for each physical core; on the cuda
  // backend all but one in eight, which the scheduler and the driver need.
  int cpu_threads = 0;
  int64_t max_model_len = 0;                // 0: the model's
  std::optional<RopeScaling> rope_scaling;  // in the place of the model's; its context grows accordingly
  int64_t max_num_seqs = 256;               // sequences in an iteration at most
  int64_t max_num_batched_tokens = 0;  // rows of an iteration at most; 0: the backend's default (host: 512)
  int64_t max_num_queued_reqs = 1024;  // waiting requests beyond which Submit says kResourceExhausted
  // Requests that begin alike compute their beginning once, as long as there is room to keep it.
  bool prefix_caching = true;
  // Of the hashes by which it is found: 32 hexadecimal digits, secret. Replicas that are to speak of the same
  // blocks have the same; empty: drawn at the start.
  std::string prefix_cache_key;
  std::optional<KvEventsConfig> kv_events;  // who is told which blocks are cached; absent: nobody
  bool async_scheduling = true;             // an iteration may be enqueued while the one before runs
  double max_itl_ms = 0;  // an iteration is not to take longer if less can be done; 0: no limit
  // A token of a request is not to take longer if the strategy can choose, unless the request is flexible; 0:
  // no limit.
  double max_tpot_ms = 0;
  int64_t async_cohorts = 0;   // that ride at a time; 0: one more than there are layers
  int64_t max_rider_rows = 0;  // that ride at one layer; 0: the backend's default
  // Of CPU attention's tasks that nobody waits for: wanted (by when the GPU wants them) | arming (first come)
  std::string cpu_attention_order = "wanted";
  // Whose kernels CPU attention over the cpu tier has, as CpuIsaShortName says it; empty: the fastest in a
  // trial. With another one than the ops' tokens may depend on where a request decodes.
  std::string cpu_attention_isa;
  uint64_t seed = 0;          // of requests that bring none
  bool show_progress = true;  // of loading, on stderr
  // How CPU kernels fetch memory best is tried on this machine at the first start; else the default.
  bool cpu_trial = true;
  // Where what was measured about the machine is kept between starts; empty: ~/.cache/tandem.
  std::string cache_folder;
  // cuda: what is left out to see what it is worth: fa3, fused-gate-up, streamed-products, fp8-products,
  // hot-products, rider-graphs, graphs, nccl, one-shot.
  std::vector<std::string> without;
  bool measure_costs = false;             // for the scheduler, even if there is a profile already
  double profile_seconds = 40;            // of measuring them at most
  int64_t cpu_stall_timeout_ms = 10'000;  // of CPU attention, until the requests concerned end in an error
  std::string timeline;  // file for a timeline of the first iterations (Trace Event Format); empty: none
};

}  // namespace tandem
