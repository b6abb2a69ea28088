// From live requests and the books to what an executor needs for an iteration (plan/iteration_input.h).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "engine/grammar_masks.h"
#include "kv/kv_books.h"
#include "plan/block_move.h"
#include "plan/iteration_input.h"
#include "plan/iteration_plan.h"
#include "request/request.h"

namespace tandem {

using FindRequest = std::function<const Request&(SequenceId)>;

// Echo: position of the first row of a request whose log-probabilities are asked and not yet reported; absent
// where there is none.
std::optional<int64_t> EchoFrom(const Request& request);

// plan: valid, its blocks reserved, its moves applied to the books and listed in `moves` as ApplyMoves
// returned them. CHECKs that no row writes to a block that others share. masks: makes those of rows that are
// drawn by a grammar, from here on. Often between two iterations, while the device waits: allocates what it
// hands over and nothing else. A span may end one token beyond those of its request if the iteration that
// runs draws that token (MayRunAhead).
IterationInput MakeIterationInput(IterationPlan plan, std::vector<BlockMove> moves, const KvBooks& books,
                                  int64_t num_layers, const FindRequest& find_request, GrammarMasks* masks);

}  // namespace tandem
