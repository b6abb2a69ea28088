// What the HTTP layer and the API handlers hand each other. No networking headers here.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
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

// One request's way back to its client. All methods: io thread only. Either Respond(), or StartStream(),
// Send()..., EndStream(). Destroying it without an answer sends a 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual void Respond(HttpResponse response) = 0;

  virtual void StartStream(HttpResponse head) = 0;  // body empty; chunked
  // Queues data. Too much unsent data ends the connection (the disconnect callback is called).
  virtual void Send(std::string_view data) = 0;
  virtual void EndStream() = 0;

  // Called once, on the io thread, if the client goes away (or reads too slowly) before the answer is
  // complete.
  virtual void SetDisconnectCallback(std::function<void()> callback) = 0;
  virtual bool connected() const = 0;
};

// Called on the io thread; must not block.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpExchange> exchange)>;
// How the HTTP layer words its own errors (400, 408, 413, 431, 500, 503) in the API's body format.
using HttpErrorBody = std::function<HttpResponse(int status, std::string_view message)>;

std::string_view HttpStatusText(int status);
bool EqualsIgnoringCase(std::string_view a, std::string_view b);
// "%2F" -> "/"; malformed escapes stay as they are.
std::string PercentDecode(std::string_view text);

}  // namespace tandem
