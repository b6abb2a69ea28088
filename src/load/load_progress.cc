#include "load/load_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"

namespace tandem {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(50);
constexpr int kBarCells = 30;

std::string FormatBytes(double bytes) {
  if (bytes >= 1024.0 * 1024.0 * 1024.0) return fmt::format("{:.2f} GiB", bytes / (1024.0 * 1024.0 * 1024.0));
  return fmt::format("{:.1f} MiB", bytes / (1024.0 * 1024.0));
}

}  // namespace

LoadProgress::LoadProgress(std::string title, uint64_t total_bytes)
    : title_(std::move(title)),
      total_bytes_(total_bytes),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_draw_(start_ - kRedrawInterval) {}

LoadProgress::~LoadProgress() {
  Finish();
}

double LoadProgress::SecondsSinceStart() const {
  return std::max(std::chrono::duration<double>(Clock::now() - start_).count(), 1e-6);
}

void LoadProgress::DrawBar(uint64_t done_bytes) const {
  const double share = std::min(static_cast<double>(done_bytes) / static_cast<double>(total_bytes_), 1.0);
  const int filled = static_cast<int>(share * kBarCells);
  // \r and "erase to end of line": the next line drawn replaces this one.
  const std::string line =
      fmt::format("\r{} [{:#<{}}{:.<{}}] {:3.0f} %  {} of {}  {}/s\x1b[K", title_, "", filled, "",
                  kBarCells - filled, share * 100, FormatBytes(static_cast<double>(done_bytes)),
                  FormatBytes(static_cast<double>(total_bytes_)),
                  FormatBytes(static_cast<double>(done_bytes) / SecondsSinceStart()));
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

void LoadProgress::Add(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  done_bytes_ += bytes;
  if (finished_ || total_bytes_ == 0) return;
  if (is_terminal_) {
    const Clock::time_point now = Clock::now();
    if (now - last_draw_ < kRedrawInterval) return;
    last_draw_ = now;
    DrawBar(done_bytes_);
    return;
  }
  // The last tenth is Finish's.
  const auto tenth =
      static_cast<uint64_t>(static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_) * 10.0);
  if (tenth <= last_logged_tenth_ || tenth >= 10) return;
  last_logged_tenth_ = tenth;
  LogInfo("{}: {} %, {} of {}", title_, tenth * 10, FormatBytes(static_cast<double>(done_bytes_)),
          FormatBytes(static_cast<double>(total_bytes_)));
}

void LoadProgress::Finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (finished_) return;
  finished_ = true;
  if (is_terminal_ && total_bytes_ > 0) {
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
  }
  const double seconds = SecondsSinceStart();
  const auto done = static_cast<double>(done_bytes_);
  LogInfo("{}: {} in {:.2f} s, {}/s", title_, FormatBytes(done), seconds, FormatBytes(done / seconds));
}

}  // namespace tandem
