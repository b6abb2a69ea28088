#include "load/gguf_file.h"

#include <cstring>
#include <limits>

namespace tandem {
namespace {

template <typename T>
T LoadAs(const uint8_t* src) {
  T value;
  std::memcpy(&value, src, sizeof(value));
  return value;
}

std::string_view LoadString(const uint8_t* src) {
  const auto length = LoadAs<uint64_t>(src);
  return {reinterpret_cast<const char*>(src + sizeof(uint64_t)), static_cast<size_t>(length)};
}

bool IsInteger(GgufValueType type) {
  return type != GgufValueType::kFloat32 && type != GgufValueType::kFloat64 && type != GgufValueType::kBool &&
         type != GgufValueType::kString && type != GgufValueType::kArray;
}

}  // namespace

Result<const GgufFile::Entry*> GgufFile::FindEntry(std::string_view key) const {
  const auto found = entries_by_key_.find(key);
  if (found == entries_by_key_.end())
    return MakeError(ErrorCode::kNotFound, "{}: no metadata key '{}'", path(), key);
  return &entries_[found->second];
}

Result<const GgufFile::Entry*> GgufFile::FindArray(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const Entry* entry, FindEntry(key));
  if (entry->type != GgufValueType::kArray) return WrongType(*entry, "an array");
  return entry;
}

Error GgufFile::WrongType(const Entry& entry, std::string_view wanted) const {
  return MakeError(ErrorCode::kMalformedFile, "{}: metadata '{}' at byte {} is not {}", path(), entry.key,
                   entry.value - file_.data(), wanted);
}

Result<int64_t> GgufFile::IntegerAt(const Entry& entry, GgufValueType type, const uint8_t* value) const {
  switch (type) {
    case GgufValueType::kUint8:
      return int64_t{LoadAs<uint8_t>(value)};
    case GgufValueType::kInt8:
      return int64_t{LoadAs<int8_t>(value)};
    case GgufValueType::kUint16:
      return int64_t{LoadAs<uint16_t>(value)};
    case GgufValueType::kInt16:
      return int64_t{LoadAs<int16_t>(value)};
    case GgufValueType::kUint32:
      return int64_t{LoadAs<uint32_t>(value)};
    case GgufValueType::kInt32:
      return int64_t{LoadAs<int32_t>(value)};
    case GgufValueType::kInt64:
      return LoadAs<int64_t>(value);
    case GgufValueType::kUint64: {
      const auto raw = LoadAs<uint64_t>(value);
      if (raw > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        return WrongType(entry, "a number below 2^63");
      return static_cast<int64_t>(raw);
    }
    default:
      return WrongType(entry, "an integer");
  }
}

Result<std::string_view> GgufFile::GetString(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const Entry* entry, FindEntry(key));
  if (entry->type != GgufValueType::kString) return WrongType(*entry, "a string");
  return LoadString(entry->value);
}

Result<int64_t> GgufFile::GetInt(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const Entry* entry, FindEntry(key));
  return IntegerAt(*entry, entry->type, entry->value);
}

Result<double> GgufFile::GetFloat(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const Entry* entry, FindEntry(key));
  if (entry->type == GgufValueType::kFloat32) return double{LoadAs<float>(entry->value)};
  if (entry->type == GgufValueType::kFloat64) return LoadAs<double>(entry->value);
  return WrongType(*entry, "a floating-point number");
}

Result<bool> GgufFile::GetBool(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const Entry* entry, FindEntry(key));
  if (entry->type != GgufValueType::kBool) return WrongType(*entry, "a boolean");
  return *entry->value != 0;
}

Result<std::vector<std::string_view>> GgufFile::GetStringArray(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const Entry* entry, FindArray(key));
  if (entry->element_type != GgufValueType::kString) return WrongType(*entry, "an array of strings");
  std::vector<std::string_view> result;
  result.reserve(entry->count);  // checked against the file by Open
  const uint8_t* next = entry->value;
  for (uint64_t i = 0; i < entry->count; ++i) {
    result.push_back(LoadString(next));
    next += sizeof(uint64_t) + result.back().size();
  }
  return result;
}

Result<std::vector<float>> GgufFile::GetFloatArray(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const Entry* entry, FindArray(key));
  if (entry->element_type != GgufValueType::kFloat32) return WrongType(*entry, "an array of float32");
  std::vector<float> result(entry->count);
  if (entry->count > 0) std::memcpy(result.data(), entry->value, entry->count * sizeof(float));
  return result;
}

Result<std::vector<int32_t>> GgufFile::GetInt32Array(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const Entry* entry, FindArray(key));
  if (!IsInteger(entry->element_type)) return WrongType(*entry, "an array of integers");
  const uint64_t stride = GgufScalarBytes(entry->element_type);
  std::vector<int32_t> result;
  result.reserve(entry->count);
  for (uint64_t i = 0; i < entry->count; ++i) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t value,
                            IntegerAt(*entry, entry->element_type, entry->value + i * stride));
    if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max())
      return WrongType(*entry, "an array of 32-bit integers");
    result.push_back(static_cast<int32_t>(value));
  }
  return result;
}

bool GgufFile::IsArray(std::string_view key) const {
  const auto found = entries_by_key_.find(key);
  return found != entries_by_key_.end() && entries_[found->second].type == GgufValueType::kArray;
}

Result<std::string_view> GgufFile::GetStringOr(std::string_view key, std::string_view fallback) const {
  return Has(key) ? GetString(key) : Result<std::string_view>(fallback);
}
Result<int64_t> GgufFile::GetIntOr(std::string_view key, int64_t fallback) const {
  return Has(key) ? GetInt(key) : Result<int64_t>(fallback);
}
Result<double> GgufFile::GetFloatOr(std::string_view key, double fallback) const {
  return Has(key) ? GetFloat(key) : Result<double>(fallback);
}
Result<bool> GgufFile::GetBoolOr(std::string_view key, bool fallback) const {
  return Has(key) ? GetBool(key) : Result<bool>(fallback);
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = tensors_by_name_.find(name);
  return found == tensors_by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace tandem
