// One connection: reads requests one after the other, writes answers. Internal to the HTTP layer.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "net/transport.h"
#include "server/http_message.h"
#include "server/http_server.h"

namespace tandem {

class HttpSession;

// What all sessions of a server share. Outlives them.
struct HttpSessionContext {
  HttpServerOptions options;
  HttpHandler handler;
  HttpErrorBody error_body;
  bool loopback_only = false;
  std::atomic<bool> close_after_answers{false};
  std::atomic<int64_t> num_active_exchanges{0};
  std::unordered_set<HttpSession*> sessions;  // io thread only
};

// Io thread only. A read is always pending while a request is answered, so that a client's going away is seen
// at once; bytes of pipelined requests that come meanwhile wait in the buffer. A client that closes its
// sending side counts as gone.
class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  // client: its address, for the log.
  HttpSession(boost::asio::io_context* io, std::shared_ptr<Transport> transport, std::string client,
              HttpSessionContext* context);
  ~HttpSession();
  HttpSession(const HttpSession&) = delete;
  HttpSession& operator=(const HttpSession&) = delete;

  void Start();
  void Close();  // at once; the disconnect callback of an unfinished exchange is called

  // For the exchange of the request that is being answered.
  void Respond(HttpResponse response);
  void StartStream(const HttpResponse& head);
  void SendChunk(std::string_view data);
  size_t unsent_bytes() const { return queued_bytes_ + in_flight_bytes_; }
  void EndStream();
  void SetDisconnectCallback(std::function<void()> callback) { disconnect_callback_ = std::move(callback); }
  void AddLogNumber(std::string name, int64_t value);
  bool open() const { return parsing_ != nullptr; }

 private:
  struct Parsing;  // Beast's parser and buffer
  enum class Phase { kHandshake, kIdle, kHeader, kBody, kAnswering, kLingering };

  void StartRead();
  void OnRead(size_t num_bytes, bool end_of_stream, bool failed);
  void ParseBuffered();
  // Once the headers are there. False: the request has had its answer.
  bool AdmitRequest();
  void OnRequest();
  void BeginAnswer();
  void RefuseRequest(HttpResponse response);
  void FailRequest(int status, std::string_view message);
  std::string Head(const HttpResponse& response, bool chunked, size_t content_length) const;
  void Queue(std::string data);
  void StartWrite();
  void OnWritten(bool failed);
  void FinishAnswer();
  void ReportAnswer(bool complete);
  void Linger();
  void SetPhase(Phase phase);
  void ArmReadTimer(std::chrono::milliseconds timeout);
  void OnReadTimeout();

  HttpSessionContext* context_;
  const std::string client_;  // its address
  std::shared_ptr<Transport> transport_;
  std::unique_ptr<boost::asio::steady_timer> read_timer_;
  std::unique_ptr<boost::asio::steady_timer> write_timer_;
  std::unique_ptr<Parsing> parsing_;  // null once closed

  Phase phase_ = Phase::kHandshake;
  bool read_pending_ = false;
  bool answer_complete_ = false;
  bool keep_alive_ = true;
  bool linger_after_answer_ = false;
  bool is_head_request_ = false;
  bool is_http_1_0_ = false;
  bool streaming_ = false;
  size_t lingered_bytes_ = 0;
  std::function<void()> disconnect_callback_;

  // Of the current request.
  HttpRequest head_;
  HttpAdmission admission_;
  bool admitted_ = false;
  HttpAnswerRecord record_;
  std::chrono::steady_clock::time_point first_byte_;

  std::vector<std::string> queued_;
  size_t queued_bytes_ = 0;
  bool flush_pending_ = false;
  std::vector<std::string> in_flight_;  // being written
  size_t in_flight_bytes_ = 0;
};

}  // namespace tandem
