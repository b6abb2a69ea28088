// What sums over shards take on this machine: the own one-shot kernel and NCCL, one by one and in a graph.
//
//   bench_collectives --slices 2          on slices of one GPU
//   bench_collectives --gpus 2            on a GPU each, with NCCL
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/matrix_view.h"
#include "collective/cuda/cuda_group.h"
#include "collective/rank_threads.h"
#include "device/cuda/cuda_device.h"

namespace tandem {
namespace {

constexpr int kCalls = 160;  // of a measurement: as in a decode of 80 layers
constexpr int kRepeats = 9;

struct Machine {
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<Buffer> values;
  std::vector<Buffer> stamps;  // pinned: begin and end
};

// Nanoseconds that kCalls take on rank 0, by the GPU's clock: the median of some tries.
double TimeOf(Machine& machine, CollectiveGroup& group, RankThreads& threads, int64_t rows, int64_t cols,
              bool as_graph) {
  const auto at = [](int rank) { return static_cast<size_t>(rank); };
  const auto enqueue = [&](int rank, int calls) {
    Collective& collective = *group.Of(rank, ShardChannel::kCompute);
    const MatrixView values = MatrixView::Dense(machine.values[at(rank)].data(), DType::kBF16, rows, cols);
    for (int i = 0; i < calls; ++i) collective.AllReduce(*machine.streams[at(rank)], values);
  };
  std::vector<std::unique_ptr<Graph>> graphs(machine.streams.size());
  if (as_graph) {
    threads.Run([&](int rank) {
      machine.streams[at(rank)]->BeginCapture();
      enqueue(rank, kCalls);
      graphs[at(rank)] = machine.streams[at(rank)]->EndCapture();
    });
  }
  std::vector<double> times;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    threads.Run([&](int rank) {
      Stream& stream = *machine.streams[at(rank)];
      auto* stamps = machine.stamps[at(rank)].as<uint64_t>();
      // All begin together.
      enqueue(rank, 2);
      stream.Stamp(stamps);
      if (as_graph) {
        stream.Launch(*graphs[at(rank)]);
      } else {
        enqueue(rank, kCalls);
      }
      stream.Stamp(stamps + 1);
      stream.Synchronize();
    });
    const auto* stamps = machine.stamps.front().as<volatile uint64_t>();
    times.push_back(static_cast<double>(stamps[1] - stamps[0]) / kCalls);
  }
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  return times[kRepeats / 2];
}

Status Measure(int num_slices, int num_gpus, int64_t cols, const std::vector<int64_t>& row_counts) {
  Machine machine;
  const bool in_slices = num_slices > 0;
  TANDEM_ASSIGN_OR_RETURN(machine.devices,
                          in_slices ? CreateCudaSlices({}, num_slices) : CreateCudaDevices({}, num_gpus));
  const int64_t most_rows = *std::ranges::max_element(row_counts);
  std::vector<Device*> devices;
  for (const auto& device : machine.devices) {
    devices.push_back(device.get());
    machine.streams.push_back(device->CreateStream(StreamKind::kCompute, "shard"));
    TANDEM_ASSIGN_OR_RETURN(Buffer values,
                            device->Allocate(static_cast<size_t>(most_rows * cols) * sizeof(uint16_t),
                                             MemoryKind::kDevice, "rows"));
    machine.values.push_back(std::move(values));
    TANDEM_ASSIGN_OR_RETURN(Buffer stamps,
                            device->Allocate(2 * sizeof(uint64_t), MemoryKind::kPinned, "stamps"));
    machine.stamps.push_back(std::move(stamps));
  }
  RankThreads threads(static_cast<int>(devices.size()));
  struct Method {
    std::string name;
    CudaGroupOptions options;
  };
  std::vector<Method> methods = {{"one-shot", {.use_nccl = false}}};
  if (!in_slices) methods.push_back({"nccl", {.nccl_from_bytes = 0}});
  nlohmann::json results = nlohmann::json::array();
  for (const Method& method : methods) {
    TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<CollectiveGroup> group,
                            CreateCudaGroup(devices, method.options));
    for (const bool as_graph : {false, true}) {
      for (const int64_t rows : row_counts) {
        const double ns = TimeOf(machine, *group, threads, rows, cols, as_graph);
        if (const auto failure = group->failure()) return *failure;
        results.push_back({{"method", method.name},
                           {"graph", as_graph},
                           {"rows", rows},
                           {"us", ns / 1e3},
                           {"gb_per_s", static_cast<double>(rows * cols) * sizeof(uint16_t) / ns}});
      }
    }
  }
  const nlohmann::json report = {{"device", devices.front()->Description()},
                                 {"shards", devices.size()},
                                 {"in_slices", in_slices},
                                 {"cols", cols},
                                 {"dtype", "bf16"},
                                 {"all_reduces", results}};
  fmt::print("{}\n", report.dump(1));
  return {};
}

int Main(int argc, char** argv) {
  CLI::App app("Sums over shards: microseconds an all-reduce");
  int num_slices = 0;
  int num_gpus = 2;
  int64_t cols = 8192;
  std::vector<int64_t> row_counts = {1, 8, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
  app.add_option("--slices", num_slices, "Of one GPU");
  app.add_option("--gpus", num_gpus, "A GPU a shard, unless there are slices")->capture_default_str();
  app.add_option("--cols", cols, "Of bf16, of a row")->capture_default_str();
  app.add_option("--rows", row_counts, "Numbers of rows")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  const Status measured = Measure(num_slices, num_gpus, cols, row_counts);
  if (measured.ok()) return 0;
  fmt::print(stderr, "{}\n", measured.error().message);
  return 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::Main(argc, argv);
}
