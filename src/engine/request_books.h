// The engine thread's books of its requests: who waits, who runs, which cohorts are amid a token, and which
// blocks they hold. The cache's own are KvBooks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/iteration_inputs.h"
#include "execute/iteration_result.h"
#include "kv/kv_books.h"
#include "plan/block_move.h"
#include "plan/iteration_plan.h"
#include "planning/schedule_state.h"
#include "planning/work_shape.h"
#include "request/request.h"

namespace tandem {

// Engine thread only.
class RequestBooks {
 public:
  // All outlive the books. hasher: of blocks of kv's size, by which requests with a prefix_root find what was
  // computed before; null: none has one.
  RequestBooks(const ScheduleLimits& limits, int64_t max_model_len, KvBooks* kv,
               const BlockHasher* hasher = nullptr);

  // What strategies see.
  const ScheduleState& state() const { return state_; }
  bool empty() const { return requests_.empty(); }
  bool contains(RequestId id) const { return requests_.contains(id); }
  // CHECKs that it is known.
  Request& At(RequestId id);
  const Request& At(RequestId id) const { return *requests_.at(id); }
  std::vector<RequestId> IdsBelow(RequestId id) const;
  // Of those that run, in the cpu tier.
  std::vector<RequestId> RunningInCpuTier() const;

  // To the queue. uses_cpu_tier: the strategy does; matters to a request that begins amid its output
  // (Engine::SubmitBegun), which runs at once if a tier has room.
  void Add(std::unique_ptr<Request> request, bool uses_cpu_tier);
  // ok if the plan keeps the rules of plan/iteration_plan.h for these books.
  Status Validate(const IterationPlan& plan) const;
  // The same for the sequences as they will be when the iteration that runs has ended.
  Status ValidateAhead(const IterationPlan& plan, const ScheduleState& ahead) const;
  // Sequences that end by length with the iteration that runs give back their blocks now, for a plan that is
  // enqueued behind it and was promised them.
  void ReleaseEnding(const std::unordered_set<SequenceId>& ending);
  // What the plan does to them but for the cohorts that it drops: attaches, preempts, moves, admits,
  // reserves. Returns the moves in the order in which their copies are to be enqueued. CHECKs that there is
  // room: the plan promised it. now: when its iteration begins. num_swapped_tokens: of the moves.
  std::vector<BlockMove> Apply(const IterationPlan& plan, Clock::time_point now, int64_t* num_swapped_tokens);
  IterationInput InputFor(IterationPlan plan, std::vector<BlockMove> moves, GrammarMasks* masks) const;

  // A result's tokens are computed; the request gets those that were drawn.
  void TakeComputed(Request* request, int64_t num_computed);
  void TakeToken(Request* request, int32_t token);
  // Ends by max_tokens or a full context with so many tokens of output.
  bool EndsByLength(const Request& request, int64_t num_output) const;
  // Remembers what kind of work the requests are: this one ends, or begins as if others like it had ended.
  // num_output: tokens that it has generated, or is to.
  void CountEnd(const Request& request, int64_t num_output);
  // Forgets a request, and frees its blocks; where the cpu tier is out of use those that lie there stay
  // taken, as CPU attention may still write to them. Amid a token of a cohort its row goes on to the end of
  // that, for nobody, and its blocks are free then; CHECKs that somebody else's row is in the cohort.
  void Forget(RequestId id);
  // Forgotten requests whose blocks have come free, or stay taken, since the last call.
  std::vector<RequestId> TakeReleased() { return std::exchange(released_, {}); }

  // The cohort that a sequence is amid a token in, if no other row of it is anybody's.
  std::optional<CohortId> CohortAloneWith(SequenceId sequence) const;
  void MoveCohort(const CohortStep& step, int64_t cursor);
  void DropCohort(CohortId id);
  void DropAllCohorts() { state_.cohorts.clear(); }
  // CPU attention has failed: no cohort is left, and the cpu tier is out of use until ReleaseStalled.
  void FailCpuTier();
  bool any_stalled() const { return !stalled_.empty(); }
  // CPU attention is back: frees what was kept, and the cpu tier is in use again.
  void ReleaseStalled();

 private:
  const InFlightCohort* CohortOf(SequenceId sequence) const;
  // Of rows whose token has come to its end: what was kept for nobody.
  void Release(const std::vector<RowSpan>& rows);
  // Its blocks stay taken until CPU attention is back.
  void KeepStalled(SequenceId id);
  // A request as strategies see it.
  static ScheduledSequence SequenceOf(const Request& request);
  // False if it does not begin amid its output, or has no room.
  bool BeginAmidWork(Request* request, bool uses_cpu_tier);
  ScheduledSequence& Running(SequenceId id);
  void Attach(const AttachedPrefix& prefix, Clock::time_point now);
  void Preempt(SequenceId id);
  void Admit(SequenceId id, Clock::time_point now);
  // Full blocks that are computed by now can be found.
  void Publish(const Request& request);
  // All tokens of the sequence, or of the span if that goes beyond them.
  void Reserve(const RowSpan& span, Tier tier);
  int64_t TokensToHold(const RowSpan& span) const;
  Status ValidateBy(const IterationPlan& plan,
                    const std::function<std::optional<ScheduledSequence>(SequenceId)>& find,
                    const std::vector<InFlightCohort>& in_flight) const;

  const int64_t max_model_len_;
  KvBooks* kv_;
  const BlockHasher* hasher_;
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;
  ScheduleState state_;
  WorkShape shape_;
  // Where the search for a running sequence begins: results come in the order of the queue.
  size_t running_hint_ = 0;
  // Have ended amid a token of their cohort.
  std::unordered_map<RequestId, std::unique_ptr<Request>> ended_;
  std::vector<RequestId> released_;
  // Have ended in a stall, with blocks in the cpu tier that are not free yet.
  std::vector<SequenceId> stalled_;
};

}  // namespace tandem
