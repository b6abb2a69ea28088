#include "load/safetensors_file.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "load/json_fields.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMaxDims = 8;

struct StoredDType {
  std::string_view name;
  uint64_t bytes;
  std::optional<GgmlType> type;
};
constexpr StoredDType kDTypes[] = {
    {"F32", 4, GgmlType::kF32},
    {"F16", 2, GgmlType::kF16},
    {"BF16", 2, GgmlType::kBF16},
    {"F64", 8, {}},
    {"I64", 8, {}},
    {"I32", 4, {}},
    {"I16", 2, {}},
    {"I8", 1, {}},
    {"U64", 8, {}},
    {"U32", 4, {}},
    {"U16", 2, {}},
    {"U8", 1, {}},
    {"BOOL", 1, {}},
    {"F8_E4M3", 1, {}},
    {"F8_E5M2", 1, {}},
};

const StoredDType* FindDType(std::string_view name) {
  for (const StoredDType& dtype : kDTypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

struct Extent {
  uint64_t begin = 0;
  uint64_t end = 0;
};

Result<Extent> ReadExtent(const JsonFields& fields, uint64_t data_bytes) {
  constexpr const char* kKey = "data_offsets";
  const json* offsets = fields.Find(kKey);
  if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned())
    return fields.Wrong(kKey, "an array of two offsets");
  const Extent extent = {(*offsets)[0].get<uint64_t>(), (*offsets)[1].get<uint64_t>()};
  if (extent.begin > extent.end || extent.end > data_bytes) {
    return MakeError(ErrorCode::kMalformedFile, "{}: field '{}' is [{}, {}], outside the {} bytes of data",
                     fields.where(), kKey, extent.begin, extent.end, data_bytes);
  }
  return extent;
}

// Fills dtype, type and shape; returns the bytes that they take.
Result<uint64_t> ReadShape(const JsonFields& fields, SafetensorsTensor& tensor) {
  TANDEM_ASSIGN_OR_RETURN(const std::string dtype_name, fields.String("dtype"));
  const StoredDType* dtype = FindDType(dtype_name);
  if (dtype == nullptr) {
    return MakeError(ErrorCode::kMalformedFile, "{}: field 'dtype' is the unknown '{}'", fields.where(),
                     dtype_name.substr(0, 40));
  }
  tensor.dtype = dtype->name;
  tensor.type = dtype->type;
  const json* shape = fields.Find("shape");
  if (shape == nullptr || !shape->is_array() || shape->size() > kMaxDims)
    return fields.Wrong("shape", "an array of at most 8 sizes");
  uint64_t num_bytes = dtype->bytes;
  uint64_t product = dtype->bytes;  // with sizes of zero left out, so that no partial product overflows
  for (const json& size : *shape) {
    if (!size.is_number_unsigned()) return fields.Wrong("shape", "one of sizes only");
    const auto dim = size.get<uint64_t>();
    const uint64_t factor = std::max<uint64_t>(dim, 1);
    if (factor > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / product)
      return fields.Wrong("shape", "one whose product fits");
    product *= factor;
    num_bytes *= dim;
    tensor.shape.push_back(static_cast<int64_t>(dim));
  }
  return num_bytes;
}

}  // namespace

Status SafetensorsFile::Parse() {
  const auto malformed = [this](std::string_view what) {
    return MakeError(ErrorCode::kMalformedFile, "{}: {}", path(), what);
  };
  if (file_.size() < kLengthBytes)
    return malformed(fmt::format("header length needs 8 bytes, the file has {}", file_.size()));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file_.data(), sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes || header_bytes > file_.size() - kLengthBytes) {
    return malformed(
        fmt::format("header length {} at byte 0 is beyond the file of {} bytes or the limit of {}",
                    header_bytes, file_.size(), kMaxHeaderBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(file_.data() + kLengthBytes),
                              static_cast<size_t>(header_bytes));
  TANDEM_ASSIGN_OR_RETURN(const json header, ParseJsonObject(text, path() + ": header"));

  const uint8_t* data = file_.data() + kLengthBytes + header_bytes;
  const uint64_t data_bytes = file_.size() - kLengthBytes - header_bytes;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) return malformed("header: field '__metadata__' is not an object");
      continue;
    }
    const std::string where = fmt::format("{}: tensor '{}'", path(), name.substr(0, 200));
    if (!value.is_object()) return MakeError(ErrorCode::kMalformedFile, "{} is not an object", where);
    const JsonFields fields(value, where);
    SafetensorsTensor tensor;
    tensor.name = name;
    tensor.file = path();
    TANDEM_ASSIGN_OR_RETURN(tensor.num_bytes, ReadShape(fields, tensor));
    TANDEM_ASSIGN_OR_RETURN(const Extent extent, ReadExtent(fields, data_bytes));
    if (extent.end - extent.begin != tensor.num_bytes) {
      return MakeError(ErrorCode::kMalformedFile,
                       "{}: field 'data_offsets' spans {} bytes, shape and dtype take {}", where,
                       extent.end - extent.begin, tensor.num_bytes);
    }
    tensor.data = data + extent.begin;
    tensors_.push_back(std::move(tensor));
  }

  std::sort(tensors_.begin(), tensors_.end(), [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
    return a.data != b.data ? a.data < b.data : a.num_bytes < b.num_bytes;
  });
  const uint8_t* expected = data;
  for (const SafetensorsTensor& tensor : tensors_) {
    if (tensor.data != expected) {
      return malformed(
          fmt::format("tensor '{}' begins at data offset {}, which {} (the data before ends at {})",
                      tensor.name.substr(0, 200), tensor.data - data,
                      tensor.data < expected ? "overlaps another tensor" : "leaves a hole", expected - data));
    }
    expected = tensor.data + tensor.num_bytes;
  }
  if (expected != data + data_bytes) {
    return malformed(fmt::format("the tensors end at data offset {}, the file goes on to {}", expected - data,
                                 data_bytes));
  }
  return {};
}

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  std::unique_ptr<SafetensorsFile> result(new SafetensorsFile(std::move(file)));
  TANDEM_RETURN_IF_ERROR(result->Parse());
  return result;
}

}  // namespace tandem
