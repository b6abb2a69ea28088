// How much of the memory's read bandwidth CPU decode attention reaches: for every combination, in turns,
// plain reading of the same memory by the same threads, and the kernel. Blocks lie in random order unless
// asked otherwise. Layers rotate through all of the memory, so that no cache holds what is read. Combinations
// with a layer larger than the memory are left out. Rows may share the beginnings of their contexts.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/topology.h"
#include "cpu_attention/cpu_attention.h"
#include "device/host/host_device.h"
#include "trial/attention_trial.h"
#include "trial/choice_file.h"
#include "trial/trial_memory.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Case {
  DType dtype = DType::kBF16;
  int64_t gqa = 4;
  int64_t head_dim = 128;
  int64_t context = 0;
  int64_t batch = 0;
  int64_t sharing = 1;        // rows each that begin in the same blocks
  int64_t shared_tokens = 0;  // with these; whole blocks of them

  int64_t num_kv_heads() const { return gqa == 1 ? 32 : gqa == 16 ? 4 : 8; }
  KvShape shape() const { return {KvFormat::Of(dtype), 32, num_kv_heads(), head_dim}; }
  // Of q, of results and of new tokens.
  DType row_dtype() const { return dtype == DType::kI8 ? DType::kBF16 : dtype; }
  int64_t blocks_each() const { return (context + 31) / 32; }
  int64_t shared_blocks() const { return std::min(shared_tokens, context - 1) / 32; }
  // All different ones.
  int64_t num_blocks() const {
    const int64_t groups = (batch + sharing - 1) / sharing;
    return batch * blocks_each() - (batch - groups) * shared_blocks();
  }
  int64_t layer_bytes() const { return num_blocks() * static_cast<int64_t>(shape().BlockBytes()); }
};

// Rates of a way to compute. GB/s: of what is read, which is less than what rows attend if they share.
struct Figures {
  double read_gbps = 0;
  double kernel_gbps = 0;   // tasks submitted ahead, as in serving
  double chained_gbps = 0;  // each task starts when the one before has set its flag
  // Tokens of a layer's context attended a second; apart: if each row reads its own, though it shares.
  double mtokens_per_s = 0;
  double apart_mtokens_per_s = 0;
};

// What a trial's memory is filled with.
void FillRandom(DType dtype, std::byte* data, size_t size_bytes) {
  const std::vector<std::byte> pattern = RandomPattern(dtype);
  for (size_t at = 0; at < size_bytes; at += pattern.size())
    std::memcpy(data + at, pattern.data(), std::min(pattern.size(), size_bytes - at));
}

// How the kernel computes: as named, or as a trial finds when a case begins.
struct Way {
  CpuIsa isa = BestCpuIsa();
  bool any_isa = false;                 // the trial may choose another
  std::optional<AttentionFetch> fetch;  // absent: by trial
};

class Bench {
 public:
  Bench(int num_threads, const std::vector<Way>& ways, std::byte* memory, int64_t memory_bytes,
        double seconds, bool consecutive)
      : num_threads_(num_threads),
        ways_(ways),
        consecutive_(consecutive),
        memory_(memory),
        memory_bytes_(memory_bytes),
        seconds_(seconds) {}

