#include "tracing/collector_testing.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

namespace tandem {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;

}  // namespace

TestCollector::TestCollector(std::vector<Answer> answers)
    : acceptor_(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
      port_(acceptor_.local_endpoint().port()),
      answers_(std::move(answers)),
      thread_([this] { Run(); }) {}

TestCollector::~TestCollector() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (socket_ >= 0) shutdown(socket_, SHUT_RDWR);
  }
  shutdown(acceptor_.native_handle(), SHUT_RDWR);
  thread_.join();
}

OtlpOptions TestCollector::Options() const {
  OtlpOptions options;
  options.url = *ParseServerUrl(fmt::format("http://127.0.0.1:{}/v1/traces", port_));
  options.resource = {{"service.name", "test"}};
  options.version = "1.2";
  options.delay = std::chrono::milliseconds(1);
  options.first_backoff = std::chrono::milliseconds(20);
  options.max_backoff = std::chrono::milliseconds(100);
  return options;
}

std::vector<TestCollector::Received> TestCollector::WaitFor(size_t num_requests) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(10), [&] { return received_.size() >= num_requests; });
  return received_;
}

std::vector<TestCollector::Received> TestCollector::received() {
  const std::lock_guard lock(mutex_);
  return received_;
}

void TestCollector::Run() {
  for (int connection = 0;; ++connection) {
    boost::system::error_code error;
    tcp::socket socket(io_);
    acceptor_.accept(socket, error);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      if (error) continue;
      socket_ = socket.native_handle();
    }
    ServeConnection(&socket, connection);
    const std::lock_guard lock(mutex_);
    socket_ = -1;
    if (stopping_) return;
  }
}

void TestCollector::ServeConnection(tcp::socket* socket, int connection) {
  boost::beast::flat_buffer buffer;
  for (;;) {
    boost::system::error_code error;
    http::request<http::string_body> request;
    http::read(*socket, buffer, request, error);
    if (error) return;
    Received received{.target = std::string(request.target()),
                      .headers = {},
                      .body = request.body(),
                      .time = std::chrono::steady_clock::now(),
                      .connection = connection};
    for (const auto& field : request) {
      received.headers[std::string(field.name_string())] = std::string(field.value());
    }
    Answer answer;
    {
      const std::lock_guard lock(mutex_);
      if (received_.size() < answers_.size()) answer = answers_[received_.size()];
      received_.push_back(std::move(received));
    }
    changed_.notify_all();
    if (answer.is_none) continue;
    std::string text =
        fmt::format("HTTP/1.1 {} x\r\nContent-Length: {}\r\n", answer.status, answer.body.size());
    if (!answer.retry_after.empty()) text += fmt::format("Retry-After: {}\r\n", answer.retry_after);
    text += "\r\n" + answer.body;
    asio::write(*socket, asio::buffer(text), error);
    if (error || answer.closes) return;
  }
}

}  // namespace tandem
