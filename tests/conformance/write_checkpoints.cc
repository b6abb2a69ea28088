// The checkpoints of tests that no repository has, for the scripts that compute what they should give
// (tests/fixtures/quantized):
//
//   write_checkpoints wide FOLDER                    each of wide_checkpoints.h in a folder of its name
//   write_checkpoints q4_0|q8_0 MODEL.gguf TO.gguf   requantized_gguf.h, from Q4_1
#include <cstdio>
#include <filesystem>

#include "conformance/requantized_gguf.h"
#include "conformance/wide_checkpoints.h"

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "wide" && argc == 3) {
    for (const std::string& name : tandem::WideCheckpointNames()) {
      const std::string folder = std::string(argv[2]) + "/" + name;
      std::filesystem::create_directories(folder);
      std::printf("%s\n", tandem::WriteWideCheckpoint(name, folder).c_str());
    }
    return 0;
  }
  if ((what == "q4_0" || what == "q8_0") && argc == 4) {
    using tandem::GgmlType;
    tandem::WriteRequantizedGguf(argv[2], GgmlType::kQ4_1, what == "q4_0" ? GgmlType::kQ4_0 : GgmlType::kQ8_0,
                                 argv[3]);
    return 0;
  }
  std::fprintf(stderr, "usage: write_checkpoints wide FOLDER | q4_0|q8_0 MODEL.gguf TO.gguf\n");
  return 2;
}
