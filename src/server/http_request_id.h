// X-Request-Id: names a request in answers and logs.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// Any thread. Different each time.
std::string NewHttpRequestId();
// The client's own if it is 1 to 128 printable ASCII characters, else a new one.
std::string HttpRequestIdOr(std::string_view from_client);

}  // namespace tandem
