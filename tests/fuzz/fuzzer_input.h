// What the fuzzers share. A fuzzer is a program whose LLVMFuzzerTestOneInput takes bytes and must return: a
// crash, a finding of a sanitizer, a failed Expect or more than some seconds for one input is a defect of
// what it calls.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace tandem {

inline std::string_view AsText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A property that must hold whatever the input.
inline void Expect(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "fuzzer: does not hold: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

// One file of this process, in memory, that each input replaces. Gone with the process.
class InputFile {
 public:
  explicit InputFile(std::string_view name)
      : folder_("/dev/shm/tandem_fuzz_" + std::to_string(::getpid())), path_(folder_ / name) {
    std::filesystem::create_directories(folder_);
  }
  ~InputFile() { std::filesystem::remove_all(folder_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::string Write(std::string_view bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    return path_.string();
  }
  std::string folder() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
  std::filesystem::path path_;
};

inline std::string FixtureBytes(const std::string& name) {
  std::ifstream file(std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/" + name, std::ios::binary);
  Expect(file.good(), name);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace tandem
