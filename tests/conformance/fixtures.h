// Where test data lies, and how it is read.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

// tests/fixtures/<relative>
std::string FixturePath(const std::string& relative);

nlohmann::json ReadJson(const std::string& path);

// Floats [offset, offset + count) of a little-endian binary file.
std::vector<float> ReadFloats(const std::string& path, size_t offset, size_t count);

// The real SmolLM2 file: TANDEM_TEST_MODEL, or models/ as scripts/fetch_model.sh leaves it. Absent if neither
// is there.
std::optional<std::string> RealModelPath();

// ||a - b|| / ||b||
double RelativeDifference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace tandem
