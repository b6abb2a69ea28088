// Measures what the parts of an iteration cost on this machine, with the real parts of an engine.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "perf/cost_table.h"
#include "perf/profile_file.h"
#include "profile/cost_sampler.h"
#include "profile/profile_parts.h"

namespace tandem {

struct ProfileOptions {
  // Of measuring in all. Kept unless single runs are so slow that a point of each table passes it.
  double budget_seconds = 40;
  ProfileProgress progress;  // may be empty
};

// Blocks, on the thread that owns the parts. Without parts.cpu_attention the table has no costs of a cpu
// tier. Errors: kResourceExhausted.
Result<CostTable> Profile(const ProfileParts& parts, const ProfileOptions& options);

// sm_limit: of the GPU, 0: none.
ProfileKey MakeProfileKey(const ProfileParts& parts, int64_t sm_limit);
ProfileCoverage MakeProfileCoverage(const ProfileParts& parts);

struct LoadOrMeasureOptions {
  // Where profiles are kept; empty: nowhere.
  std::string folder;
  bool measure = false;  // even if there is a file
  ProfileOptions profile;
};

// The table of the file for these parts, or a measured one, which is then the file's. What is wrong with a
// file, or with writing one, goes to the log. Errors: those of Profile.
Result<CostTable> LoadOrMeasureCosts(const ProfileParts& parts, const ProfileKey& key,
                                     const LoadOrMeasureOptions& options);

}  // namespace tandem
