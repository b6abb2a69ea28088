#include "cli/bench_output.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/param_error.h"
#include "bench/bench_report.h"

namespace tandem {

Status CheckJsonWritable(const std::string& path) {
  if (path.empty()) return {};
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return MakeParamError(ErrorCode::kIo, "json", "{} cannot be written", path);
  std::fclose(file);
  return {};
}

Status ShowAndWriteReport(const nlohmann::ordered_json& report, const std::string& path) {
  fmt::print("{}", FormatBenchTable(report));
  if (!path.empty()) TANDEM_RETURN_IF_ERROR(WriteBenchReport(report, path));
  if (const auto failed = report["failed"].get<int64_t>(); failed > 0) {
    return MakeError(ErrorCode::kUnavailable, "{} of {} requests failed", failed,
                     report["num_requests"].get<int64_t>());
  }
  return {};
}

}  // namespace tandem
