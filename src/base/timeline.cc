#include "base/timeline.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

namespace tandem {
namespace {

// Of one iteration: far more than a large model has.
constexpr size_t kMaxIterationSpans = 20'000;

}  // namespace

int64_t SteadyNowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string LaneOfShard(std::string_view lane, int rank, int num_shards) {
  return num_shards == 1 ? std::string(lane) : fmt::format("{} {}", lane, rank);
}

void Timeline::Add(std::string_view lane, std::string_view name, int64_t number, int64_t begin_ns,
                   int64_t end_ns) {
  if (!on()) return;
  TimelineSpan span{.lane = std::string(lane),
                    .name = number < 0 ? std::string(name) : fmt::format("{} {}", name, number),
                    .begin_ns = begin_ns,
                    .end_ns = end_ns};
  const std::lock_guard lock(mutex_);
  if (watched_ && running_.size() < kMaxIterationSpans) running_.push_back(span);
  if (spans_.size() < max_spans_) spans_.push_back(std::move(span));
  on_ = watched_ || spans_.size() < max_spans_;
}

void Timeline::Watch(bool watched) {
  const std::lock_guard lock(mutex_);
  watched_ = watched;
  running_ = {};
  last_ = {};
  on_ = watched_ || spans_.size() < max_spans_;
}

void Timeline::EndIteration() {
  const std::lock_guard lock(mutex_);
  last_ = std::exchange(running_, {});
}

std::vector<TimelineSpan> Timeline::LastIteration() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

Status Timeline::WriteChromeTrace(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  std::ofstream file(path);
  // Names are our own and need no escaping. Times are in microseconds.
  int64_t origin_ns = 0;
  for (const TimelineSpan& span : spans_)
    origin_ns = origin_ns == 0 ? span.begin_ns : std::min(origin_ns, span.begin_ns);
  std::map<std::string_view, int> lanes;
  file << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (const TimelineSpan& span : spans_) {
    const auto [lane, is_new] = lanes.emplace(span.lane, static_cast<int>(lanes.size()) + 1);
    if (is_new) {
      file << fmt::format(
          "{{\"ph\":\"M\",\"pid\":1,\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":\"{}\"}}}},\n",
          lane->second, span.lane);
    }
    file << fmt::format(
        "{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"name\":\"{}\",\"ts\":{:.3f},\"dur\":{:.3f}}},\n", lane->second,
        span.name, static_cast<double>(span.begin_ns - origin_ns) / 1e3,
        static_cast<double>(std::max<int64_t>(0, span.end_ns - span.begin_ns)) / 1e3);
  }
  file << "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"tandem\"}}\n]}\n";
  file.close();
  if (!file) return MakeError(ErrorCode::kIo, "{}: cannot be written: {}", path, std::strerror(errno));
  return {};
}

}  // namespace tandem
