// What a model's files say of its text: where tokenizer and chat template are, which tokens end an answer.
#pragma once

#include <string>

#include "base/result.h"
#include "load/model_config.h"

namespace tandem {

class GgufFile;

// Where the tokenizer and the chat template are.
struct TextSource {
  enum class Kind { kTokenizerJson, kSentencePiece, kGguf };
  Kind kind = Kind::kTokenizerJson;
  std::string path;                   // tokenizer.json, tokenizer.model, or the .gguf itself
  std::string tokenizer_config_path;  // tokenizer_config.json next to it, empty if none
  std::string chat_template;          // Jinja source, empty if none
};

struct TextSide {
  TextSource source;
  GenerationDefaults generation_defaults;
};

// path: a .gguf file, or a folder with tokenizer.json or tokenizer.model; there need not be weights. Errors:
// kNotFound, kIo, kMalformedFile (names the file and the field).
Result<TextSide> ReadTextSide(const std::string& path);

// folder: of a model, with config.json and generation_config.json or without.
Result<TextSide> ReadFolderTextSide(const std::string& folder);
Result<TextSide> ReadGgufTextSide(const GgufFile& file, const std::string& path);

}  // namespace tandem
