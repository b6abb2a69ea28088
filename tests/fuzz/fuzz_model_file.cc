// A file that somebody downloaded: GGUF, or what lies in a Hugging Face folder. The first byte says which.
#include <vector>

#include "fuzz/fuzzer_input.h"
#include "load/checkpoint.h"
#include "load/gguf_file.h"
#include "load/safetensors_file.h"
#include "text/tokenizer.h"

namespace {

// Reads what an opened checkpoint offers, a little of each tensor.
void ReadSome(const tandem::Checkpoint& checkpoint) {
  std::vector<float> row;
  for (const tandem::TensorInfo& tensor : checkpoint.tensors()) {
    if (tensor.rows < 1 || tensor.cols < 1 || tensor.cols > (1 << 20)) continue;
    row.resize(static_cast<size_t>(tensor.cols));
    for (const int64_t at : {int64_t{0}, tensor.rows - 1}) {
      (void)checkpoint.ReadRows(tensor.name, at, 1, tandem::DType::kF32, row.data());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const gguf = new tandem::InputFile("model.gguf");
  static const auto* const config = new tandem::InputFile("config.json");
  static const auto* const safetensors = new tandem::InputFile("model.safetensors");
  static const auto* const tokenizer_json = new tandem::InputFile("tokenizer.json");
  static const auto* const sentence_piece = new tandem::InputFile("tokenizer.model");
  if (size < 1) return 0;
  const std::string_view bytes = tandem::AsText(data + 1, size - 1);
  switch (data[0] % 5) {
    case 0: {
      const std::string path = gguf->Write(bytes);
      const auto checkpoint = tandem::Checkpoint::Open(path);
      if (checkpoint.ok()) ReadSome(**checkpoint);
      (void)tandem::Tokenizer::FromGguf(path);
      break;
    }
    case 1: {
      config->Write(bytes);
      const auto checkpoint = tandem::Checkpoint::Open(config->folder());
      if (checkpoint.ok()) ReadSome(**checkpoint);
      break;
    }
    case 2:
      (void)tandem::SafetensorsFile::Open(safetensors->Write(bytes));
      break;
    case 3:
      (void)tandem::Tokenizer::FromTokenizerJson(tokenizer_json->Write(bytes), "");
      break;
    default:
      (void)tandem::Tokenizer::FromSentencePiece(sentence_piece->Write(bytes), "");
  }
  return 0;
}