  // One for each of the ways, measured in turns.
  std::vector<Figures> Run(const Case& c) {
    attentions_.clear();
    for (const Way& way : ways_) attentions_.push_back(MakeAttention(c, way));
    const KvShape shape = c.shape();
    const int64_t num_heads = c.gqa * c.num_kv_heads();
    const int64_t width = num_heads * c.head_dim;
    const int64_t layer_bytes = c.layer_bytes();
    const int64_t num_layers = std::min<int64_t>(memory_bytes_ / layer_bytes, 4096);
    // Enough tasks for a submission to last a while.
    const int64_t batch_layers = std::min(num_layers, std::max<int64_t>(1, (256 << 20) / layer_bytes));
    const std::vector<DecodeSequence> sequences = Sequences(c);
    const DType row_dtype = c.row_dtype();
    std::vector<std::byte> q(static_cast<size_t>(c.batch * width) * DTypeSize(row_dtype));
    std::vector<std::byte> out(q.size());
    std::vector<std::byte> kv_rows(static_cast<size_t>(c.batch * c.num_kv_heads() * c.head_dim) *
                                   DTypeSize(row_dtype));
    FillRandom(row_dtype, q.data(), q.size());
    FillRandom(row_dtype, kv_rows.data(), kv_rows.size());
    DecodeLayer layer;
    layer.q = MatrixView::Dense(q.data(), row_dtype, c.batch, width);
    layer.out = MatrixView::Dense(out.data(), row_dtype, c.batch, width);
    layer.k = MatrixView::Dense(kv_rows.data(), row_dtype, c.batch, c.num_kv_heads() * c.head_dim);
    layer.v = layer.k;
    layer.scale = 0.088F;
    const auto make_plans = [&](int64_t most_readers) {
      std::vector<std::unique_ptr<DecodePlan>> plans;
      for (int64_t i = 0; i < batch_layers; ++i) {
        plans.push_back(std::make_unique<DecodePlan>(
            sequences, DecodeShape{.kv = shape, .num_heads = num_heads, .most_readers = most_readers},
            num_threads_));
      }
      return plans;
    };
    std::vector<std::vector<std::unique_ptr<DecodePlan>>> plans;  // of each of the ways
    for (const auto& attention : attentions_) plans.push_back(make_plans(attention->most_readers()));
    const auto plans_apart = make_plans(1);
    const std::unique_ptr<Flag> flag = device_->CreateFlag();
    int64_t cursor = 0;
    // One round: GB/s of batch_layers tasks, or of reading as much.
    const auto advance = [&] {
      if (cursor + batch_layers > num_layers) cursor = 0;
      std::byte* from = memory_ + cursor * layer_bytes;
      cursor += batch_layers;
      return from;
    };
    // Returns seconds.
    const auto run_kernel = [&](CpuAttention& attention, const auto& with_plans, bool chained) {
      std::byte* from = advance();
      flag->Reset();
      const auto start = Clock::now();
      for (int64_t i = 0; i < batch_layers; ++i) {
        layer.kv = {from + i * layer_bytes, shape, c.num_blocks(), 0, 0};
        AttentionTask task{with_plans[static_cast<size_t>(i)].get(), layer, nullptr, 0, nullptr, 0};
        if (chained) {
          task.ready = task.done = flag.get();
          task.ready_value = static_cast<uint32_t>(i);
          task.done_value = static_cast<uint32_t>(i + 1);
        }
        attention.Submit(task);
      }
      attention.WaitIdle();
      return SecondsSince(start);
    };
    const auto run_read = [&] {
      CpuAttention& attention = *attentions_.front();
      const std::byte* from = advance();
      const int64_t size_bytes = batch_layers * layer_bytes / 512 * 512;
      // Claimed piece by piece, so that a thread that lost its core for a while does not hold up the others.
      constexpr int64_t kPieceBytes = 4 << 20;
      const int64_t piece_bytes = std::min(kPieceBytes, size_bytes / attention.num_threads() / 512 * 512);
      std::atomic<int64_t> next_byte{0};
      const auto start = Clock::now();
      attention.RunOnWorkers([&](int /*thread*/) {
        float sum = 0;
        while (true) {
          const int64_t begin = next_byte.fetch_add(piece_bytes, std::memory_order_relaxed);
          if (begin >= size_bytes) break;
          sum += attention.kernels().read(from + begin, std::min(piece_bytes, size_bytes - begin));
        }
        if (sum == 0.125F) std::fputs("", stderr);  // the sum must be used
      });
      return static_cast<double>(size_bytes) / 1e9 / SecondsSince(start);
    };
    run_kernel(*attentions_.front(), plans.front(), false);
    std::vector<double> reads;
    // Seconds of each of the ways.
    std::vector<std::vector<double>> kernels(attentions_.size());
    std::vector<std::vector<double>> chains(attentions_.size());
    std::vector<std::vector<double>> aparts(attentions_.size());
    const auto start = Clock::now();
    while (SecondsSince(start) < seconds_ || reads.size() < 5) {
      reads.push_back(run_read());
      for (size_t i = 0; i < attentions_.size(); ++i) {
        kernels[i].push_back(run_kernel(*attentions_[i], plans[i], false));
        chains[i].push_back(run_kernel(*attentions_[i], plans[i], true));
        if (c.sharing > 1) aparts[i].push_back(run_kernel(*attentions_[i], plans_apart, false));
      }
    }
    const auto mtokens = static_cast<double>(batch_layers * c.batch * c.context) / 1e6;
    std::vector<Figures> figures;
    for (size_t i = 0; i < attentions_.size(); ++i) {
      const double seconds = Median(kernels[i]);
      const auto gigabytes = static_cast<double>(batch_layers * plans[i].front()->kv_bytes()) / 1e9;
      figures.push_back({.read_gbps = Median(reads),
                         .kernel_gbps = gigabytes / seconds,
                         .chained_gbps = gigabytes / Median(chains[i]),
                         .mtokens_per_s = mtokens / seconds,
                         .apart_mtokens_per_s = mtokens / (c.sharing > 1 ? Median(aparts[i]) : seconds)});
    }
    return figures;
  }

