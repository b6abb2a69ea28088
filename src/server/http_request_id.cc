#include "server/http_request_id.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>

namespace tandem {

std::string NewHttpRequestId() {
  // 64 bits of this process, then a count: no two alike, here and on other servers.
  static const uint64_t process = [] {
    std::random_device device;
    return (uint64_t{device()} << 32) | device();
  }();
  static std::atomic<uint64_t> counter{0};
  return fmt::format("req-{:016x}{:08x}", process, ++counter);
}

std::string HttpRequestIdOr(std::string_view from_client) {
  constexpr size_t kMaxLength = 128;
  const bool good =
      !from_client.empty() && from_client.size() <= kMaxLength &&
      std::all_of(from_client.begin(), from_client.end(), [](char c) { return c >= ' ' && c <= '~'; });
  return good ? std::string(from_client) : NewHttpRequestId();
}

}  // namespace tandem
