// /v1/embeddings.
#include <utility>

#include "server/api_state.h"
#include "server/embedding_job.h"
#include "server/prepare_request.h"

namespace tandem {

void CreateEmbeddings(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const auto arrival = request.received;
  const RequestTrace trace = RequestTrace::Begin(state.tracer.get(), request);
  PrepareThen<EmbeddingRequest>(
      state, std::move(request), std::move(exchange), trace, {}, &ParseEmbeddingRequest,
      [&state, arrival, trace](EmbeddingRequest parsed, const std::shared_ptr<HttpExchange>& answer) {
        NoteIgnoredFields(state, parsed.ignored_fields);
        const uint64_t id = state.next_generation_id++;
        EmbeddingJob::Environment environment{.engine = state.engine.load(),
                                              .metrics = state.metrics.get(),
                                              .outputs = state.outputs,
                                              .served_model_name = state.options.served_model_name,
                                              .pooling = state.model.pooling,
                                              .trace = trace};
        auto job =
            std::make_shared<EmbeddingJob>(id, std::move(environment), std::move(parsed), answer, arrival);
        if (!answer->connected()) return job->Abort();
        answer->SetDisconnectCallback([&state, id] {
          const auto found = state.embeddings.find(id);
          if (found == state.embeddings.end()) return;
          const auto gone = std::move(found->second);
          state.embeddings.erase(found);
          gone->Abort();
        });
        state.embeddings.emplace(id, job);
        job->Start();
        if (job->done()) state.embeddings.erase(id);
      });
}

void DeliverEmbedding(ApiState& state, SequenceOutput output) {
  const auto found = state.embeddings.find(output.generation_id);
  if (found == state.embeddings.end()) return;
  const std::shared_ptr<EmbeddingJob> job = found->second;
  job->OnOutput(output.choice_index, std::move(output.output), output.time);
  if (job->done()) state.embeddings.erase(output.generation_id);
}

}  // namespace tandem
