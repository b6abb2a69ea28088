// /v1/messages and /v1/messages/count_tokens.
#include <nlohmann/json.hpp>
#include <utility>

#include "server/api_state.h"
#include "server/json_text.h"
#include "server/messages_error.h"
#include "server/messages_request.h"
#include "server/prepare_request.h"

namespace tandem {

void CreateMessage(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  StartGeneration(state, std::move(request), std::move(exchange), &ParseMessagesRequest,
                  &MessagesErrorResponse);
}

void CountTokens(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  PrepareThen<PreparedBody>(
      state, std::move(request), std::move(exchange), {},
      {.body = {}, .error_response = &MessagesErrorResponse},
      [](const nlohmann::ordered_json& body, const ModelContext& model, PreparedBody* output) {
        int64_t num_tokens = 0;
        auto error = CountMessagesTokens(body, model, &num_tokens);
        output->body = DumpJson({{"input_tokens", num_tokens}});
        return error;
      },
      &RespondBody);
}

}  // namespace tandem
