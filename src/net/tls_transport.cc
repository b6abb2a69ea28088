#include "net/tls_transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <deque>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "net/tls_error.h"

namespace tandem {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Steps of handshakes that wait for the processor. A step is run as a task of its own that queues the next
// one behind what is ready by then.
class HandshakeTurns : public std::enable_shared_from_this<HandshakeTurns> {
 public:
  explicit HandshakeTurns(asio::io_context* io) : io_(io) {}

  void Add(std::function<void()> step) {
    steps_.push_back(std::move(step));
    if (steps_.size() == 1) PostNext();
  }
  // Steps hold connections that hold this.
  void Clear() { steps_.clear(); }

 private:
  void PostNext() {
    asio::post(*io_, [self = shared_from_this()] {
      if (self->steps_.empty()) return;
      const auto step = std::move(self->steps_.front());
      self->steps_.pop_front();
      if (!self->steps_.empty()) self->PostNext();
      step();
    });
  }

  asio::io_context* io_;
  std::deque<std::function<void()>> steps_;
};

namespace {

// What one TLS record carries at most.
constexpr size_t kMaxRecordBytes = size_t{16} << 10;

// OpenSSL's own socket BIO would raise SIGPIPE.
struct SocketBioState {
  int socket = -1;
  bool at_end = false;
};

bool IsBlocked(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

int WriteSocketBio(BIO* bio, const char* data, int size) {
  const auto* state = static_cast<SocketBioState*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const ssize_t count = send(state->socket, data, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (count < 0 && IsBlocked(errno)) BIO_set_retry_write(bio);
  return static_cast<int>(count);
}

int ReadSocketBio(BIO* bio, char* data, int size) {
  auto* state = static_cast<SocketBioState*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const ssize_t count = recv(state->socket, data, static_cast<size_t>(size), 0);
  if (count < 0 && IsBlocked(errno)) BIO_set_retry_read(bio);
  state->at_end = count == 0;
  return static_cast<int>(count);
}

long ControlSocketBio(BIO* bio, int command, long /*number*/, void* /*argument*/) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return static_cast<SocketBioState*>(BIO_get_data(bio))->at_end ? 1 : 0;
  return 0;
}

BIO_METHOD* SocketBioMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tandem socket");
    BIO_meth_set_write(made, &WriteSocketBio);
    BIO_meth_set_read(made, &ReadSocketBio);
    BIO_meth_set_ctrl(made, &ControlSocketBio);
    return made;
  }();
  return method;
}

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using SslPtr = std::unique_ptr<SSL, FreeSsl>;

// Takes the bytes of buffers in pieces of at most a record. Small buffers are gathered, so that they share
// one.
class RecordCutter {
 public:
  RecordCutter() = default;
  explicit RecordCutter(std::vector<asio::const_buffer> buffers) : buffers_(std::move(buffers)) {}

  // Empty at the end. Valid until the next call.
  std::string_view Next() {
    gathered_.clear();
    while (next_ < buffers_.size()) {
      const std::string_view left = Left();
      const bool whole_record = left.size() >= kMaxRecordBytes || next_ + 1 == buffers_.size();
      if (gathered_.empty() && whole_record) return Take(left.substr(0, kMaxRecordBytes));
      const std::string_view piece = left.substr(0, kMaxRecordBytes - gathered_.size());
      gathered_ += Take(piece);
      if (gathered_.size() == kMaxRecordBytes) break;
    }
    return gathered_;
  }

 private:
  std::string_view Left() const {
    const asio::const_buffer buffer = buffers_[next_] + offset_;
    return {static_cast<const char*>(buffer.data()), buffer.size()};
  }
  std::string_view Take(std::string_view piece) {
    offset_ += piece.size();
    if (offset_ == buffers_[next_].size()) {
      ++next_;
      offset_ = 0;
    }
    return piece;
  }

