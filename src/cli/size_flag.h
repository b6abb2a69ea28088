// "SIZE" of the command line: bytes ("4GiB", "512MB", "1048576") or KV tokens ("26400tok").
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "engine/engine_options.h"

namespace tandem {

// KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB (and K, M, G, T) of 1000 (of 1024); case does not
// matter, fractions are allowed for bytes. Errors: kInvalidArgument that quotes the text.
Result<CacheSize> ParseSize(std::string_view text);
// The same, tokens refused.
Result<int64_t> ParseByteSize(std::string_view text);

}  // namespace tandem
