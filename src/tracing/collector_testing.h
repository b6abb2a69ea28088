// A receiver of OTLP for tests: answers as it is told, and remembers what it was sent.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tracing/tracing_options.h"

namespace tandem {

class TestCollector {
 public:
  struct Answer {
    int status = 200;
    std::string body = "{}";
    std::string retry_after;
    bool closes = false;   // the connection, behind this answer
    bool is_none = false;  // the connection stays, and nothing comes
  };
  struct Received {
    std::string target;
    std::map<std::string, std::string> headers;
    std::string body;
    std::chrono::steady_clock::time_point time;
    int connection = 0;  // which it came by
  };

  // answers: of the first requests; all others are taken.
  explicit TestCollector(std::vector<Answer> answers = {});
  ~TestCollector();
  TestCollector(const TestCollector&) = delete;
  TestCollector& operator=(const TestCollector&) = delete;

  int port() const { return port_; }
  // For exporters that hurry.
  OtlpOptions Options() const;
  // Waits for so many. Fewer after 10 s.
  std::vector<Received> WaitFor(size_t num_requests);
  std::vector<Received> received();

 private:
  void Run();
  void ServeConnection(boost::asio::ip::tcp::socket* socket, int connection);

  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor acceptor_;
  const int port_;
  const std::vector<Answer> answers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Received> received_;
  int socket_ = -1;  // of the connection that is served
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tandem
