#include "perf/profile_file.h"

#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/fnv1a.h"
#include "base/replace_file.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// Of the format, and of the kernels: another one also where what was measured takes another time now.
constexpr int kVersion = 4;
// A profile has some ten thousand bytes; nothing that claims to be one is read beyond this.
constexpr uint64_t kMaxFileBytes = 4 << 20;

constexpr int64_t kMaxExtrapolation = 2;

Json PointsToJson(const std::vector<CostPoint>& points) {
  Json array = Json::array();
  for (const CostPoint& point : points) array.push_back(Json::array({point.count, point.us}));
  return array;
}

Json LinesToJson(const std::vector<CostLine>& lines) {
  Json array = Json::array();
  for (const CostLine& line : lines)
    array.push_back({{"rows", line.rows}, {"points", PointsToJson(line.points)}});
  return array;
}

Json TilesToJson(const RowTiles& tiles) {
  Json steps = Json::array();
  for (const RowTiles::Step& step : tiles.steps)
    steps.push_back(Json::array({step.up_to_rows, step.tile_rows}));
  return {{"steps", steps}, {"last_tile_rows", tiles.last_tile_rows}};
}

// The functions that read throw what nlohmann-json throws.
int64_t CountOf(const Json& number) {
  // get<int64_t> would take 1e30 or true as well.
  if (!number.is_number_integer()) throw Json::type_error::create(302, "a count is no whole number", &number);
  return number.get<int64_t>();
}

double NumberOf(const Json& number) {
  if (!number.is_number()) throw Json::type_error::create(302, "a cost is no number", &number);
  return number.get<double>();
}

std::vector<CostPoint> PointsOf(const Json& array) {
  std::vector<CostPoint> points;
  for (const Json& pair : array) points.push_back({CountOf(pair.at(0)), NumberOf(pair.at(1))});
  return points;
}

std::vector<CostLine> LinesOf(const Json& array) {
  std::vector<CostLine> lines;
  for (const Json& line : array) lines.push_back({CountOf(line.at("rows")), PointsOf(line.at("points"))});
  return lines;
}

RowTiles TilesOf(const Json& json) {
  RowTiles tiles;
  for (const Json& pair : json.at("steps")) tiles.steps.push_back({CountOf(pair.at(0)), CountOf(pair.at(1))});
  tiles.last_tile_rows = CountOf(json.at("last_tile_rows"));
  return tiles;
}

CostMeasurements MeasurementsOf(const Json& tables) {
  CostMeasurements measurements;
  measurements.num_layers = CountOf(tables.at("num_layers"));
  measurements.linear = PointsOf(tables.at("linear"));
  measurements.row_tiles = TilesOf(tables.at("row_tiles"));
  measurements.gpu_decode_attention = LinesOf(tables.at("gpu_decode_attention"));
  measurements.prefill_attention = LinesOf(tables.at("prefill_attention"));
  measurements.outside_layers = PointsOf(tables.at("outside_layers"));
  measurements.cpu_attention = LinesOf(tables.at("cpu_attention"));
  measurements.shared_reads = PointsOf(tables.at("shared_reads"));
  measurements.exchange = PointsOf(tables.at("exchange"));
  measurements.swap = PointsOf(tables.at("swap"));
  if (tables.contains("all_reduce")) measurements.all_reduce = PointsOf(tables.at("all_reduce"));
  return measurements;
}

Json ToJson(const ProfileCoverage& coverage) {
  return {{"max_rows", coverage.max_rows},
          {"max_context", coverage.max_context},
          {"gpu_kv_tokens", coverage.gpu_kv_tokens},
          {"cpu_kv_tokens", coverage.cpu_kv_tokens}};
}

ProfileCoverage CoverageOf(const Json& coverage) {
  return {.max_rows = CountOf(coverage.at("max_rows")),
          .max_context = CountOf(coverage.at("max_context")),
          .gpu_kv_tokens = CountOf(coverage.at("gpu_kv_tokens")),
          .cpu_kv_tokens = CountOf(coverage.at("cpu_kv_tokens"))};
}

Status CheckVersion(const Json& root, const std::string& path) {
  const int64_t version = CountOf(root.at("version"));
  if (version == kVersion) return {};
  return MakeError(ErrorCode::kMalformedFile, "{}: version {} of the format, this program reads {}", path,
                   version, kVersion);
}

Result<CostTable> TableOf(const Json& root, const std::string& path) {
  auto table = CostTable::Create(MeasurementsOf(root.at("tables")));
  if (table.ok()) return table;
  return MakeError(ErrorCode::kMalformedFile, "{}: {}", path, table.error().message);
}

ProfileKey KeyOf(const Json& key) {
  return {.num_layers = CountOf(key.at("num_layers")),
          .hidden_size = CountOf(key.at("hidden_size")),
          .intermediate_size = CountOf(key.at("intermediate_size")),
          .num_heads = CountOf(key.at("num_heads")),
          .num_kv_heads = CountOf(key.at("num_kv_heads")),
          .head_dim = CountOf(key.at("head_dim")),
          .vocab_size = CountOf(key.at("vocab_size")),
          .sliding_window = CountOf(key.at("sliding_window")),
          .num_shards = key.contains("num_shards") ? CountOf(key.at("num_shards")) : 1,
          .dtype = key.at("dtype").get<std::string>(),
          .weights = key.at("weights").get<std::string>(),
          .gpu_kv = key.at("gpu_kv").get<std::string>(),
          .cpu_kv = key.at("cpu_kv").get<std::string>(),
          .device = key.at("device").get<std::string>(),
          .gpu_sm_limit = CountOf(key.at("gpu_sm_limit")),
          .cpu_threads = CountOf(key.at("cpu_threads")),
          .cpu_isa = key.at("cpu_isa").get<std::string>()};
}

