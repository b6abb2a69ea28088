// A GGUF file (version 2 or 3, little-endian), mapped and checked: metadata and tensor table.
//
// Open checks every length, count and offset against the file, so that what the getters return can be read
// without further checks. Views and pointers point into the mapping and live as long as the GgufFile.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "load/mapped_file.h"
#include "load/quantization.h"

namespace tandem {

// Type codes of metadata values, as stored.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Bytes of a value; 0 for strings and arrays, whose size varies.
constexpr uint64_t GgufScalarBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

struct GgufTensor {
  std::string_view name;
  BlockFormat format;
  int num_dims = 0;
  std::array<int64_t, 4> dims = {1, 1, 1, 1};  // dims[0] is contiguous: the columns of a matrix
  const uint8_t* data = nullptr;
  uint64_t num_bytes = 0;
};

// Immutable after Open; every method may be called from any thread.
class GgufFile {
 public:
  // Of a file whose metadata can be asked for, but no tensors.
  using MetadataCheck = Status (*)(const GgufFile& file);
  // check_metadata: its error comes before all that tensors can cause. Errors: its; kNotFound, kIo,
  // kMalformedFile (names the file, the field and the byte offset), kUnsupported (version 1, big-endian, a
  // tensor type that is not in quantization.h).
  static Result<std::unique_ptr<GgufFile>> Open(const std::string& path,
                                                MetadataCheck check_metadata = nullptr);

  const std::string& path() const { return file_.path(); }
  uint32_t version() const { return version_; }

  // --- Metadata. Errors of all getters: kNotFound if there is no such key, kMalformedFile if its type is not
  // the one asked for or its value does not fit.
  bool Has(std::string_view key) const { return entries_by_key_.contains(key); }
  Result<std::string_view> GetString(std::string_view key) const;  // raw bytes, no terminator
  Result<int64_t> GetInt(std::string_view key) const;              // any integer type
  Result<double> GetFloat(std::string_view key) const;             // float32 or float64
  Result<bool> GetBool(std::string_view key) const;
  Result<std::vector<std::string_view>> GetStringArray(std::string_view key) const;
  Result<std::vector<float>> GetFloatArray(std::string_view key) const;    // of float32
  Result<std::vector<int32_t>> GetInt32Array(std::string_view key) const;  // of any integer type
  bool IsArray(std::string_view key) const;

  // The same, but `fallback` if there is no such key. A key of the wrong type is still an error.
  Result<std::string_view> GetStringOr(std::string_view key, std::string_view fallback) const;
  Result<int64_t> GetIntOr(std::string_view key, int64_t fallback) const;
  Result<double> GetFloatOr(std::string_view key, double fallback) const;
  Result<bool> GetBoolOr(std::string_view key, bool fallback) const;

  // --- Tensors, in the order of the table.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* FindTensor(std::string_view name) const;  // nullptr if there is none

 private:
  friend class GgufParser;

  struct Entry {
    std::string_view key;
    GgufValueType type = GgufValueType::kUint8;
    GgufValueType element_type = GgufValueType::kUint8;  // of an array
    uint64_t count = 1;                                  // elements of an array
    const uint8_t* value = nullptr;                      // first byte of the value or of the first element
  };

  explicit GgufFile(MappedFile file) : file_(std::move(file)) {}
  Result<const Entry*> FindEntry(std::string_view key) const;
  Result<const Entry*> FindArray(std::string_view key) const;
  Error WrongType(const Entry& entry, std::string_view wanted) const;
  Result<int64_t> IntegerAt(const Entry& entry, GgufValueType type, const uint8_t* value) const;

  MappedFile file_;
  uint32_t version_ = 0;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> entries_by_key_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> tensors_by_name_;
};

}  // namespace tandem