 private:
  std::vector<DecodeSequence> Sequences(const Case& c) const {
    std::vector<int32_t> blocks(static_cast<size_t>(c.num_blocks()));
    std::iota(blocks.begin(), blocks.end(), 0);
    if (!consecutive_) std::shuffle(blocks.begin(), blocks.end(), std::mt19937(7));
    std::vector<DecodeSequence> sequences(static_cast<size_t>(c.batch));
    auto next = blocks.begin();
    for (size_t row = 0; row < sequences.size(); ++row) {
      std::vector<int32_t>& table = sequences[row].block_table;
      sequences[row].context_len = c.context;
      if (const size_t position = row % static_cast<size_t>(c.sharing); position > 0) {
        const std::vector<int32_t>& first = sequences[row - position].block_table;
        table.assign(first.begin(), first.begin() + c.shared_blocks());
      }
      const auto num_own = c.blocks_each() - static_cast<int64_t>(table.size());
      table.insert(table.end(), next, next + num_own);
      next += num_own;
    }
    return sequences;
  }

  std::unique_ptr<CpuAttention> MakeAttention(const Case& c, const Way& way) {
    CpuAttentionOptions options = {.num_threads = num_threads_, .isa = way.isa};
    if (way.fetch) options.fetch = *way.fetch;
    if (way.fetch && c.sharing == 1) return std::make_unique<CpuAttention>(options);
    CpuAttention workers(options);
    const AttentionUse use = {.num_threads = num_threads_,
                              .kv_dtype = c.dtype,
                              .block_size = c.shape().block_size,
                              .head_dim = c.head_dim,
                              .group_size = c.gqa,
                              .span_heads = std::min<int64_t>(8, c.num_kv_heads()),
                              .any_isa = way.any_isa};
    const auto start = Clock::now();
    AttentionChoice choice = {.isa = way.isa, .fetch = options.fetch};
    if (way.fetch) {
      choice.most_readers = Checked(TryReaders(use, choice, &workers, device_.get()));
    } else {
      choice = Checked(
          TryAttention(use, way.any_isa ? std::nullopt : std::optional(way.isa), &workers, device_.get()));
    }
    std::printf("# tried for %.0f ms: %s\n", 1e3 * SecondsSince(start), Describe(use, choice).c_str());
    options.isa = choice.isa;
    options.fetch = choice.fetch;
    options.most_readers = choice.most_readers;
    return std::make_unique<CpuAttention>(options);
  }

  template <typename T>
  static T Checked(const Result<T>& tried) {
    if (tried.ok()) return tried.value();
    std::cerr << tried.error().message << "\n";
    std::exit(1);
  }

  int num_threads_;
  std::vector<Way> ways_;
  bool consecutive_;
  std::unique_ptr<Device> device_ = CreateHostDevice({.num_compute_threads = 1});
  std::vector<std::unique_ptr<CpuAttention>> attentions_;  // one for each of the ways
  std::byte* memory_;
  int64_t memory_bytes_;
  double seconds_;
};

struct Options {
  std::string json_path;
  bool quick = false;
  bool consecutive = false;
  std::vector<int> threads;
  std::vector<std::string> isas;
  std::vector<std::string> dtypes = {"bf16", "fp16", "fp32"};
  std::vector<int64_t> gqa = {1, 4, 8};
  std::vector<int64_t> head_dims = {128};
  std::vector<int64_t> contexts = {512, 2048, 8192, 32768};
  std::vector<int64_t> batches = {1, 8, 32, 256};
  std::vector<int64_t> sharing = {1};
  int64_t shared_tokens = 0;
  std::vector<std::string> fetches = {"l2"};
  double memory_gib = 0;
  double seconds = 0.6;
};

