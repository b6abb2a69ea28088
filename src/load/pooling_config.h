// How a folder of sentence-transformers makes embeddings of its model: modules.json and
// 1_Pooling/config.json.
#pragma once

#include <optional>
#include <string>

#include "base/pooling.h"
#include "base/result.h"

namespace tandem {

// Absent: the folder is none of sentence-transformers, or does not say it. Errors: kMalformedFile;
// kUnsupported for a pooling or a module that would change embeddings and is not served.
Result<std::optional<Pooling>> ReadFolderPooling(const std::string& folder);

// Whether there is a modules.json.
bool IsSentenceTransformer(const std::string& folder);

}  // namespace tandem
