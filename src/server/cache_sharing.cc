#include "server/cache_sharing.h"

#include <fmt/format.h>

#include "server/new_ids.h"

namespace tandem {

std::string EngineCacheSalt(const CacheSharing& sharing) {
  if (sharing.key_name.empty() && sharing.salt.empty() && !sharing.alone) return {};
  // With lengths before them: what a client makes up as its salt can never read like another key's name.
  return fmt::format("{}:{}{}:{}{}", sharing.key_name.size(), sharing.key_name, sharing.salt.size(),
                     sharing.salt, sharing.alone ? NewId() : "");
}

}  // namespace tandem
