// The access log: a JSON object a line for every request that ended.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "server/http_message.h"

namespace tandem {

// One line with its line end: valid JSON whatever the client sent. Nothing of the query, of headers but
// X-Request-Id, or of bodies is in it.
std::string AccessLogLine(const HttpAnswerRecord& record);

// Any thread. Lines are written by a thread of its own, a moment later.
class AccessLog {
 public:
  // path: a file, to which is appended; "-": standard output. Errors: kIo; param is access-log.
  static Result<std::unique_ptr<AccessLog>> Open(const std::string& path);
  // Writes what is left.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // Does not block: lines that the disk does not take fast enough are dropped, and the log says so.
  void Write(const std::string& line);
  // Opens the path again, after the file was moved.
  void Reopen();

 private:
  AccessLog(std::string path, int file);
  void Run();
  void WriteAll(const std::string& text);

  const std::string path_;
  int file_;              // writer thread only
  bool failing_ = false;  // writer thread only
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string pending_;
  bool reopen_ = false;
  bool dropping_ = false;
  bool stopping_ = false;
  std::thread writer_;
};

}  // namespace tandem
