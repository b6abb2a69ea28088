#include "server/response_store.h"

#include <fmt/format.h>

#include <iterator>
#include <random>
#include <utility>

namespace tandem {
namespace {

constexpr std::string_view kResponsePrefix = "resp_";

std::string RandomHex(int num_words) {
  // Reads the system's generator: ids are all that keeps strangers away where there are no keys.
  std::random_device random;
  std::string text;
  for (int i = 0; i < num_words; ++i) text += fmt::format("{:08x}", static_cast<uint32_t>(random()));
  return text;
}

}  // namespace

ResponseStore::ResponseStore(ResponseStoreOptions options) : options_(std::move(options)) {
  if (options_.replica_id.empty()) options_.replica_id = RandomHex(1);
}

std::string ResponseStore::NewId() const {
  return fmt::format("{}{}_{}", kResponsePrefix, options_.replica_id, RandomHex(4));
}

int64_t ResponseStore::Entry::num_bytes() const {
  return static_cast<int64_t>(id.size() + key_name.size() + response.body.size() + response.input.size());
}

void ResponseStore::Add(const std::string& id, const std::string& key_name, StoredResponse response) {
  Entry entry{.id = id, .key_name = key_name, .response = std::move(response)};
  const std::lock_guard lock(mutex_);
  if (!enabled() || entry.num_bytes() > options_.max_bytes || by_id_.contains(id)) return;
  num_bytes_ += entry.num_bytes();
  entries_.push_back(std::move(entry));
  by_id_.emplace(entries_.back().id, std::prev(entries_.cend()));
  while (num_bytes_ > options_.max_bytes || std::ssize(entries_) > options_.max_count) {
    Erase(entries_.cbegin());
  }
}

ResponseStore::Entries::const_iterator ResponseStore::Locate(std::string_view id,
                                                             std::string_view key_name) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->key_name != key_name) return entries_.cend();
  return found->second;
}

std::optional<StoredResponse> ResponseStore::Find(std::string_view id, std::string_view key_name) const {
  const std::lock_guard lock(mutex_);
  const auto entry = Locate(id, key_name);
  if (entry == entries_.cend()) return std::nullopt;
  return entry->response;
}

bool ResponseStore::Remove(std::string_view id, std::string_view key_name) {
  const std::lock_guard lock(mutex_);
  const auto entry = Locate(id, key_name);
  if (entry == entries_.cend()) return false;
  Erase(entry);
  return true;
}

void ResponseStore::Erase(Entries::const_iterator entry) {
  num_bytes_ -= entry->num_bytes();
  by_id_.erase(std::string_view(entry->id));
  entries_.erase(entry);
}

int64_t ResponseStore::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

std::string ResponseItemId(std::string_view prefix, std::string_view response_id, std::string_view suffix) {
  if (response_id.starts_with(kResponsePrefix)) response_id.remove_prefix(kResponsePrefix.size());
  return fmt::format("{}_{}_{}", prefix, response_id, suffix);
}

std::string ResponseIdOfItem(std::string_view item_id) {
  const size_t begin = item_id.find('_');
  const size_t end = item_id.rfind('_');
  if (begin == std::string_view::npos || end <= begin) return {};
  return fmt::format("{}{}", kResponsePrefix, item_id.substr(begin + 1, end - begin - 1));
}

}  // namespace tandem
