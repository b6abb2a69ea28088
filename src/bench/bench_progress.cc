#include "bench/bench_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"

namespace tandem {

BenchProgress::BenchProgress(std::string title, int64_t num_requests, double duration_s)
    : title_(std::move(title)),
      num_requests_(std::max<int64_t>(num_requests, 1)),
      duration_s_(duration_s),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()) {}

BenchProgress::~BenchProgress() {
  if (!is_terminal_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

std::chrono::milliseconds BenchProgress::interval() const {
  return std::chrono::milliseconds(is_terminal_ ? 100 : 500);
}

void BenchProgress::Show(const RequestRecorder::Progress& progress) {
  const double seconds = std::max(std::chrono::duration<double>(Clock::now() - start_).count(), 1e-6);
  std::string failed = progress.failed > 0 ? fmt::format(", {} failed", progress.failed) : "";
  if (progress.rejected > 0) failed += fmt::format(", {} rejected", progress.rejected);
  const std::string text =
      fmt::format("{} of {} requests{}, {:.0f} s, {:.0f} tok/s of those that ended", progress.ended,
                  num_requests_, failed, seconds, static_cast<double>(progress.output_tokens) / seconds);
  const double share = duration_s_ > 0
                           ? std::min(seconds / duration_s_, 1.0)
                           : static_cast<double>(progress.ended) / static_cast<double>(num_requests_);
  if (is_terminal_) {
    constexpr int kBarCells = 30;
    const auto filled = static_cast<int>(share * kBarCells);
    // "Erase to end of line": the next line drawn replaces this one.
    const std::string line =
        fmt::format("\r{} [{:#<{}}{:.<{}}] {}\x1b[K", title_, "", filled, "", kBarCells - filled, text);
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
    return;
  }
  const auto tenth = static_cast<int64_t>(share * 10);
  if (tenth <= last_logged_tenth_) return;
  last_logged_tenth_ = tenth;
  LogInfo("{}: {}", title_, text);
}

}  // namespace tandem
