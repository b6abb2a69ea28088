#include "server/http_server.h"

#include <fmt/format.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "net/tls_transport.h"
#include "server/http_session.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using WorkGuard = asio::executor_work_guard<asio::io_context::executor_type>;

constexpr std::chrono::milliseconds kAcceptRetryDelay{100};

// A handler that throws (out of memory, say) costs its own request, not the server.
void RunLoop(asio::io_context& context, const char* name) {
  for (;;) {
    try {
      context.run();
      return;
    } catch (const std::exception& exception) {
      LogError("{} thread: {}", name, exception.what());
    }
  }
}

Error BindError(const HttpServerOptions& options, const char* what, const error_code& error) {
  return MakeError(ErrorCode::kIo, "cannot {} {}:{}: {}", what, options.host, options.port, error.message());
}

}  // namespace

struct HttpServer::State {
  HttpSessionContext context;
  asio::io_context io{1};
  asio::io_context work{1};
  std::unique_ptr<TlsAcceptor> tls;  // null: plain HTTP
  std::optional<WorkGuard> io_guard;
  std::optional<WorkGuard> work_guard;
  asio::ip::tcp::acceptor acceptor{io};
  asio::steady_timer accept_retry{io};
  std::unordered_set<std::shared_ptr<asio::steady_timer>> delays;  // io thread only
  uint16_t port = 0;
  std::thread io_thread;
  std::thread work_thread;

  Status Bind();
  Status LoadTls();
  void Accept();
  void StartSession(asio::ip::tcp::socket socket);
};

Status HttpServer::State::LoadTls() {
  if (!context.options.tls.given()) return {};
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<const TlsContext> certificate,
                          MakeServerTlsContext(context.options.tls));
  const HttpResponse answer =
      context.error_body(400, "this port speaks https: the address has to begin with https://");
  tls = std::make_unique<TlsAcceptor>(
      &io, std::move(certificate),
      fmt::format("HTTP/1.1 400 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                  HttpStatusText(400), answer.content_type, answer.body.size(), answer.body));
  return {};
}

Status HttpServer::State::Bind() {
  const HttpServerOptions& options = context.options;
  error_code error;
  asio::ip::tcp::resolver resolver(io);
  const auto endpoints =
      resolver.resolve(options.host, std::to_string(options.port), asio::ip::tcp::resolver::passive, error);
  if (error || endpoints.empty()) {
    Error failure = MakeError(ErrorCode::kInvalidArgument, "cannot resolve the host name {}: {}",
                              options.host, error.message());
    failure.param = "host";
    return failure;
  }
  const asio::ip::tcp::endpoint endpoint = endpoints.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (error) return BindError(options, "open a socket for", error);
  acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return BindError(options, "listen on", error);
  port = acceptor.local_endpoint(error).port();
  context.loopback_only = endpoint.address().is_loopback();
  return {};
}

void HttpServer::State::Accept() {
  acceptor.async_accept([this](const error_code& error, asio::ip::tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) {
      // Out of file descriptors, usually: give those in use a moment to be closed.
      LogWarn("cannot accept a connection: {}", error.message());
      accept_retry.expires_after(kAcceptRetryDelay);
      accept_retry.async_wait([this](const error_code& cancelled) {
        if (!cancelled && acceptor.is_open()) Accept();
      });
      return;
    }
    if (context.sessions.size() < context.options.max_connections) {
      StartSession(std::move(socket));
    }
    Accept();
  });
}

void HttpServer::State::StartSession(asio::ip::tcp::socket socket) {
  error_code ignored;
  std::string client = socket.remote_endpoint(ignored).address().to_string();
  auto transport = tls ? tls->Accept(std::move(socket)) : MakeTcpTransport(std::move(socket));
  if (!transport) return;
  std::make_shared<HttpSession>(&io, std::move(transport), std::move(client), &context)->Start();
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpServerOptions& options, HttpHandler handler,
                                                       HttpErrorBody error_body) {
  auto state = std::make_unique<State>();
  state->context.options = options;
  state->context.handler = std::move(handler);
  state->context.error_body = std::move(error_body);
  TANDEM_RETURN_IF_ERROR(state->LoadTls());
  TANDEM_RETURN_IF_ERROR(state->Bind());
  state->io_guard.emplace(state->io.get_executor());
  state->work_guard.emplace(state->work.get_executor());
  state->Accept();
  State* raw = state.get();
  raw->io_thread = std::thread([raw] { RunLoop(raw->io, "http"); });
  raw->work_thread = std::thread([raw] { RunLoop(raw->work, "http worker"); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::~HttpServer() {
  Stop();
}

uint16_t HttpServer::port() const {
  return state_->port;
}

bool HttpServer::loopback_only() const {
  return state_->context.loopback_only;
}

Status HttpServer::ReloadTls() {
  if (!state_->tls) return {};
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<const TlsContext> context,
                          MakeServerTlsContext(state_->context.options.tls));
  asio::post(state_->io, [state = state_.get(), context = std::move(context)]() mutable {
    state->tls->SetContext(std::move(context));
  });
  return {};
}

void HttpServer::Post(std::function<void()> task) {
  asio::post(state_->io, std::move(task));
}

void HttpServer::PostAfter(std::chrono::milliseconds delay, std::function<void()> task) {
  const auto timer = std::make_shared<asio::steady_timer>(state_->io, delay);
  state_->delays.insert(timer);
  timer->async_wait([state = state_.get(), timer, task = std::move(task)](const error_code& error) {
    state->delays.erase(timer);
    if (!error && state->acceptor.is_open()) task();
  });
}

void HttpServer::PostWork(std::function<void()> task) {
  asio::post(state_->work, std::move(task));
}

void HttpServer::CloseAfterAnswers() {
  state_->context.close_after_answers = true;
}

int64_t HttpServer::num_active_exchanges() const {
  return state_->context.num_active_exchanges;
}

void HttpServer::Stop() {
  if (!state_->io_thread.joinable()) return;
  // The worker first: what it still prepares ends on the io thread.
  state_->work_guard.reset();
  state_->work.stop();
  state_->work_thread.join();
  asio::post(state_->io, [state = state_.get()] {
    error_code ignored;
    state->acceptor.close(ignored);
    state->accept_retry.cancel();
    for (const auto& timer : state->delays) timer->cancel();
    const std::vector<HttpSession*> sessions(state->context.sessions.begin(), state->context.sessions.end());
    for (HttpSession* session : sessions) session->Close();
    state->io_guard.reset();
  });
  state_->io_thread.join();
}

}  // namespace tandem
