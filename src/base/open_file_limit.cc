#include "base/open_file_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace tandem {
namespace {

int64_t ToCount(rlim_t limit) {
  constexpr auto kMax = static_cast<rlim_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(std::min(limit, kMax));
}

}  // namespace

int64_t RaiseOpenFileLimit(int64_t num_files) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const auto wanted = std::min(static_cast<rlim_t>(num_files), limit.rlim_max);
  if (limit.rlim_cur >= wanted) return ToCount(limit.rlim_cur);
  const rlimit raised{.rlim_cur = wanted, .rlim_max = limit.rlim_max};
  return ToCount(setrlimit(RLIMIT_NOFILE, &raised) == 0 ? wanted : limit.rlim_cur);
}

}  // namespace tandem
