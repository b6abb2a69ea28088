#include "bench/bench_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"

namespace tandem {

BenchProgress::BenchProgress(std::string title, int64_t num_requests)
    : title_(std::move(title)),
      num_requests_(std::max<int64_t>(num_requests, 1)),
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
  const std::string failed = progress.failed > 0 ? fmt::format(", {} failed", progress.failed) : "";
  const std::string text =
      fmt::format("{} of {} requests{}, {:.0f} s, {:.0f} tok/s of those that ended", progress.ended,
                  num_requests_, failed, seconds, static_cast<double>(progress.output_tokens) / seconds);
  if (is_terminal_) {
    constexpr int64_t kBarCells = 30;
    const auto filled = static_cast<int>(progress.ended * kBarCells / num_requests_);
    // "Erase to end of line": the next line drawn replaces this one.
    const std::string line = fmt::format("\r{} [{:#<{}}{:.<{}}] {}\x1b[K", title_, "", filled, "",
                                         static_cast<int>(kBarCells) - filled, text);
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
    return;
  }
  const int64_t tenth = progress.ended * 10 / num_requests_;
  if (tenth <= last_logged_tenth_) return;
  last_logged_tenth_ = tenth;
  LogInfo("{}: {}", title_, text);
}

}  // namespace tandem
