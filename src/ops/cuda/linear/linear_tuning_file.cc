#include "ops/cuda/linear/linear_tuning_file.h"

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/log.h"
#include "base/replace_file.h"
#include "base/result.h"
#include "device/cuda/cuda_device.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 7;
constexpr size_t kAlgorithmBytes = sizeof(cublasLtMatmulAlgo_t);

constexpr std::string_view kCublasLtName = "cublaslt";
constexpr std::string_view kRowMajorName = "cublaslt-row-major";
constexpr std::string_view kStreamedName = "streamed";
constexpr std::string_view kFp8CodesName = "fp8-codes";

std::string ToHex(const cublasLtMatmulAlgo_t& algorithm) {
  const auto bytes = std::bit_cast<std::array<uint8_t, kAlgorithmBytes>>(algorithm);
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

Result<cublasLtMatmulAlgo_t> FromHex(const std::string& text) {
  if (text.size() != 2 * kAlgorithmBytes || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return MakeError(ErrorCode::kMalformedFile, "an algorithm is not {} hexadecimal digits",
                     2 * kAlgorithmBytes);
  }
  std::array<uint8_t, kAlgorithmBytes> bytes;
  for (size_t i = 0; i < kAlgorithmBytes; ++i) {
    bytes[i] = static_cast<uint8_t>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return std::bit_cast<cublasLtMatmulAlgo_t>(bytes);
}

Result<DType> DTypeOf(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    if (name == DTypeName(dtype)) return dtype;
  }
  return MakeError(ErrorCode::kMalformedFile, "there is no dtype {}", name);
}

// Sets what the method of an entry needs.
Status ReadMethod(const Json& entry, LinearAlgorithm* algorithm) {
  const auto method = entry.at("method").get<std::string>();
  if (method == kStreamedName) {
    algorithm->method = LinearMethod::kStreamed;
    const auto name = entry.at("kernel").get<std::string>();
    const std::optional<StreamedLinear> kernel = StreamedLinearFromName(name);
    if (!kernel || *kernel == StreamedLinear::kNone) {
      return MakeError(ErrorCode::kMalformedFile, "there is no streamed product {}", name);
    }
    algorithm->streamed = *kernel;
    return {};
  }
  if (method == kFp8CodesName) {
    algorithm->method = LinearMethod::kFp8Codes;
    return {};
  }
  if (method == kRowMajorName) {
    algorithm->method = LinearMethod::kCublasLtRowMajor;
  } else if (method != kCublasLtName) {
    return MakeError(ErrorCode::kMalformedFile, "there is no method {}", method);
  }
  algorithm->separate_bias = entry.at("separate_bias").get<bool>();
  algorithm->separate_scales = entry.at("separate_scales").get<bool>();
  TANDEM_ASSIGN_OR_RETURN(algorithm->lt, FromHex(entry.at("algorithm").get<std::string>()));
  return {};
}

Result<LinearAlgorithm> AlgorithmOf(const Json& entry, bool is_gate_up) {
  LinearAlgorithm algorithm;
  algorithm.measured_us = entry.at("us").get<float>();
  TANDEM_RETURN_IF_ERROR(ReadMethod(entry, &algorithm));
  if (!is_gate_up) return algorithm;
  const auto fused_name = entry.at("fused").get<std::string>();
  const std::optional<FusedGateUp> fused = FusedGateUpFromName(fused_name);
  if (!fused) return MakeError(ErrorCode::kMalformedFile, "there is no fused product {}", fused_name);
  algorithm.fused = *fused;
  algorithm.fused_us = entry.at("fused_us").get<float>();
  return algorithm;
}

Json ToJson(int64_t rows, const LinearAlgorithm& algorithm, bool is_gate_up) {
  TANDEM_CHECK(algorithm.method != LinearMethod::kSkinny, "tuning file: {} rows are not measured", rows);
  Json entry = {{"rows", rows}, {"us", algorithm.measured_us}};
  if (algorithm.method == LinearMethod::kStreamed) {
    entry["method"] = kStreamedName;
    entry["kernel"] = StreamedLinearName(algorithm.streamed);
  } else if (algorithm.method == LinearMethod::kFp8Codes) {
    entry["method"] = kFp8CodesName;
  } else {
    const bool row_major = algorithm.method == LinearMethod::kCublasLtRowMajor;
    entry["method"] = row_major ? kRowMajorName : kCublasLtName;
    entry["separate_bias"] = algorithm.separate_bias;
    entry["separate_scales"] = algorithm.separate_scales;
    entry["algorithm"] = ToHex(algorithm.lt);
  }
  if (is_gate_up) {
    entry["fused"] = FusedGateUpName(algorithm.fused);
    entry["fused_us"] = algorithm.fused_us;
  }
  return entry;
}

// Throws what nlohmann-json throws.
Result<LinearTuningFile::Content> Parse(std::istream& in, const std::string& gpu) {
  const Json root = Json::parse(in);
  if (root.at("format").get<int>() != kFormat || root.at("gpu").get<std::string>() != gpu ||
      root.at("cublaslt").get<size_t>() != cublasLtGetVersion() ||
      root.at("has_fused_gate_up").get<bool>() != HasFusedGateUp() ||
      root.at("has_streamed").get<bool>() != HasStreamedLinear()) {
    return MakeError(ErrorCode::kMalformedFile, "it belongs to another GPU, version or build");
  }
  LinearTuningFile::Content content;
  for (const Json& of_shape : root.at("shapes")) {
    ProductKind shape;
    shape.out_features = of_shape.at("out").get<int64_t>();
    shape.in_features = of_shape.at("in").get<int64_t>();
    shape.has_bias = of_shape.at("bias").get<bool>();
    shape.is_gate_up = of_shape.at("gate_up").get<bool>();
    TANDEM_ASSIGN_OR_RETURN(shape.dtype, DTypeOf(of_shape.at("dtype").get<std::string>()));
    TANDEM_ASSIGN_OR_RETURN(shape.y_dtype, DTypeOf(of_shape.at("y").get<std::string>()));
    for (const Json& entry : of_shape.at("rows")) {
      TANDEM_ASSIGN_OR_RETURN(content[shape][entry.at("rows").get<int64_t>()],
                              AlgorithmOf(entry, shape.is_gate_up));
    }
  }
  return content;
}

}  // namespace

