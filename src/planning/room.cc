#include "planning/room.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perf/time_model.h"
#include "planning/decode_room.h"

namespace tandem {
namespace {

bool IsOverloaded(const PlanningInput& input, const Target& target, const TierBooks& books) {
  if (input.offloads_all()) return false;
  const double most = (1 + input.tuning.overload_slack) * static_cast<double>(target.max_cpu_sequences);
  return static_cast<double>(books.num_sequences(Tier::kCpu)) > std::floor(most);
}

void FindInTransit(const PlanningInput& input, Room* room) {
  room->max_rows = input.state.limits.max_num_batched_tokens;
  const std::vector<CohortId>& dropped = room->books.dropped();
  for (const InFlightCohort& cohort : input.state.cohorts) {
    const bool goes_on = std::find(dropped.begin(), dropped.end(), cohort.cohort) == dropped.end();
    if (!cohort.in_transit() || !goes_on) continue;
    room->in_transit = &cohort;
    room->max_rows -= NumRowsOf(cohort.rows);
  }
}

// Of a strategy that decodes in the cpu tier alone: what could only be prefilled in the gpu tier leaves it.
void SwapOutAll(TierBooks* books) {
  for (size_t i = 0; i < books->sequences().size(); ++i) {
    const RunningSequence& each = books->sequences()[i];
    if (!each.decodes_in(Tier::kGpu) || !each.may_leave()) continue;
    if (each.needed_blocks <= books->spare_blocks(Tier::kCpu)) books->MoveTo(i, Tier::kCpu);
  }
}

void MoveForDecodes(const PlanningInput& input, const Target& target, TierBooks* books) {
  const ScheduleState& state = input.state;
  MakeRoomInCpuTier(state, books);
  MakeRoomInGpuTier(state, books);
  if (input.offloads_all()) {
    SwapOutAll(books);
    return;
  }
  // Waiting prompts come before cpu requests that the CPU serves well, not before those that it cannot.
  const bool none_can_enter = state.waiting.empty() || books->num_sequences() >= state.limits.max_num_seqs;
  if (none_can_enter || !state.cpu_tier_usable) {
    SwapIn(state, input.costs, {}, books);
  } else if (IsOverloaded(input, target, *books)) {
    ReturnRules rules{.min_cpu_sequences = target.max_cpu_sequences};
    rules.like_prompts = !target.wants_cpu_rows() && state.num_ended >= input.tuning.ended_to_return;
    SwapIn(state, input.costs, rules, books);
  }
}

// Whether a decode of the cpu tier rides in this plan: where rows ride, or if only the cpu tier can hold it
// and it alone, in every layer, would hold up the gpu tier's decodes for too long.
bool Rides(const PlanningInput& input, const Target& target, const Room& room,
           const RunningSequence& decode) {
  if (target.rides) return target.may_ride(decode);
  if (!input.state.can_ride() || input.offloads_all() || room.gpu_rows.empty()) return false;
  if (decode.needed_blocks <= room.books.total_blocks(Tier::kGpu)) return false;
  const TimeModel time(input.costs);
  const double all_layers_us =
      static_cast<double>(input.costs.num_layers()) * time.CpuUs(1, decode.num_tokens);
  return all_layers_us > input.tuning.transit_stretch * time.IterationUs(room.gpu_load);
}

RowSpan CpuRowOf(const RunningSequence& decode) {
  RowSpan row = RowSpan::Decode(decode.id, decode.num_tokens - 1, Tier::kCpu);
  // What has just come has blocks of its own.
  if (!decode.shares || decode.moved) return row;
  row.beginning = decode.beginning;
  row.num_shared = decode.num_shared;
  return row;
}

void CollectDecodes(const PlanningInput& input, const Target& target, Room* room) {
  const int64_t max_rows = room->max_rows;
  room->gpu_rows.reserve(static_cast<size_t>(room->books.num_decodes(Tier::kGpu)));
  room->cpu_rows.Reserve(static_cast<size_t>(room->books.num_decodes(Tier::kCpu)));
  room->free_cpu_rows.Reserve(static_cast<size_t>(room->books.num_decodes(Tier::kCpu)));
  for (const RunningSequence& each : room->books.sequences()) {
    // One without may get a row once others have left.
    if (each.decodes_in(Tier::kGpu) && each.has_room &&
        static_cast<int64_t>(room->gpu_rows.size()) < max_rows) {
      room->gpu_rows.push_back(RowSpan::Decode(each.id, each.num_tokens - 1, Tier::kGpu));
      room->gpu_load.gpu_kv_tokens += each.num_tokens;
    }
  }
  room->gpu_load.gpu_decode_rows = static_cast<int64_t>(room->gpu_rows.size());
  room->gpu_load.num_sampled = room->gpu_load.gpu_decode_rows;
  room->rows_left = max_rows - room->gpu_load.gpu_decode_rows;
  if (!input.state.cpu_tier_usable) return;
  for (const RunningSequence& each : room->books.sequences()) {
    if (!each.decodes_in(Tier::kCpu) || each.in_flight) continue;
    const RowSpan row = CpuRowOf(each);
    room->free_cpu_rows.Add(row);
    if (!Rides(input, target, *room, each)) room->cpu_rows.Add(row);
  }
}

// A cohort's attention reads what its rows share once: each comes right behind the oldest that begins as it
// does. None waits longer for that than for a turn of all cohorts.
void GatherByBeginning(std::vector<const RunningSequence*>* oldest_first) {
  std::unordered_map<uint64_t, size_t> places;
  std::vector<std::pair<size_t, const RunningSequence*>> placed;
  placed.reserve(oldest_first->size());
  for (const RunningSequence* each : *oldest_first) {
    const size_t place = placed.size();
    placed.emplace_back(each->beginning == 0 ? place : places.emplace(each->beginning, place).first->second,
                        each);
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < placed.size(); ++i) (*oldest_first)[i] = placed[i].second;
}

void CollectRiders(const PlanningInput& input, const Target& target, Room* room) {
  room->riders = Riders(input.state, input.costs, room->books);
  std::vector<const RunningSequence*> may_enter;
  int64_t cpu_kv_tokens = 0;
  for (const RunningSequence& each : room->books.sequences()) {
    if (!each.decodes_in(Tier::kCpu) || !Rides(input, target, *room, each)) continue;
    cpu_kv_tokens += each.num_tokens;
    if (!each.in_flight) may_enter.push_back(&each);
  }
  if (may_enter.empty()) return;
  GatherByBeginning(&may_enter);
  CpuRows free;
  free.Reserve(may_enter.size());
  for (const RunningSequence* each : may_enter) free.Add(CpuRowOf(*each));
  room->riders.Enter(free, cpu_kv_tokens, input.costs, input.state.limits, input.tuning.fewest_cohort_rows);
}

}  // namespace

Room MakeRoom(const PlanningInput& input, const Target& target, TierBooks books) {
  Room room{.books = std::move(books)};
  // Of no use to them, or out of use.
  if (input.offloads_all()) room.books.DropDecodeCohorts();
  if (!input.state.cpu_tier_usable) room.books.DropAllCohorts();
  MoveForDecodes(input, target, &room.books);
  FindInTransit(input, &room);
  CollectDecodes(input, target, &room);
  CollectRiders(input, target, &room);
  room.cpu_tier_overloaded = IsOverloaded(input, target, room.books);
  room.overload_can_leave =
      std::any_of(room.books.sequences().begin(), room.books.sequences().end(), [&](const auto& each) {
        return each.decodes_in(Tier::kCpu) && each.may_leave() &&
               each.needed_blocks <= room.books.total_blocks(Tier::kGpu);
      });
  return room;
}

}  // namespace tandem
