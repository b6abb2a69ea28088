#include "planning/neo_stages.h"

#include <utility>

#include "planning/admission.h"
#include "planning/choice.h"
#include "planning/room.h"
#include "planning/schedules.h"
#include "planning/target.h"
#include "planning/tier_books.h"

namespace tandem {
namespace {

IterationPlan RunStages(const PlanningInput& input, TierBooks books) {
  const Target target = FindTarget(input, books);
  Room room = MakeRoom(input, target, std::move(books));
  const Admission admission = Admit(input, target, &room);
  const Findings findings = {input, target, room, admission};
  return WritePlan(findings, Choose(findings));
}

}  // namespace

IterationPlan PlanByStages(const PlanningInput& input) {
  TierBooks books(input.state, input.capacity, input.tuning);
  if (input.aims.overlap != OverlapChoice::kBetter || !PaysToOffloadAll(input, books))
    return RunStages(input, std::move(books));
  return RunStages(input.with(kOffloadAll), std::move(books));
}

}  // namespace tandem
