#include "trial/choice_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/cpu_features.h"
#include "base/fnv1a.h"
#include "base/replace_file.h"
#include "base/topology.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// Of the format, the kernels that were tried and what they could choose from.
constexpr int kVersion = 2;
// Some hundred bytes a use.
constexpr uint64_t kMaxFileBytes = 1 << 20;
constexpr int64_t kMaxDistanceBytes = 1 << 20;

Json ToJson(const TrialMachine& machine) {
  return {{"cpu", machine.cpu},
          {"cpu_signature", machine.cpu_signature},
          {"instruction_sets", machine.instruction_sets}};
}

Json ToJson(const AttentionUse& use, const AttentionChoice& choice) {
  return {{"threads", use.num_threads},
          {"kv_dtype", DTypeName(use.kv_dtype)},
          {"block_size", use.block_size},
          {"head_dim", use.head_dim},
          {"group_size", use.group_size},
          {"span_heads", use.span_heads},
          {"any_isa", use.any_isa},
          {"isa", CpuIsaName(choice.isa)},
          {"level", FetchLevelName(choice.fetch.level)},
          {"half_piece_ahead", choice.fetch.half_piece_ahead},
          {"every_second_line", choice.fetch.every_second_line},
          {"most_readers", choice.most_readers},
          {"speedup", choice.speedup}};
}

Json ToJson(const ProductUse& use, const ProductChoice& choice) {
  return {{"threads", use.num_threads},
          {"dtype", DTypeName(use.dtype)},
          {"level", FetchLevelName(choice.fetch.level)},
          {"distance_bytes", choice.fetch.distance_bytes},
          {"speedup", choice.speedup}};
}

// The functions that read throw what nlohmann-json throws.
[[noreturn]] void Refuse(const Json& value, const char* what) {
  throw Json::other_error::create(501, fmt::format("{} is no {}", value.dump(), what), &value);
}

int64_t CountOf(const Json& value, int64_t min, int64_t max) {
  if (!value.is_number_integer() || value.get<int64_t>() < min || value.get<int64_t>() > max)
    Refuse(value, "possible number");
  return value.get<int64_t>();
}

double SpeedupOf(const Json& value) {
  if (!value.is_number() || !(value.get<double>() > 0)) Refuse(value, "speedup");
  return value.get<double>();
}

// Of those in `all`, the one of that name.
template <typename T, typename All, typename NameOf>
T Named(const Json& value, const All& all, const NameOf& name_of, const char* what) {
  const auto found =
      std::ranges::find_if(all, [&](const T& one) { return value.is_string() && value == name_of(one); });
  if (found == all.end()) Refuse(value, what);
  return *found;
}

DType DTypeOf(const Json& value) {
  constexpr std::array<DType, 5> kTypes = {DType::kF32, DType::kBF16, DType::kF16, DType::kI8,
                                           DType::kF8E4M3};
  return Named<DType>(value, kTypes, DTypeName, "type");
}

FetchLevel LevelOf(const Json& value) {
  return Named<FetchLevel>(value, kFetchLevels, FetchLevelName, "level of a cache");
}

std::pair<AttentionUse, AttentionChoice> AttentionOf(const Json& json) {
  constexpr int64_t kMost = 1 << 16;
  AttentionUse use;
  use.num_threads = static_cast<int>(CountOf(json.at("threads"), 1, kMost));
  use.kv_dtype = DTypeOf(json.at("kv_dtype"));
  use.block_size = CountOf(json.at("block_size"), 1, kMost);
  use.head_dim = CountOf(json.at("head_dim"), 1, kMost);
  use.group_size = CountOf(json.at("group_size"), 1, kMost);
  use.span_heads = CountOf(json.at("span_heads"), 1, kMost);
  use.any_isa = json.at("any_isa").get<bool>();
  AttentionChoice choice;
  choice.isa = Named<CpuIsa>(json.at("isa"), SupportedCpuIsas(), CpuIsaName, "instruction set of this CPU");
  choice.fetch.level = LevelOf(json.at("level"));
  choice.fetch.half_piece_ahead = json.at("half_piece_ahead").get<bool>();
  choice.fetch.every_second_line = json.at("every_second_line").get<bool>();
  if (choice.fetch.half_piece_ahead && choice.fetch.every_second_line) Refuse(json, "way to fetch");
  choice.most_readers = CountOf(json.at("most_readers"), 1, kRowsPerGroup);
  choice.speedup = SpeedupOf(json.at("speedup"));
  return {use, choice};
}

