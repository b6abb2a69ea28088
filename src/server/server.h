// The OpenAI-compatible server: listens at once, serves as soon as it has an engine, drains before it stops.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "dialect/dialect.h"
#include "server/access_rules.h"
#include "server/http_server.h"
#include "server/response_store.h"
#include "tracing/tracing_options.h"

namespace tandem {

class Engine;
struct ApiState;

struct ServerOptions {
  HttpServerOptions http;
  std::string served_model_name;
  std::vector<std::string> model_aliases;  // ModelContext's
  std::string version;                     // what /version answers
  bool special_tokens_in_content = false;  // ModelContext's
  bool reject_unknown_fields = false;      // ModelContext's
  int64_t default_max_tokens = 0;          // ModelContext's
  std::optional<ToolFormat> tool_format;   // absent: by the chat template
  AccessOptions access;
  std::string access_log;  // AccessLog::Open's path; empty: none
  // Path under which a proxy has the server ("/prefix", without a slash at its end): requests come with it or
  // without.
  std::string root_path;
  ResponseStoreOptions responses;
  std::optional<TracingOptions> tracing;  // absent: no spans are sent
};

class Server {
 public:
  // Listens; every API request gets 503 until SetEngine.
  static Result<std::unique_ptr<Server>> Start(ServerOptions options);
  // The engine must have nothing in flight any more (Drain or CancelAll) and be alive.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Once. The engine outlives the server.
  void SetEngine(Engine* engine);
  // Any thread. Opens the file of the access log again, and reads the certificate and its key again. An error
  // is logged, and what it is about stays as it was. False: there is neither.
  bool Reload();
  // Any thread. API requests get 503 from now on, answers under way go on.
  void BeginDrain();
  // Waits until no answer is under way. False after the timeout.
  bool WaitUntilIdle(std::chrono::milliseconds timeout) const;
  // Closes the socket and all connections.
  void Stop();

  std::string url() const;

 private:
  explicit Server(std::unique_ptr<ApiState> state);
  std::unique_ptr<ApiState> state_;
};

}  // namespace tandem
