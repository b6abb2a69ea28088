#include "conformance/fixtures.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/check.h"

namespace tandem {

std::string FixturePath(const std::string& relative) {
  return std::string(TANDEM_SOURCE_DIR "/tests/fixtures/") + relative;
}

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  TANDEM_CHECK(file.good(), "cannot read {}", path);
  return nlohmann::json::parse(file);
}

std::vector<float> ReadFloats(const std::string& path, size_t offset, size_t count) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset * sizeof(float)));
  std::vector<float> values(count);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(float)));
  TANDEM_CHECK(file.good(), "cannot read {} floats of {}", count, path);
  return values;
}

std::optional<std::string> RealModelPath() {
  const char* from_environment = std::getenv("TANDEM_TEST_MODEL");
  const std::string path = from_environment != nullptr ? from_environment
                                                       : TANDEM_SOURCE_DIR
                               "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (std::filesystem::exists(path)) return path;
  return std::nullopt;
}

double RelativeDifference(const std::vector<float>& a, const std::vector<float>& b) {
  TANDEM_CHECK(a.size() == b.size(), "{} and {} values", a.size(), b.size());
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double delta = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += delta * delta;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / norm);
}

}  // namespace tandem
