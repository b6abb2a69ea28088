#include "net/tls_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/certificate_testing.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using testing::HasSubstr;

constexpr std::chrono::seconds kPatience{10};

std::pair<tcp::socket, tcp::socket> ConnectedSockets(asio::io_context* io) {
  tcp::acceptor acceptor(*io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  tcp::socket client(*io);
  client.connect(acceptor.local_endpoint());
  return {acceptor.accept(), std::move(client)};
}

std::vector<asio::const_buffer> BuffersOf(const std::vector<std::string>& pieces) {
  std::vector<asio::const_buffer> buffers;
  buffers.reserve(pieces.size());
  for (const std::string& piece : pieces) buffers.push_back(asio::buffer(piece));
  return buffers;
}

class TlsTransportTest : public testing::Test {
 protected:
  void SetUp() override {
    const TlsFiles files = WriteTestCertificate(MakeTestCertificate(), "transport");
    auto server_context = MakeServerTlsContext(files);
    auto client_context = MakeClientTlsContext(files.certificate);
    ASSERT_TRUE(server_context.ok() && client_context.ok());
    client_context_ = *client_context;
    acceptor_ = std::make_unique<TlsAcceptor>(&io_, *server_context, "plain");
  }

  void Connect(const TlsContext& client_context, const std::string& host) {
    auto [server_socket, client_socket] = ConnectedSockets(&io_);
    server_ = acceptor_->Accept(std::move(server_socket));
    client_ = MakeTlsClientTransport(std::move(client_socket), client_context, host);
    server_->AsyncHandshake([this](const error_code& error) { server_error_ = error; });
    client_->AsyncHandshake([this](const error_code& error) { client_error_ = error; });
    RunUntil([this] { return client_error_ && server_error_; });
  }

  template <typename Condition>
  void RunUntil(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    io_.restart();
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      io_.run_one_for(std::chrono::milliseconds(100));
      if (io_.stopped()) io_.restart();
    }
  }

  // Until that many bytes have come, or an error.
  std::string Read(Transport* transport, size_t num_bytes) {
    std::string text;
    std::vector<char> buffer(5000);
    std::function<void(const error_code&, size_t)> on_read = [&](const error_code& error, size_t count) {
      text.append(buffer.data(), count);
      read_error_ = error;
      if (!error && text.size() < num_bytes) transport->AsyncReadSome(asio::buffer(buffer), on_read);
    };
    transport->AsyncReadSome(asio::buffer(buffer), on_read);
    RunUntil([&] { return read_error_ || text.size() >= num_bytes; });
    return text;
  }

  asio::io_context io_{1};
  std::shared_ptr<const TlsContext> client_context_;
  std::unique_ptr<TlsAcceptor> acceptor_;
  std::shared_ptr<Transport> server_;
  std::shared_ptr<Transport> client_;
  std::optional<error_code> server_error_;
  std::optional<error_code> client_error_;
  error_code read_error_;
};

