#include <boost/asio/write.hpp>
#include <utility>

#include "net/transport.h"

namespace tandem {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

class TcpTransport final : public Transport, public std::enable_shared_from_this<TcpTransport> {
 public:
  explicit TcpTransport(tcp::socket socket) : socket_(std::move(socket)) {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
  }

  void AsyncHandshake(Handler handler) override { handler({}); }
  void AsyncReadSome(boost::asio::mutable_buffer buffer, ReadHandler handler) override {
    socket_.async_read_some(buffer,
                            [self = shared_from_this(), handler = std::move(handler)](
                                const error_code& error, size_t num_bytes) { handler(error, num_bytes); });
  }
  void AsyncWrite(std::vector<boost::asio::const_buffer> buffers, Handler handler) override {
    boost::asio::async_write(socket_, buffers,
                             [self = shared_from_this(), handler = std::move(handler)](
                                 const error_code& error, size_t) { handler(error); });
  }
  void ShutdownSend() override {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  void Close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  tcp::socket socket_;
};

}  // namespace

std::shared_ptr<Transport> MakeTcpTransport(tcp::socket socket) {
  return std::make_shared<TcpTransport>(std::move(socket));
}

}  // namespace tandem
