// Who may begin with what was computed for a request.
#pragma once

#include <string>

namespace tandem {

// Requests of the same sharing have the prefix cache in common, and those of others cannot tell by any count
// or time whether they sent the same.
struct CacheSharing {
  std::string key_name;  // of the client's key, where each key has a cache of its own; else empty
  std::string salt;      // the request's own; empty: none
  bool alone = false;    // nobody, and it finds nothing
};

// RequestSpec::cache_salt: the same for the same sharing, another for any other and for each that is alone.
// Empty where all is shared. Any thread.
std::string EngineCacheSalt(const CacheSharing& sharing);

}  // namespace tandem
