#include "server/http_session.h"

#include <fmt/format.h>

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <utility>

#include "server/http_request_id.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr size_t kReadBytes = size_t{16} << 10;
constexpr size_t kMaxPipelinedBytes = size_t{64} << 10;
constexpr size_t kMaxLingerBytes = size_t{256} << 20;
constexpr std::chrono::milliseconds kLingerTimeout{2'000};

// Ties one request to its answer; the session goes on to the next request only after this one is answered.
class Exchange final : public HttpExchange {
 public:
  explicit Exchange(std::shared_ptr<HttpSession> session) : session_(std::move(session)) {}
  ~Exchange() override {
    if (!answered_) session_->Respond({.status = 500, .headers = {}, .body = {}});
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void Respond(HttpResponse response) override {
    if (std::exchange(answered_, true)) return;
    session_->Respond(std::move(response));
  }
  void StartStream(HttpResponse head) override {
    if (std::exchange(answered_, true)) return;
    streaming_ = true;
    session_->StartStream(head);
  }
  void Send(std::string_view data) override {
    if (streaming_) session_->SendChunk(data);
  }
  size_t unsent_bytes() const override { return session_->unsent_bytes(); }
  void EndStream() override {
    if (std::exchange(streaming_, false)) session_->EndStream();
  }
  void SetDisconnectCallback(std::function<void()> callback) override {
    session_->SetDisconnectCallback(std::move(callback));
  }
  bool connected() const override { return session_->open(); }
  void AddLogNumber(std::string name, int64_t value) override {
    if (!answered_ || streaming_) session_->AddLogNumber(std::move(name), value);
  }

 private:
  std::shared_ptr<HttpSession> session_;
  bool answered_ = false;
  bool streaming_ = false;
};

}  // namespace

struct HttpSession::Parsing {
  boost::beast::flat_buffer buffer;
  std::optional<http::request_parser<http::string_body>> parser;
  bool continue_sent = false;

  void Reset(const HttpServerOptions& options) {
    parser.emplace();
    parser->header_limit(static_cast<uint32_t>(options.max_header_bytes));
    parser->body_limit(options.max_body_bytes);
    continue_sent = false;
  }
};

HttpSession::HttpSession(asio::io_context* io, std::shared_ptr<Transport> transport, std::string client,
                         HttpSessionContext* context)
    : context_(context),
      client_(std::move(client)),
      transport_(std::move(transport)),
      read_timer_(std::make_unique<asio::steady_timer>(*io)),
      write_timer_(std::make_unique<asio::steady_timer>(*io)),
      parsing_(std::make_unique<Parsing>()) {
  context_->sessions.insert(this);
}

HttpSession::~HttpSession() {
  Close();
}

void HttpSession::Start() {
  parsing_->Reset(context_->options);
  SetPhase(Phase::kHandshake);
  transport_->AsyncHandshake([self = shared_from_this()](const error_code& error) {
    if (!self->open()) return;
    if (error) return self->Close();
    self->SetPhase(Phase::kIdle);
    self->StartRead();
  });
}

void HttpSession::Close() {
  if (!open()) return;
  context_->sessions.erase(this);
  const bool is_answering = phase_ == Phase::kAnswering;
  if (is_answering) --context_->num_active_exchanges;
  // No I/O object outlives the connection: an exchange may be kept longer than the server runs.
  read_timer_.reset();
  write_timer_.reset();
  std::exchange(transport_, nullptr)->Close();
  parsing_.reset();
  queued_.clear();
  if (const auto callback = std::exchange(disconnect_callback_, nullptr)) callback();
  if (is_answering) ReportAnswer(false);
}

void HttpSession::StartRead() {
  if (!open() || read_pending_) return;
  if (phase_ == Phase::kAnswering && parsing_->buffer.size() >= kMaxPipelinedBytes) return;
  read_pending_ = true;
  transport_->AsyncReadSome(parsing_->buffer.prepare(kReadBytes),
                            [self = shared_from_this()](const error_code& error, size_t num_bytes) {
                              self->read_pending_ = false;
                              self->OnRead(num_bytes, error == asio::error::eof, static_cast<bool>(error));
                            });
}

void HttpSession::OnRead(size_t num_bytes, bool end_of_stream, bool failed) {
  if (!open()) return;
  if (phase_ == Phase::kLingering) {
    lingered_bytes_ += num_bytes;
    if (failed || lingered_bytes_ > kMaxLingerBytes) return Close();
    return StartRead();
  }
  if (failed) {
    // The message that broke off gets its answer; whoever closed while waiting for one is gone.
    if (end_of_stream && (phase_ == Phase::kHeader || phase_ == Phase::kBody)) {
      return FailRequest(400, "the request ended before it was complete");
    }
    return Close();
  }
  parsing_->buffer.commit(num_bytes);
  if (phase_ != Phase::kAnswering) ParseBuffered();
  StartRead();
}

void HttpSession::ParseBuffered() {
  auto& parser = *parsing_->parser;
  auto& buffer = parsing_->buffer;
  if (buffer.size() > 0 && phase_ == Phase::kIdle) {
    first_byte_ = std::chrono::steady_clock::now();
    record_.received = std::chrono::system_clock::now();
    SetPhase(Phase::kHeader);
  }
  while (buffer.size() > 0 && !parser.is_done()) {
    error_code error;
    const size_t consumed = parser.put(buffer.data(), error);
    buffer.consume(consumed);
    record_.num_bytes_in += consumed;
    if (error == http::error::need_more) break;
    const bool has_head = parser.is_header_done() || error == http::error::body_limit;
    if (has_head && !admitted_ && !AdmitRequest()) return;
    if (error == http::error::body_limit) {
      return FailRequest(413, fmt::format("the request body is larger than the limit of {} bytes",
                                          context_->options.max_body_bytes));
    }
    if (error == http::error::header_limit) {
      return FailRequest(431, fmt::format("the request headers are larger than the limit of {} bytes",
                                          context_->options.max_header_bytes));
    }
    if (error) return FailRequest(400, fmt::format("malformed HTTP request: {}", error.message()));
    if (consumed == 0) break;
  }
  if (parser.is_header_done() && phase_ == Phase::kHeader) SetPhase(Phase::kBody);
  if (parser.is_header_done() && !parser.is_done() && !parsing_->continue_sent &&
      EqualsIgnoringCase(parser.get()[http::field::expect].to_string(), "100-continue")) {
    parsing_->continue_sent = true;
    Queue("HTTP/1.1 100 Continue\r\n\r\n");
  }
  if (parser.is_done()) OnRequest();
}

bool HttpSession::AdmitRequest() {
  auto& message = parsing_->parser->get();
  // The body comes in whatever pieces the buffer has.
  parsing_->parser->eager(true);
  head_.method = message.method_string().to_string();
  head_.target = message.target().to_string();
  for (const auto& field : message) {
    head_.headers.push_back({field.name_string().to_string(), field.value().to_string()});
  }
  head_.id = HttpRequestIdOr(head_.Header("X-Request-Id"));
  record_.method = head_.method;
  record_.path = head_.Path();
  is_head_request_ = head_.method == "HEAD";
  is_http_1_0_ = message.version() < 11;
  admitted_ = true;
  const bool has_length_and_encoding =
      message.count(http::field::content_length) > 0 && message.count(http::field::transfer_encoding) > 0;
  if (has_length_and_encoding) {
    FailRequest(400, "malformed HTTP request: both Content-Length and Transfer-Encoding");
    return false;
  }
  if (message.version() == 11 && message.count(http::field::host) != 1) {
    FailRequest(400, "malformed HTTP request: HTTP/1.1 needs exactly one Host header");
    return false;
  }
  keep_alive_ = message.keep_alive();
  if (context_->options.admit) admission_ = context_->options.admit(&head_, context_->loopback_only);
  if (!admission_.refusal) return true;
  RefuseRequest(*std::exchange(admission_.refusal, std::nullopt));
  return false;
}

void HttpSession::BeginAnswer() {
  SetPhase(Phase::kAnswering);
  ++context_->num_active_exchanges;
}

void HttpSession::OnRequest() {
  head_.body = std::move(parsing_->parser->get().body());
  head_.received = std::chrono::steady_clock::now();
  head_.key_name = admission_.key_name;
  BeginAnswer();
  auto exchange = std::make_shared<Exchange>(shared_from_this());
  context_->handler(std::exchange(head_, {.id = head_.id}), std::move(exchange));
}

// What is left of the request is not wanted: without a body there is nothing left, and the connection goes
// on.
void HttpSession::RefuseRequest(HttpResponse response) {
  BeginAnswer();
  if (!parsing_->parser->is_done()) {
    keep_alive_ = false;
    linger_after_answer_ = true;
  }
  Respond(std::move(response));
}

void HttpSession::FailRequest(int status, std::string_view message) {
  if (!admitted_) head_.id = NewHttpRequestId();
  BeginAnswer();
  keep_alive_ = false;
  linger_after_answer_ = true;
  Respond(context_->error_body(status, message));
}

std::string HttpSession::Head(const HttpResponse& response, bool chunked, size_t content_length) const {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nServer: tandem\r\n", response.status, HttpStatusText(response.status));
  if (!response.content_type.empty()) head += fmt::format("Content-Type: {}\r\n", response.content_type);
  const auto add = [&](const std::vector<HttpHeader>& headers) {
    for (const HttpHeader& header : headers) head += fmt::format("{}: {}\r\n", header.name, header.value);
  };
  add(response.headers);
  add(context_->options.answer_headers);
  add(admission_.headers);
  head += fmt::format("X-Request-Id: {}\r\n", head_.id);
  if (chunked) {
    head += "Transfer-Encoding: chunked\r\n";
  } else if (response.status != 204 && !streaming_) {
    head += fmt::format("Content-Length: {}\r\n", content_length);
  }
  if (!keep_alive_) {
    head += "Connection: close\r\n";
  } else if (is_http_1_0_) {
    head += "Connection: keep-alive\r\n";
  }
  head += "\r\n";
  return head;
}

void HttpSession::Respond(HttpResponse response) {
  if (!open()) return;
  if (response.body.empty() && response.status >= 500) {
    response = context_->error_body(response.status, "the request could not be answered");
  }
  if (context_->close_after_answers) keep_alive_ = false;
  answer_complete_ = true;
  record_.status = response.status;
  Queue(Head(response, false, response.body.size()));
  if (!is_head_request_ && !response.body.empty()) Queue(std::move(response.body));
}

void HttpSession::StartStream(const HttpResponse& head) {
  if (!open()) return;
  // HTTP/1.0 has no chunks: the end of the connection ends the answer.
  if (is_http_1_0_ || context_->close_after_answers) keep_alive_ = false;
  streaming_ = true;
  record_.status = head.status;
  Queue(Head(head, !is_http_1_0_, 0));
}

void HttpSession::SendChunk(std::string_view data) {
  if (!open() || data.empty() || is_head_request_) return;
  if (queued_bytes_ + in_flight_bytes_ + data.size() > context_->options.max_stream_backlog_bytes) {
    return Close();
  }
  Queue(is_http_1_0_ ? std::string(data) : fmt::format("{:x}\r\n{}\r\n", data.size(), data));
}

void HttpSession::EndStream() {
  if (!open()) return;
  if (context_->close_after_answers) keep_alive_ = false;
  answer_complete_ = true;
  streaming_ = false;
  if (is_http_1_0_ || is_head_request_) {
    if (in_flight_.empty() && queued_.empty()) FinishAnswer();
    return;
  }
  Queue("0\r\n\r\n");
}

void HttpSession::AddLogNumber(std::string name, int64_t value) {
  record_.numbers.emplace_back(std::move(name), value);
}

void HttpSession::Queue(std::string data) {
  queued_bytes_ += data.size();
  queued_.push_back(std::move(data));
  if (!in_flight_.empty() || std::exchange(flush_pending_, true)) return;
  // What else this turn of the event loop has for the client goes out with it, as one write and one TLS
  // record.
  asio::post(read_timer_->get_executor(), [self = shared_from_this()] {
    self->flush_pending_ = false;
    if (self->open() && self->in_flight_.empty() && !self->queued_.empty()) self->StartWrite();
  });
}

void HttpSession::StartWrite() {
  in_flight_ = std::exchange(queued_, {});
  in_flight_bytes_ = std::exchange(queued_bytes_, 0);
  std::vector<asio::const_buffer> buffers;
  buffers.reserve(in_flight_.size());
  for (const std::string& data : in_flight_) buffers.emplace_back(data.data(), data.size());
  write_timer_->expires_after(context_->options.write_timeout);
  write_timer_->async_wait([weak = weak_from_this()](const error_code& error) {
    if (error) return;
    if (const auto self = weak.lock()) self->Close();
  });
  transport_->AsyncWrite(std::move(buffers), [self = shared_from_this()](const error_code& error) {
    self->OnWritten(static_cast<bool>(error));
  });
}

void HttpSession::OnWritten(bool failed) {
  in_flight_.clear();
  const size_t num_bytes = std::exchange(in_flight_bytes_, 0);
  if (!open()) return;
  if (failed) return Close();
  record_.num_bytes_out += num_bytes;
  write_timer_->cancel();
  if (!queued_.empty()) return StartWrite();
  if (answer_complete_) FinishAnswer();
}

void HttpSession::ReportAnswer(bool complete) {
  HttpAnswerRecord record = std::exchange(record_, {});
  record.duration = std::chrono::steady_clock::now() - first_byte_;
  record.client = client_;
  record.request_id = std::move(head_.id);
  record.key_name = std::move(admission_.key_name);
  record.complete = complete;
  head_ = {};
  admission_ = {};
  admitted_ = false;
  is_head_request_ = false;
  is_http_1_0_ = false;
  if (context_->options.answered) context_->options.answered(std::move(record));
}

void HttpSession::FinishAnswer() {
  answer_complete_ = false;
  disconnect_callback_ = nullptr;
  --context_->num_active_exchanges;
  ReportAnswer(true);
  SetPhase(Phase::kIdle);
  if (!keep_alive_) return Linger();
  parsing_->Reset(context_->options);
  ParseBuffered();
  StartRead();
}

// Closing a socket with unread bytes resets the connection, and the client may lose the answer. So: end the
// sending side, read on for a moment.
void HttpSession::Linger() {
  transport_->ShutdownSend();
  if (!linger_after_answer_ && !read_pending_ && parsing_->buffer.size() == 0) return Close();
  parsing_->buffer.consume(parsing_->buffer.size());
  SetPhase(Phase::kLingering);
  StartRead();
}

void HttpSession::SetPhase(Phase phase) {
  phase_ = phase;
  const HttpServerOptions& options = context_->options;
  switch (phase) {
    case Phase::kIdle:
      return ArmReadTimer(options.idle_timeout);
    case Phase::kHandshake:
    case Phase::kHeader:
      return ArmReadTimer(options.header_timeout);
    case Phase::kBody:
      return ArmReadTimer(options.body_timeout);
    case Phase::kLingering:
      return ArmReadTimer(kLingerTimeout);
    case Phase::kAnswering:
      read_timer_->cancel();
      return;
  }
}

void HttpSession::ArmReadTimer(std::chrono::milliseconds timeout) {
  read_timer_->expires_after(timeout);
  read_timer_->async_wait([weak = weak_from_this(), phase = phase_](const error_code& error) {
    if (error) return;
    const auto self = weak.lock();
    // A wait that had already expired cannot be cancelled any more: the phase says whether it still counts.
    if (self && self->open() && self->phase_ == phase) self->OnReadTimeout();
  });
}

void HttpSession::OnReadTimeout() {
  if (phase_ == Phase::kHeader || phase_ == Phase::kBody) {
    return FailRequest(408, "the request took too long to arrive");
  }
  // A client that waits for its next request to begin learns that the connection has ended in order.
  if (phase_ == Phase::kIdle) transport_->ShutdownSend();
  Close();
}

}  // namespace tandem
