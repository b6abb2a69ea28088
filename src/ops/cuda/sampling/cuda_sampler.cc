#include "ops/cuda/sampling/cuda_sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/round_up.h"
#include "base/token_mask.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/host/sampling/token_sampler.h"

namespace tandem {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();
// Below this a draw cannot differ from the maximum except by rounding.
constexpr float kGreedyTemperature = 1e-5F;
// What a log-probability that is no number is reported as (JSON has no NaN and no infinity).
constexpr float kNoLogprob = -9999.0F;
constexpr size_t kAlignment = 256;

bool HasPenalties(const SampleRow& row) {
  return row.repetition_penalty != 1.0F || row.frequency_penalty != 0.0F || row.presence_penalty != 0.0F;
}

bool Draws(const SampleRow& row) {
  return row.temperature >= kGreedyTemperature;
}

// Nothing but the best of the logits as they are.
bool IsPlainGreedy(const SampleRow& row) {
  return !Draws(row) && row.num_top_logprobs < 0 && row.logit_bias.empty() && row.banned_tokens.empty() &&
         row.allowed_tokens.empty() && !HasPenalties(row);
}

size_t AlignUp(size_t size_bytes) {
  return RoundUp(size_bytes, kAlignment);
}

// The lists of a row one after another in memory for `values`, whose length is `count` so far.
struct ListWriter {
  int32_t* values = nullptr;
  int64_t count = 0;

  int32_t Append(std::span<const int32_t> tokens) {
    const int64_t first = count;
    if (!tokens.empty()) std::memcpy(values + first, tokens.data(), tokens.size_bytes());
    count += std::ssize(tokens);
    return static_cast<int32_t>(first);
  }
  int32_t Append(std::span<const uint32_t> words) {
    const int64_t first = count;
    std::memcpy(values + first, words.data(), words.size_bytes());
    count += std::ssize(words);
    return static_cast<int32_t>(first);
  }
  int32_t Append(std::span<const std::pair<int32_t, float>> bias) {
    const int64_t first = count;
    for (const auto& [token, value] : bias) {
      values[count++] = token;
      values[count++] = std::bit_cast<int32_t>(value);
    }
    return static_cast<int32_t>(first);
  }
};

// Masks that are still being made: copied to the device where they lie, behind the lists, once the stream
// gets there. Those that lie one after the other are one copy.
class ComingMasks {
 public:
  // first: index of the first word in the array of lists. Returns that of this mask.
  int64_t Append(std::span<const uint32_t> words, int64_t first) {
    const int64_t at = first + num_words_;
    num_words_ += std::ssize(words);
    if (!copies_.empty() && copies_.back().words.data() + copies_.back().words.size() == words.data()) {
      copies_.back().words = {copies_.back().words.data(), copies_.back().words.size() + words.size()};
    } else {
      copies_.push_back({words, at});
    }
    return at;
  }
  void Copy(Stream& stream, int32_t* device_lists) const {
    for (const auto& [words, at] : copies_) stream.Copy(device_lists + at, words.data(), words.size_bytes());
  }

 private:
  struct OneCopy {
    std::span<const uint32_t> words;
    int64_t at;
  };
  std::vector<OneCopy> copies_;
  int64_t num_words_ = 0;
};

struct RowLists {
  std::span<const int32_t> output;
  std::span<const int32_t> prompt;
  int64_t num_values = 0;      // in the array of lists, with a mask that is there
  int64_t num_coming = 0;      // behind them, of one that is coming
  int64_t table_capacity = 0;  // 0: no lists
};

RowLists ListsOf(const SampleRow& row, int64_t vocab) {
  RowLists lists;
  if (row.forced_token >= 0) return lists;
  (row.mask_is_coming ? lists.num_coming : lists.num_values) = std::ssize(row.allowed_tokens);
  if (HasPenalties(row)) {
    lists.output = row.output_tokens;
    if (row.repetition_penalty != 1.0F) lists.prompt = row.prompt_tokens;
  }
  const int64_t num_tokens = std::ssize(lists.output) + std::ssize(lists.prompt) +
                             std::ssize(row.banned_tokens) + std::ssize(row.logit_bias);
  if (num_tokens == 0) return lists;
  lists.num_values += num_tokens + std::ssize(row.logit_bias);
  lists.table_capacity =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * std::min(num_tokens, vocab))));
  return lists;
}

float LogprobOf(float logit, double log_sum) {
  const double logprob = logit - log_sum;
  return std::isfinite(logprob) ? static_cast<float>(logprob) : kNoLogprob;
}

}  // namespace