DType ParseDType(const std::string& name) {
  if (name == "int8") return DType::kI8;
  return name == "fp32" ? DType::kF32 : name == "fp16" ? DType::kF16 : DType::kBF16;
}

// "l1", "l2" or "nta", with "-half" or "-second".
std::optional<AttentionFetch> ParseFetch(const std::string& name) {
  AttentionFetch fetch;
  const std::string level = name.substr(0, name.find('-'));
  const std::string rest = name.substr(level.size());
  if (level == "l1") {
    fetch.level = FetchLevel::kL1;
  } else if (level == "nta") {
    fetch.level = FetchLevel::kNonTemporal;
  } else if (level != "l2") {
    return std::nullopt;
  }
  fetch.half_piece_ahead = rest == "-half";
  fetch.every_second_line = rest == "-second";
  if (!rest.empty() && !fetch.half_piece_ahead && !fetch.every_second_line) return std::nullopt;
  return fetch;
}

nlohmann::json ResultOf(const Case& c, const Figures& f) {
  return {{"gqa", c.gqa},
          {"head_dim", c.head_dim},
          {"context", c.context},
          {"batch", c.batch},
          {"sharing", c.sharing},
          {"shared_tokens", c.sharing > 1 ? c.shared_blocks() * 32 : 0},
          {"read_gbps", f.read_gbps},
          {"kernel_gbps", f.kernel_gbps},
          {"share", f.kernel_gbps / f.read_gbps},
          {"chained_gbps", f.chained_gbps},
          {"mtokens_per_s", f.mtokens_per_s},
          {"apart_mtokens_per_s", f.apart_mtokens_per_s},
          {"layer_bytes", c.layer_bytes()},
          {"cpu", MachineTopology().cpu_model}};
}

void Print(const nlohmann::json& r) {
  const auto text = [&](const char* name) { return r[name].get<std::string>(); };
  const auto number = [&](const char* name) { return r[name].get<double>(); };
  std::printf("%-12s %-10s %-5s %3.0f %4.0f %8.0f %6.0f %7.0f %7.0f %10.1f %12.1f %13.1f %6.3f %8.2f %8.2f\n",
              text("isa").c_str(), text("fetch").c_str(), text("dtype").c_str(), number("gqa"),
              number("head_dim"), number("context"), number("batch"), number("sharing"), number("threads"),
              number("read_gbps"), number("kernel_gbps"), number("chained_gbps"), number("share"),
              number("mtokens_per_s"), number("apart_mtokens_per_s"));
  std::fflush(stdout);
}

