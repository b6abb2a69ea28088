// The text side of a model that has no vocabulary of its own.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "text/tokenizer.h"

namespace tandem {

// Ids 0 to 255 are bytes; Encode gives nothing else, and adds nothing. An id above decodes to its number in
// brackets ("<4711>"), so that a client sees every token of a model that draws from its whole vocabulary.
// There are no special tokens. Errors: kInvalidArgument if vocab_size is below 256 or above what a tokenizer
// holds.
Result<std::unique_ptr<Tokenizer>> MakeByteTokenizer(int64_t vocab_size);

}  // namespace tandem
