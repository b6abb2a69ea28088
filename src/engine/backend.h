// Chooses the device backend by name: the one place that knows which there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "collective/collective.h"
#include "device/device.h"
#include "engine/cache_sizing.h"
#include "engine/engine_options.h"
#include "ops/ops.h"

namespace tandem {

class HostOps;

// Where what was measured about the machine is kept, unless parts are left out; empty: nowhere.
std::string CacheFolder(const EngineOptions& options);

// Of the cuda backend; who plans for a machine that is not there goes by the same.
struct CudaDefaults {
  int64_t max_num_batched_tokens = 2048;
  int64_t max_rider_rows = 256;
  int64_t workspace_bytes = int64_t{768} << 20;
};

// What a shard computes with. Order of members: the ops use the device.
struct ShardBackend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
};

struct Backend {
  // Order of members: the ops use the device. Of shard 0, and of all shards if there are no others.
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
  std::vector<ShardBackend> others;  // of shards 1, 2, ...
  // GPUs, or slices of the one here, of shards in processes of their own.
  int64_t num_elsewhere = 0;
  // The same of shards that are not there and are taken to be as this one (EngineOptions::lone_shard).
  int64_t num_assumed = 0;
  // Device memory left on that of them with least, once all have loaded the model; absent: not known yet.
  std::optional<int64_t> free_elsewhere_bytes;
  bool shares_memory = false;   // all are slices of one GPU
  HostOps* host_ops = nullptr;  // the ops where they compute on the CPU, else null
  std::vector<DType> dtypes;    // that the model can be computed in, the default first
  int64_t default_max_num_batched_tokens = 0;
  // Up to max_num_seqs; empty: graphs do not pay here.
  std::vector<int64_t> graph_batch_sizes;
  int64_t max_rider_rows = 0;             // of cohorts at one layer, unless the options say otherwise
  std::vector<int64_t> graph_rider_rows;  // for which there are graphs too
  // Whether the scheduler measures costs also for strategies that can do without.
  bool measures_costs = false;
  // Device memory that the ops and the driver take beside what is allocated for a model.
  size_t workspace_bytes = 0;
  // Whether CPU attention by default leaves some cores to the scheduler and the driver.
  bool leave_cores = false;
  // How long its workers spin before they sleep: on a GPU through the linear operations between two of its
  // turns; where the device's own work needs the cores, hardly at all.
  int64_t cpu_attention_spin_us = 50;
  // Where what was measured about the machine is kept between starts; empty: nowhere.
  std::string cache_folder;

  Device* DeviceOf(int rank) const {
    return others.empty() || rank == 0 ? device.get() : others[static_cast<size_t>(rank) - 1].device.get();
  }
  Ops* OpsOf(int rank) const {
    return others.empty() || rank == 0 ? ops.get() : others[static_cast<size_t>(rank) - 1].ops.get();
  }
  int64_t num_devices() const {
    return static_cast<int64_t>(others.size()) + 1 + num_elsewhere + num_assumed;
  }
  // Of the hardware, for people.
  std::string Description() const;
  // Of all devices together, as much as each has in equal parts; of shards that are not there on hosts of
  // their own.
  FreeMemory free_memory() const;
};

// Errors, with a flag as param: kUnsupported (not in this build, names what there is), kUnavailable (no GPU,
// no driver), kInvalidArgument (a limit that this GPU cannot keep).
Result<Backend> CreateBackend(const EngineOptions& options);

// What the shards on this backend exchange through. With processes all of them call it at the same step, and
// it is null where they exchange through Processes::collectives. Errors: kResourceExhausted; kUnsupported
// with param tensor-parallel-size; kUnavailable after a failure of the processes.
Result<std::unique_ptr<CollectiveGroup>> CreateCollectives(const Backend& backend,
                                                           const EngineOptions& options);

}  // namespace tandem
