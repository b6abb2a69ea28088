#include "planning/admission.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "perf/time_model.h"

namespace tandem {
namespace {

// AdmissionRules::decodes_per_recomputed: little where iterations read weights that more rows share.
std::optional<double> DecodesPerRecomputed(const PlanningInput& input, const Target& target,
                                           const Room& room) {
  if (input.state.cpu_tier_usable && room.books.total_blocks(Tier::kCpu) > 0) return std::nullopt;
  const auto num_decodes = static_cast<double>(room.gpu_load.gpu_decode_rows + 1);
  const double usual = std::max(1.0, input.state.prompt_tokens_per_output * num_decodes);
  const double twice_us =
      TimeModel(input.costs)
          .PrefillDifferenceUs(num_decodes, 2 * usual, usual, std::max(1.0, input.state.mean_context));
  const double recomputed_us = std::max(0.0, twice_us) / usual;
  const double decoded_us = target.point.decoded_token_us;
  // What was decoded before it is pushed out is computed again as well.
  return recomputed_us < decoded_us ? recomputed_us / (decoded_us - recomputed_us)
                                    : std::numeric_limits<double>::infinity();
}

PrefillQueue AdmitPrompts(const PlanningInput& input, const Target& target, const TransitRules& transit,
                          Room* room) {
  AdmissionRules rules;
  rules.transit = transit;
  // Room in the gpu tier goes to the older requests that overload the cpu tier.
  rules.to_gpu = !room->cpu_tier_overloaded || !room->overload_can_leave;
  rules.cpu_first = input.offloads_all();
  rules.max_cpu_sequences = input.offloads_all() ? input.state.limits.max_num_seqs : target.max_cpu_sequences;
  rules.decodes_per_recomputed = DecodesPerRecomputed(input, target, *room);
  // Cpu decodes keep some rows; all that they need if they are to decode in every iteration.
  const double most_kept =
      (input.offloads_all() ? 1 : input.tuning.most_rows_kept) * static_cast<double>(room->rows_left);
  const int64_t kept = std::min(room->cpu_rows.size(), static_cast<int64_t>(most_kept));
  return {input.state, input.costs, rules, room->rows_left - kept, &room->books};
}

// Whether all prompts are for the gpu tier. Where there is a cpu tier it may be empty only until what the
// work is like is known.
bool GpuTierAlone(const PlanningInput& input, const Target& target, const Room& room) {
  return !target.wants_cpu_rows() && room.books.num_decodes(Tier::kCpu) == 0 &&
         input.state.num_ended >= input.tuning.ended_to_know;
}

// A few prompt tokens beside decodes cost next to nothing, but while a prompt is dealt out it holds blocks
// that decode nothing: the longer, the larger the tier is in prompts. Where prompts keep the GPU busy anyway
// there is little to be had for waiting; more where none for the cpu tier come in between, and iterations
// would only read weights until there is room for the next one.
double GpuRampIterations(const PlanningInput& input, const Target& target, const Room& room,
                         const PrefillQueue& prompts) {
  const PlannerTuning& tuning = input.tuning;
  const auto tier_tokens = static_cast<double>(room.books.total_blocks(Tier::kGpu) * room.books.block_size());
  const double for_room = tuning.gpu_ramp_for_room * std::sqrt(tier_tokens / prompts.mean_prompt());
  const double for_share = (GpuTierAlone(input, target, room) ? tuning.gpu_ramp_alone : 1) *
                           tuning.gpu_ramp_for_prefill_share /
                           std::max(1e-3, input.state.prompt_tokens_per_output);
  return std::clamp(std::min(for_room, for_share), tuning.fewest_gpu_ramp_iterations,
                    tuning.most_gpu_ramp_iterations);
}

// Dealing out spares a full tier iterations that only read weights. Where the gpu tier has room and serves
// all, there is nothing to be had for it: whoever waits for a first token waits for nothing.
bool RoomIsAmple(const PlanningInput& input, const Room& room) {
  const TierBooks& books = room.books;
  const auto ample = input.tuning.ample_room * static_cast<double>(books.total_blocks(Tier::kGpu));
  return static_cast<double>(books.spare_blocks(Tier::kGpu)) >= ample && books.num_sequences(Tier::kCpu) == 0;
}

// Each request more than the target makes prompt tokens worth less and decoded ones worth more: at r prompt
// tokens for a decoded one both together stay what they are.
void WeighTokens(const PlanningInput& input, const Target& target, const Room& room, Admission* admission) {
  const PlannerTuning& tuning = input.tuning;
  const PrefillQueue& prompts = admission->prompts;
  const double r = input.state.prompt_tokens_per_output;
  const auto target_rows = static_cast<double>(target.point.cpu_rows);
  const double below_target = target_rows - static_cast<double>(room.books.num_decodes(Tier::kCpu));
  const double scarcity = std::clamp(1 + below_target / (target_rows + 1), 0.0, 1.0);
  admission->prefilled_token_us =
      target.point.prefilled_token_us * std::max(tuning.least_prefill_worth, scarcity);
  admission->decoded_token_us =
      target.point.decoded_token_us + r * (target.point.prefilled_token_us - admission->prefilled_token_us);

  const double num_decodes =
      static_cast<double>(room.gpu_load.gpu_decode_rows + room.cpu_rows.size()) +
      static_cast<double>(room.riders.num_rows()) / static_cast<double>(input.num_visits());
  const double ramp_iterations = target.rides ? tuning.riding_ramp_iterations : tuning.cpu_ramp_iterations;
  const double ramp_tokens =
      std::min(std::max(0.0, below_target) * prompts.mean_prompt() / ramp_iterations,
               std::max(tuning.least_ramp_tokens, tuning.most_ramp_share * r * num_decodes));
  admission->wanted_prefill_tokens =
      r * num_decodes * scarcity + ramp_tokens +
      prompts.num_gpu_prompts() * prompts.mean_prompt() / GpuRampIterations(input, target, room, prompts);
  if (num_decodes == 0 || RoomIsAmple(input, room))
    admission->wanted_prefill_tokens = static_cast<double>(prompts.num_tokens());
}

}  // namespace

Admission Admit(const PlanningInput& input, const Target& target, Room* room) {
  const TransitRules transit = TransitRulesOf(input, target, *room);
  Admission admission{.transit = transit, .prompts = AdmitPrompts(input, target, transit, room)};
  const int64_t num_entering = NumRowsOf(admission.prompts.entering_transit());
  room->max_rows -= num_entering;
  room->rows_left -= num_entering;
  WeighTokens(input, target, *room, &admission);
  return admission;
}

}  // namespace tandem
