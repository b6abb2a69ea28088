#include "ops/host/host_ops.h"

#include <fmt/format.h>

#include <string_view>

#include "base/cpu_features.h"

namespace tandem {

HostOps::HostOps(const HostOpsOptions& options)
    : options_(options),
      linear_(LinearKernelsFor(options.isa)),
      quantized_(QuantizedKernelsFor(options.isa)),
      fp8_(Fp8KernelsFor(options.isa)),
      attention_(AttentionKernelsFor(options.isa)),
      row_(RowKernelsFor(options.isa)) {}

void HostOps::UseFetches(const AttentionFetch& attention, const ProductFetch& products) {
  options_.attention_fetch = attention;
  options_.product_fetch = products;
}

std::string HostOps::Description() const {
  std::string_view products;
  switch (options_.onednn) {
    case OneDnnUse::kNever:
      products = "own kernels for all products";
      break;
    case OneDnnUse::kAlways:
      products = "oneDNN for all products";
      break;
    case OneDnnUse::kAuto:
      products = HostCpuFeatures().amx_bf16
                     ? "oneDNN (AMX) for bf16 products of 16 rows and more, own kernels for others"
                     : "own kernels for all products (oneDNN is used where there is AMX)";
      break;
  }
  return fmt::format("{}; {}", CpuIsaName(options_.isa), products);
}

std::unique_ptr<HostOps> CreateHostOps(const HostOpsOptions& options) {
  return std::make_unique<HostOps>(options);
}

std::string DescribeFetch(const ProductFetch& fetch) {
  return fmt::format("{}, {} bytes ahead", FetchLevelName(fetch.level), fetch.distance_bytes);
}

std::unique_ptr<Ops> CreateHostOps() {
  return CreateHostOps(HostOpsOptions{});
}

}  // namespace tandem
