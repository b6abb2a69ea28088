// Text that a user sent, through tokenizers of every kind. Decoding gives the same token by token as at once,
// and what is content makes no control token but the unknown one.
#include <memory>
#include <vector>

#include "fuzz/fuzzer_input.h"
#include "text/tokenizer.h"

namespace {

using tandem::Tokenizer;

std::vector<std::unique_ptr<Tokenizer>>* LoadAll() {
  auto* const all = new std::vector<std::unique_ptr<Tokenizer>>;
  const std::string folder = std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/text/";
  for (const char* name :
       {"smollm2", "llama3", "qwen2", "qwen3", "llama2", "metaspace", "gpt2_odd", "tekken"}) {
    auto loaded = Tokenizer::FromTokenizerJson(folder + name + ".tokenizer.json", "");
    tandem::Expect(loaded.ok(), name);
    all->push_back(std::move(loaded).value());
  }
  for (const char* name : {"gguf_llama3.gguf", "gguf_qwen2.gguf", "gguf_spm.gguf"}) {
    auto loaded = Tokenizer::FromGguf(folder + name);
    tandem::Expect(loaded.ok(), name);
    all->push_back(std::move(loaded).value());
  }
  auto loaded = Tokenizer::FromSentencePiece(folder + "llama2.tokenizer.model", "");
  tandem::Expect(loaded.ok(), "llama2.tokenizer.model");
  all->push_back(std::move(loaded).value());
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const tokenizers = LoadAll();
  if (size < 1) return 0;
  const Tokenizer& tokenizer = *(*tokenizers)[data[0] % tokenizers->size()];
  const std::string_view text = tandem::AsText(data + 1, size - 1);

  const std::vector<int32_t> ids = tokenizer.Encode(text, true);
  for (const bool skip : {false, true}) {
    const auto stream = tokenizer.NewDecodeStream(skip);
    std::string streamed;
    for (const int32_t id : ids) stream->Append(id, &streamed);
    stream->Flush(&streamed);
    tandem::Expect(streamed == tokenizer.Decode(ids, skip), "token by token is the same as at once");
  }
  const tandem::Provenance all_content(tandem::Source::kContent);
  for (const int32_t id : tokenizer.Encode(text, all_content, false)) {
    // The token of what a vocabulary does not have is one, and is no forgery.
    const bool is_forged = tokenizer.IsControl(id) && tokenizer.Decode({{id}}, false) != "<unk>";
    tandem::Expect(!is_forged, "content makes no control token but the unknown one");
  }
  return 0;
}
