// What tokenizer_config.json adds to a tokenizer.json or a tokenizer.model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer/added_tokens.h"

namespace tandem {

struct TokenizerConfig {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> unk_token;
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  std::optional<bool> add_prefix_space;
  std::optional<bool> legacy;
  // "added_tokens_decoder": with their ids.
  std::vector<AddedToken> added_tokens;
  // Every token the file names as special (bos_token, pad_token, additional_special_tokens, ...); ids are not
  // set.
  std::vector<AddedToken> special_tokens;

  // An empty path gives an empty config. Errors: kNotFound, kIo, kMalformedFile.
  static Result<TokenizerConfig> Read(const std::string& path);
};

// One entry of a list of added tokens: a string, or an object with the token's flags. The id is not set.
Result<AddedToken> ReadAddedToken(const nlohmann::json& spec);

}  // namespace tandem
