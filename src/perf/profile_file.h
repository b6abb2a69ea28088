// Measured costs on disk, so that a start need not measure what an earlier one has.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "perf/cost_table.h"

namespace tandem {

// What costs depend on. Equal keys: the same table serves.
struct ProfileKey {
  // Shape of the model.
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t sliding_window = 0;
  int64_t num_shards = 1;  // heads and intermediate_size are of one
  std::string dtype;
  std::string weights;       // how they are stored: DecoderWeights::Describe
  std::string gpu_kv;        // KvFormatName of the gpu tier
  std::string cpu_kv;        // of the cpu tier; empty: there is none
  std::string device;        // Device::Description
  int64_t gpu_sm_limit = 0;  // 0: all
  int64_t cpu_threads = 0;   // of CPU attention; 0: no cpu tier
  std::string cpu_isa;       // of CPU attention; empty: no cpu tier
  bool operator==(const ProfileKey&) const = default;
};

// How far a profile was to reach: batches and caches differ from start to start.
struct ProfileCoverage {
  int64_t max_rows = 0;       // of an iteration
  int64_t max_context = 0;    // of a prompt
  int64_t gpu_kv_tokens = 0;  // of the gpu tier
  int64_t cpu_kv_tokens = 0;  // of the cpu tier
  // Whether costs measured with this coverage may be extrapolated to the wanted one: at most twice as far.
  bool Serves(const ProfileCoverage& wanted) const;
  bool operator==(const ProfileCoverage&) const = default;
};

// A file of folder; readable, and different for different keys.
std::string ProfilePath(const std::string& folder, const ProfileKey& key);

// Replaces the file as a whole; makes its folder if need be. Errors: kIo.
Status WriteProfile(const std::string& path, const ProfileKey& key, const ProfileCoverage& coverage,
                    const CostMeasurements& measurements);

// Errors, after which measuring anew is right: kNotFound; kIo; kMalformedFile (damaged, another version,
// impossible numbers); kUnsupported (of another key, or it does not reach as far as wanted).
Result<CostTable> ReadProfile(const std::string& path, const ProfileKey& key, const ProfileCoverage& wanted);

// A profile of whatever it was measured with.
struct StoredProfile {
  ProfileKey key;
  ProfileCoverage coverage;
  CostTable costs;
};
// Errors: kNotFound; kIo; kMalformedFile, as for ReadProfile.
Result<StoredProfile> ReadStoredProfile(const std::string& path);

// As in the file.
nlohmann::ordered_json ToJson(const ProfileKey& key);
nlohmann::ordered_json ToJson(const CostMeasurements& measurements);

}  // namespace tandem
