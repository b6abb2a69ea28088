#include "http_client/http_connection.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "net/tls_transport.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

// An event of a token has a few hundred bytes.
constexpr size_t kReadBytes = size_t{4} << 10;

}  // namespace

struct HttpConnection::Parsing {
  // A body that is handed on as it comes.
  struct SinkBody {
    struct value_type {
      std::function<void(std::string_view)> sink;
    };

    class reader {
     public:
      template <bool is_request, class Fields>
      reader(http::header<is_request, Fields>& /*head*/, value_type& body) : body_(body) {}

      void init(const boost::optional<std::uint64_t>& /*length*/, error_code& error) { error = {}; }

      template <class ConstBufferSequence>
      std::size_t put(const ConstBufferSequence& buffers, error_code& error) {
        error = {};
        std::size_t num_bytes = 0;
        for (const asio::const_buffer piece : boost::beast::buffers_range_ref(buffers)) {
          body_.sink({static_cast<const char*>(piece.data()), piece.size()});
          num_bytes += piece.size();
        }
        return num_bytes;
      }

      void finish(error_code& error) { error = {}; }

     private:
      value_type& body_;
    };
  };

  boost::beast::flat_buffer buffer;
  std::optional<http::response_parser<SinkBody>> parser;
};

HttpConnection::HttpConnection(asio::io_context* io, HttpAddress address)
    : address_(std::move(address)), socket_(*io), parsing_(std::make_unique<Parsing>()) {}

HttpConnection::~HttpConnection() = default;

void HttpConnection::Send(std::string_view request, Callbacks callbacks) {
  TANDEM_CHECK(!busy_, "a request before the last answer has ended");
  busy_ = true;
  ++exchange_;
  request_ = request;
  callbacks_ = std::move(callbacks);
  was_reused_ = connected_;
  has_answer_ = head_told_ = keep_alive_ = false;
  last_activity_ = std::chrono::steady_clock::now();
  parsing_->parser.emplace();
  parsing_->parser->eager(true);
  // Without a limit Beast 1.74 takes a length for too large.
  parsing_->parser->body_limit(std::numeric_limits<std::uint64_t>::max());
  parsing_->parser->get().body().sink = [this](std::string_view piece) { OnBody(piece); };
  if (!connected_) return Connect();
  Write();
  Read();
}

std::string HttpConnection::Header(std::string_view name) const {
  if (!parsing_->parser || !parsing_->parser->is_header_done()) return {};
  const auto value = parsing_->parser->get()[{name.data(), name.size()}];
  return {value.data(), value.size()};
}

void HttpConnection::Close() {
  busy_ = connected_ = false;
  ++exchange_;
  error_code ignored;
  socket_.close(ignored);
  if (transport_) std::exchange(transport_, nullptr)->Close();
}

void HttpConnection::Connect() {
  parsing_->buffer.clear();
  socket_.async_connect(
      address_.endpoint, [self = shared_from_this(), exchange = exchange_](const error_code& error) {
        if (exchange != self->exchange_) return;
        self->last_activity_ = std::chrono::steady_clock::now();
        if (error) {
          const auto& endpoint = self->address_.endpoint;
          return self->End(fmt::format("cannot connect to {}:{}: {}", endpoint.address().to_string(),
                                       endpoint.port(), error.message()));
        }
        self->OnConnected();
      });
}

void HttpConnection::OnConnected() {
  transport_ = address_.tls ? MakeTlsClientTransport(std::move(socket_), *address_.tls, address_.host)
                            : MakeTcpTransport(std::move(socket_));
  if (!transport_) return End("there is no memory for a connection");
  transport_->AsyncHandshake([self = shared_from_this(), exchange = exchange_](const error_code& error) {
    if (exchange != self->exchange_) return;
    self->last_activity_ = std::chrono::steady_clock::now();
    if (error) return self->End(fmt::format("no TLS connection: {}", error.message()));
    self->connected_ = true;
    self->Write();
    self->Read();
  });
}

void HttpConnection::Write() {
  writing_ = true;
  // An error is not told: the server may have answered all the same, and reading will tell.
  transport_->AsyncWrite({asio::buffer(request_.data(), request_.size())},
                         [self = shared_from_this()](const error_code&) { self->writing_ = false; });
}

void HttpConnection::Read() {
  transport_->AsyncReadSome(
      parsing_->buffer.prepare(kReadBytes),
      [self = shared_from_this(), exchange = exchange_](const error_code& error, size_t num_bytes) {
        if (exchange != self->exchange_) return;
        self->last_activity_ = std::chrono::steady_clock::now();
        if (error == asio::error::eof) return self->OnEof();
        if (error) return self->End(fmt::format("the connection broke: {}", error.message()));
        self->OnRead(num_bytes);
      });
}

void HttpConnection::OnRead(size_t num_bytes) {
  has_answer_ = true;
  const uint64_t exchange = exchange_;
  auto& buffer = parsing_->buffer;
  auto& parser = *parsing_->parser;
  buffer.commit(num_bytes);
  while (buffer.size() > 0 && !parser.is_done()) {
    error_code error;
    const size_t consumed = parser.put(buffer.data(), error);
    // A callback may have closed the connection.
    if (exchange != exchange_) return;
    buffer.consume(consumed);
    if (error == http::error::need_more) break;
    if (error) return End(fmt::format("the answer is no HTTP: {}", error.message()));
    if (consumed == 0) break;
  }
  if (parser.is_header_done()) TellHead();
  if (exchange != exchange_) return;
  if (!parser.is_done()) return Read();
  keep_alive_ = parser.get().keep_alive() && buffer.size() == 0;
  End("");
}

void HttpConnection::OnEof() {
  auto& parser = *parsing_->parser;
  const uint64_t exchange = exchange_;
  error_code error;
  if (has_answer_) parser.put_eof(error);
  if (exchange != exchange_) return;
  if (!has_answer_) return End("the connection ended before an answer");
  if (error || !parser.is_done()) return End("the connection ended amid the answer");
  End("");
}

void HttpConnection::OnBody(std::string_view piece) {
  // Several pieces may be parsed at once, and the first may have been the last that is wanted.
  if (busy_) TellHead();
  if (busy_) callbacks_.on_body(piece);
}

void HttpConnection::TellHead() {
  if (std::exchange(head_told_, true)) return;
  callbacks_.on_head(static_cast<int>(parsing_->parser->get().result_int()));
}

void HttpConnection::End(const std::string& error) {
  if (!error.empty() || !keep_alive_) {
    const bool was_reused = was_reused_;
    Close();
    was_reused_ = was_reused;
  }
  busy_ = false;
  ++exchange_;
  // It may send the next request.
  const auto on_end = std::move(callbacks_.on_end);
  on_end(error);
}

}  // namespace tandem
