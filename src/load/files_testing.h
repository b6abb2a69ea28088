// Builds small GGUF and safetensors files for the tests of this folder, byte by byte.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "load/gguf_file.h"

namespace tandem {

// A fresh folder, removed with everything in it at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file of this name and returns its path.
  std::string Write(const std::string& name, std::string_view content) const;

 private:
  std::string path_;
};

// Largest single request to operator new since the last reset, in the whole test program.
void ResetLargestAllocation();
size_t LargestAllocation();

std::string ReadFileBytes(const std::string& path);

// Appends the parts of a GGUF file in the order of the calls, without any check, and remembers where the
// numbers of the header are.
class GgufWriter {
 public:
  struct Field {
    std::string name;
    size_t offset = 0;
    size_t bytes = 0;  // 4 or 8
  };

  GgufWriter(uint64_t num_tensors, uint64_t num_entries, uint32_t version = 3);

  void U8(uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void U32(const std::string& field, uint32_t value) { Number(field, &value, sizeof(value)); }
  void U64(const std::string& field, uint64_t value) { Number(field, &value, sizeof(value)); }
  void F32(float value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void String(const std::string& field, std::string_view value);

  void EntryHeader(const std::string& key, GgufValueType type);
  void IntEntry(const std::string& key, uint32_t value);
  void FloatEntry(const std::string& key, float value);
  void StringEntry(const std::string& key, std::string_view value);
  void BoolEntry(const std::string& key, bool value);
  void StringArrayEntry(const std::string& key, const std::vector<std::string>& values);
  void FloatArrayEntry(const std::string& key, const std::vector<float>& values);

  // dims: contiguous one first.
  void Tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type_code,
              uint64_t offset);
  void PadTo(size_t alignment);
  void Data(std::string_view data) { bytes_.append(data); }

  const std::string& bytes() const { return bytes_; }
  const std::vector<Field>& fields() const { return fields_; }

 private:
  void Number(const std::string& field, const void* value, size_t size);

  std::string bytes_;
  std::vector<Field> fields_;
};

struct TinyTensor {
  std::string name;  // GGUF name
  std::vector<uint64_t> dims;
  GgmlType type = GgmlType::kF32;
  std::string data;
};

// A one-layer llama of hidden size 64, 4 heads, 2 key/value heads, 32 intermediate, 10 tokens. The value at
// row r and column c of F32 tensor i is 1000 * i + r + c / 64.
std::vector<TinyTensor> TinyLlamaTensors();
// add_entries: writes num_more entries of metadata behind those of every file.
GgufWriter TinyLlamaGguf(const std::vector<TinyTensor>& tensors, uint64_t num_more = 0,
                         const std::function<void(GgufWriter*)>& add_entries = nullptr);

// Length, header text and data of a safetensors file.
std::string SafetensorsBytes(std::string_view header, std::string_view data);

}  // namespace tandem
