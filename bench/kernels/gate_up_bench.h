// The first product of an MLP with SiLU: cuBLASLt and a kernel after it, against the fused products.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "graph_timer.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/linear/cuda_linear_weight.h"
#include "ops/cuda/linear/fused/fused_gate_up.h"
#include "ops/cuda/linear/linear_runner.h"

namespace tandem {

class GateUpBench {
 public:
  struct Options {
    int64_t mlp = 0;
    int64_t in_features = 0;
    std::vector<int64_t> rows;
    std::vector<int> group_columns;  // of the fused products
  };

  // All outlive this. ops: measures algorithms.
  GateUpBench(Device* device, Stream* stream, Ops* ops, Options options)
      : stream_(stream), ops_(ops), options_(std::move(options)), timer_(stream), runner_(device) {
    runner_.PrepareWorkspace(AsCudaStream(*stream));
    constexpr int kNumWeights = 8;  // more than an L2 holds
    for (int i = 0; i < kNumWeights; ++i) {
      auto weight = ops->CreateGateUpWeight(options_.mlp, options_.in_features, DType::kBF16);
      TANDEM_CHECK(weight.ok(), "{}", weight.error().message);
      weights_.push_back(std::move(weight).value());
      weights_.back()->FillRandom({static_cast<uint64_t>(i + 1), 0.03F});
    }
    const int64_t max_rows = *std::max_element(options_.rows.begin(), options_.rows.end());
    const auto take = [&](int64_t cols) {
      return device->Allocate(static_cast<size_t>(max_rows * cols) * 2, MemoryKind::kDevice, "matrix")
          .value();
    };
    x_ = take(options_.in_features);
    scratch_ = take(2 * options_.mlp);
    y_ = take(options_.mlp);
    ops->FillRandom(*stream, MatrixView::Dense(x_.data(), DType::kBF16, max_rows, options_.in_features),
                    {1, 1.0F});
    stream->Synchronize();
  }

  nlohmann::json Run() {
    std::vector<const LinearWeight*> weights;
    for (const auto& weight : weights_) weights.push_back(weight.get());
    ops_->TuneLinear(*stream_, {weights, DType::kBF16, options_.rows});
    nlohmann::json result = nlohmann::json::array();
    for (const int64_t rows : options_.rows) result.push_back(Measure(rows));
    return result;
  }

 private:
  GateUpArgs Args(int64_t rows, size_t weight) const {
    return {MatrixView::Dense(x_.data(), DType::kBF16, rows, options_.in_features), weights_[weight].get(),
            MatrixView::Dense(scratch_.data(), DType::kBF16, rows, 2 * options_.mlp),
            MatrixView::Dense(y_.data(), DType::kBF16, rows, options_.mlp)};
  }

  nlohmann::json Measure(int64_t rows) {
    nlohmann::json entry = {{"rows", rows}};
    std::cerr << fmt::format("gate_up {:5} rows\n", rows);
    const double flops = 4.0 * static_cast<double>(rows * options_.mlp * options_.in_features);
    const auto add = [&](const std::string& name, const std::function<void(const GateUpArgs&)>& enqueue) {
      const double us = timer_.TimeUs([&] { enqueue(Args(rows, 0)); },
                                      [&] {
                                        for (size_t i = 0; i < weights_.size(); ++i) enqueue(Args(rows, i));
                                      }) /
                        static_cast<double>(weights_.size());
      entry[name] = {{"us", us}, {"tflops", flops / us * 1e-6}};
      std::cerr << fmt::format("    {:28} {:8.1f} us {:6.1f} TFLOP/s\n", name, us, flops / us * 1e-6);
    };
    const auto product = [&](const GateUpArgs& args) {
      ops_->Linear(*stream_, {args.x, args.weight, args.scratch});
    };
    const auto silu_mul = [&](const GateUpArgs& args) { ops_->SiluMul(*stream_, {args.scratch, args.y}); };
    add("cublaslt", product);
    add("silu_mul", silu_mul);
    add("cublaslt, silu_mul", [&](const GateUpArgs& args) {
      product(args);
      silu_mul(args);
    });
    CudaStream& stream = AsCudaStream(*stream_);
    const GateUpArgs first = Args(rows, 0);
    const MatrixView weight = AsCudaLinearWeight(first.weight).view();
    if (FusedGateUpSupports(stream.target(), first.x, weight, /*has_bias=*/false, first.y)) {
      for (const FusedGateUp kernel : kFusedGateUps) {
        for (const int group_columns : options_.group_columns) {
          add(fmt::format("{}, {} columns", FusedGateUpName(kernel), group_columns),
              [&](const GateUpArgs& args) {
                LaunchFusedGateUp(stream, kernel, args.x, AsCudaLinearWeight(args.weight).view(), args.y,
                                  group_columns);
              });
        }
      }
    }
    LinearAlgorithm streamed;
    streamed.method = LinearMethod::kStreamed;
    for (const StreamedLinear kernel : kStreamedLinears) {
      streamed.streamed = kernel;
      if (!runner_.CanRun({first.x, first.weight, first.scratch}, streamed)) continue;
      add(fmt::format("streamed {}", StreamedLinearName(kernel)),
          [&](const GateUpArgs& args) { TANDEM_CHECK(runner_.RunGateUp(stream, args, streamed)); });
    }
    add("chosen", [&](const GateUpArgs& args) { ops_->GateUp(*stream_, args); });
    return entry;
  }

  Stream* stream_;
  Ops* ops_;
  Options options_;
  GraphTimer timer_;
  LinearRunner runner_;
  std::vector<std::unique_ptr<LinearWeight>> weights_;
  Buffer x_;
  Buffer scratch_;
  Buffer y_;
};

}  // namespace tandem
