#include "tracing/sampler.h"

#include <charconv>
#include <cmath>

#include "base/param_error.h"

namespace tandem {

Result<Sampler> Sampler::Make(std::string_view name, std::string_view argument) {
  constexpr std::string_view kParentBased = "parentbased_";
  constexpr double kTwoTo64 = 18446744073709551616.0;
  Sampler sampler;
  std::string_view kind = name;
  sampler.parent_decides_ = kind.starts_with(kParentBased);
  if (sampler.parent_decides_) kind.remove_prefix(kParentBased.size());
  if (kind == "always_on") return sampler;
  sampler.all_ = false;
  if (kind == "always_off") return sampler;
  if (kind != "traceidratio") {
    return MakeParamError(ErrorCode::kInvalidArgument, "OTEL_TRACES_SAMPLER",
                          "'{}' is no sampler; there are always_on, always_off and traceidratio, each also "
                          "behind parentbased_",
                          name);
  }
  double ratio = 1;
  const auto [end, error] = std::from_chars(argument.data(), argument.data() + argument.size(), ratio);
  const bool is_number = error == std::errc() && end == argument.data() + argument.size();
  if (!argument.empty() && !(is_number && ratio >= 0 && ratio <= 1)) {
    return MakeParamError(ErrorCode::kInvalidArgument, "OTEL_TRACES_SAMPLER_ARG",
                          "'{}' is no ratio from 0 to 1", argument);
  }
  sampler.all_ = ratio * kTwoTo64 >= kTwoTo64;
  if (!sampler.all_) sampler.bound_ = static_cast<uint64_t>(ratio * kTwoTo64);
  return sampler;
}

bool Sampler::Samples(const TraceId& trace, const std::optional<TraceContext>& parent) const {
  if (parent && parent_decides_) return parent->sampled;
  if (all_) return true;
  // The bytes that are random in every program's ids, and by which other programs decide too.
  uint64_t low = 0;
  for (size_t i = trace.size() - sizeof(low); i < trace.size(); ++i) low = low << 8 | trace[i];
  return low < bound_;
}

}  // namespace tandem
