#include "kv_events/kv_event_encoding.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kDataParallelRank = 0;

// The fields of one event in vLLM's order.
class EventFields {
 public:
  EventFields(KvEventEncoding encoding, std::string_view name) : as_map_(encoding == KvEventEncoding::kMap) {
    fields_ = as_map_ ? OrderedJson::object() : OrderedJson::array();
    Add("type", name);
  }

  // Null is the field's default: a map leaves it out then.
  void AddOptional(const char* name, OrderedJson value) {
    if (!as_map_ || !value.is_null()) Add(name, std::move(value));
  }
  void Add(const char* name, OrderedJson value) {
    if (as_map_) {
      fields_[name] = std::move(value);
    } else {
      fields_.push_back(std::move(value));
    }
  }
  OrderedJson Take() { return std::move(fields_); }

 private:
  bool as_map_;
  OrderedJson fields_;
};

// vLLM's names.
const char* MediumOf(Tier tier) {
  return tier == Tier::kGpu ? "GPU" : "CPU";
}

// For each block what its hash has beside tokens: the salt, in the first of a chain. Null: none has anything.
OrderedJson ExtraKeysOf(const KvEvent& event) {
  if (event.cache_salt.empty()) return nullptr;
  OrderedJson of_blocks = OrderedJson::array({OrderedJson::array({event.cache_salt})});
  while (of_blocks.size() < event.block_hashes.size()) of_blocks.push_back(nullptr);
  return of_blocks;
}

OrderedJson StoredFields(const KvEvent& event, KvEventEncoding encoding) {
  EventFields fields(encoding, "BlockStored");
  fields.Add("block_hashes", event.block_hashes);
  fields.Add("parent_block_hash",
             event.parent_block_hash ? OrderedJson(*event.parent_block_hash) : OrderedJson());
  fields.Add("token_ids", event.token_ids);
  fields.Add("block_size", event.block_size);
  fields.Add("lora_id", nullptr);
  fields.Add("medium", MediumOf(event.tier));
  fields.Add("lora_name", nullptr);
  fields.AddOptional("extra_keys", ExtraKeysOf(event));
  return fields.Take();
}

OrderedJson FieldsOf(const KvEvent& event, KvEventEncoding encoding) {
  if (event.kind == KvEvent::Kind::kStored) return StoredFields(event, encoding);
  if (event.kind == KvEvent::Kind::kCleared) return EventFields(encoding, "AllBlocksCleared").Take();
  EventFields fields(encoding, "BlockRemoved");
  fields.Add("block_hashes", event.block_hashes);
  fields.Add("medium", MediumOf(event.tier));
  return fields.Take();
}

}  // namespace

std::vector<uint8_t> EncodeKvEvents(double unix_seconds, const KvEvents& events, KvEventEncoding encoding) {
  OrderedJson encoded = OrderedJson::array();
  for (const KvEvent& event : events) encoded.push_back(FieldsOf(event, encoding));
  return OrderedJson::to_msgpack(OrderedJson::array({unix_seconds, std::move(encoded), kDataParallelRank}));
}

}  // namespace tandem