  std::vector<asio::const_buffer> buffers_;
  size_t next_ = 0;
  size_t offset_ = 0;
  std::string gathered_;
};

// OpenSSL on a socket that does not block: where it wants to read or write and cannot, the call is made again
// once the socket is ready.
class TlsTransport final : public Transport, public std::enable_shared_from_this<TlsTransport> {
 public:
  // turns, plain_text_answer: null for a client.
  TlsTransport(tcp::socket socket, SslPtr ssl, std::shared_ptr<HandshakeTurns> turns,
               std::shared_ptr<const std::string> plain_text_answer)
      : socket_(std::move(socket)),
        ssl_(std::move(ssl)),
        turns_(std::move(turns)),
        plain_text_answer_(std::move(plain_text_answer)) {}

  // False when there is no memory.
  bool Init() {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.native_non_blocking(true, ignored);
    bio_state_.socket = socket_.native_handle();
    BIO* bio = BIO_new(SocketBioMethod());
    if (bio == nullptr) return false;
    BIO_set_data(bio, &bio_state_);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_.get(), bio, bio);
    return true;
  }

  void AsyncHandshake(Handler handler) override {
    handshake_handler_ = std::move(handler);
    // A server has nothing to say before its client.
    Wait(turns_ ? SSL_ERROR_WANT_READ : SSL_ERROR_WANT_WRITE, &TlsTransport::TakeTurn);
  }

  void AsyncReadSome(asio::mutable_buffer buffer, ReadHandler handler) override {
    read_buffer_ = buffer;
    read_handler_ = std::move(handler);
    // What OpenSSL has taken from the socket already does not make the socket ready.
    const bool may_have_bytes = failed_ || SSL_has_pending(ssl_.get()) != 0 ||
                                (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
    if (!may_have_bytes) return Wait(SSL_ERROR_WANT_READ, &TlsTransport::TryRead);
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->TryRead(); });
  }

  void AsyncWrite(std::vector<asio::const_buffer> buffers, Handler handler) override {
    cutter_ = RecordCutter(std::move(buffers));
    record_ = cutter_.Next();
    write_handler_ = std::move(handler);
    TryWrite();
  }

  void ShutdownSend() override {
    if (closed_) return;
    ERR_clear_error();
    if (!failed_ && SSL_is_init_finished(ssl_.get()) != 0) SSL_shutdown(ssl_.get());
    ERR_clear_error();
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }

  void Close() override {
    closed_ = true;
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  using Step = void (TlsTransport::*)();

  // Makes the step once the socket is ready. wanted: SSL_ERROR_WANT_READ or SSL_ERROR_WANT_WRITE.
  void Wait(int wanted, Step step) {
    const auto kind = wanted == SSL_ERROR_WANT_WRITE ? tcp::socket::wait_write : tcp::socket::wait_read;
    socket_.async_wait(kind, [self = shared_from_this(), step](const error_code& error) {
      if (error) self->failed_ = true;
      (self.get()->*step)();
    });
  }

  // Whether the call that returned this has to be made again; then it will be.
  bool IsToRepeat(int result, Step step) {
    const int error = SSL_get_error(ssl_.get(), result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return false;
    Wait(error, step);
    return true;
  }

  // The error of a call that failed for good.
  error_code Fail(int result) {
    const error_code error = TakeTlsError(ssl_.get(), result);
    failed_ = error != asio::error::eof;
    return error;
  }

  void TakeTurn() {
    if (!turns_) return TryHandshake();
    turns_->Add([self = shared_from_this()] { self->TryHandshake(); });
  }

  void TryHandshake() {
    if (closed_) return std::exchange(handshake_handler_, nullptr)(asio::error::operation_aborted);
    if (failed_) return std::exchange(handshake_handler_, nullptr)(asio::error::connection_reset);
    ERR_clear_error();
    errno = 0;
    const int result = SSL_do_handshake(ssl_.get());
    if (result == 1) return std::exchange(handshake_handler_, nullptr)({});
    if (IsToRepeat(result, &TlsTransport::TakeTurn)) return;
    const bool is_plain_text = ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST;
    const error_code error = Fail(result);
    failed_ = true;
    LogDebug("a handshake failed: {}", error.message());
    if (is_plain_text && plain_text_answer_) AnswerPlainText();
    std::exchange(handshake_handler_, nullptr)(error);
  }

  void AnswerPlainText() {
    // Closing a socket with unread bytes would take the answer away from the client.
    char unread[kMaxRecordBytes];
    for (int i = 0; i < 4 && recv(bio_state_.socket, unread, sizeof(unread), 0) > 0; ++i) {
    }
    send(bio_state_.socket, plain_text_answer_->data(), plain_text_answer_->size(), MSG_NOSIGNAL);
  }

  void TryRead() {
    if (closed_) return std::exchange(read_handler_, nullptr)(asio::error::operation_aborted, 0);
    if (failed_) return std::exchange(read_handler_, nullptr)(asio::error::connection_reset, 0);
    ERR_clear_error();
    errno = 0;
    size_t num_bytes = 0;
    const int result = SSL_read_ex(ssl_.get(), read_buffer_.data(), read_buffer_.size(), &num_bytes);
    if (result == 1) return std::exchange(read_handler_, nullptr)({}, num_bytes);
    if (IsToRepeat(result, &TlsTransport::TryRead)) return;
    std::exchange(read_handler_, nullptr)(Fail(result), 0);
  }

  void TryWrite() {
    if (closed_) return EndWrite(asio::error::operation_aborted);
    if (failed_) return EndWrite(asio::error::connection_reset);
    while (!record_.empty()) {
      ERR_clear_error();
      errno = 0;
      size_t num_bytes = 0;
      // Writes all of it, or must be called again with the same.
      const int result = SSL_write_ex(ssl_.get(), record_.data(), record_.size(), &num_bytes);
      if (result != 1) {
        if (!IsToRepeat(result, &TlsTransport::TryWrite)) EndWrite(Fail(result));
        return;
      }
      record_ = cutter_.Next();
    }
    EndWrite({});
  }

  void EndWrite(const error_code& error) {
    asio::post(socket_.get_executor(),
               [handler = std::exchange(write_handler_, nullptr), error] { handler(error); });
  }

  tcp::socket socket_;
  SocketBioState bio_state_;
  const SslPtr ssl_;
  const std::shared_ptr<HandshakeTurns> turns_;
  const std::shared_ptr<const std::string> plain_text_answer_;
  bool closed_ = false;
  bool failed_ = false;  // OpenSSL may not be called again
  Handler handshake_handler_;
  ReadHandler read_handler_;
  asio::mutable_buffer read_buffer_;
  Handler write_handler_;
  RecordCutter cutter_;
  std::string_view record_;  // of cutter_: being written
};

std::shared_ptr<TlsTransport> MakeTransport(tcp::socket socket, SslPtr ssl,
                                            std::shared_ptr<HandshakeTurns> turns,
                                            std::shared_ptr<const std::string> plain_text_answer) {
  if (!ssl) return nullptr;
  auto transport = std::make_shared<TlsTransport>(std::move(socket), std::move(ssl), std::move(turns),
                                                  std::move(plain_text_answer));
  return transport->Init() ? transport : nullptr;
}

}  // namespace

