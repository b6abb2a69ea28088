// What a benchmark measured, whoever sent the requests.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "bench/energy_meter.h"
#include "bench/request_recorder.h"
#include "bench/steady_start.h"
#include "engine/engine.h"
#include "perf/layer_costs.h"

namespace tandem {

// Snapshots of counters that began with the engine: what belongs to the run is the difference.
struct EngineStatsOfRun {
  EngineStats before;
  EngineStats after;
};

// What the machine had used at both ends of it.
struct EnergyOfRun {
  EnergyReading before;
  EnergyReading after;
  HostEnergySource host_source = HostEnergySource::kNone;
  double watts_per_core = 0;
};

// The first reading of it.
inline EnergyOfRun BeginEnergy(EnergyMeter* meter) {
  return {.before = meter->Read(),
          .after = {},
          .host_source = meter->host_source(),
          .watts_per_core = meter->watts_per_core()};
}

// The part of a run that counts. Throughput is of what arrives after begin and not after end. Latencies are
// too, or (by_due) they are those of the requests that start in [begin, end), with all their tokens, whenever
// these come: a window that looked at arrivals alone would leave out the end of what began in it.
struct BenchWindow {
  Clock::time_point begin;
  Clock::time_point end;
  bool by_due = false;

  bool Has(Clock::time_point time) const { return time > begin && time <= end; }
  bool HasStart(Clock::time_point start) const { return start >= begin && start < end; }
  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
};

// Of a run whose requests arrived one after the other.
struct OnlineFigures {
  Clock::time_point start;  // the moment from which the requests' times count
  int64_t num_unsent = 0;  // that a limit of concurrency had kept back when the time was over; not in records
  int64_t peak_concurrency = 0;
  // Of the thread that sends requests and reads answers; absent if the engine runs in this process.
  std::optional<double> client_cpu_s;
  double client_s = 0;  // that this thread was at it
};

struct BenchRun {
  std::vector<RequestRecord> records;   // in the order of the workload
  double duration_s = 0;                // from the first request's start to the last token
  std::optional<BenchWindow> window;    // absent: all that belongs to completed requests counts
  std::optional<SteadyRequests> begun;  // of a steady start
  // Of the window, if there is one. Absent if the engine ran in another process.
  std::optional<EngineStatsOfRun> engine;
  std::optional<EnergyOfRun> energy;  // likewise; absent without a meter
  std::optional<OnlineFigures> online;
  int64_t kv_bytes_per_token = 0;
  const LayerCosts* costs = nullptr;  // the engine's, which owns them; null if it has measured none

  // Of what counts.
  double counted_seconds() const { return window ? window->seconds() : duration_s; }
};

}  // namespace tandem
