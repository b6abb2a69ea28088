// The merges that a SentencePiece BPE vocabulary implies.
#pragma once

#include <vector>

#include "base/result.h"
#include "text/tokenizer/bpe_model.h"

namespace tandem {

// Every way to cut a token into two tokens is a merge. scores: one for each token, the best merge first;
// empty: tokens in the order of their ids. Ties are resolved as Hugging Face does, differently in the two
// cases. Errors: kMalformedFile if a score is not finite, kUnsupported for tokens over 1 KiB.
Result<BpeModel::Merges> MergesFromVocabulary(const BpeModel::Vocabulary& vocabulary,
                                              const std::vector<float>& scores);

}  // namespace tandem
