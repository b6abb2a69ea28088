// Responses that requests may go on from (previous_response_id), or fetch. In memory, of this process only.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tandem {

struct ResponseStoreOptions {
  int64_t max_bytes = 64 << 20;  // of all texts; 0: nothing is stored
  int64_t max_count = 10'000;
  std::string replica_id;  // letters and digits, in every id; empty: random ones
};

struct StoredResponse {
  std::string body;   // the response object, JSON
  std::string input;  // a JSON list of all that the model was given: items of former responses too
};

// Any thread. Whoever asks is known by the name of the key, empty without keys: of one key's responses
// another hears no more than of ids that do not exist. The oldest go when there is no room.
class ResponseStore {
 public:
  explicit ResponseStore(ResponseStoreOptions options);

  bool enabled() const { return options_.max_bytes > 0 && options_.max_count > 0; }
  // resp_<replica>_<32 hex digits>, which cannot be guessed.
  std::string NewId() const;

  void Add(const std::string& id, const std::string& key_name, StoredResponse response);
  std::optional<StoredResponse> Find(std::string_view id, std::string_view key_name) const;
  // False: there is none.
  bool Remove(std::string_view id, std::string_view key_name);

  int64_t num_bytes() const;

 private:
  struct Entry {
    std::string id;
    std::string key_name;
    StoredResponse response;

    int64_t num_bytes() const;
  };
  using Entries = std::list<Entry>;  // oldest first

  Entries::const_iterator Locate(std::string_view id, std::string_view key_name) const;
  void Erase(Entries::const_iterator entry);

  ResponseStoreOptions options_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<std::string_view, Entries::const_iterator> by_id_;  // views into entries_
  int64_t num_bytes_ = 0;
};

// Ids of a response's items: <prefix>_<what follows resp_>_<suffix>.
std::string ResponseItemId(std::string_view prefix, std::string_view response_id, std::string_view suffix);
// The response of such an id; empty if it is no such id.
std::string ResponseIdOfItem(std::string_view item_id);

}  // namespace tandem
