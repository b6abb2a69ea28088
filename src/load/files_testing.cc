#include "load/files_testing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <system_error>
#include <utility>

namespace {
std::atomic<size_t> largest_allocation{0};
}  // namespace

// Replaced for the whole program, so that tests see what a corrupted count makes the loader ask for.
// Not inlined: the compiler would see free() of what it takes for new's own memory.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t& /*tag*/) noexcept {
  size_t seen = largest_allocation.load();
  while (size > seen && !largest_allocation.compare_exchange_weak(seen, size)) {
  }
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void* operator new(size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t /*size*/) noexcept {
  std::free(memory);
}

namespace tandem {

void ResetLargestAllocation() {
  largest_allocation = 0;
}
size_t LargestAllocation() {
  return largest_allocation;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "tandem_load_XXXXXX").string();
  if (mkdtemp(name.data()) != nullptr) path_ = name;
  EXPECT_FALSE(path_.empty());
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}
std::string TemporaryFolder::Write(const std::string& name, std::string_view content) const {
  std::string file = path_ + "/" + name;
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream.write(content.data(), static_cast<std::streamsize>(content.size()));
  EXPECT_TRUE(stream.good()) << file;
  return file;
}

std::string ReadFileBytes(const std::string& path) {
  const std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream.good()) << path;
  std::ostringstream content;
  content << stream.rdbuf();
  return content.str();
}

GgufWriter::GgufWriter(uint64_t num_tensors, uint64_t num_entries, uint32_t version) {
  bytes_ = "GGUF";
  fields_.push_back({"magic", 0, 4});
  U32("version", version);
  U64("tensor count", num_tensors);
  U64("metadata count", num_entries);
}

void GgufWriter::Number(const std::string& field, const void* value, size_t size) {
  fields_.push_back({field, bytes_.size(), size});
  bytes_.append(static_cast<const char*>(value), size);
}

void GgufWriter::String(const std::string& field, std::string_view value) {
  U64(field + " length", value.size());
  bytes_.append(value);
}

void GgufWriter::EntryHeader(const std::string& key, GgufValueType type) {
  String(key, key);
  U32(key + " type", static_cast<uint32_t>(type));
}
void GgufWriter::IntEntry(const std::string& key, uint32_t value) {
  EntryHeader(key, GgufValueType::kUint32);
  U32(key + " value", value);
}
void GgufWriter::FloatEntry(const std::string& key, float value) {
  EntryHeader(key, GgufValueType::kFloat32);
  Number(key + " value", &value, sizeof(value));
}
void GgufWriter::StringEntry(const std::string& key, std::string_view value) {
  EntryHeader(key, GgufValueType::kString);
  String(key + " value", value);
}
void GgufWriter::BoolEntry(const std::string& key, bool value) {
  EntryHeader(key, GgufValueType::kBool);
  U8(value ? 1 : 0);
}
void GgufWriter::StringArrayEntry(const std::string& key, const std::vector<std::string>& values) {
  EntryHeader(key, GgufValueType::kArray);
  U32(key + " element type", static_cast<uint32_t>(GgufValueType::kString));
  U64(key + " count", values.size());
  for (const std::string& value : values) String(key + " element", value);
}
void GgufWriter::FloatArrayEntry(const std::string& key, const std::vector<float>& values) {
  EntryHeader(key, GgufValueType::kArray);
  U32(key + " element type", static_cast<uint32_t>(GgufValueType::kFloat32));
  U64(key + " count", values.size());
  for (const float value : values) F32(value);
}

void GgufWriter::Tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type_code,
                        uint64_t offset) {
  String(name, name);
  U32(name + " dimension count", static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) U64(name + " dimension", dim);
  U32(name + " type code", type_code);
  U64(name + " offset", offset);
}

void GgufWriter::PadTo(size_t alignment) {
  while (bytes_.size() % alignment != 0) U8(0);
}

