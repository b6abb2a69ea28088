// One .safetensors file: an 8-byte header length, a JSON header, tensor data. Mapped and checked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "load/mapped_file.h"
#include "load/quantization.h"

namespace tandem {

struct SafetensorsTensor {
  std::string name;
  std::string_view file;         // its path
  std::string_view dtype;        // "BF16", "I64", ... as stored
  std::optional<GgmlType> type;  // of F32, F16 and BF16; the others are listed, but not converted
  std::vector<int64_t> shape;    // row-major; empty for a scalar
  const uint8_t* data = nullptr;
  uint64_t num_bytes = 0;
};

// Immutable after Open; every method may be called from any thread. Data lives as long as the object.
class SafetensorsFile {
 public:
  // Errors: kNotFound, kIo, kMalformedFile (header length, JSON, dtypes, shapes against offsets, offsets
  // against the file, overlaps and holes).
  static Result<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // In the order of their data.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}
  Status Parse();

  MappedFile file_;
  std::vector<SafetensorsTensor> tensors_;
};

}  // namespace tandem