// Memory of one call, from the call until the results have been handed over.
class CudaSampler::Slot {
 public:
  // One row of a call that the general kernel samples.
  struct GeneralRow {
    int32_t result = 0;  // index
    bool has_logprobs = false;
    int32_t first_top = 0;
  };

  // Makes room: in and out, in pinned and in device memory, scratch in device memory only.
  void Reserve(Device& device, size_t in_bytes, size_t out_bytes, size_t scratch_bytes) {
    in_bytes_ = AlignUp(in_bytes);
    out_bytes_ = AlignUp(out_bytes);
    Grow(device, in_bytes_ + out_bytes_, MemoryKind::kPinned, &pinned_);
    Grow(device, in_bytes_ + out_bytes_ + scratch_bytes, MemoryKind::kDevice, &memory_);
  }
  std::byte* host_in() const { return pinned_.as<std::byte>(); }
  std::byte* host_out() const { return pinned_.as<std::byte>() + in_bytes_; }
  std::byte* device_in() const { return memory_.as<std::byte>(); }
  std::byte* device_out() const { return memory_.as<std::byte>() + in_bytes_; }
  std::byte* device_scratch() const { return memory_.as<std::byte>() + in_bytes_ + out_bytes_; }

  // Writes the results. The copy to host_out has ended.
  void HandOver() {
    const auto* keys = reinterpret_cast<const uint64_t*>(host_out() + keys_at);
    for (size_t i = 0; i < greedy.size(); ++i) {
      const uint64_t key = *std::max_element(keys, keys + num_parts);
      keys += num_parts;
      SampledToken sampled;
      sampled.token = key == 0 ? 0 : TokenOfKey(key);
      results[static_cast<size_t>(greedy[i])] = std::move(sampled);
    }
    const auto* general_results = reinterpret_cast<const SampleRowResult*>(host_out());
    const auto* tops = reinterpret_cast<const TopLogit*>(host_out() + tops_at);
    for (size_t i = 0; i < general.size(); ++i) {
      const SampleRowResult& row = general_results[i];
      SampledToken sampled;
      sampled.token = row.token;
      if (general[i].has_logprobs) {
        const double log_sum = row.max_logit + std::log(static_cast<double>(row.sum) / kWeightOne);
        const bool finite = std::isfinite(row.max_logit);
        sampled.logprob = finite ? LogprobOf(row.logit, log_sum) : kNoLogprob;
        sampled.rank = row.rank;
        sampled.top_logprobs.reserve(static_cast<size_t>(row.num_top));
        for (int32_t t = 0; t < row.num_top; ++t) {
          const TopLogit& top = tops[general[i].first_top + t];
          sampled.top_logprobs.push_back({top.token, finite ? LogprobOf(top.logit, log_sum) : kNoLogprob});
        }
      }
      results[static_cast<size_t>(general[i].result)] = std::move(sampled);
    }
  }

  std::span<SampledToken> results;
  std::vector<int32_t> greedy;  // indices of results
  std::vector<GeneralRow> general;
  int num_parts = 1;   // keys of a greedy row
  size_t tops_at = 0;  // in host_out; the general rows' results are at 0
  size_t keys_at = 0;

 private:
  static void Grow(Device& device, size_t size_bytes, MemoryKind kind, Buffer* buffer) {
    if (size_bytes <= buffer->size_bytes()) return;
    *buffer = Buffer();
    auto grown = device.Allocate(std::max<size_t>(64 << 10, size_bytes + size_bytes / 2), kind, "sampling");
    TANDEM_CHECK(grown.ok(), "{}", grown.error().message);
    *buffer = std::move(grown).value();
  }

  Buffer pinned_;
  Buffer memory_;
  size_t in_bytes_ = 0;
  size_t out_bytes_ = 0;
};

struct CudaSampler::SlotPool {
  std::mutex mutex;
  std::vector<std::shared_ptr<Slot>> free;
};

CudaSampler::CudaSampler(Device* device) : device_(device), pool_(std::make_shared<SlotPool>()) {
  // Two calls may be under way in an engine that looks ahead; memory for them is taken while there is some.
  for (int i = 0; i < 2; ++i) {
    auto slot = std::make_shared<Slot>();
    slot->Reserve(*device_, 1, 1, 0);
    pool_->free.push_back(std::move(slot));
  }
}

CudaSampler::~CudaSampler() = default;

std::shared_ptr<CudaSampler::Slot> CudaSampler::TakeSlot() {
  const std::lock_guard lock(pool_->mutex);
  if (pool_->free.empty()) return std::make_shared<Slot>();
  auto slot = std::move(pool_->free.back());
  pool_->free.pop_back();
  return slot;
}

