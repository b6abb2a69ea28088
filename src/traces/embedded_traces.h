// The traces of evaluation/workloads, embedded at build time.
#pragma once

#include <span>
#include <string_view>

namespace tandem {

struct EmbeddedTrace {
  std::string_view file_name;  // "azure_conv.csv"
  std::string_view content;
};

std::span<const EmbeddedTrace> EmbeddedTraces();

}  // namespace tandem
