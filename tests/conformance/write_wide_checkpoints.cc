// write_wide_checkpoints FOLDER: all of them, each in a folder of its name. For
// tests/fixtures/quantized/make_wide_fixtures.py.
#include <cstdio>
#include <filesystem>

#include "conformance/wide_checkpoints.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_wide_checkpoints FOLDER\n");
    return 2;
  }
  for (const std::string& name : tandem::WideCheckpointNames()) {
    const std::string folder = std::string(argv[1]) + "/" + name;
    std::filesystem::create_directories(folder);
    std::printf("%s\n", tandem::WriteWideCheckpoint(name, folder).c_str());
  }
}
