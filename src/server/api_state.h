// What the endpoints share, and the endpoints themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/engine.h"
#include "grammar/grammar_compiler.h"
#include "server/access_log.h"
#include "server/access_rules.h"
#include "server/embedding_job.h"
#include "server/generation.h"
#include "server/generation_request.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/output_queue.h"
#include "server/response_store.h"
#include "server/server.h"
#include "server/tiers_feed.h"
#include "tracing/tracer.h"

namespace tandem {

struct ApiState {
  ServerOptions options;
  std::optional<AccessRules> access;
  std::unique_ptr<AccessLog> access_log;     // null: none is written. Outlives http
  std::unique_ptr<Tracer> tracer;            // null: no spans are sent. Outlives http
  std::unique_ptr<ResponseStore> responses;  // outlives http
  int64_t created = 0;                       // seconds since 1970
  std::unique_ptr<HttpServer> http;
  std::atomic<bool> draining{false};

  // Written before engine is set, read after it was seen set.
  std::unique_ptr<ServerMetrics> metrics;
  ModelContext model;
  std::unique_ptr<GrammarCompiler> grammars;
  std::atomic<Engine*> engine{nullptr};

  // Io thread only.
  std::shared_ptr<OutputQueue> outputs;
  std::unordered_map<uint64_t, std::shared_ptr<Generation>> generations;
  std::unordered_map<uint64_t, std::shared_ptr<EmbeddingJob>> embeddings;
  uint64_t next_generation_id = 1;                // of both
  std::unordered_set<std::string> logged_fields;  // unknown ones
  TiersFeed tiers;
};

using ParseRequest = std::function<std::optional<ApiError>(const nlohmann::ordered_json& body,
                                                           const ModelContext& model, GenerationRequest*)>;
// What all routes that generate tokens do. parse: called on the worker thread. error_response: the form of
// all errors.
void StartGeneration(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange,
                     ParseRequest parse, HttpResponse (*error_response)(const ApiError&) = &ErrorResponse);

// Io thread; answer at once or later. Those below need the engine.
using Endpoint = void (*)(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);

void ListModels(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void RetrieveModel(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void CreateCompletion(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void CreateChatCompletion(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void CreateEmbeddings(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void ResetPrefixCache(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void StreamTiers(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void CreateMessage(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void CountTokens(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void CreateResponse(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void RetrieveResponse(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void DeleteResponse(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void CancelResponse(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void TokenizerInfo(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void Tokenize(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void Detokenize(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
// These do not.
void RefuseWebsocket(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void Health(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void Ready(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void Version(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void Metrics(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
void WebPage(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange);

// Counts unknown fields, and logs each name once: 256 names at most, as anybody may make them up. Io thread.
void NoteIgnoredFields(ApiState& state, const std::vector<std::string>& names);

// What DeliverOutputs has for an EmbeddingJob.
void DeliverEmbedding(ApiState& state, SequenceOutput output);

// Hands what the engine produced since the last call to the generations it belongs to. Io thread.
void DeliverOutputs(ApiState& state);

// 503 while loading or draining; nothing when the API may be used.
std::optional<ApiError> NotServing(const ApiState& state);

}  // namespace tandem
