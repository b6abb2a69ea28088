#include "tracing/otlp_exporter.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include "base/log.h"
#include "tracing/otlp_json.h"

namespace tandem {
namespace {

std::string PlaceOf(const ServerUrl& url) {
  return fmt::format("{}://{}{}", url.https ? "https" : "http", url.Authority(), url.path);
}

// Between half and all of it: exporters that failed together do not come back together.
std::chrono::milliseconds WithJitter(std::chrono::milliseconds time) {
  thread_local std::minstd_rand generator(std::random_device{}());
  return std::chrono::milliseconds(
      std::uniform_int_distribution<int64_t>((time.count() + 1) / 2, time.count())(generator));
}

// What an answer says, as far as a line of the log has room.
std::string Excerpt(const std::string& body) {
  constexpr size_t kMaxLength = 200;
  std::string text = body.substr(0, kMaxLength);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
  return text;
}

}  // namespace

Result<std::unique_ptr<OtlpExporter>> OtlpExporter::Start(const OtlpOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(auto sender, OtlpSender::Make(options));
  return std::unique_ptr<OtlpExporter>(new OtlpExporter(options, std::move(sender)));
}

OtlpExporter::OtlpExporter(const OtlpOptions& options, std::unique_ptr<OtlpSender> sender)
    : options_(options), sender_(std::move(sender)) {
  thread_ = std::thread([this] { Run(); });
}

OtlpExporter::~OtlpExporter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_by_ = std::chrono::steady_clock::now() + options_.flush_time;
  }
  sender_->StopBy(stop_by_);
  changed_.notify_all();
  thread_.join();
  const OtlpCounts all = counts();
  if (const int64_t lost = all.queue_full + all.unreachable + all.refused; lost > 0) {
    LogWarn("{} of {} spans did not reach {}", lost, lost + all.sent, PlaceOf(options_.url));
  }
}

void OtlpExporter::Export(std::vector<Span> spans) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (pending_.size() + spans.size() > options_.max_queued_spans) {
      queue_full_ += std::ssize(spans);
      if (!std::exchange(dropping_, true)) {
        LogWarn("spans are dropped: {} takes them too slowly", PlaceOf(options_.url));
      }
      return;
    }
    // The first begins the delay, a whole batch ends it.
    wake = pending_.empty() || pending_.size() + spans.size() >= options_.max_batch_spans;
    pending_.insert(pending_.end(), std::make_move_iterator(spans.begin()),
                    std::make_move_iterator(spans.end()));
  }
  if (wake) changed_.notify_all();
}

OtlpCounts OtlpExporter::counts() const {
  return {.sent = sent_, .queue_full = queue_full_, .unreachable = unreachable_, .refused = refused_};
}

void OtlpExporter::Run() {
  for (;;) {
    const std::vector<Span> batch = TakeBatch();
    if (batch.empty()) return;
    SendBatch(batch);
  }
}

std::vector<Span> OtlpExporter::TakeBatch() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || !pending_.empty(); });
  changed_.wait_for(lock, options_.delay,
                    [this] { return stopping_ || pending_.size() >= options_.max_batch_spans; });
  const auto end =
      pending_.begin() + std::ssize(pending_) -
      std::max<std::ptrdiff_t>(0, std::ssize(pending_) - std::ptrdiff_t(options_.max_batch_spans));
  std::vector<Span> batch(std::make_move_iterator(pending_.begin()), std::make_move_iterator(end));
  pending_.erase(pending_.begin(), end);
  if (pending_.empty()) dropping_ = false;
  return batch;
}

void OtlpExporter::SendBatch(const std::vector<Span>& batch) {
  using Kind = OtlpOutcome::Kind;
  const std::string body = OtlpTraceRequest(options_.resource, options_.version, batch);
  const TimePoint give_up = std::chrono::steady_clock::now() + options_.max_retry_time;
  for (auto backoff = options_.first_backoff;; backoff = std::min(2 * backoff, options_.max_backoff)) {
    const OtlpOutcome outcome = sender_->Post(body);
    if (outcome.kind == Kind::kTaken) return CountTaken(outcome, std::ssize(batch));
    if (!std::exchange(failing_, true)) {
      LogWarn("no spans reach {}: {} {}", PlaceOf(options_.url), outcome.error, Excerpt(outcome.body));
    }
    if (outcome.kind == Kind::kRefused) {
      refused_ += std::ssize(batch);
      return;
    }
    if (!WaitToRetry(outcome, WithJitter(backoff), give_up)) {
      unreachable_ += std::ssize(batch);
      return;
    }
  }
}

void OtlpExporter::CountTaken(const OtlpOutcome& outcome, int64_t num_spans) {
  if (std::exchange(failing_, false)) LogInfo("spans reach {} again", PlaceOf(options_.url));
  std::string message;
  const int64_t rejected = std::clamp<int64_t>(OtlpRejectedSpans(outcome.body, &message), 0, num_spans);
  if (rejected > 0) {
    LogWarn("{} did not take {} of {} spans: {}", PlaceOf(options_.url), rejected, num_spans,
            Excerpt(message));
  }
  refused_ += rejected;
  sent_ += num_spans - rejected;
}

bool OtlpExporter::WaitToRetry(const OtlpOutcome& outcome, std::chrono::milliseconds backoff,
                               TimePoint give_up) {
  const TimePoint again = std::chrono::steady_clock::now() + std::max(backoff, outcome.retry_after);
  if (again > give_up) return false;
  std::unique_lock lock(mutex_);
  if (!stopping_) {
    // The end has the batch sent once more at once.
    changed_.wait_until(lock, again, [this] { return stopping_; });
    return true;
  }
  if (outcome.kind == OtlpOutcome::Kind::kUnreachable || again > stop_by_) return false;
  lock.unlock();
  std::this_thread::sleep_until(again);
  return true;
}

}  // namespace tandem
