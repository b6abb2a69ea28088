// A server with the OpenAI API as what works a benchmark's requests off: streamed completions over plain
// HTTP, a connection for each request under way, kept alive and used again.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bench/completion_client.h"
#include "bench/request_recorder.h"
#include "bench/request_target.h"
#include "bench/sse_parser.h"
#include "bench/stream_tokens.h"
#include "http_client/http_connection.h"

namespace tandem {

// Only on the thread that runs the io_context.
class HttpTarget final : public RequestTarget {
 public:
  // return_token_ids: whether the server is asked for the ids of output tokens. server and recorder outlive
  // the target.
  HttpTarget(boost::asio::io_context* io, const CompletionServer& server,
             const std::vector<WorkloadRequest>& requests, bool return_token_ids, RequestRecorder* recorder,
             RequestEndCallback on_end);

  void SetPrompt(int64_t index, std::vector<int32_t> tokens) override;
  void Send(int64_t index) override;
  void Cancel(int64_t index) override;
  void Close() override;

 private:
  // A request under way.
  struct Exchange {
    std::shared_ptr<HttpConnection> connection;
    SseParser events;
    StreamTokens tokens;
    std::vector<int32_t> token_ids;
    std::optional<int64_t> cached_tokens;
    int status = 0;
    std::string error_body;
    std::string error;  // what the stream itself said or what is wrong with it
    std::string finish_reason;
    bool done = false;  // the stream's own end has come
    bool tried_again = false;
  };

  void Start(int64_t index, Exchange* exchange);
  void OnBody(Exchange* exchange, std::string_view piece);
  void OnEvent(Exchange* exchange, std::string_view data, Clock::time_point now);
  void OnConnectionEnd(int64_t index, const std::string& error);
  static RequestEnd EndOf(const Exchange& exchange, const std::string& error);
  void Finish(int64_t index, RequestEnd end);
  // Ends requests whose server says nothing any more.
  void WatchSilence();

  boost::asio::io_context* const io_;
  const CompletionServer& server_;
  const HttpAddress address_;
  const bool return_token_ids_;
  std::vector<int64_t> max_tokens_;
  std::vector<std::string> requests_;  // the whole text of each, from SetPrompt until its end
  RequestRecorder* const recorder_;
  const RequestEndCallback on_end_;
  std::unordered_map<int64_t, Exchange> under_way_;
  std::vector<std::shared_ptr<HttpConnection>> idle_;
  boost::asio::steady_timer silence_timer_;
  bool closed_ = false;
};

}  // namespace tandem
