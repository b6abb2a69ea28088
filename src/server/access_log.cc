#include "server/access_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/log.h"
#include "base/param_error.h"
#include "server/json_text.h"

namespace tandem {
namespace {

constexpr size_t kMaxPendingBytes = size_t{8} << 20;
constexpr std::chrono::milliseconds kFlushInterval{50};
constexpr std::string_view kStandardOutput = "-";

int OpenLogFile(const std::string& path) {
  constexpr mode_t kMode = 0640;
  if (path == kStandardOutput) return STDOUT_FILENO;
  return open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kMode);
}

std::string Rfc3339(std::chrono::system_clock::time_point time) {
  const auto since_epoch = time.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_epoch);
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch - seconds);
  const auto time_of_day = static_cast<std::time_t>(seconds.count());
  std::tm utc{};
  gmtime_r(&time_of_day, &utc);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", utc, milliseconds.count());
}

}  // namespace

std::string AccessLogLine(const HttpAnswerRecord& record) {
  constexpr int kClientClosedRequest = 499;  // nginx's number for a client that did not wait
  const double duration_ms = std::chrono::duration<double, std::milli>(record.duration).count();
  std::string line = fmt::format(R"({{"time":"{}","client":)", Rfc3339(record.received));
  const auto add_text = [&](std::string_view name, const std::string& text) {
    line += fmt::format(R"(,"{}":)", name);
    AppendJsonString(text, &line);
  };
  AppendJsonString(record.client, &line);
  add_text("request_id", record.request_id);
  if (!record.key_name.empty()) add_text("key", record.key_name);
  add_text("method", record.method);
  add_text("path", record.path);
  line += fmt::format(R"(,"status":{},"complete":{},"bytes_in":{},"bytes_out":{},"duration_ms":{:.3f})",
                      record.status == 0 ? kClientClosedRequest : record.status, record.complete,
                      record.num_bytes_in, record.num_bytes_out, duration_ms);
  for (const auto& [name, value] : record.numbers) line += fmt::format(R"(,"{}":{})", name, value);
  line += "}\n";
  return line;
}

Result<std::unique_ptr<AccessLog>> AccessLog::Open(const std::string& path) {
  const int file = OpenLogFile(path);
  if (file < 0) {
    return MakeParamError(ErrorCode::kIo, "access-log", "cannot write the access log {}: {}", path,
                          std::strerror(errno));
  }
  return std::unique_ptr<AccessLog>(new AccessLog(path, file));
}

AccessLog::AccessLog(std::string path, int file) : path_(std::move(path)), file_(file) {
  writer_ = std::thread([this] { Run(); });
}

AccessLog::~AccessLog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  writer_.join();
  if (file_ != STDOUT_FILENO) close(file_);
}

void AccessLog::Write(const std::string& line) {
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    was_empty = pending_.empty();
    if (pending_.size() + line.size() > kMaxPendingBytes) {
      if (!std::exchange(dropping_, true))
        LogWarn("the access log {} is too slow: lines are left out", path_);
      return;
    }
    pending_ += line;
  }
  if (was_empty) changed_.notify_all();
}

void AccessLog::Reopen() {
  {
    const std::lock_guard lock(mutex_);
    reopen_ = true;
  }
  changed_.notify_all();
}

void AccessLog::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || reopen_ || !pending_.empty(); });
    const std::string text = std::exchange(pending_, {});
    const bool reopen = std::exchange(reopen_, false);
    const bool stop = stopping_;
    dropping_ = false;
    lock.unlock();
    WriteAll(text);
    if (reopen && path_ != kStandardOutput) {
      const int file = OpenLogFile(path_);
      if (file < 0) {
        LogWarn("cannot open the access log {} again: {}", path_, std::strerror(errno));
      } else {
        close(std::exchange(file_, file));
      }
    }
    if (stop) return;
    lock.lock();
    // Several lines a write where many come.
    changed_.wait_for(lock, kFlushInterval, [this] { return stopping_ || reopen_; });
  }
}

void AccessLog::WriteAll(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(file_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      if (!std::exchange(failing_, true)) {
        LogWarn("cannot write the access log {}: {}", path_, std::strerror(errno));
      }
      return;
    }
    failing_ = false;
    done += static_cast<size_t>(count);
  }
}

}  // namespace tandem
