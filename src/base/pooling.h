// Which of a sequence's hidden states its embedding is made of.
#pragma once

#include <cstdint>

namespace tandem {

enum class Pooling : uint8_t { kLast, kMean, kFirst };

}  // namespace tandem
