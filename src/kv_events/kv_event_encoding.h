// Events as vLLM's publisher writes them, in MessagePack.
#pragma once

#include <cstdint>
#include <vector>

#include "kv_events/kv_event.h"

namespace tandem {

enum class KvEventEncoding {
  kMap,    // an event is a map with its name as "type": vLLM from 0.24 on
  kArray,  // an event is an array that begins with its name: before
};

// [time, events, rank 0]. unix_seconds: since 1970, of the whole batch.
std::vector<uint8_t> EncodeKvEvents(double unix_seconds, const KvEvents& events, KvEventEncoding encoding);

}  // namespace tandem
