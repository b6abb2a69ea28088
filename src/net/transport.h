// The bytes of one connection, encrypted or not.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace tandem {

// On the thread of the socket's io_context only. One handshake first, then at most one read and one write at
// a time. Every handler is called once, with operation_aborted where Close came first; a transport lives
// until then. Buffers stay valid until their handler is called, or Close.
class Transport {
 public:
  using Handler = std::function<void(const boost::system::error_code& error)>;
  using ReadHandler = std::function<void(const boost::system::error_code& error, size_t num_bytes)>;

  virtual ~Transport() = default;

  // Where there is nothing to agree on, the handler is called before this returns.
  virtual void AsyncHandshake(Handler handler) = 0;
  // At least one byte, or an error: asio::error::eof when the other side has ended its sending.
  virtual void AsyncReadSome(boost::asio::mutable_buffer buffer, ReadHandler handler) = 0;
  // All of the buffers. Not called before this returns, as that of AsyncReadSome.
  virtual void AsyncWrite(std::vector<boost::asio::const_buffer> buffers, Handler handler) = 0;
  // The other side reads to the end of what was written; what it sends can still be read.
  virtual void ShutdownSend() = 0;
  virtual void Close() = 0;
};

// socket: connected.
std::shared_ptr<Transport> MakeTcpTransport(boost::asio::ip::tcp::socket socket);

}  // namespace tandem