const SampleRowsLayout& CudaSampler::LayoutFor(CudaStream& stream) {
  std::call_once(layout_once_, [&] { layout_ = ChooseSampleRowsLayout(stream); });
  return layout_;
}

void CudaSampler::Sample(CudaStream& stream, const SampleArgs& args) {
  const int64_t vocab = args.logits.cols;
  TANDEM_CHECK(args.logits.dtype == DType::kF32 && vocab > 0 && vocab <= kMaxSampleVocab &&
                   args.rows.size() == args.results.size(),
               "sample: logits [{}, {}] {}, {} rows, {} results", args.logits.rows, vocab,
               DTypeName(args.logits.dtype), args.rows.size(), args.results.size());
  const std::shared_ptr<Slot> slot = TakeSlot();
  slot->results = args.results;
  slot->greedy.clear();
  slot->general.clear();

  // What each row needs.
  bool rows_in_order = true;  // the greedy ones: row i is row i of the logits
  int64_t num_tops = 0;
  int64_t num_values = 0;
  int64_t num_coming = 0;
  int64_t num_entries = 0;
  for (size_t i = 0; i < args.rows.size(); ++i) {
    const SampleRow& row = args.rows[i];
    TANDEM_CHECK(row.logits_row >= 0 && row.logits_row < args.logits.rows && row.forced_token < vocab &&
                     row.num_top_logprobs <= kMaxTopLogits && FitsVocab(row.allowed_tokens, vocab),
                 "sample: row {} of {}, forced token {} of {}, {} log-probabilities, a mask of {} words",
                 row.logits_row, args.logits.rows, row.forced_token, vocab, row.num_top_logprobs,
                 row.allowed_tokens.size());
    if (row.forced_token < 0 && IsPlainGreedy(row)) {
      rows_in_order = rows_in_order && row.logits_row == std::ssize(slot->greedy);
      slot->greedy.push_back(static_cast<int32_t>(i));
      continue;
    }
    slot->general.push_back(
        {static_cast<int32_t>(i), row.num_top_logprobs >= 0, static_cast<int32_t>(num_tops)});
    num_tops += std::max<int64_t>(0, row.num_top_logprobs);
    const RowLists lists = ListsOf(row, vocab);
    num_values += lists.num_values;
    num_coming += lists.num_coming;
    num_entries += lists.table_capacity;
  }
  TANDEM_CHECK(num_values + num_coming < (int64_t{1} << 31), "sample: lists of {} tokens",
               num_values + num_coming);
  if (args.rows.empty()) {
    const std::lock_guard lock(pool_->mutex);
    pool_->free.push_back(slot);
    return;
  }

  const auto num_greedy = std::ssize(slot->greedy);
  const auto num_general = std::ssize(slot->general);
  const size_t params_bytes = AlignUp(static_cast<size_t>(num_general) * sizeof(SampleRowParams));
  const size_t greedy_rows_bytes =
      rows_in_order ? 0 : AlignUp(static_cast<size_t>(num_greedy) * sizeof(int32_t));
  // Where results are not in the order of the rows.
  const bool has_places = args.drawn != nullptr && num_greedy > 0 && num_general > 0;
  const size_t places_at = params_bytes + greedy_rows_bytes;
  const size_t lists_at = places_at + (has_places ? AlignUp(args.rows.size() * sizeof(int32_t)) : 0);
  const size_t in_bytes = lists_at + static_cast<size_t>(num_values) * sizeof(int32_t);
  slot->num_parts = num_greedy > 0 ? GreedyParts(stream.target(), num_greedy, vocab) : 0;
  slot->tops_at = AlignUp(static_cast<size_t>(num_general) * sizeof(SampleRowResult));
  slot->keys_at = slot->tops_at + AlignUp(static_cast<size_t>(num_tops) * sizeof(TopLogit));
  const size_t out_bytes =
      slot->keys_at + static_cast<size_t>(num_greedy * slot->num_parts) * sizeof(uint64_t);
  const size_t coming_bytes = static_cast<size_t>(num_coming) * sizeof(int32_t);
  slot->Reserve(*device_, in_bytes + coming_bytes, out_bytes,
                static_cast<size_t>(num_entries) * sizeof(ChangedToken));

  auto* params = reinterpret_cast<SampleRowParams*>(slot->host_in());
  ListWriter writer{reinterpret_cast<int32_t*>(slot->host_in() + lists_at)};
  int64_t first_entry = 0;
  bool has_masks = false;
  ComingMasks coming;
  for (const Slot::GeneralRow& general : slot->general) {
    const SampleRow& row = args.rows[static_cast<size_t>(general.result)];
    const RowLists lists = ListsOf(row, vocab);
    SampleRowParams& to = *params++;
    to = {};
    to.uniform = UniformDraw(row.seed, row.position);
    to.first_entry = first_entry;
    to.table_capacity = static_cast<int32_t>(lists.table_capacity);
    first_entry += lists.table_capacity;
    to.logits_row = static_cast<int32_t>(row.logits_row);
    to.forced_token = std::max(-1, row.forced_token);
    to.draws = Draws(row) ? 1 : 0;
    to.temperature = row.temperature;
    to.min_p_offset = row.min_p > 0.0F ? row.temperature * std::log(row.min_p) : kNegativeInfinity;
    to.top_p = row.top_p;
    to.top_k = row.top_k > 0 && row.top_k < vocab ? row.top_k : 0;
    to.repetition_penalty = row.repetition_penalty;
    to.frequency_penalty = row.frequency_penalty;
    to.presence_penalty = row.presence_penalty;
    if (lists.table_capacity > 0) {
      to.num_bias = static_cast<int32_t>(row.logit_bias.size());
      to.first_bias = writer.Append(row.logit_bias);
      to.num_banned = static_cast<int32_t>(row.banned_tokens.size());
      to.first_banned = writer.Append(row.banned_tokens);
      to.num_output = static_cast<int32_t>(lists.output.size());
      to.first_output = writer.Append(lists.output);
      to.num_prompt = static_cast<int32_t>(lists.prompt.size());
      to.first_prompt = writer.Append(lists.prompt);
    }
    const bool is_masked = row.forced_token < 0 && !row.allowed_tokens.empty();
    to.first_allowed = -1;
    if (is_masked) {
      to.first_allowed = row.mask_is_coming
                             ? static_cast<int32_t>(coming.Append(row.allowed_tokens, num_values))
                             : writer.Append(row.allowed_tokens);
    }
    has_masks = has_masks || is_masked;
    to.num_top = row.num_top_logprobs;
    to.first_top = general.first_top;
  }
  if (!rows_in_order) {
    auto* rows = reinterpret_cast<int32_t*>(slot->host_in() + params_bytes);
    for (const int32_t index : slot->greedy) {
      *rows++ = static_cast<int32_t>(args.rows[static_cast<size_t>(index)].logits_row);
    }
  }

  if (has_places) {
    auto* places = reinterpret_cast<int32_t*>(slot->host_in() + places_at);
    places = std::copy(slot->greedy.begin(), slot->greedy.end(), places);
    for (const Slot::GeneralRow& general : slot->general) *places++ = general.result;
  }

  auto* device_lists = reinterpret_cast<int32_t*>(slot->device_in() + lists_at);
  if (in_bytes > 0) stream.Copy(slot->device_in(), slot->host_in(), in_bytes);
  coming.Copy(stream, device_lists);
  if (num_greedy > 0) {
    const auto* rows = rows_in_order ? nullptr : reinterpret_cast<int32_t*>(slot->device_in() + params_bytes);
    LaunchGreedy(stream, args.logits, rows, num_greedy, slot->num_parts,
                 reinterpret_cast<uint64_t*>(slot->device_out() + slot->keys_at));
  }
  if (num_general > 0) {
    SampleRowsArgs rows;
    rows.logits = args.logits;
    rows.params = reinterpret_cast<const SampleRowParams*>(slot->device_in());
    rows.num_rows = num_general;
    rows.has_masks = has_masks;
    rows.lists = device_lists;
    rows.entries = reinterpret_cast<ChangedToken*>(slot->device_scratch());
    rows.results = reinterpret_cast<SampleRowResult*>(slot->device_out());
    rows.tops = reinterpret_cast<TopLogit*>(slot->device_out() + slot->tops_at);
    LaunchSampleRows(stream, LayoutFor(stream), rows);
  }
  if (args.drawn != nullptr) {
    LaunchCollectDrawn(
        stream,
        {.keys = reinterpret_cast<const uint64_t*>(slot->device_out() + slot->keys_at),
         .num_greedy = num_greedy,
         .parts = slot->num_parts,
         .results = reinterpret_cast<const SampleRowResult*>(slot->device_out()),
         .num_general = num_general,
         .places = has_places ? reinterpret_cast<const int32_t*>(slot->device_in() + places_at) : nullptr,
         .drawn = args.drawn});
  }
  stream.Copy(slot->host_out(), slot->device_out(), out_bytes);
  stream.AfterSynchronize([pool = pool_, slot] {
    slot->HandOver();
    const std::lock_guard lock(pool->mutex);
    pool->free.push_back(slot);
  });
}

void CudaOps::Sample(Stream& stream, const SampleArgs& args) {
  sampler_->Sample(AsCudaStream(stream), args);
}

}  // namespace tandem
