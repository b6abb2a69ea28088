#include "cli/machine_report.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/cpu_features.h"
#include "base/topology.h"
#include "cli/build_info.h"
#include "cli/gpu_probe.h"

namespace tandem {

using nlohmann::ordered_json;

ordered_json CpuReport() {
  const Topology& topology = MachineTopology();
  const CpuFeatures& features = HostCpuFeatures();
  return {{"model", topology.cpu_model},
          {"physical_cores", topology.num_physical_cores},
          {"logical_cpus", topology.num_logical_cpus},
          {"numa_nodes", topology.num_numa_nodes},
          {"avx2", features.avx2},
          {"avx512", features.avx512},
          {"avx512_bf16", features.avx512_bf16},
          {"amx_bf16", features.amx_bf16},
          {"neon", features.neon},
          {"neon_dot", features.neon_dot},
          {"neon_bf16", features.neon_bf16}};
}

namespace {

const char* NameOf(GpuLinkKind kind) {
  switch (kind) {
    case GpuLinkKind::kNvlink:
      return "NVLink";
    case GpuLinkKind::kPcie:
      return "PCIe";
    case GpuLinkKind::kNone:
      break;
  }
  return "none";
}

}  // namespace

ordered_json GpuReport() {
  const GpuProbe probe = ProbeGpus();
  ordered_json gpus = ordered_json::array();
  for (const GpuInfo& gpu : probe.gpus) {
    gpus.push_back({{"name", gpu.name},
                    {"memory_bytes", gpu.memory_bytes},
                    {"compute_capability",
                     fmt::format("{}.{}", gpu.compute_capability_major, gpu.compute_capability_minor)},
                    {"sms", gpu.num_sms},
                    {"numa_node", gpu.numa_node < 0 ? ordered_json(nullptr) : ordered_json(gpu.numa_node)}});
  }
  ordered_json links = ordered_json::array();
  for (const GpuLink& link : probe.links)
    links.push_back({{"gpus", {link.from, link.to}}, {"link", NameOf(link.kind)}});
  return {{"devices", std::move(gpus)},
          {"links", std::move(links)},
          {"reason_for_none", probe.reason.empty() ? ordered_json(nullptr) : ordered_json(probe.reason)}};
}

ordered_json MachineReport() {
  utsname system{};
  const bool known = uname(&system) == 0;
  return {{"cpu", CpuReport()},
          {"memory_bytes", MachineTopology().memory_bytes},
          {"gpu", GpuReport()},
          {"versions",
           {{"tandem", ProjectVersion()},
            {"commit", SourceCommit()},
            {"compiler", __VERSION__},
            {"kernel", known ? ordered_json(fmt::format("{} {}", system.sysname, system.release))
                             : ordered_json(nullptr)}}}};
}

}  // namespace tandem
