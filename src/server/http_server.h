// The listening socket, its io thread and a worker thread. Knows HTTP, nothing of the API.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/tls_context.h"
#include "server/http_message.h"

namespace tandem {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any free one
  TlsFiles tls;          // no certificate: plain HTTP
  size_t max_header_bytes = size_t{64} << 10;
  size_t max_body_bytes = size_t{32} << 20;
  // Unsent bytes of a stream beyond which its client counts as gone.
  size_t max_stream_backlog_bytes = size_t{1} << 20;
  size_t max_connections = 4096;
  std::vector<HttpHeader> answer_headers;          // that every answer carries
  HttpAdmit admit;                                 // may be null: every request is handled
  HttpAnswered answered;                           // may be null
  std::chrono::milliseconds idle_timeout{75'000};  // between requests of a kept-alive connection
  // From the first byte to the end of the headers; for a TLS handshake too.
  std::chrono::milliseconds header_timeout{15'000};
  std::chrono::milliseconds body_timeout{120'000};  // for the body
  std::chrono::milliseconds write_timeout{60'000};  // without the socket taking what is queued
};

// Sessions run on one io thread, so that they need no locks; whatever takes long goes to the worker thread.
class HttpServer {
 public:
  // Binds and listens. Errors: kInvalidArgument (host), kIo (address in use, ...), those of
  // MakeServerTlsContext.
  static Result<std::unique_ptr<HttpServer>> Listen(const HttpServerOptions& options, HttpHandler handler,
                                                    HttpErrorBody error_body);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  bool loopback_only() const;  // listens on 127.0.0.0/8 or ::1

  // Any thread. Reads the certificate and its key again, for connections from now on. With an error, and
  // without TLS, all stays as it is.
  Status ReloadTls();

  void Post(std::function<void()> task);  // any thread; runs on the io thread
  // Io thread. Runs on the io thread; not at all if the server stops before.
  void PostAfter(std::chrono::milliseconds delay, std::function<void()> task);
  void PostWork(std::function<void()> task);  // any thread; runs on the worker thread, in order

  // Any thread. Answers from now on end their connections.
  void CloseAfterAnswers();
  // Any thread. Requests being answered, their last bytes not yet handed to the socket included.
  int64_t num_active_exchanges() const;

  // Not from the io or worker thread. Closes everything (disconnect callbacks are called) and joins both
  // threads.
  void Stop();

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem
