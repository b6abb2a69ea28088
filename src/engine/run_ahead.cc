#include "engine/run_ahead.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "perf/time_model.h"

namespace tandem {
namespace {

// Of the newest value in a mean that follows.
constexpr double kNewest = 0.125;
// Before the end of an iteration, beside what is measured: the host may be held up.
constexpr double kLeastLeadUs = 1000;
constexpr double kErrorsOfLead = 2;

bool OnlyDecodes(const IterationPlan& plan) {
  return std::ranges::all_of(plan.main.spans, [](const RowSpan& span) { return span.is_decode(); });
}

bool DrawsByItsOutput(const SamplingParams& params) {
  return params.presence_penalty != 0 || params.frequency_penalty != 0 || params.repetition_penalty != 1.0F ||
         !params.bad_words.empty();
}

}  // namespace

bool MayRunAhead(const IterationPlan& plan, const FindRequest& find_request) {
  return plan.gpu_rows_only() && std::ranges::all_of(plan.main.spans, [&](const RowSpan& span) {
           const Request& request = find_request(span.sequence);
           return request.grammar == nullptr && !request.pooling && !EchoFrom(request) &&
                  !DrawsByItsOutput(request.sampling);
         });
}

double RunAheadClock::PredictUs(const IterationPlan& plan) const {
  if (costs_ == nullptr) {
    const bool decodes = OnlyDecodes(plan);
    const Last& last = last_[decodes ? 1 : 0];
    if (last.rows == 0) return 0;
    const double ratio = static_cast<double>(plan.main.num_rows()) / static_cast<double>(last.rows);
    return last.us * (decodes ? std::min(1.0, ratio) : ratio);
  }
  const IterationLoad load = TimeModel(*costs_).LoadOf(plan);
  return costs_->PredictUs(load, CorrectedCosts::ModeOf(load, OnlyDecodes(plan) && decodes_as_graphs_));
}

void RunAheadClock::Begin(const IterationPlan& plan, TimePoint now) {
  begin_ = now;
  predicted_us_ = PredictUs(plan);
}

void RunAheadClock::End(const IterationPlan& plan, bool as_graph, TimePoint now) {
  const double us = std::chrono::duration<double, std::micro>(now - begin_).count();
  const bool decodes = OnlyDecodes(plan);
  last_[decodes ? 1 : 0] = {.us = us, .rows = plan.main.num_rows()};
  if (decodes) decodes_as_graphs_ = as_graph;
  if (predicted_us_ > 0) mean_error_us_ += kNewest * (std::abs(us - predicted_us_) - mean_error_us_);
}

void RunAheadClock::CountEnqueueUs(double us) {
  // What takes long once may do so again.
  enqueue_us_ = std::max(us, enqueue_us_ + kNewest * (us - enqueue_us_));
}

RunAheadClock::TimePoint RunAheadClock::StartAt() const {
  const double lead_us = kLeastLeadUs + enqueue_us_ + kErrorsOfLead * mean_error_us_;
  const double wait_us = std::max(0.0, predicted_us_ - lead_us);
  return begin_ + std::chrono::microseconds(static_cast<int64_t>(wait_us));
}

}  // namespace tandem
