#include "forecast/sheet_costs.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "forecast/units.h"

namespace tandem {
namespace {

constexpr int64_t kKvElementBytes = 2;
constexpr int64_t kActivationBytes = 2;
constexpr int64_t kSumBytes = 4;  // the residual stream and logits are fp32

double ShareOfSms(const SheetMachine& machine) {
  return machine.gpu_sm_limit == 0 ? 1
                                   : std::min(1.0, static_cast<double>(machine.gpu_sm_limit) /
                                                       static_cast<double>(machine.gpu.num_sms));
}

double NumSms(const SheetMachine& machine) {
  return ShareOfSms(machine) * static_cast<double>(machine.gpu.num_sms);
}

double GpuReadRate(const SheetMachine& machine, const Efficiencies& of) {
  return std::min(of.read_of_sheet * machine.gpu.bytes_per_s, of.sm_read_bytes_per_s * NumSms(machine));
}

class Sheet {
 public:
  Sheet(const SheetMachine& machine, const ModelOutline& model, const Efficiencies& of)
      : model_(model), of_(of), config_(model.config), num_shards_(static_cast<double>(machine.num_shards)) {
    const double read = GpuReadRate(machine, of);
    weight_rate_ = read * WeightsShare();
    flop_rate_ = ProductRate(machine, model, of);
    attention_rate_ = std::min(of.attention_of_read * read, of.sm_attention_bytes_per_s * NumSms(machine));
    cpu_rate_ = CpuAttentionRate(machine.host, of) / num_shards_;
    link_rate_ = of.link_of_sheet * machine.gpu.link_bytes_per_s;
    const bool nvlink = machine.gpu.peer_bytes_per_s > 0;
    peer_rate_ = nvlink ? of.peer_of_sheet * machine.gpu.peer_bytes_per_s : link_rate_;
    sum_start_us_ = nvlink ? of.sum_start_us : of.pcie_sum_start_us;
  }

  CostMeasurements Measurements() const {
    CostMeasurements costs;
    costs.num_layers = config_.num_layers;
    costs.row_tiles = {.steps = {{64, 1}, {256, 16}, {384, 64}}, .last_tile_rows = 128};
    for (const int64_t rows : {1, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096})
      costs.linear.push_back(
          {rows, of_.per_layer_us + ProductsUs(model_.layer_weights(), rows,
                                               rows > of_.rows_without_tiles ? of_.tile_start_us : 0)});
    if (num_shards_ > 1) {
      for (const CostPoint& point : costs.linear)
        costs.all_reduce.push_back({point.count, SumUs(point.count, kActivationBytes)});
    }
    costs.gpu_decode_attention = {Decodes(1, of_.attention_start_us, attention_rate_)};
    for (const int64_t rows : {16, 128, 512, 2048}) costs.prefill_attention.push_back(Prompts(rows));
    costs.outside_layers.push_back({0, of_.outside_us + ExchangedOutsideUs(0)});
    for (const int64_t rows : {1, 16, 32, 64, 128, 256, 512, 1024})
      costs.outside_layers.push_back(
          {rows, of_.outside_us + ProductsUs(model_.lm_head_weights(), rows) + ExchangedOutsideUs(rows)});
    costs.cpu_attention = {Decodes(1, of_.cpu_start_us, cpu_rate_)};
    for (const int64_t rows : {1, 16, 32, 64, 128, 256, 512, 1024}) {
      const double us = of_.exchange_us + ExchangedUs(rows);
      costs.exchange.push_back({rows, std::max(of_.least_exchange_us, us)});
    }
    for (const int64_t tokens : {32, 512, 8192})
      costs.swap.push_back({tokens, of_.swap_start_us + KvBytes(tokens) / link_rate_ * kUsPerSecond});
    return costs;
  }