TlsAcceptor::TlsAcceptor(asio::io_context* io, std::shared_ptr<const TlsContext> context,
                         std::string plain_text_answer)
    : context_(std::move(context)),
      plain_text_answer_(std::make_shared<const std::string>(std::move(plain_text_answer))),
      turns_(std::make_shared<HandshakeTurns>(io)) {}

TlsAcceptor::~TlsAcceptor() {
  turns_->Clear();
}

std::shared_ptr<Transport> TlsAcceptor::Accept(tcp::socket socket) {
  SslPtr ssl(SSL_new(context_->native()));
  if (ssl) SSL_set_accept_state(ssl.get());
  return MakeTransport(std::move(socket), std::move(ssl), turns_, plain_text_answer_);
}

std::shared_ptr<Transport> MakeTlsClientTransport(tcp::socket socket, const TlsContext& context,
                                                  const std::string& host) {
  SslPtr ssl(SSL_new(context.native()));
  if (ssl) {
    SSL_set_connect_state(ssl.get());
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), host.c_str()) != 1) {
      SSL_set1_host(ssl.get(), host.c_str());
      SSL_set_tlsext_host_name(ssl.get(), host.c_str());
    }
  }
  return MakeTransport(std::move(socket), std::move(ssl), nullptr, nullptr);
}

}  // namespace tandem
