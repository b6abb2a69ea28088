// The HTTP layer over real sockets, with handlers written here.
#include "server/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace tandem {
namespace {

class Client {
 public:
  explicit Client(uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval timeout{.tv_sec = 10, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { Close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Send(const std::string& data) {
    EXPECT_EQ(send(socket_, data.data(), data.size(), MSG_NOSIGNAL), static_cast<ssize_t>(data.size()));
  }
  void ShutdownSend() { shutdown(socket_, SHUT_WR); }
  void Close() {
    if (socket_ >= 0) close(std::exchange(socket_, -1));
  }
  // Until the text has come, the server closed or 10 s passed; all that has come since the connection began.
  const std::string& ReadUntil(const std::string& text) {
    char buffer[4096];
    while (received_.find(text) == std::string::npos) {
      const ssize_t count = recv(socket_, buffer, sizeof(buffer), 0);
      if (count <= 0) break;
      received_.append(buffer, static_cast<size_t>(count));
    }
    return received_;
  }
  const std::string& ReadAll() { return ReadUntil("\x01never\x01"); }

 private:
  int socket_;
  std::string received_;
};

class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpServerOptions options, HttpHandler handler) {
    options.port = 0;
    auto server = HttpServer::Listen(options, std::move(handler), [](int status, std::string_view message) {
      return HttpResponse{.status = status, .headers = {}, .body = "error: " + std::string(message)};
    });
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server).value();
  }
  // Answers with method, path and body.
  static void Reflect(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Respond(
        {.headers = {},
         .body = "<" + request.method + " " + std::string(request.Path()) + " " + request.body + ">"});
  }
  static bool WaitFor(const std::atomic<bool>& flag) {
    for (int i = 0; i < 1000 && !flag; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return flag;
  }
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, KeepsTheConnectionAndAnswersPipelinedRequestsInOrder) {
  Start({}, &Reflect);
  Client client(server_->port());
  client.Send(
      "GET /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\nPOST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"
      "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
  const std::string received = client.ReadUntil("<POST /c abc>");
  const size_t first = received.find("<GET /a >");
  const size_t second = received.find("<POST /b hi>");
  EXPECT_NE(first, std::string::npos);
  EXPECT_LT(first, second);
  EXPECT_LT(second, received.find("<POST /c abc>"));
}

TEST_F(HttpServerTest, BytesMayComeOneByOne) {
  Start({}, &Reflect);
  Client client(server_->port());
  for (const char c : std::string("POST /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc")) {
    client.Send(std::string(1, c));
  }
  EXPECT_NE(client.ReadUntil("<POST /slow abc>").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, MalformedRequestsGet400AndTheConnectionEnds) {
  Start({}, &Reflect);
  for (const char* request :
       {"rubbish\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    Client client(server_->port());
    client.Send(request);
    EXPECT_EQ(client.ReadAll().substr(0, 12), "HTTP/1.1 400") << request;
  }
}

TEST_F(HttpServerTest, TruncatedBodyGets400) {
  Start({}, &Reflect);
  Client client(server_->port());
  client.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
  client.ShutdownSend();
  EXPECT_NE(client.ReadAll().find("ended before it was complete"), std::string::npos);
}

TEST_F(HttpServerTest, LimitsBodyAndHeaders) {
  HttpServerOptions options;
  options.max_body_bytes = 100;
  options.max_header_bytes = 1000;
  Start(options, &Reflect);
  Client body(server_->port());
  body.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n" + std::string(101, 'x'));
  EXPECT_EQ(body.ReadAll().substr(0, 12), "HTTP/1.1 413");
  Client chunked(server_->port());
  chunked.Send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n80\r\n" +
               std::string(128, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.ReadAll().substr(0, 12), "HTTP/1.1 413");
  Client header(server_->port());
  header.Send("GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(2000, 'x') + "\r\n\r\n");
  EXPECT_EQ(header.ReadAll().substr(0, 12), "HTTP/1.1 431");
}

TEST_F(HttpServerTest, SlowHeadersGet408) {
  HttpServerOptions options;
  options.header_timeout = std::chrono::milliseconds(100);
  Start(options, &Reflect);
  Client client(server_->port());
  client.Send("GET / HT");
  EXPECT_EQ(client.ReadAll().substr(0, 12), "HTTP/1.1 408");
}

TEST_F(HttpServerTest, StreamsChunks) {
  Start({}, [](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
    exchange->StartStream({.content_type = "text/event-stream", .headers = {}, .body = {}});
    exchange->Send("one");
    exchange->Send("two");
    exchange->EndStream();
  });
  Client client(server_->port());
  client.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(client.ReadUntil("0\r\n\r\n").find("3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"), std::string::npos);
  client.Send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_NE(client.ReadAll().find("\r\n\r\nonetwo"), std::string::npos);
}

TEST_F(HttpServerTest, SeesAClientGoAwayWhileItWaits) {
  std::atomic<bool> gone{false};
  std::shared_ptr<HttpExchange> kept;
  Start({}, [&](const HttpRequest&, std::shared_ptr<HttpExchange> exchange) {
    exchange->SetDisconnectCallback([&] { gone = true; });
    kept = std::move(exchange);
  });
  Client client(server_->port());
  client.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(gone);
  client.Close();
  EXPECT_TRUE(WaitFor(gone));
  EXPECT_EQ(server_->num_active_exchanges(), 0);
  server_->Stop();
}

TEST_F(HttpServerTest, ClientThatDoesNotReadIsCutOff) {
  std::atomic<bool> gone{false};
  Start({}, [&](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
    exchange->SetDisconnectCallback([&] { gone = true; });
    exchange->StartStream({.headers = {}, .body = {}});
    const std::string data(size_t{256} << 10, 'x');
    for (int i = 0; i < 64 && exchange->connected(); ++i) exchange->Send(data);
  });
  Client client(server_->port());
  client.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(WaitFor(gone));
}

TEST_F(HttpServerTest, ForgottenRequestGets500) {
  Start({}, [](const HttpRequest&, const std::shared_ptr<HttpExchange>&) {});
  Client client(server_->port());
  client.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("answered").substr(0, 12), "HTTP/1.1 500");
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  Start({}, &Reflect);
  Client client(server_->port());
  client.Send("HEAD /h HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const std::string received = client.ReadAll();
  EXPECT_NE(received.find("Content-Length: 10"), std::string::npos);
  EXPECT_TRUE(received.ends_with("\r\n\r\n"));
}

TEST_F(HttpServerTest, WorkerThenIoThread) {
  Start({}, [this](const HttpRequest&, std::shared_ptr<HttpExchange> exchange) {
    server_->PostWork([this, exchange = std::move(exchange)]() mutable {
      server_->Post([exchange = std::move(exchange)] { exchange->Respond({.headers = {}, .body = "done"}); });
    });
  });
  Client client(server_->port());
  client.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(client.ReadUntil("done").find("200 OK"), std::string::npos);
}

// Judges by a header of the request.
HttpAdmission AdmitUnlessRefused(HttpRequest* head, bool loopback_only) {
  EXPECT_TRUE(loopback_only);
  HttpAdmission admission{
      .refusal = std::nullopt, .headers = {{"X-Admitted", head->method}}, .key_name = "k"};
  if (head->HasHeader("Refuse"))
    admission.refusal = HttpResponse{.status = 403, .headers = {}, .body = "refused"};
  head->target = "/rewritten";
  return admission;
}

TEST_F(HttpServerTest, JudgesTheHeadBeforeTheBodyIsThere) {
  HttpServerOptions options;
  options.admit = &AdmitUnlessRefused;
  options.answer_headers = {{"Vary", "Origin"}};
  std::atomic<bool> handled{false};
  Start(options, [&](const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
    handled = true;
    Reflect(request, exchange);
  });
  Client client(server_->port());
  client.Send(
      "POST / HTTP/1.1\r\nHost: h\r\nRefuse: x\r\nX-Request-Id: mine\r\nContent-Length: 1000\r\n\r\nab");
  const std::string refused = client.ReadUntil("refused");
  EXPECT_EQ(refused.substr(0, 12), "HTTP/1.1 403");
  EXPECT_NE(refused.find("X-Request-Id: mine\r\n"), std::string::npos);
  EXPECT_NE(refused.find("X-Admitted: POST\r\n"), std::string::npos);
  EXPECT_NE(refused.find("Vary: Origin\r\n"), std::string::npos);
  EXPECT_NE(refused.find("Connection: close\r\n"), std::string::npos);
  // Larger than the limit: who may not send it learns no more.
  Client large(server_->port());
  large.Send("POST / HTTP/1.1\r\nHost: h\r\nRefuse: x\r\nContent-Length: 99999999\r\n\r\n");
  EXPECT_EQ(large.ReadUntil("refused").substr(0, 12), "HTTP/1.1 403");
  EXPECT_FALSE(handled);
  Client good(server_->port());
  good.Send(
      "GET / HTTP/1.1\r\nHost: h\r\nRefuse: x\r\n\r\nPOST / HTTP/1.1\r\nHost: h\r\nContent-Length: "
      "1\r\n\r\na");
  const std::string answers = good.ReadUntil("<POST /rewritten a>");
  EXPECT_LT(answers.find("refused"), answers.find("<POST /rewritten a>"))
      << "without a body the connection goes on";
}

TEST_F(HttpServerTest, EveryAnswerHasARequestId) {
  Start({}, &Reflect);
  for (const char* request :
       {"rubbish\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id: a\xff\r\nConnection: close\r\n\r\n"}) {
    Client client(server_->port());
    client.Send(request);
    EXPECT_NE(client.ReadAll().find("\r\nX-Request-Id: req-"), std::string::npos) << request;
  }
}

TEST_F(HttpServerTest, ReportsHowRequestsEnded) {
  std::vector<HttpAnswerRecord> records;
  std::atomic<int> count{0};
  HttpServerOptions options;
  options.admit = &AdmitUnlessRefused;
  options.answered = [&](HttpAnswerRecord record) {
    records.push_back(std::move(record));
    ++count;
  };
  Start(options, [](const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
    exchange->AddLogNumber("n", 7);
    Reflect(request, exchange);
  });
  const std::string sent =
      "POST /p?secret=1 HTTP/1.1\r\nHost: h\r\nX-Request-Id: mine\r\nContent-Length: 2\r\n\r\nhi";
  Client client(server_->port());
  client.Send(sent);
  const size_t received = client.ReadUntil("hi>").size();
  client.Send("GET /q HTTP/1.1\r\nHost: h\r\nRefuse: x\r\n\r\n");
  client.ReadUntil("refused");
  Client broken(server_->port());
  broken.Send("rubbish\r\n\r\n");
  broken.ReadAll();
  for (int i = 0; i < 1000 && count < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  server_->Stop();
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].client, "127.0.0.1");
  EXPECT_EQ(records[0].method, "POST");
  EXPECT_EQ(records[0].path, "/p");
  EXPECT_EQ(records[0].request_id, "mine");
  EXPECT_EQ(records[0].key_name, "k");
  EXPECT_EQ(records[0].status, 200);
  EXPECT_TRUE(records[0].complete);
  EXPECT_EQ(records[0].num_bytes_in, sent.size());
  EXPECT_EQ(records[0].num_bytes_out, received);
  ASSERT_EQ(records[0].numbers.size(), 1U);
  EXPECT_EQ(records[0].numbers[0].second, 7);
  EXPECT_GT(records[0].duration.count(), 0);
  EXPECT_EQ(records[1].path, "/q");
  EXPECT_EQ(records[1].status, 403);
  EXPECT_TRUE(records[1].numbers.empty());
  EXPECT_EQ(records[2].status, 400);
  EXPECT_EQ(records[2].method, "");
  EXPECT_EQ(records[2].request_id.substr(0, 4), "req-");
}

TEST_F(HttpServerTest, ReportsClientsThatLeft) {
  std::atomic<bool> reported{false};
  HttpAnswerRecord last;
  HttpServerOptions options;
  options.answered = [&](HttpAnswerRecord record) {
    last = std::move(record);
    reported = true;
  };
  std::shared_ptr<HttpExchange> kept;
  Start(options, [&](const HttpRequest&, std::shared_ptr<HttpExchange> exchange) {
    exchange->SetDisconnectCallback([raw = exchange.get()] { raw->AddLogNumber("n", 1); });
    kept = std::move(exchange);
  });
  {
    Client client(server_->port());
    client.Send("GET /left HTTP/1.1\r\nHost: h\r\n\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ASSERT_TRUE(WaitFor(reported));
  server_->Stop();
  EXPECT_EQ(last.path, "/left");
  EXPECT_EQ(last.status, 0);
  EXPECT_FALSE(last.complete);
  EXPECT_EQ(last.numbers.size(), 1U);
}

TEST_F(HttpServerTest, AddressInUseIsAnError) {
  Start({}, &Reflect);
  HttpServerOptions options;
  options.port = server_->port();
  const auto second = HttpServer::Listen(options, &Reflect, nullptr);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("127.0.0.1:"), std::string::npos);
}

TEST(HttpMessage, PathsAndEscapes) {
  HttpRequest request;
  request.target = "/v1/models/a%2Fb?x=1";
  EXPECT_EQ(request.Path(), "/v1/models/a%2Fb");
  request.target = "http://host:1/p?q";
  EXPECT_EQ(request.Path(), "/p");
  EXPECT_EQ(PercentDecode("a%2Fb%zz%4"), "a/b%zz%4");
}

}  // namespace
}  // namespace tandem
