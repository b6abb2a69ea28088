// GgufFile::Open: reads the header once, front to back, and trusts none of it.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "load/gguf_file.h"

namespace tandem {
namespace {

constexpr uint64_t kDefaultAlignment = 32;
constexpr int kMaxArrayDepth = 4;
// Smallest encodings, to bound a count by what is left of the file before anything is stored.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;  // key length, key, type, value
constexpr uint64_t kMinTensorBytes =
    8 + 1 + 4 + 8 + 4 + 8;  // name length, name, n_dims, one dim, type, offset
constexpr uint64_t kArrayHeaderBytes = 4 + 8;

// Smallest bytes of one array element.
uint64_t MinElementBytes(GgufValueType type) {
  if (type == GgufValueType::kString) return sizeof(uint64_t);
  if (type == GgufValueType::kArray) return kArrayHeaderBytes;
  return GgufScalarBytes(type);
}

// Key and name bytes for a message: short, printable.
std::string Printable(std::string_view raw) {
  std::string result;
  for (const char c : raw.substr(0, 80)) result += (c >= 0x20 && c < 0x7f) ? c : '?';
  if (raw.size() > 80) result += "...";
  return result;
}

// Of types that files have and this loader does not read, as their makers call them.
std::string_view NameOfUnreadType(uint32_t type_code) {
  constexpr std::pair<uint32_t, std::string_view> kNames[] = {
      {9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
      {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
      {29, "IQ1_M"},   {34, "TQ1_0"}, {35, "TQ2_0"},  {39, "MXFP4"}};
  for (const auto& [code, name] : kNames) {
    if (code == type_code) return name;
  }
  return "an unknown type";
}

}  // namespace

class GgufParser {
 public:
  explicit GgufParser(GgufFile& target) : target_(target), file_(target.file_) {}

  Status Parse(GgufFile::MetadataCheck check_metadata) {
    TANDEM_RETURN_IF_ERROR(ReadHeader());
    TANDEM_RETURN_IF_ERROR(ReadEntries());
    TANDEM_RETURN_IF_ERROR(ReadAlignment());
    if (check_metadata != nullptr) TANDEM_RETURN_IF_ERROR(check_metadata(target_));
    TANDEM_RETURN_IF_ERROR(ReadTensors());
    return PlaceTensors();
  }

 private:
  uint64_t Remaining() const { return file_.size() - position_; }

  template <typename... Args>
  Error Malformed(uint64_t offset, fmt::format_string<Args...> format, Args&&... args) const {
    return MakeError(ErrorCode::kMalformedFile, "{}: {} at byte {}", file_.path(),
                     fmt::format(format, std::forward<Args>(args)...), offset);
  }

  template <typename T>
  Result<T> Read(std::string_view field) {
    if (Remaining() < sizeof(T)) {
      return Malformed(position_, "{} needs {} bytes, the file ends {} bytes after it begins", field,
                       sizeof(T), Remaining());
    }
    T value;
    std::memcpy(&value, file_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  Result<std::string_view> ReadString(std::string_view field) {
    const uint64_t begin = position_;
    TANDEM_ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(field));
    if (length > Remaining()) {
      return Malformed(begin, "{} has a length of {}, but {} bytes are left in the file", field, length,
                       Remaining());
    }
    const std::string_view value(reinterpret_cast<const char*>(file_.data() + position_),
                                 static_cast<size_t>(length));
    position_ += length;
    return value;
  }

  Result<GgufValueType> ReadValueType(std::string_view field) {
    const uint64_t begin = position_;
    TANDEM_ASSIGN_OR_RETURN(const uint32_t code, Read<uint32_t>(field));
    if (code > static_cast<uint32_t>(GgufValueType::kFloat64))
      return Malformed(begin, "{} has the unknown type {}", field, code);
    return static_cast<GgufValueType>(code);
  }

  Status ReadHeader() {
    if (file_.size() < 4 || std::memcmp(file_.data(), "GGUF", 4) != 0)
      return Malformed(0, "not a GGUF file, magic missing");
    position_ = 4;
    TANDEM_ASSIGN_OR_RETURN(const uint32_t version, Read<uint32_t>("version"));
    if (version != 2 && version != 3) {
      const uint32_t swapped = __builtin_bswap32(version);
      if (swapped == 2 || swapped == 3) {
        return MakeError(ErrorCode::kUnsupported, "{}: the file is big-endian, only little-endian is read",
                         file_.path());
      }
      return MakeError(ErrorCode::kUnsupported, "{}: GGUF version {} at byte 4, only 2 and 3 are read",
                       file_.path(), version);
    }
    target_.version_ = version;
    TANDEM_ASSIGN_OR_RETURN(num_tensors_, Read<uint64_t>("tensor count"));
    TANDEM_ASSIGN_OR_RETURN(num_entries_, Read<uint64_t>("metadata count"));
    if (num_tensors_ > Remaining() / kMinTensorBytes)
      return Malformed(8, "tensor count {} is more than the file can hold", num_tensors_);
    if (num_entries_ > Remaining() / kMinEntryBytes)
      return Malformed(16, "metadata count {} is more than the file can hold", num_entries_);
    return {};
  }

  Status ReadEntries() {
    for (uint64_t i = 0; i < num_entries_; ++i) {
      const uint64_t begin = position_;
      GgufFile::Entry entry;
      TANDEM_ASSIGN_OR_RETURN(entry.key, ReadString(fmt::format("key of metadata entry {}", i)));
      if (entry.key.empty()) return Malformed(begin, "key of metadata entry {} is empty", i);
      const std::string field = fmt::format("metadata '{}'", Printable(entry.key));
      TANDEM_ASSIGN_OR_RETURN(entry.type, ReadValueType(field));
      entry.value = file_.data() + position_;
      if (entry.type == GgufValueType::kArray) {
        const uint64_t array = position_;
        TANDEM_ASSIGN_OR_RETURN(entry.element_type, ReadValueType(field));
        TANDEM_ASSIGN_OR_RETURN(entry.count, Read<uint64_t>(field));
        entry.value = file_.data() + position_;
        TANDEM_RETURN_IF_ERROR(SkipElements(field, array, entry.element_type, entry.count, 1));
      } else {
        TANDEM_RETURN_IF_ERROR(SkipElements(field, position_, entry.type, 1, 0));
      }
      if (!target_.entries_by_key_.emplace(entry.key, target_.entries_.size()).second)
        return Malformed(begin, "{} appears twice, again", field);
      target_.entries_.push_back(entry);
    }
    return {};
  }

  // Moves past `count` values and checks them. array_offset: where their array begins, for messages.
  Status SkipElements(const std::string& field, uint64_t array_offset, GgufValueType type, uint64_t count,
                      int depth) {
    if (depth > kMaxArrayDepth)
      return Malformed(array_offset, "{} nests arrays deeper than {}", field, kMaxArrayDepth);
    if (count > Remaining() / MinElementBytes(type)) {
      return Malformed(array_offset, "{} has {} values, more than the {} bytes left in the file", field,
                       count, Remaining());
    }
    if (type == GgufValueType::kString) {
      for (uint64_t i = 0; i < count; ++i) TANDEM_RETURN_IF_ERROR(ReadString(field));
      return {};
    }
    if (type == GgufValueType::kArray) {
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t begin = position_;
        TANDEM_ASSIGN_OR_RETURN(const GgufValueType inner_type, ReadValueType(field));
        TANDEM_ASSIGN_OR_RETURN(const uint64_t inner_count, Read<uint64_t>(field));
        TANDEM_RETURN_IF_ERROR(SkipElements(field, begin, inner_type, inner_count, depth + 1));
      }
      return {};
    }
    if (type == GgufValueType::kBool) {
      for (uint64_t i = 0; i < count; ++i) {
        const uint8_t value = file_.data()[position_ + i];
        if (value > 1) return Malformed(position_ + i, "{} is a boolean of value {}", field, value);
      }
    }
    position_ += count * GgufScalarBytes(type);
    return {};
  }

  Status ReadAlignment() {
    constexpr std::string_view kKey = "general.alignment";
    TANDEM_ASSIGN_OR_RETURN(const int64_t alignment,
                            target_.GetIntOr(kKey, static_cast<int64_t>(kDefaultAlignment)));
    if (alignment <= 0 || !std::has_single_bit(static_cast<uint64_t>(alignment))) {
      TANDEM_ASSIGN_OR_RETURN(const GgufFile::Entry* entry, target_.FindEntry(kKey));
      return Malformed(static_cast<uint64_t>(entry->value - file_.data()), "{} {} is not a power of two",
                       kKey, alignment);
    }
    alignment_ = static_cast<uint64_t>(alignment);
    return {};
  }

  struct Placement {
    uint64_t offset = 0;        // of the data, from the start of the data section
    uint64_t field_offset = 0;  // of the offset field, from the start of the file
  };

  Status ReadTensors() {
    for (uint64_t i = 0; i < num_tensors_; ++i) {
      const uint64_t begin = position_;
      GgufTensor tensor;
      TANDEM_ASSIGN_OR_RETURN(tensor.name, ReadString(fmt::format("name of tensor {}", i)));
      if (tensor.name.empty()) return Malformed(begin, "name of tensor {} is empty", i);
      const std::string field = fmt::format("tensor '{}'", Printable(tensor.name));
      TANDEM_RETURN_IF_ERROR(ReadShape(field, tensor));
      Placement placement;
      placement.field_offset = position_;
      TANDEM_ASSIGN_OR_RETURN(placement.offset, Read<uint64_t>(field + " offset"));
      if (!target_.tensors_by_name_.emplace(tensor.name, target_.tensors_.size()).second)
        return Malformed(begin, "{} appears twice, again", field);
      target_.tensors_.push_back(tensor);
      placements_.push_back(placement);
    }
    return {};
  }

  // Dimensions and type, and from them the size of the data.
  Status ReadShape(const std::string& field, GgufTensor& tensor) {
    const uint64_t dims_offset = position_;
    TANDEM_ASSIGN_OR_RETURN(const uint32_t num_dims, Read<uint32_t>(field + " dimension count"));
    if (num_dims < 1 || num_dims > tensor.dims.size())
      return Malformed(dims_offset, "{} has {} dimensions, not 1 to 4,", field, num_dims);
    tensor.num_dims = static_cast<int>(num_dims);
    uint64_t num_elements = 1;
    for (uint32_t d = 0; d < num_dims; ++d) {
      const uint64_t offset = position_;
      TANDEM_ASSIGN_OR_RETURN(const uint64_t dim, Read<uint64_t>(field + " dimension"));
      if (dim == 0) return Malformed(offset, "{} has a dimension of zero", field);
      if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / num_elements)
        return Malformed(offset, "{} has dimensions whose product overflows", field);
      num_elements *= dim;
      tensor.dims[d] = static_cast<int64_t>(dim);
    }
    const uint64_t type_offset = position_;
    TANDEM_ASSIGN_OR_RETURN(const uint32_t type_code, Read<uint32_t>(field + " type"));
    const BlockFormat* format = FindBlockFormat(type_code);
    if (format == nullptr) {
      return MakeError(
          ErrorCode::kUnsupported,
          "{}: {} is stored as {} (type code {} at byte {}); F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, "
          "Q5_1, Q4_K, Q5_K and Q6_K are read",
          file_.path(), field, NameOfUnreadType(type_code), type_code, type_offset);
    }
    tensor.format = *format;
    if (static_cast<uint64_t>(tensor.dims[0]) % format->block_elements != 0) {
      return Malformed(type_offset, "{} has rows of {} values, not whole blocks of {} ({}),", field,
                       tensor.dims[0], format->block_elements, format->name);
    }
    const uint64_t num_blocks = num_elements / format->block_elements;
    if (num_blocks > std::numeric_limits<uint64_t>::max() / format->block_bytes)
      return Malformed(dims_offset, "{} has a size that overflows", field);
    tensor.num_bytes = num_blocks * format->block_bytes;
    return {};
  }

  Status PlaceTensors() {
    if (num_tensors_ == 0) return {};
    const uint64_t padding = (alignment_ - position_ % alignment_) % alignment_;
    if (padding > Remaining())
      return Malformed(position_, "the file ends before its tensor data, aligned to {} bytes,", alignment_);
    const uint64_t data_begin = position_ + padding;
    const uint64_t data_bytes = file_.size() - data_begin;
    std::vector<size_t> by_offset(placements_.size());
    for (size_t i = 0; i < placements_.size(); ++i) {
      GgufTensor& tensor = target_.tensors_[i];
      const auto [offset, field_offset] = placements_[i];
      if (offset % alignment_ != 0) {
        return Malformed(field_offset, "tensor '{}' has the offset {}, no multiple of the alignment {},",
                         Printable(tensor.name), offset, alignment_);
      }
      if (offset > data_bytes || tensor.num_bytes > data_bytes - offset) {
        return Malformed(field_offset, "tensor '{}' has {} bytes at offset {}, beyond the {} bytes of data,",
                         Printable(tensor.name), tensor.num_bytes, offset, data_bytes);
      }
      tensor.data = file_.data() + data_begin + offset;
      by_offset[i] = i;
    }
    std::sort(by_offset.begin(), by_offset.end(),
              [this](size_t a, size_t b) { return placements_[a].offset < placements_[b].offset; });
    for (size_t i = 1; i < by_offset.size(); ++i) {
      const GgufTensor& before = target_.tensors_[by_offset[i - 1]];
      const GgufTensor& after = target_.tensors_[by_offset[i]];
      if (before.data + before.num_bytes > after.data) {
        return Malformed(placements_[by_offset[i]].field_offset, "tensors '{}' and '{}' overlap, offset",
                         Printable(before.name), Printable(after.name));
      }
    }
    return {};
  }

  GgufFile& target_;
  const MappedFile& file_;
  uint64_t position_ = 0;
  uint64_t num_tensors_ = 0;
  uint64_t num_entries_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  std::vector<Placement> placements_;
};

Result<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path, MetadataCheck check_metadata) {
  TANDEM_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  std::unique_ptr<GgufFile> result(new GgufFile(std::move(file)));
  TANDEM_RETURN_IF_ERROR(GgufParser(*result).Parse(check_metadata));
  return result;
}

}  // namespace tandem