std::vector<TinyTensor> TinyLlamaTensors() {
  std::vector<TinyTensor> tensors;
  const auto add_f32 = [&tensors](const std::string& name, std::vector<uint64_t> dims) {
    const uint64_t cols = dims[0];
    const uint64_t rows = dims.size() > 1 ? dims[1] : 1;
    std::vector<float> values;
    for (uint64_t r = 0; r < rows; ++r) {
      for (uint64_t c = 0; c < cols; ++c) {
        values.push_back(1000.0F * static_cast<float>(tensors.size()) + static_cast<float>(r) +
                         static_cast<float>(c) / 64.0F);
      }
    }
    tensors.push_back({name, std::move(dims), GgmlType::kF32,
                       std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4)});
  };
  const auto add_q8 = [&tensors](const std::string& name, uint64_t cols, uint64_t rows) {
    std::string data;
    for (uint64_t block = 0; block < cols * rows / 32; ++block) {
      data.append("\x00\x3c", 2);  // fp16 1.0
      for (uint64_t i = 0; i < 32; ++i) data.push_back(static_cast<char>(block * 32 + i));
    }
    tensors.push_back({name, {cols, rows}, GgmlType::kQ8_0, std::move(data)});
  };
  add_f32("token_embd.weight", {64, 10});
  add_f32("blk.0.attn_norm.weight", {64});
  add_f32("blk.0.attn_q.weight", {64, 64});
  add_f32("blk.0.attn_k.weight", {64, 32});
  add_q8("blk.0.attn_v.weight", 64, 32);
  add_q8("blk.0.attn_output.weight", 64, 64);
  add_f32("blk.0.ffn_norm.weight", {64});
  add_q8("blk.0.ffn_gate.weight", 64, 32);
  add_q8("blk.0.ffn_up.weight", 64, 32);
  add_q8("blk.0.ffn_down.weight", 32, 64);
  add_f32("output_norm.weight", {64});
  add_f32("output.weight", {64, 10});
  return tensors;
}

GgufWriter TinyLlamaGguf(const std::vector<TinyTensor>& tensors, uint64_t num_more,
                         const std::function<void(GgufWriter*)>& add_entries) {
  GgufWriter writer(tensors.size(), 18 + num_more);
  writer.StringEntry("general.architecture", "llama");
  writer.IntEntry("general.alignment", 32);
  writer.IntEntry("llama.block_count", 1);
  writer.IntEntry("llama.context_length", 128);
  writer.IntEntry("llama.embedding_length", 64);
  writer.IntEntry("llama.feed_forward_length", 32);
  writer.IntEntry("llama.attention.head_count", 4);
  writer.IntEntry("llama.attention.head_count_kv", 2);
  writer.FloatEntry("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  writer.FloatEntry("llama.rope.freq_base", 10000.0F);
  writer.IntEntry("llama.rope.dimension_count", 16);
  writer.IntEntry("tokenizer.ggml.bos_token_id", 1);
  writer.IntEntry("tokenizer.ggml.eos_token_id", 2);
  writer.IntEntry("tokenizer.ggml.eot_token_id", 3);
  writer.BoolEntry("tokenizer.ggml.add_bos_token", true);
  writer.StringArrayEntry("tokenizer.ggml.tokens", {"a", "", "<s>", "\xff"});
  writer.FloatArrayEntry("tokenizer.ggml.scores", {0.5F, -1.0F});
  writer.StringEntry("tokenizer.chat_template", "{{ messages }}");
  if (add_entries) add_entries(&writer);
  uint64_t offset = 0;
  for (const TinyTensor& tensor : tensors) {
    writer.Tensor(tensor.name, tensor.dims, static_cast<uint32_t>(tensor.type), offset);
    offset = (offset + tensor.data.size() + 31) / 32 * 32;
  }
  for (const TinyTensor& tensor : tensors) {
    writer.PadTo(32);
    writer.Data(tensor.data);
  }
  return writer;
}

std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes.append(header);
  bytes.append(data);
  return bytes;
}

}  // namespace tandem
