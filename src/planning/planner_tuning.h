// Every constant of planning. What halving or doubling each costs in the simulation is in
// docs/planner_tuning.md, as simulate/tuning_test.cc prints it. "Played": by simulated workloads with costs
// that were measured on an H200 in slices of 8 and 16 SMs; docs/performance.md has the measurements.
#pragma once

#include <array>
#include <cstdint>

namespace tandem {

struct PlannerTuning {
  // The operating point.

  // Times the rows before: numbers of cpu rows that are looked at beyond 8. A finer search finds no better.
  double next_rows = 1.25;
  // Of the best throughput: the fewest rows that reach it are the target. The last percents cost the most
  // requests: each doubles the rows that wait for one another. Played.
  double nearly_best = 0.98;
  // Of the rows that the cpu tier has: so many stay the target where they promise nearly the best too, though
  // fewer would do, if the gpu tier's are few. Where X hardly depends on c the fewest are 50 now and 150
  // then, and a tier that is to shrink admits nobody whose prompt would hide what it reads. Less than all, or
  // the target would follow a tier that grows past it. Played: mixture 2 in the steady state, and 1 to 200.
  double kept_of_present = 0.8;
  // Times the throughput without cpu rows: what two sub-batches must promise. Rows that wait for one another
  // cost what the model does not see: at 1000 in, 50 out 2 % were promised and 5 % lost (measured).
  double worth_splitting = 1.03;
  // Times the throughput of two sub-batches: what riding must promise. Less than one: the model leaves out
  // that prompts of riders are dealt out evenly, holding none of the gpu tier's blocks, where those for the
  // gpu tier come in lumps. Played: mixtures 1 to 200 (docs/held_out.md).
  double worth_riding = 0.97;
  // The same in addition, if the filled cpu tier would hold all that wait; of more of them the share that it
  // would hold. Filling for them takes long then, and draining follows. Played: the same mixtures.
  double price_of_filling = 0.04;
  // Of the operating point's cpu rows: with so many there already worth_splitting is not asked for. To empty
  // a tier and fill it again costs more.
  double mostly_there = 0.5;
  // Times the waiting requests: rows that two sub-batches are thought to be short of at most, when the price
  // of bringing them in is looked at. A few come from the gpu tier. Where requests come one by one, few wait
  // and the tier is to be filled all the same. Played: from 2 on it is not (OpenLoop*).
  double most_filled_in = 1.25;
  // So much less than to begin is asked of riding that has begun: between the two nothing changes. Played.
  double less_to_go_on = 0.02;
  // Times the throughput without riders: what riding must promise at best for those who ride to go on, where
  // it promises too little to begin (nearly_best). Well below that, so that nothing hangs on one threshold;
  // not nothing, so that nobody rides whom the CPU does not get on with. Played.
  double worth_going_on = 1.005;
  // Times the throughput of both tiers: what the cpu tier alone must promise to have all decodes; and the
  // gpu tier's rows of the cpu tier's then, at most: to fill the place of more of them takes longer than the
  // steady state repays. Played: the same mixtures.
  double worth_offloading_all = 1.02;
  double few_gpu_rows = 0.3;
  // Times the operating point's rows that the cpu tier takes in: the target may be passed while prompts are
  // dealt out evenly. Played.
  double overfill = 2;
  // Times the operating point's rows that are admitted with asynchronous overlap, which do what others of
  // them are late for. Played.
  double riding_spare = 1.25;
  // Waiting requests that are asked for their length where none runs.
  int64_t look_ahead = 16;

  // Waiting requests at most that are passed over since what they begin with is being computed: more of them
  // are not worth the search.
  int64_t most_passed_over = 64;

  // Requests that came after one that only the cpu tier can hold and that waits for its blocks, and may begin
  // before it in the gpu tier. Who is swapped out from there takes blocks that it waits for: so there is an
  // end to it. A guess.
  int64_t most_that_pass = 64;

  // Room.

  // Iterations in which the decodes of a tier can grow before something is swapped in or admitted to the cpu
  // tier: so that the next iterations do not swap it out again. A block of 32 tokens lasts as long.
  int64_t iterations_ahead = 32;

  // Of what the cpu tier takes in, beyond it: before anybody has to leave it again.
  double overload_slack = 0.25;
  // 1 / so much of the gpu tier at most is kept free for outputs to grow, where who is pushed out goes to the
  // cpu tier or nobody knows what computing it again costs: of a tiny tier an output may be most.
  int64_t most_kept_of_tier = 8;
  int64_t MostBlocksKept(int64_t gpu_blocks) const { return gpu_blocks / most_kept_of_tier; }

