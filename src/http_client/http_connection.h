// A client's connection to an HTTP server: one request at a time, kept alive between them.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "net/tls_context.h"
#include "net/transport.h"

namespace tandem {

constexpr int kHttpOk = 200;

// Where a server is.
struct HttpAddress {
  boost::asio::ip::tcp::endpoint endpoint;
  std::shared_ptr<const TlsContext> tls;  // null: plain HTTP
  std::string host;                       // that the server's certificate is for
};

// Only on the thread that runs the io_context.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // Called while an answer comes; none of them after Close.
  struct Callbacks {
    std::function<void(int status)> on_head;  // once, before the body
    std::function<void(std::string_view piece)> on_body;
    // Last. error: one clause that says why the answer is not complete; empty if it is.
    std::function<void(const std::string& error)> on_end;
  };

  HttpConnection(boost::asio::io_context* io, HttpAddress address);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Sends a whole request (head and body), after connecting if there is no connection. The answer before has
  // ended. request: valid until the end.
  void Send(std::string_view request, Callbacks callbacks);
  // Ends the connection and what is under way; no callback follows.
  void Close();

  // Whether the next request can go over the same connection.
  bool reusable() const { return connected_ && keep_alive_ && !busy_ && !writing_; }
  // Of the request under way: whether it went over a connection that had been used before, and whether
  // anything has come back. A server may have closed such a connection meanwhile: then it is worth another
  // try.
  bool was_reused() const { return was_reused_; }
  bool has_answer() const { return has_answer_; }
  bool connected() const { return connected_; }
  // A header of the answer, in on_head and until the next request; empty if there is none.
  std::string Header(std::string_view name) const;
  // When something was last sent or received.
  std::chrono::steady_clock::time_point last_activity() const { return last_activity_; }

 private:
  struct Parsing;

  void Connect();
  void OnConnected();
  void Write();
  void Read();
  void OnRead(size_t num_bytes);
  void OnEof();
  void OnBody(std::string_view piece);
  void TellHead();
  void End(const std::string& error);

  const HttpAddress address_;
  boost::asio::ip::tcp::socket socket_;   // while it is being connected
  std::shared_ptr<Transport> transport_;  // from then on
  const std::unique_ptr<Parsing> parsing_;
  std::string_view request_;
  Callbacks callbacks_;
  std::chrono::steady_clock::time_point last_activity_;
  uint64_t exchange_ = 0;  // handlers of an exchange that is over do nothing
  bool busy_ = false;
  bool writing_ = false;
  bool connected_ = false;
  bool was_reused_ = false;
  bool has_answer_ = false;
  bool head_told_ = false;
  bool keep_alive_ = false;
};

}  // namespace tandem