LinearTuningFile::LinearTuningFile(const Device* device, const std::string& folder)
    : gpu_(CudaDeviceKey(*device)) {
  if (folder.empty()) return;
  std::string name = fmt::format("linear{}-{}-cublaslt{}.json", kFormat, gpu_, cublasLtGetVersion());
  for (char& c : name) {
    if (c == '/' || c == ' ') c = '-';
  }
  path_ = (std::filesystem::path(folder) / name).string();
}

LinearTuningFile::Content LinearTuningFile::Load() const {
  if (path_.empty()) return {};
  std::ifstream in(path_);
  if (!in) return {};
  try {
    Result<Content> content = Parse(in, gpu_);
    if (content.ok()) return std::move(content).value();
    LogWarn("{} is ignored: {}", path_, content.error().message);
  } catch (const Json::exception& error) {
    LogWarn("{} is ignored: {}", path_, error.what());
  }
  return {};
}

void LinearTuningFile::Save(const Content& content) const {
  if (path_.empty()) return;
  Json root = {{"format", kFormat},
               {"gpu", gpu_},
               {"cublaslt", cublasLtGetVersion()},
               {"has_fused_gate_up", HasFusedGateUp()},
               {"has_streamed", HasStreamedLinear()},
               {"shapes", Json::array()}};
  for (const auto& [shape, algorithms] : content) {
    Json of_shape = {
        {"out", shape.out_features},     {"in", shape.in_features}, {"dtype", DTypeName(shape.dtype)},
        {"y", DTypeName(shape.y_dtype)}, {"bias", shape.has_bias},  {"gate_up", shape.is_gate_up},
        {"rows", Json::array()}};
    for (const auto& [rows, algorithm] : algorithms) {
      of_shape["rows"].push_back(ToJson(rows, algorithm, shape.is_gate_up));
    }
    root["shapes"].push_back(std::move(of_shape));
  }
  const Status written = ReplaceFile(path_, root.dump(1) + '\n');
  if (!written.ok()) LogWarn("measured choices are not kept: {}", written.error().message);
}

}  // namespace tandem
