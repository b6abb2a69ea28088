#include "cli/build_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "simd/cpu_isa.h"

namespace tandem {
namespace {

std::string IsaNames(const std::vector<CpuIsa>& isas) {
  std::vector<std::string_view> names;
  for (const CpuIsa isa : isas) {
    if (isa != CpuIsa::kAvx512Ymm) names.push_back(CpuIsaName(isa));  // a width, no set of its own
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string_view ProjectVersion() {
  return TANDEM_VERSION;
}

std::string_view CudaArchitectures() {
  return TANDEM_CUDA_ARCHITECTURES;
}

std::string VersionText() {
  return fmt::format(
      "tandem {}\n"
      "commit: {}\n"
      "backends: host{}\n"
      "instruction sets: {}\n"
      "of this machine: {}",
      ProjectVersion(), SourceCommit(),
      CudaArchitectures().empty() ? "" : fmt::format(", cuda ({})", CudaArchitectures()),
      IsaNames(CompiledCpuIsas()), IsaNames(SupportedCpuIsas()));
}

}  // namespace tandem
