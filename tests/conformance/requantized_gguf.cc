#include "conformance/requantized_gguf.h"

#include <cstring>
#include <fstream>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"
#include "base/quantized_rows.h"
#include "load/files_testing.h"
#include "load/gguf_file.h"

namespace tandem {
namespace {

constexpr int64_t kBlock = 32;

// rows: in groups of 32 without minimum. The scale in fp16, then nibbles i and i + 16 a byte, or signed
// bytes.
std::string BlocksOf(GgmlType type, const QuantizedRows& rows) {
  std::string bytes;
  for (size_t block = 0; block < rows.scales.size(); ++block) {
    const fp16_t scale = F32ToF16(rows.scales[block]);
    bytes.append(reinterpret_cast<const char*>(&scale), sizeof(scale));
    const uint8_t* codes = rows.codes.data() + block * kBlock;
    if (type == GgmlType::kQ4_0) {
      for (int i = 0; i < kBlock / 2; ++i)
        bytes.push_back(static_cast<char>(codes[i] | codes[i + kBlock / 2] << 4));
    } else {
      for (int i = 0; i < kBlock; ++i) bytes.push_back(static_cast<char>(codes[i] - 128));
    }
  }
  return bytes;
}

std::string Requantized(const GgufTensor& tensor, GgmlType type) {
  TANDEM_CHECK(type == GgmlType::kQ4_0 || type == GgmlType::kQ8_0, "no blocks of {}",
               GetBlockFormat(type).name);
  const int64_t rows = tensor.dims[1] * tensor.dims[2] * tensor.dims[3];
  std::vector<float> values(static_cast<size_t>(rows * tensor.dims[0]));
  ConvertElements(tensor.format.type, tensor.data, static_cast<int64_t>(values.size()), DType::kF32,
                  values.data());
  QuantizedRows quantized;
  QuantizeRows(values.data(), rows, tensor.dims[0],
               type == GgmlType::kQ4_0 ? Int4Format(kBlock, false) : Int8Format(kBlock, false), &quantized);
  return BlocksOf(type, quantized);
}

template <typename T>
void Put(T value, size_t at, std::string* bytes) {
  bytes->replace(at, sizeof(value), reinterpret_cast<const char*>(&value), sizeof(value));
}

// Where the table of tensors has the type of this one; its offset follows.
size_t PlaceOfType(const std::string& header, const GgufTensor& tensor) {
  const auto length = static_cast<uint64_t>(tensor.name.size());
  std::string entry(reinterpret_cast<const char*>(&length), sizeof(length));
  entry += tensor.name;
  const size_t found = header.rfind(entry);
  TANDEM_CHECK(found != std::string::npos, "no entry of {}", tensor.name);
  return found + entry.size() + sizeof(uint32_t) + static_cast<size_t>(tensor.num_dims) * sizeof(uint64_t);
}

}  // namespace

void WriteRequantizedGguf(const std::string& from, GgmlType old_type, GgmlType new_type,
                          const std::string& to) {
  const auto file = GgufFile::Open(from).value();
  const auto alignment = static_cast<size_t>(file->GetIntOr("general.alignment", 32).value());
  std::string header = ReadFileBytes(from);
  const GgufTensor& first = file->tensors().front();
  uint64_t first_offset = 0;
  std::memcpy(&first_offset, header.data() + PlaceOfType(header, first) + sizeof(uint32_t),
              sizeof(first_offset));
  TANDEM_CHECK(first_offset == 0, "{}: the first tensor is at {}", from, first_offset);
  const size_t data_begin =
      header.find(std::string(reinterpret_cast<const char*>(first.data), first.num_bytes), alignment);
  header.resize(data_begin);
  std::string data;
  for (const GgufTensor& tensor : file->tensors()) {
    const bool is_changed = tensor.format.type == old_type;
    const size_t place = PlaceOfType(header, tensor);
    if (is_changed) Put(static_cast<uint32_t>(new_type), place, &header);
    Put(static_cast<uint64_t>(data.size()), place + sizeof(uint32_t), &header);
    data += is_changed ? Requantized(tensor, new_type)
                       : std::string(reinterpret_cast<const char*>(tensor.data), tensor.num_bytes);
    data.resize((data.size() + alignment - 1) / alignment * alignment);
  }
  std::ofstream out(to, std::ios::binary);
  out << header << data;
  out.close();
  TANDEM_CHECK(out.good(), "cannot write {}", to);
}

}  // namespace tandem
