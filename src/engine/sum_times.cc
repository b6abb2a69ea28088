#include "engine/sum_times.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/dtype.h"
#include "base/param_error.h"
#include "load/json_fields.h"

namespace tandem {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 20;
constexpr int64_t kMostNumber = int64_t{1} << 28;  // of rows and of columns: their bytes fit

Result<std::vector<SumTime>> Read(const std::string& path, int64_t num_shards) {
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json json, ReadJsonObject(path, kMostBytes));
  const JsonFields file(json, path);
  TANDEM_ASSIGN_OR_RETURN(const int64_t measured, file.Int("shards", 1, kMostNumber));
  if (measured != num_shards) {
    return MakeError(ErrorCode::kInvalidArgument, "{}: sums over {} shards were measured, not over {}", path,
                     measured, num_shards);
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t cols, file.Int("cols", 1, kMostNumber));
  TANDEM_ASSIGN_OR_RETURN(const std::string dtype_name, file.String("dtype"));
  constexpr std::array<DType, 3> kDTypes = {DType::kF32, DType::kBF16, DType::kF16};
  const auto* const dtype = std::ranges::find(kDTypes, dtype_name, DTypeName);
  if (dtype == kDTypes.end()) return file.Wrong("dtype", "a type of numbers");
  const nlohmann::json* const sums = file.Find("all_reduces");
  if (sums == nullptr || !sums->is_array() || sums->empty())
    return file.Wrong("all_reduces", "a list of measurements");
  struct Fastest {
    bool graph = false;
    double us = 0;
  };
  std::map<int64_t, Fastest> by_size;
  for (const nlohmann::json& each : *sums) {
    if (!each.is_object()) return file.Wrong("all_reduces", "a list of objects");
    const JsonFields fields(each, path + ": all_reduces");
    TANDEM_ASSIGN_OR_RETURN(const int64_t rows, fields.Int("rows", 1, kMostNumber));
    TANDEM_ASSIGN_OR_RETURN(const double us, fields.Float("us", 1e-3, 1e9));
    TANDEM_ASSIGN_OR_RETURN(const bool graph, fields.BoolOr("graph", false));
    const int64_t size_bytes = rows * cols * static_cast<int64_t>(DTypeSize(*dtype));
    const auto [found, is_new] = by_size.try_emplace(size_bytes, Fastest{graph, us});
    Fastest& fastest = found->second;
    if (graph != fastest.graph) {
      if (graph) fastest = {graph, us};
    } else {
      fastest.us = std::min(fastest.us, us);
    }
  }
  std::vector<SumTime> times;
  times.reserve(by_size.size());
  for (const auto& [size_bytes, fastest] : by_size) times.push_back({size_bytes, fastest.us});
  return times;
}

}  // namespace

Result<std::vector<SumTime>> ReadSumTimes(const std::string& path, int64_t num_shards) {
  auto times = Read(path, num_shards);
  if (times.ok()) return times;
  return MakeParamError(times.error().code, "lone-shard", "{}", times.error().message);
}

}  // namespace tandem
