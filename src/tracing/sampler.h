// Which traces are recorded: the samplers of OTEL_TRACES_SAMPLER.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "tracing/trace_context.h"

namespace tandem {

// Does not change; any thread.
class Sampler {
 public:
  // All, whatever a parent says.
  Sampler() = default;

  // name: always_on, always_off, traceidratio, or one of them behind "parentbased_": then a parent's flag
  // decides where there is a parent. argument: of traceidratio, from 0 to 1; empty: 1. Errors:
  // kInvalidArgument with the variable as param.
  static Result<Sampler> Make(std::string_view name, std::string_view argument);

  // parent: of the request, if its headers name one.
  bool Samples(const TraceId& trace, const std::optional<TraceContext>& parent) const;

 private:
  bool parent_decides_ = false;
  bool all_ = true;
  uint64_t bound_ = 0;  // unless all: traces whose last 8 bytes are less
};

}  // namespace tandem