int Run(Options options) {
  if (options.quick) {
    options.dtypes = {"bf16"};
    options.contexts = {2048};
    options.batches = {1, 32};
    options.seconds = 0.3;
  }
  if (options.threads.empty()) options.threads = {MachineTopology().num_physical_cores};
  std::vector<CpuIsa> isas;
  for (const CpuIsa isa : SupportedCpuIsas()) {
    const bool named =
        std::find(options.isas.begin(), options.isas.end(), CpuIsaShortName(isa)) != options.isas.end();
    // Unless asked: the best, and AVX2 for machines that have no more.
    const bool wanted = isa == BestCpuIsa() || (isa == CpuIsa::kAvx2 && !options.quick);
    if (options.isas.empty() ? wanted : named) isas.push_back(isa);
  }
  std::vector<Way> ways;
  for (const std::string& name : options.fetches) {
    Way way = {.any_isa = options.isas.empty()};
    if (name != "trial") {
      way.fetch = ParseFetch(name);
      if (!way.fetch) {
        std::cerr << "--fetch " << name << ": neither trial nor l1, l2 or nta, with -half or -second\n";
        return 1;
      }
    }
    ways.push_back(way);
  }
  const auto available = static_cast<double>(AvailableMemoryBytes());
  const auto memory_bytes =
      static_cast<int64_t>(options.memory_gib > 0 ? options.memory_gib * double{1 << 30}
                                                  : std::min(available / 3, 16.0 * (1 << 30)));
  const auto device = CreateHostDevice({.num_compute_threads = 1});
  auto memory =
      device->Allocate(static_cast<size_t>(memory_bytes), MemoryKind::kPinned, "the benchmark's KV");
  if (!memory.ok()) {
    std::cerr << memory.error().message << "\n";
    return 1;
  }
  auto* data = memory.value().as<std::byte>();
  std::printf("%s, %.1f GiB of KV\n", MachineTopology().cpu_model.c_str(),
              static_cast<double>(memory_bytes) / (1 << 30));
  std::printf("%-12s %-10s %-5s %3s %4s %8s %6s %7s %7s %10s %12s %13s %6s %8s %8s\n", "isa", "fetch",
              "dtype", "gqa", "d", "context", "batch", "sharing", "threads", "read GB/s", "kernel GB/s",
              "chained GB/s", "share", "Mtok/s", "apart");
  nlohmann::json results = nlohmann::json::array();
  for (const std::string& dtype_name : options.dtypes) {
    const DType dtype = ParseDType(dtype_name);
    FillRandom(dtype, data, static_cast<size_t>(memory_bytes));
    for (const CpuIsa isa : isas) {
      for (const int threads : options.threads) {
        for (Way& way : ways) way.isa = isa;
        Bench bench(threads, ways, data, memory_bytes, options.seconds, options.consecutive);
        for (const int64_t head_dim : options.head_dims) {
          for (const int64_t gqa : options.gqa) {
            for (const int64_t context : options.contexts) {
              for (const int64_t batch : options.batches) {
                for (const int64_t sharing : options.sharing) {
                  const Case c{dtype, gqa, head_dim, context, batch, sharing, options.shared_tokens};
                  if (c.layer_bytes() > memory_bytes) continue;
                  const std::vector<Figures> figures = bench.Run(c);
                  for (size_t i = 0; i < figures.size(); ++i) {
                    nlohmann::json result = ResultOf(c, figures[i]);
                    result["isa"] = CpuIsaShortName(isa);
                    result["fetch"] = options.fetches[i];
                    result["dtype"] = dtype_name;
                    result["threads"] = threads;
                    result["blocks"] = options.consecutive ? "consecutive" : "random";
                    Print(result);
                    results.push_back(std::move(result));
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  if (options.json_path.empty()) return 0;
  std::ofstream file(options.json_path);
  file << results.dump(1) << "\n";
  if (file.good()) return 0;
  std::cerr << options.json_path << ": cannot write\n";
  return 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Options options;
  CLI::App app("CPU decode attention against the memory's read bandwidth");
  app.add_option("--json", options.json_path, "Write the results to this file");
  app.add_flag("--quick", options.quick, "A few combinations");
  app.add_flag("--consecutive", options.consecutive, "Blocks of a sequence follow each other in memory");
  app.add_option("--threads", options.threads, "Numbers of threads")->delimiter(',');
  app.add_option("--isa", options.isas,
                 "portable, avx2, avx512, avx512_bf16, avx512_ymm, amx, neon, neon_dot, neon_bf16")
      ->delimiter(',');
  app.add_option("--dtype", options.dtypes, "Of the cache: bf16, fp16, fp32, int8")->delimiter(',');
  app.add_option("--gqa", options.gqa, "Query heads of a kv head")->delimiter(',');
  app.add_option("--head-dim", options.head_dims, "Head sizes")->delimiter(',');
  app.add_option("--context", options.contexts, "Context lengths")->delimiter(',');
  app.add_option("--batch", options.batches, "Rows")->delimiter(',');
  app.add_option("--sharing", options.sharing, "Rows each whose contexts begin in the same blocks")
      ->delimiter(',');
  app.add_option("--shared-tokens", options.shared_tokens, "Of the beginnings that rows share");
  app.add_option("--fetch", options.fetches,
                 "l1, l2, nta: to where lines are fetched ahead; with -half: half a piece ahead; with "
                 "-second: every second line first; trial: what a trial chooses here, without --isa also the "
                 "instruction set. Several are measured in turns")
      ->delimiter(',');
  app.add_option("--memory-gib", options.memory_gib, "KV memory; 0: a third of what is free, 16 GiB at most");
  app.add_option("--seconds", options.seconds, "For each combination");
  CLI11_PARSE(app, argc, argv);
  return tandem::Run(options);
}