  // What the gpu tier keeps for who begins alike is copied to the cpu tier until so much of the gpu tier, or
  // room for so many requests, can be given up without loss, and again from half of it on. Guesses.
  double copied_down_of_tier = 0.25;
  double copied_down_requests = 4;
  // Of prompt tokens that were cached of late, from which on: a copy costs about so much of computing the
  // tokens again. Below it, one in so many, to see whether they are wanted later.
  double copied_down_from_share = 0.03;
  int64_t copied_down_one_in = 16;
  // Of the time of a layer at most, copies for that.
  double copied_down_of_layer = 0.5;

  // The work to come (planning/work_shape.h).

  // What a request that has ended counts for, relative to the next one: the last hundred are what counts.
  double work_shape_memory = 0.99;
  // Prompt tokens for each of output, before any request has ended. A guess, soon forgotten.
  double first_prompt_tokens_per_output = 4;
  // Requests that must have ended before one of the tiers counts as of no use by the work so far: the short
  // ones end first. Played: mixtures 1 to 200.
  double ended_to_know = 40;
  // The same before who was pushed out of the gpu tier comes back like a prompt (ReturnRules): with this
  // memory some 160. With 40 or 63 whole runs of 300 requests, which have no more ahead, end later now and
  // then.
  double ended_to_return = 80;

  // What tokens are worth, and how prompts are dealt out.

  // Of a prompt token at least, once the cpu tier holds twice its target. Played.
  double least_prefill_worth = 0.25;
  // Of prompt tokens that the decodes use up, and of further ones, relative to the operating point. Played:
  // with 1 and 1 prompts come in bursts, and the CPU waits between them.
  double wanted_prefill_worth = 1.25;
  double further_prefill_worth = 0.5;
  // Iterations over which prompts are dealt out that bring the cpu tier up to its target, and the same with
  // asynchronous overlap, where each row more is more. Played.
  double cpu_ramp_iterations = 128;
  double riding_ramp_iterations = 2048;
  // At most so many tokens an iteration for it, relative to those that the decodes use up: while the tier
  // fills, its prompts are further prefill beside decodes that go on, whose iterations get longer by it.
  double most_ramp_share = 0.5;
  // Tokens an iteration that are always dealt out: they cost next to nothing.
  double least_ramp_tokens = 32;
  // Iterations over which prompts for the gpu tier are dealt out: for_room times the root of the tier's room
  // in prompts, at most for_prefill_share over the prompt tokens that go with an output, within bounds. While
  // a prompt is dealt out it holds blocks that decode nothing. Played and measured at 16 SMs.
  double gpu_ramp_for_room = 10;
  double gpu_ramp_for_prefill_share = 160;
  double fewest_gpu_ramp_iterations = 8;
  double most_gpu_ramp_iterations = 64;
  // Times gpu_ramp_for_prefill_share where no prompts for the cpu tier come in between. Played: mixtures 1 to
  // 200.
  double gpu_ramp_alone = 4;

  // Of the gpu tier: with so much free behind those that are admitted, and an empty cpu tier, prompts are not
  // dealt out. Requests that come more slowly than they could be served then wait for no first token
  // (measured on a whole H100 at 14 to 22 requests/s), and a large tier is filled at once.
  double ample_room = 0.25;

  // Rows and cohorts.

  // Of the rows that the gpu tier's decodes leave, those that are kept for cpu decodes at most, against
  // prompts.
  double most_rows_kept = 0.5;
  // Cohorts for each visit of a token from which on riders are expected at every boundary.
  double cohorts_everywhere = 0.5;
  // Rows of a cohort that rides at least: smaller ones are no better spread, and CPU attention of a few rows
  // takes longer a row (measured: 30 us of any task).
  int64_t fewest_cohort_rows = 12;
  // Rows too long for what is left are passed over; more of them are not worth the search.
  int64_t max_skips = 8;
  // Cuts into cohort and main sub-batch that are compared where nothing need hide them.
  int64_t num_cuts = 32;

  // Long prompts in the cpu tier (planning/transit_pass.h).

  // Times what runs beside chunks in transit: an iteration with them is not to take longer, if they can pass
  // the layers in several. Of the machine's time they take three quarters then. The same for a decode of such
  // a request, which rides then. A guess.
  double transit_stretch = 4;
  // The same in microseconds where nobody decodes beside them: whoever comes waits for it. A guess.
  double transit_alone_us = 100'000;
  // Of the rows of an iteration, for chunks in transit at most: whoever comes while they are on their way
  // finds the others.
  double most_rows_in_transit = 0.5;

  // Schedules.

  // Of the prompt tokens that are wanted: the amounts that are compared, besides all and those that are flat.
  std::array<double, 4> budget_shares = {0.25, 0.5, 1.0, 2.0};
  // Of the most that the limit of an iteration allows.
  std::array<double, 4> limited_budget_shares = {1.0, 0.5, 0.25, 0.125};
  // Times the linear operations without prefill: so much more is next to nothing.
  double about_flat = 1.02;
  // Schedules that all exceed the limit of an iteration are compared by work if their times differ by less.
  double about_the_same_time = 1.05;
};

}  // namespace tandem
