// This machine as JSON: for doctor, and beside every benchmark result.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace tandem {

// Model, cores, NUMA nodes, instruction sets.
nlohmann::ordered_json CpuReport();
// GPUs that the driver offers, or the reason why there is none.
nlohmann::ordered_json GpuReport();
// The above, memory, and the versions of what the program was built with and runs on.
nlohmann::ordered_json MachineReport();

}  // namespace tandem
