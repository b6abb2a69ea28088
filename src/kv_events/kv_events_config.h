// Whether and where events of the KV cache are published: vLLM's --kv-events-config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kv_events/kv_event_encoding.h"

namespace tandem {

struct KvEventsConfig {
  // A ZeroMQ address. With "*" or "::" in it, of ipc or of inproc, it is bound; any other is connected to.
  std::string endpoint = "tcp://*:5557";
  std::optional<std::string> replay_endpoint;  // bound; absent: nothing is sent again
  int64_t buffer_steps = 10'000;               // batches that can be sent again
  int64_t hwm = 100'000;                       // batches that wait for one subscriber at most; 0: any number
  int64_t max_queue_size = 100'000;            // batches that wait to be sent at most
  std::string topic;                           // first frame of each message
  KvEventEncoding encoding = KvEventEncoding::kMap;
};

// text: --kv-events-config, a JSON object with vLLM's keys, and with encoding ("map" or "array"). Nothing: it
// is empty, or says that no events are wanted. Errors: kInvalidArgument, with the flag as param and the key
// in the message.
Result<std::optional<KvEventsConfig>> ParseKvEventsConfig(std::string_view text);

}  // namespace tandem