std::pair<ProductUse, ProductChoice> ProductsOf(const Json& json) {
  ProductUse use;
  use.num_threads = static_cast<int>(CountOf(json.at("threads"), 1, 1 << 16));
  use.dtype = DTypeOf(json.at("dtype"));
  ProductChoice choice;
  choice.fetch.level = LevelOf(json.at("level"));
  choice.fetch.distance_bytes = CountOf(json.at("distance_bytes"), 0, kMaxDistanceBytes);
  choice.speedup = SpeedupOf(json.at("speedup"));
  return {use, choice};
}

Result<KeptChoices> Parse(const std::string& text, const std::string& path, const TrialMachine& machine) {
  try {
    const Json root = Json::parse(text);
    if (const Json& version = root.at("version"); version != kVersion) {
      return MakeError(ErrorCode::kMalformedFile, "{}: version {} of the format, this program reads {}", path,
                       version.dump(), kVersion);
    }
    if (const Json& found = root.at("machine"); found != ToJson(machine)) {
      return MakeError(ErrorCode::kUnsupported, "{}: tried on {}, not on {}", path, found.dump(),
                       ToJson(machine).dump());
    }
    KeptChoices choices;
    for (const Json& json : root.at("attention")) choices.attention.push_back(AttentionOf(json));
    for (const Json& json : root.at("products")) choices.products.push_back(ProductsOf(json));
    return choices;
  } catch (const Json::exception& error) {
    return MakeError(ErrorCode::kMalformedFile, "{}: {}", path, error.what());
  }
}

template <typename Pairs, typename Matches>
auto FirstChoice(const Pairs& pairs, const Matches& matches) -> decltype(&pairs.front().second) {
  const auto found = std::ranges::find_if(pairs, [&](const auto& pair) { return matches(pair.first); });
  return found == pairs.end() ? nullptr : &found->second;
}

std::string Threads(int count) {
  return fmt::format("{} {}", count, count == 1 ? "thread" : "threads");
}

std::string Readers(int64_t most_readers) {
  return most_readers == 1 ? std::string("no shared reads")
                           : fmt::format("shared reads for {} rows", most_readers);
}

std::string Times(double speedup) {
  return speedup == 1 ? std::string("the default") : fmt::format("{:.2f} times the default", speedup);
}

}  // namespace

TrialMachine ThisTrialMachine() {
  return {.cpu = MachineTopology().cpu_model,
          .cpu_signature = HostCpuFeatures().signature,
          .instruction_sets = CpuFeaturesText()};
}

const AttentionChoice* KeptChoices::Find(const AttentionUse& use) const {
  return FirstChoice(attention, [&](const AttentionUse& kept) { return kept == use; });
}

const ProductChoice* KeptChoices::Find(const ProductUse& use) const {
  return FirstChoice(products, [&](const ProductUse& kept) { return kept == use; });
}

const AttentionChoice* KeptChoices::FindWithAnyThreads(AttentionUse use) const {
  return FirstChoice(attention, [&](const AttentionUse& kept) {
    use.num_threads = kept.num_threads;
    return kept == use;
  });
}

std::string ChoicePath(const std::string& folder, const TrialMachine& machine) {
  const uint64_t hash = Fnv1a(ToJson(machine).dump(-1, ' ', false, Json::error_handler_t::replace));
  return (std::filesystem::path(folder) / fmt::format("cpu-kernels{}-{:016x}.json", kVersion, hash)).string();
}

Status WriteChoices(const std::string& path, const TrialMachine& machine, const KeptChoices& choices) {
  Json root = {{"version", kVersion},
               {"machine", ToJson(machine)},
               {"attention", Json::array()},
               {"products", Json::array()}};
  for (const auto& [use, choice] : choices.attention) root["attention"].push_back(ToJson(use, choice));
  for (const auto& [use, choice] : choices.products) root["products"].push_back(ToJson(use, choice));
  return ReplaceFile(path, root.dump(1, ' ', false, Json::error_handler_t::replace) + '\n');
}

Result<KeptChoices> ReadChoices(const std::string& path, const TrialMachine& machine) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text,
                          ReadReplacedFile(path, kMaxFileBytes, "choices of CPU kernels"));
  return Parse(text, path, machine);
}

std::string Describe(const AttentionUse& use, const AttentionChoice& choice) {
  return fmt::format("attention {}, {} query heads a kv head of {}, {}{}: {}, fetches to {}, {}; {}",
                     DTypeName(use.kv_dtype), use.group_size, use.head_dim, Threads(use.num_threads),
                     use.any_isa ? ", cpu tier" : "", CpuIsaName(choice.isa), DescribeFetch(choice.fetch),
                     Times(choice.speedup), Readers(choice.most_readers));
}

std::string Describe(const ProductUse& use, const ProductChoice& choice) {
  return fmt::format("products of few rows {}, {}: fetches to {}, {}", DTypeName(use.dtype),
                     Threads(use.num_threads), DescribeFetch(choice.fetch), Times(choice.speedup));
}

}  // namespace tandem