TEST_F(TlsTransportTest, CarriesBuffersOfAllSizesInOrder) {
  Connect(*client_context_, "localhost");
  ASSERT_FALSE(*client_error_) << client_error_->message();
  std::vector<std::string> pieces;
  std::string all;
  for (const size_t size : {1, 0, 3, 16'384, 1, 20'000, 7, 16'383, 5'000'000, 2, 0}) {
    pieces.emplace_back(size, static_cast<char>('a' + pieces.size()));
    all += pieces.back();
  }
  const std::vector<asio::const_buffer> buffers = BuffersOf(pieces);
  bool written = false;
  server_->AsyncWrite(buffers, [&](const error_code& error) { written = !error; });
  EXPECT_FALSE(written) << "called before AsyncWrite returned";
  EXPECT_TRUE(Read(client_.get(), all.size()) == all);
  RunUntil([&] { return written; });
}

TEST_F(TlsTransportTest, ManySmallBuffersMakeOneRecord) {
  auto [server_socket, client_socket] = ConnectedSockets(&io_);
  const int descriptor = client_socket.native_handle();
  server_ = acceptor_->Accept(std::move(server_socket));
  client_ = MakeTlsClientTransport(std::move(client_socket), *client_context_, "localhost");
  server_->AsyncHandshake([this](const error_code& error) { server_error_ = error; });
  client_->AsyncHandshake([this](const error_code& error) { client_error_ = error; });
  RunUntil([this] { return client_error_ && server_error_; });
  const std::string first = "first";
  server_->AsyncWrite({asio::buffer(first)}, [](const error_code&) {});
  ASSERT_EQ(Read(client_.get(), first.size()), first);  // and the session tickets
  const std::vector<std::string> pieces(100, "data: token\n\n");
  const std::vector<asio::const_buffer> buffers = BuffersOf(pieces);
  bool written = false;
  server_->AsyncWrite(buffers, [&](const error_code& error) { written = !error; });
  RunUntil([&] { return written; });
  // 1300 bytes, and what one record needs besides: 5 bytes before, the type and a tag of 16 behind.
  std::vector<char> bytes(10'000);
  const ssize_t count = recv(descriptor, bytes.data(), bytes.size(), MSG_PEEK);
  EXPECT_EQ(count, 1300 + 5 + 1 + 16);
}

TEST_F(TlsTransportTest, TheEndOfSendingIsAnEofAndTheOtherWayStaysOpen) {
  Connect(*client_context_, "127.0.0.1");
  ASSERT_FALSE(*client_error_) << client_error_->message();
  server_->ShutdownSend();
  EXPECT_EQ(Read(client_.get(), 1), "");
  EXPECT_EQ(read_error_, asio::error::eof);
  const std::string text = "more";
  client_->AsyncWrite({asio::buffer(text)}, [](const error_code& error) { EXPECT_FALSE(error); });
  read_error_ = {};
  EXPECT_EQ(Read(server_.get(), text.size()), text);
  client_->Close();
  Read(server_.get(), 1);
  EXPECT_EQ(read_error_, asio::error::eof);
}

TEST_F(TlsTransportTest, CloseEndsWhatIsUnderWay) {
  Connect(*client_context_, "localhost");
  std::optional<error_code> read;
  std::optional<error_code> write;
  char byte = 0;
  const std::string much(size_t{64} << 20, 'x');
  server_->AsyncReadSome(asio::buffer(&byte, 1), [&](const error_code& error, size_t) { read = error; });
  server_->AsyncWrite({asio::buffer(much)}, [&](const error_code& error) { write = error; });
  io_.restart();
  io_.poll();
  EXPECT_FALSE(read || write);
  server_->Close();
  server_.reset();
  RunUntil([&] { return read && write; });
  EXPECT_EQ(*read, asio::error::operation_aborted);
  EXPECT_EQ(*write, asio::error::operation_aborted);
}

TEST_F(TlsTransportTest, ClientsRefuseOtherHostsAndUnknownAuthorities) {
  Connect(*client_context_, "example.org");
  ASSERT_TRUE(*client_error_);
  EXPECT_THAT(client_error_->message(), HasSubstr("ostname mismatch"));
  EXPECT_TRUE(*server_error_);
  client_error_.reset();
  server_error_.reset();
  const auto other = MakeClientTlsContext(WriteTestCertificate(MakeTestCertificate(), "another").certificate);
  ASSERT_TRUE(other.ok());
  Connect(**other, "localhost");
  ASSERT_TRUE(*client_error_);
  EXPECT_THAT(client_error_->message(), HasSubstr("refused"));
}

TEST_F(TlsTransportTest, PlainTextGetsItsAnswer) {
  auto [server_socket, client] = ConnectedSockets(&io_);
  server_ = acceptor_->Accept(std::move(server_socket));
  server_->AsyncHandshake([this](const error_code& error) { server_error_ = error; });
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  client.send(asio::buffer(request));
  RunUntil([this] { return server_error_.has_value(); });
  EXPECT_TRUE(*server_error_);
  char answer[16];
  EXPECT_EQ(std::string(answer, client.receive(asio::buffer(answer))), "plain");
}

TEST_F(TlsTransportTest, HandshakesUnderWayEndWithTheAcceptor) {
  auto [server_socket, client] = ConnectedSockets(&io_);
  server_ = acceptor_->Accept(std::move(server_socket));
  const std::weak_ptr<Transport> weak = server_;
  server_->AsyncHandshake([](const error_code&) {});
  const std::string rubbish = "rubbish";
  client.send(asio::buffer(rubbish));
  io_.restart();
  io_.run_one_for(kPatience);  // the step is queued now
  server_->Close();
  server_.reset();
  acceptor_.reset();
  io_.restart();
  io_.run();
  EXPECT_TRUE(weak.expired());
}

}  // namespace
}  // namespace tandem
