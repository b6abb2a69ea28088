// Bytes on a connection to the real HTTP server, sent in pieces; the sending side then closes. The server
// answers, or closes, and goes on serving.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>

#include "fuzz/fuzzer_input.h"
#include "server/http_server.h"

namespace {

using namespace tandem;

HttpServer* StartServer() {
  HttpServerOptions options;
  options.port = 0;
  options.max_body_bytes = 4096;
  options.max_header_bytes = 4096;
  auto server = HttpServer::Listen(
      options,
      [](HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) {
        if (request.Path() == "/stream") {
          exchange->StartStream({});
          exchange->Send(request.body);
          exchange->Send("end");
          return exchange->EndStream();
        }
        HttpResponse response;
        response.body = PercentDecode(request.Path()) + request.body;
        exchange->Respond(std::move(response));
      },
      [](int status, std::string_view message) {
        HttpResponse response;
        response.status = status;
        response.body = std::string(message);
        return response;
      });
  Expect(server.ok(), "the server listens");
  return std::move(server).value().release();
}

// Sends the pieces, closes the sending side and reads to the end. The first bytes of what came back.
std::string Talk(uint16_t port, std::string_view bytes, size_t piece_bytes) {
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // No TIME_WAIT: thousands of connections a second would use up the ports.
  const linger reset{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  const timeval limit{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  Expect(::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
         "the server accepts");
  while (!bytes.empty()) {
    const size_t piece = std::min(bytes.size(), piece_bytes);
    if (::send(connection, bytes.data(), piece, MSG_NOSIGNAL) <= 0) break;
    bytes.remove_prefix(piece);
  }
  ::shutdown(connection, SHUT_WR);
  std::string received;
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::recv(connection, buffer, sizeof(buffer), 0);
    Expect(count >= 0 || errno != EAGAIN, "the server answers or closes");
    if (count <= 0) break;
    if (received.size() < sizeof(buffer)) received.append(buffer, static_cast<size_t>(count));
  }
  ::close(connection);
  return received;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static HttpServer* const server = StartServer();
  if (size < 1) return 0;
  const size_t piece_bytes = data[0] == 0 ? SIZE_MAX : data[0];
  const std::string received = Talk(server->port(), AsText(data + 1, size - 1), piece_bytes);
  Expect(received.empty() || received.starts_with("HTTP/1.1 "), "an answer is an answer");
  static int count = 0;
  if (++count % 64 == 0) {
    const std::string answer =
        Talk(server->port(), "GET /still-here HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n", SIZE_MAX);
    Expect(answer.starts_with("HTTP/1.1 200"), "the server serves others still");
  }
  return 0;
}