 private:
  double WeightsShare() const {
    if (model_.quantization == Quantization::kFp8 || model_.quantization == Quantization::kInt8)
      return of_.fp8_of_read;
    // A file's own form goes by the size of its weights.
    constexpr double kFewBytes = 0.8;
    if (model_.quantization == Quantization::kInt4 || model_.bytes_per_weight < kFewBytes)
      return of_.int_of_read;
    constexpr double kManyBytes = 1.9;
    return model_.bytes_per_weight < kManyBytes ? of_.fp8_of_read : of_.weights_of_read;
  }
  double ProductsUs(int64_t num_weights, int64_t rows, double start_us = 0) const {
    const double weights = static_cast<double>(num_weights) / num_shards_;
    const double read_us = start_us + weights * model_.bytes_per_weight / weight_rate_ * kUsPerSecond;
    const double compute_us = 2 * weights * static_cast<double>(rows) / flop_rate_ * kUsPerSecond;
    return std::hypot(read_us, compute_us);
  }
  double KvBytes(int64_t tokens) const {
    return static_cast<double>(2 * kKvElementBytes * config_.kv_width() * tokens) / num_shards_;
  }
  double SumUs(int64_t rows, int64_t element_bytes) const {
    const auto bytes = static_cast<double>(rows * config_.hidden_size * element_bytes);
    return sum_start_us_ + 2 * (num_shards_ - 1) / num_shards_ * bytes / peer_rate_ * kUsPerSecond;
  }
  // The sum of the embedding, and the logits of the other shards.
  double ExchangedOutsideUs(int64_t sampled) const {
    if (num_shards_ == 1) return 0;
    const auto bytes = static_cast<double>(sampled * config_.vocab_size * kSumBytes);
    const double gather_us =
        sampled == 0 ? 0
                     : sum_start_us_ + (num_shards_ - 1) / num_shards_ * bytes / peer_rate_ * kUsPerSecond;
    return SumUs(std::max<int64_t>(1, sampled), kSumBytes) + gather_us;
  }
  CostLine Decodes(int64_t rows, double start_us, double rate) const {
    CostLine line{.rows = rows, .points = {}};
    for (const int64_t tokens : {64, 65'536})
      line.points.push_back({tokens, start_us + KvBytes(tokens) / rate * kUsPerSecond});
    return line;
  }
  // Attention of the products' tiles of 128 keys: those of the diagonal are computed whole.
  CostLine Prompts(int64_t rows) const {
    constexpr double kTile = 128;
    CostLine line{.rows = rows, .points = {}};
    for (const int64_t context : {2048, 8192, 32'768}) {
      const auto n = static_cast<double>(rows);
      const double pairs = n * (static_cast<double>(context) - n / 2 + kTile);
      const double flop = 4 * pairs * static_cast<double>(config_.q_width()) / num_shards_;
      line.points.push_back(
          {context,
           of_.attention_start_us + flop / (of_.prompt_attention_of_products * flop_rate_) * kUsPerSecond});
    }
    return line;
  }
  // Q, K and V of rows out, their O back.
  double ExchangedUs(int64_t rows) const {
    const double bytes =
        static_cast<double>(2 * (config_.qkv_width() + config_.q_width()) * rows) / num_shards_;
    return bytes / link_rate_ * kUsPerSecond;
  }

  const ModelOutline& model_;
  const Efficiencies& of_;
  const ModelConfig& config_;
  const double num_shards_;
  double weight_rate_ = 0;
  double flop_rate_ = 0;
  double attention_rate_ = 0;
  double cpu_rate_ = 0;
  double link_rate_ = 0;
  double peer_rate_ = 0;  // between the GPUs, these two
  double sum_start_us_ = 0;
};

}  // namespace

int64_t CpuAttentionCores(const HostMachine& host) {
  // As DefaultCpuAttentionThreads leaves them.
  return host.num_cores <= 1 ? host.num_cores : host.num_cores - std::max<int64_t>(1, host.num_cores / 8);
}

double CpuAttentionRate(const HostMachine& host, const Efficiencies& of) {
  const double read =
      host.read_bytes_per_s > 0 ? host.read_bytes_per_s : of.host_read_of_peak * host.bytes_per_s;
  return std::min(of.cpu_attention_of_read * read,
                  of.core_bytes_per_s * static_cast<double>(CpuAttentionCores(host)));
}

double WeightReadRate(const SheetMachine& machine, const Efficiencies& of) {
  return of.weights_of_read * GpuReadRate(machine, of);
}

double ProductRate(const SheetMachine& machine, const ModelOutline& model, const Efficiencies& of) {
  const double sheet =
      model.quantization == Quantization::kFp8 ? machine.gpu.flops_fp8 : machine.gpu.flops_16bit;
  const double share = ShareOfSms(machine);
  return sheet * std::min(share * of.products_of_slice, of.products_of_sheet);
}

CostTable SheetCosts(const SheetMachine& machine, const ModelOutline& model, const Efficiencies& of) {
  auto table = CostTable::Create(Sheet(machine, model, of).Measurements());
  TANDEM_CHECK(table.ok(), "{}", table.error().message);
  return std::move(table).value();
}

}  // namespace tandem
