#include "bench/request_recorder.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/fnv1a.h"

namespace tandem {

RequestRecorder::RequestRecorder(const std::vector<WorkloadRequest>& requests) {
  records_.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    records_[i].prompt_tokens = requests[i].prompt_tokens;
    records_[i].begun = requests[i].begun;
    records_[i].made_tokens = requests[i].made_tokens;
    records_[i].turn = requests[i].turn;
    records_[i].wanted_output_tokens = requests[i].output_tokens - requests[i].made_tokens;
    // No allocation while the clock runs.
    records_[i].inter_token_ms.reserve(static_cast<size_t>(requests[i].output_tokens));
    records_[i].in_cpu_tier.reserve(static_cast<size_t>(requests[i].output_tokens));
  }
}

void RequestRecorder::Start(int64_t index, const SendTimes& times) {
  RequestRecord& record = records_[static_cast<size_t>(index)];
  record.start = times.start;
  record.due = times.due;
  record.send_delay_ms = std::chrono::duration<double, std::milli>(times.sent - times.due).count();
}

void RequestRecorder::SetCachedTokens(int64_t index, int64_t num_tokens) {
  records_[static_cast<size_t>(index)].cached_tokens = num_tokens;
}

void RequestRecorder::AddTokens(int64_t index, int64_t num_tokens, bool in_cpu_tier, Clock::time_point now) {
  RequestRecord& record = records_[static_cast<size_t>(index)];
  // Tokens that arrive together have no time between them.
  for (int64_t i = 0; i < num_tokens; ++i) {
    if (record.output_tokens++ == 0) {
      record.first_token = now;
    } else {
      record.inter_token_ms.push_back(
          std::chrono::duration<float, std::milli>(now - record.last_token).count());
    }
    record.last_token = now;
    record.in_cpu_tier.push_back(in_cpu_tier);
  }
}

void RequestRecorder::DigestToken(int64_t index, int32_t token) {
  std::optional<uint64_t>& digest = records_[static_cast<size_t>(index)].output_digest;
  digest = Fnv1a({reinterpret_cast<const char*>(&token), sizeof(token)}, digest.value_or(0));
}

void RequestRecorder::End(int64_t index, std::string error) {
  RequestRecord& record = records_[static_cast<size_t>(index)];
  record.error = std::move(error);
  if (record.error.empty() && record.output_tokens != record.wanted_output_tokens) {
    record.error =
        fmt::format("{} output tokens instead of {}", record.output_tokens, record.wanted_output_tokens);
  }
  CountEnd(&record);
}

void RequestRecorder::Reject(int64_t index, std::string reason) {
  RequestRecord& record = records_[static_cast<size_t>(index)];
  record.rejected = true;
  record.error = std::move(reason);
  CountEnd(&record);
}

void RequestRecorder::Cancel(int64_t index) {
  RequestRecord& record = records_[static_cast<size_t>(index)];
  record.cancelled = true;
  CountEnd(&record);
}

void RequestRecorder::CountEnd(RequestRecord* record) {
  TANDEM_CHECK(!record->ended, "request {} ends twice", record - records_.data());
  record->ended = true;
  const std::lock_guard lock(mutex_);
  progress_.output_tokens += record->output_tokens;
  if (!record->error.empty()) ++(record->rejected ? progress_.rejected : progress_.failed);
  if (++progress_.ended == static_cast<int64_t>(records_.size())) all_ended_.notify_all();
}

RequestRecorder::Progress RequestRecorder::WaitFor(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  all_ended_.wait_for(lock, timeout,
                      [&] { return progress_.ended == static_cast<int64_t>(records_.size()); });
  return progress_;
}

void RequestRecorder::KeepFirst(int64_t count) {
  const std::lock_guard lock(mutex_);
  // Nothing moves: callbacks of the others may be running.
  records_.resize(static_cast<size_t>(count));
}

std::vector<RequestRecord> RequestRecorder::TakeRecords() {
  const std::lock_guard lock(mutex_);
  TANDEM_CHECK(progress_.ended == static_cast<int64_t>(records_.size()), "{} of {} requests have ended",
               progress_.ended, records_.size());
  return std::move(records_);
}

}  // namespace tandem
