// Published figures of hosts: the one table of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace tandem {

// A host, or what of it belongs to one GPU.
struct HostMachine {
  std::string_view name;  // as --host takes it: lower case
  std::string_view title;
  int64_t num_cores = 0;  // physical
  double bytes_per_s =
      0;  // of its memory, by channels and their rate; of a shared host by its share of cores
  int64_t memory_bytes = 0;
  // What all cores together were seen to read; 0: it was not measured.
  double read_bytes_per_s = 0;
  // Thermal design power of the processors, of a shared host its share; 0: not published. Memory is not in
  // it unless the source says so.
  double watts = 0;
  std::string_view source;
};

std::span<const HostMachine> HostMachines();

// name: in any case. Error: kNotFound, with the names that there are; param is "host".
Result<HostMachine> FindHostMachine(std::string_view name);

}  // namespace tandem
