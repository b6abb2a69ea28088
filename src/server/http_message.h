// What the HTTP layer and the API handlers hand each other. No networking headers here.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;
  std::string target;  // as sent: path and query
  std::vector<HttpHeader> headers;
  std::string body;
  std::chrono::steady_clock::time_point received;
  std::string id;        // X-Request-Id: the client's own or a new one
  std::string key_name;  // HttpAdmission's

  bool HasHeader(std::string_view name) const;
  // Value of the first header of this name (any case), empty if there is none.
  std::string_view Header(std::string_view name) const;
  // Target without query and, for absolute-form targets, without scheme and authority. Not percent-decoded.
  std::string_view Path() const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers;
  std::string body;
};

// What is decided by a request's head.
struct HttpAdmission {
  std::optional<HttpResponse> refusal;  // the answer, without reading on
  std::vector<HttpHeader> headers;      // of the answer, whatever it is
  std::string key_name;                 // of the client's key, for the log
};

// How a request ended.
struct HttpAnswerRecord {
  std::chrono::system_clock::time_point received;  // its first byte
  std::chrono::steady_clock::duration
      duration{};      // until the last byte of the answer was handed to the socket
  std::string client;  // its address
  std::string request_id;
  std::string key_name;
  std::string method;  // empty, with the path, if the request was never understood
  std::string path;    // as sent, without the query
  int status = 0;      // 0: the client left before there was an answer
  bool complete = false;
  size_t num_bytes_in = 0;  // head and body
  size_t num_bytes_out = 0;
  std::vector<std::pair<std::string, int64_t>> numbers;  // HttpExchange::AddLogNumber's
};

// One request's way back to its client. All methods: io thread only. Either Respond(), or StartStream(),
// Send()..., EndStream(). Destroying it without an answer sends a 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual void Respond(HttpResponse response) = 0;

  virtual void StartStream(HttpResponse head) = 0;  // body empty; chunked
  // Queues data. Too much unsent data ends the connection (the disconnect callback is called).
  virtual void Send(std::string_view data) = 0;
  // Of what was sent, that the socket has not taken yet.
  virtual size_t unsent_bytes() const = 0;
  virtual void EndStream() = 0;

  // Called once, on the io thread, if the client goes away (or reads too slowly) before the answer is
  // complete.
  virtual void SetDisconnectCallback(std::function<void()> callback) = 0;
  virtual bool connected() const = 0;

  // A number for HttpAnswerRecord. Before the end of the answer, or in the disconnect callback.
  virtual void AddLogNumber(std::string name, int64_t value) = 0;
};

// Called on the io thread; must not block.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpExchange> exchange)>;
// Called on the io thread once the headers are there, before the body is read; may rewrite the target.
// loopback_only: the server listens where only this machine reaches it.
using HttpAdmit = std::function<HttpAdmission(HttpRequest* head, bool loopback_only)>;
// Called on the io thread when a request has ended; must not block.
using HttpAnswered = std::function<void(HttpAnswerRecord record)>;
// How the HTTP layer words its own errors (400, 408, 413, 431, 500, 503) in the API's body format.
using HttpErrorBody = std::function<HttpResponse(int status, std::string_view message)>;

std::string_view HttpStatusText(int status);
std::string LowerAscii(std::string_view text);
bool EqualsIgnoringCase(std::string_view a, std::string_view b);
// "%2F" -> "/"; malformed escapes stay as they are.
std::string PercentDecode(std::string_view text);

}  // namespace tandem
