#include "kv_events/kv_event_encoding.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace tandem {
namespace {

using nlohmann::json;

// tests/fixtures/kv_events has what msgspec makes of these.
json Batches() {
  std::ifstream file(TANDEM_SOURCE_DIR "/tests/fixtures/kv_events/batches.json");
  return json::parse(file);
}

KvEvent EventOf(const json& fields) {
  KvEvent event;
  const auto type = fields.at("type").get<std::string>();
  if (type == "AllBlocksCleared") return event;
  event.kind = type == "BlockStored" ? KvEvent::Kind::kStored : KvEvent::Kind::kRemoved;
  event.tier = fields.at("medium") == "GPU" ? Tier::kGpu : Tier::kCpu;
  event.block_hashes = fields.at("block_hashes").get<std::vector<uint64_t>>();
  if (event.kind == KvEvent::Kind::kRemoved) return event;
  if (!fields.at("parent_block_hash").is_null())
    event.parent_block_hash = fields.at("parent_block_hash").get<uint64_t>();
  event.token_ids = fields.at("token_ids").get<std::vector<int32_t>>();
  event.block_size = fields.at("block_size").get<int64_t>();
  if (fields.contains("extra_keys"))
    event.cache_salt = fields.at("extra_keys").at(0).at(0).get<std::string>();
  return event;
}

std::string Hex(const std::vector<uint8_t>& bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

TEST(KvEventEncoding, WritesWhatVllmWrites) {
  const json batches = Batches();
  ASSERT_EQ(batches.size(), 3U);
  for (const json& batch : batches) {
    KvEvents events;
    for (const json& event : batch.at("events")) events.push_back(EventOf(event));
    const auto unix_seconds = batch.at("unix_seconds").get<double>();
    EXPECT_EQ(Hex(EncodeKvEvents(unix_seconds, events, KvEventEncoding::kMap)), batch.at("map"));
    EXPECT_EQ(Hex(EncodeKvEvents(unix_seconds, events, KvEventEncoding::kArray)), batch.at("array"));
  }
}

}  // namespace
}  // namespace tandem
