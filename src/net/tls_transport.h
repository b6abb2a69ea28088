// TLS over a connected socket, for servers and for clients.
#pragma once

#include <memory>
#include <string>

#include "net/tls_context.h"
#include "net/transport.h"

namespace tandem {

class HandshakeTurns;

// Server side. On the io thread only.
class TlsAcceptor {
 public:
  // plain_text_answer: what a client gets, as it is, that speaks HTTP without TLS.
  TlsAcceptor(boost::asio::io_context* io, std::shared_ptr<const TlsContext> context,
              std::string plain_text_answer);
  // No handshake goes on after it.
  ~TlsAcceptor();
  TlsAcceptor(const TlsAcceptor&) = delete;
  TlsAcceptor& operator=(const TlsAcceptor&) = delete;

  // For handshakes that begin from now on.
  void SetContext(std::shared_ptr<const TlsContext> context) { context_ = std::move(context); }

  // Handshakes are computed one step at a time, with whatever else is ready in between: a rush of new
  // connections holds nobody up for long. Null when there is no memory.
  std::shared_ptr<Transport> Accept(boost::asio::ip::tcp::socket socket);

 private:
  std::shared_ptr<const TlsContext> context_;
  const std::shared_ptr<const std::string> plain_text_answer_;
  const std::shared_ptr<HandshakeTurns> turns_;
};

// Client side. host: a name or an address, that the server's certificate must be for. Null when there is no
// memory.
std::shared_ptr<Transport> MakeTlsClientTransport(boost::asio::ip::tcp::socket socket,
                                                  const TlsContext& context, const std::string& host);

}  // namespace tandem