Result<CostTable> Parse(const std::string& text, const std::string& path, const ProfileKey& key,
                        const ProfileCoverage& wanted) {
  try {
    const Json root = Json::parse(text);
    TANDEM_RETURN_IF_ERROR(CheckVersion(root, path));
    const Json expected = ToJson(key);
    const Json& found = root.at("key");
    for (const auto& item : expected.items()) {
      if (found.at(item.key()) == item.value()) continue;
      return MakeError(ErrorCode::kUnsupported, "{}: measured with {} {}, not {}", path, item.key(),
                       found.at(item.key()).dump(), item.value().dump());
    }
    if (!CoverageOf(root.at("coverage")).Serves(wanted)) {
      return MakeError(ErrorCode::kUnsupported, "{}: measured for smaller batches or caches", path);
    }
    return TableOf(root, path);
  } catch (const Json::exception& error) {
    return MakeError(ErrorCode::kMalformedFile, "{}: {}", path, error.what());
  }
}

}  // namespace

bool ProfileCoverage::Serves(const ProfileCoverage& wanted) const {
  const auto reaches = [](int64_t have, int64_t want) { return have >= want / kMaxExtrapolation; };
  return reaches(max_rows, wanted.max_rows) && reaches(max_context, wanted.max_context) &&
         reaches(gpu_kv_tokens, wanted.gpu_kv_tokens) && reaches(cpu_kv_tokens, wanted.cpu_kv_tokens) &&
         (wanted.cpu_kv_tokens == 0 || cpu_kv_tokens > 0);
}

// What only shards have is left out of the file of a whole model.
Json ToJson(const ProfileKey& key) {
  Json json = {{"num_layers", key.num_layers},
               {"hidden_size", key.hidden_size},
               {"intermediate_size", key.intermediate_size},
               {"num_heads", key.num_heads},
               {"num_kv_heads", key.num_kv_heads},
               {"head_dim", key.head_dim},
               {"vocab_size", key.vocab_size},
               {"sliding_window", key.sliding_window},
               {"dtype", key.dtype},
               {"weights", key.weights},
               {"gpu_kv", key.gpu_kv},
               {"cpu_kv", key.cpu_kv},
               {"device", key.device},
               {"gpu_sm_limit", key.gpu_sm_limit},
               {"cpu_threads", key.cpu_threads},
               {"cpu_isa", key.cpu_isa}};
  if (key.num_shards > 1) json["num_shards"] = key.num_shards;
  return json;
}

Json ToJson(const CostMeasurements& measurements) {
  Json json = {{"num_layers", measurements.num_layers},
               {"linear", PointsToJson(measurements.linear)},
               {"row_tiles", TilesToJson(measurements.row_tiles)},
               {"gpu_decode_attention", LinesToJson(measurements.gpu_decode_attention)},
               {"prefill_attention", LinesToJson(measurements.prefill_attention)},
               {"outside_layers", PointsToJson(measurements.outside_layers)},
               {"cpu_attention", LinesToJson(measurements.cpu_attention)},
               {"shared_reads", PointsToJson(measurements.shared_reads)},
               {"exchange", PointsToJson(measurements.exchange)},
               {"swap", PointsToJson(measurements.swap)}};
  if (!measurements.all_reduce.empty()) json["all_reduce"] = PointsToJson(measurements.all_reduce);
  return json;
}

std::string ProfilePath(const std::string& folder, const ProfileKey& key) {
  std::string device;
  for (const char c : key.device.substr(0, key.device.find(','))) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      device += c;
    } else if (!device.empty() && device.back() != '-' && device.size() < 24) {
      device += '-';
    }
    if (device.size() == 32) break;
  }
  const std::string name =
      fmt::format("profile{}-{}x{}-{}-{}-{}sm-{}threads-{:016x}.json", kVersion, key.num_layers,
                  key.hidden_size, key.dtype, device, key.gpu_sm_limit, key.cpu_threads,
                  Fnv1a(ToJson(key).dump(-1, ' ', false, Json::error_handler_t::replace)));
  return (std::filesystem::path(folder) / name).string();
}

Status WriteProfile(const std::string& path, const ProfileKey& key, const ProfileCoverage& coverage,
                    const CostMeasurements& measurements) {
  const Json root = {{"version", kVersion},
                     {"key", ToJson(key)},
                     {"coverage", ToJson(coverage)},
                     {"tables", ToJson(measurements)}};
  return ReplaceFile(path, root.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
}

Result<CostTable> ReadProfile(const std::string& path, const ProfileKey& key, const ProfileCoverage& wanted) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadReplacedFile(path, kMaxFileBytes, "a profile"));
  return Parse(text, path, key, wanted);
}

Result<StoredProfile> ReadStoredProfile(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadReplacedFile(path, kMaxFileBytes, "a profile"));
  try {
    const Json root = Json::parse(text);
    TANDEM_RETURN_IF_ERROR(CheckVersion(root, path));
    TANDEM_ASSIGN_OR_RETURN(CostTable table, TableOf(root, path));
    return StoredProfile{
        .key = KeyOf(root.at("key")), .coverage = CoverageOf(root.at("coverage")), .costs = std::move(table)};
  } catch (const Json::exception& error) {
    return MakeError(ErrorCode::kMalformedFile, "{}: {}", path, error.what());
  }
}

}  // namespace tandem
