// "SIZE" of the command line: bytes ("4GiB", "512MB", "1048576") or KV tokens ("26400tok").
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "engine/engine_options.h"

namespace tandem {

// KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB (and K, M, G, T) of 1000 (of 1024); case does not
// matter, fractions are allowed for bytes. Errors: kInvalidArgument that quotes the text.
Result<CacheSize> ParseSize(std::string_view text);
// Of a tier, absent where the text is empty. flag: without dashes, param of the errors. Errors: ParseSize's,
// and kInvalidArgument where it is 0.
Result<std::optional<CacheSize>> ParseTierSize(std::string_view flag, std::string_view text);
// ParseSize, tokens refused.
Result<int64_t> ParseByteSize(std::string_view text);

}  // namespace tandem
