#include "bench/steady_start.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numbers>
#include <optional>
#include <random>
#include <span>
#include <unordered_set>
#include <utility>

#include "base/round_up.h"
#include "bench/seeded_draws.h"
#include "perf/steady_times.h"
#include "policy/strategy.h"
#include "simulate/schedule_simulation.h"

namespace tandem {
namespace {

// Where the engine puts requests that begin amid their output.
class Placement {
 public:
  // What the engine leaves free as well: room to grow in the gpu tier, and a part of the cpu tier.
  explicit Placement(const TierRoom& room)
      : block_size_(room.block_size),
        gpu_free_(room.gpu_blocks - room.gpu_blocks / 100 - 1),
        cpu_free_(room.cpu_blocks - room.cpu_blocks / 100 - 1),
        requests_left_(room.max_num_seqs),
        cpu_requests_left_(room.max_cpu_requests) {}

  // Null: neither tier takes a request of so many tokens.
  std::optional<Tier> Take(int64_t num_tokens) {
    if (requests_left_ == 0) return std::nullopt;
    const int64_t blocks = DivideUp(num_tokens, block_size_);
    if (blocks + 1 <= gpu_free_) {
      gpu_free_ -= blocks + 1;
      --requests_left_;
      return Tier::kGpu;
    }
    if (blocks > cpu_free_ || cpu_requests_left_ == 0) return std::nullopt;
    cpu_free_ -= blocks;
    --cpu_requests_left_;
    --requests_left_;
    return Tier::kCpu;
  }

 private:
  int64_t block_size_;
  int64_t gpu_free_;
  int64_t cpu_free_;
  int64_t requests_left_;
  int64_t cpu_requests_left_;
};

int64_t NumTokens(const WorkloadRequest& request) {
  return request.prompt_tokens + request.made_tokens;
}

// What of a trace is found amid its output is to be the same whenever the play ends.
void Shuffle(std::span<WorkloadRequest> requests) {
  std::mt19937_64 random(0);
  for (size_t i = requests.size(); i > 1; --i) std::swap(requests[i - 1], requests[DrawBelow(random, i)]);
}

// How much of its output the index-th of the begun requests has made.
void SpreadEvenly(int64_t index, WorkloadRequest* request) {
  // Multiples of the golden ratio: any number of them is spread evenly.
  double whole = 0;
  const double share = std::modf((static_cast<double>(index) + 0.5) * std::numbers::phi, &whole);
  const auto made = static_cast<int64_t>(share * static_cast<double>(request->output_tokens));
  request->made_tokens = std::clamp<int64_t>(made, 0, request->output_tokens - 1);
}

// The requests with the ids 1, 2, ...
class Play {
 public:
  // The last num_kept wait all the time. seconds: as many as the tiers take to settle, if it is not said.
  Play(const TierRoom& room, const SteadyPlay& play, std::optional<double> seconds, size_t num_kept,
       std::unique_ptr<Strategy> strategy, const std::vector<WorkloadRequest>& requests)
      : play_(play),
        strategy_(std::move(strategy)),
        requests_(requests),
        simulation_(SimulatedBooks(room.block_size, room.gpu_blocks, room.cpu_blocks), play.limits,
                    play.costs) {
    Placement placement(room);
    size_t num_submitted = 0;
    for (const WorkloadRequest& request : requests_) {
      const int64_t num_tokens = NumTokens(request);
      const std::optional<Tier> tier = request.begun ? placement.Take(num_tokens) : std::nullopt;
      if (!tier ||
          !simulation_.AddRunning(IdOf(num_submitted), *tier, num_tokens, num_tokens - 1,
                                  request.prompt_tokens + request.output_tokens, request.prompt_tokens))
        break;
      ++num_submitted;
    }
    most_to_begin_ = requests_.size() - num_kept;
    // All that the run will have waiting: strategies go by how many there are.
    for (; num_submitted < requests_.size(); ++num_submitted) {
      const WorkloadRequest& request = requests_[num_submitted];
      simulation_.Submit(IdOf(num_submitted), request.prompt_tokens, request.output_tokens);
    }
    seconds_ = seconds.value_or(std::max(play.seconds, SecondsToSettle(room.cpu_blocks * room.block_size)));
  }

  // Until the time is over, then on to a moment at which both tiers decode as many as on average: requests
  // that are admitted together end together, so their numbers swing.
  Status Run() {
    TimeMean gpu;
    TimeMean cpu;
    while (played_s() < seconds_ && CanGoOn()) {
      const double before_us = simulation_.counts().us;
      TANDEM_RETURN_IF_ERROR(Step());
      if (played_s() < seconds_ / 2) continue;
      gpu.Add(NumDecodes(Tier::kGpu), simulation_.counts().us - before_us);
      cpu.Add(NumDecodes(Tier::kCpu), simulation_.counts().us - before_us);
    }
    const bool above = NumDecodes(Tier::kCpu) > cpu.value();
    const auto is_usual = [&] {
      const double num_cpu = NumDecodes(Tier::kCpu);
      return NumDecodes(Tier::kGpu) > gpu.value() - 1 &&
             (std::abs(num_cpu - cpu.value()) < 1 || (num_cpu > cpu.value()) != above);
    };
    while (played_s() < 2 * seconds_ && !is_usual() && CanGoOn()) TANDEM_RETURN_IF_ERROR(Step());
    return {};
  }

  double played_s() const { return kSecondsAMicrosecond * simulation_.counts().us; }

  // As PlayIntoSteadyState says.
  std::vector<WorkloadRequest> Found(TierRoom room, SteadyRequests* found) const {
    std::array<std::vector<WorkloadRequest>, kNumTiers> begun;
    std::unordered_set<SequenceId> fresh;
    for (const ScheduledSequence& each : simulation_.state().waiting) fresh.insert(each.id);
    for (const ScheduledSequence& each : simulation_.state().running) {
      WorkloadRequest request = requests_[static_cast<size_t>(each.id) - 1];
      request.begun = true;
      const Tier tier = simulation_.books().tier_of(each.id).value_or(Tier::kGpu);
      if (each.decoding()) {
        begun[static_cast<size_t>(tier)].push_back(request);
      } else {
        fresh.insert(each.id);
      }
    }
    // The engine may leave a little more free than the strategy does.
    room.max_cpu_requests = strategy_->uses_cpu_tier() ? room.max_num_seqs : 0;
    Placement placement(room);
    std::vector<WorkloadRequest> result;
    std::vector<WorkloadRequest> without_place;
    for (std::vector<WorkloadRequest>& of_tier : begun) {
      for (WorkloadRequest& request : of_tier) {
        SpreadEvenly(static_cast<int64_t>(result.size()), &request);
        const std::optional<Tier> tier = placement.Take(NumTokens(request));
        (tier ? result : without_place).push_back(request);
        if (tier == Tier::kCpu) ++found->num_in_cpu_tier;
      }
    }
    found->num_begun = static_cast<int64_t>(result.size());
    const auto add_fresh = [&result](WorkloadRequest request) {
      request.begun = false;
      request.made_tokens = 0;
      result.push_back(request);
    };
    for (const WorkloadRequest& request : without_place) add_fresh(request);
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (fresh.contains(IdOf(i))) add_fresh(requests_[i]);
    }
    return result;
  }

 private:
  static constexpr double kSecondsAMicrosecond = 1e-6;

  class TimeMean {
   public:
    void Add(double value, double us) {
      sum_ += value * us;
      us_ += us;
    }
    double value() const { return us_ > 0 ? sum_ / us_ : 0; }

   private:
    double sum_ = 0;
    double us_ = 0;
  };

  // Some times what the prompts of a cpu tier of so many tokens take, were they all that the GPU did.
  double SecondsToSettle(int64_t cpu_tokens) const {
    if (!strategy_->uses_cpu_tier() || requests_.empty()) return 0;
    constexpr double kFillings = 3;
    const SteadyMix mix{.mean_prompt = MeanLengthsOf(requests_).prompt};
    return kFillings * kSecondsAMicrosecond * SteadyTimes(mix, *play_.costs).PrefilledTokenUs() *
           static_cast<double>(cpu_tokens);
  }
  double NumDecodes(Tier tier) const {
    const auto& running = simulation_.state().running;
    return static_cast<double>(
        std::count_if(running.begin(), running.end(), [&](const ScheduledSequence& each) {
          return each.decoding() && simulation_.books().tier_of(each.id) == tier;
        }));
  }
  Status Step() {
    const IterationPlan plan = strategy_->Plan(simulation_.state(), simulation_.books());
    if (!plan.empty()) return simulation_.Apply(plan);
    return MakeError(ErrorCode::kResourceExhausted, "{} finds nothing to do with {} requests waiting",
                     strategy_->name(), simulation_.state().waiting.size());
  }
  bool CanGoOn() const {
    return !simulation_.done() && requests_.size() - simulation_.state().waiting.size() < most_to_begin_;
  }
  static SequenceId IdOf(size_t index) { return static_cast<SequenceId>(index) + 1; }

  const SteadyPlay& play_;
  const std::unique_ptr<Strategy> strategy_;
  const std::vector<WorkloadRequest>& requests_;
  ScheduleSimulation simulation_;
  size_t most_to_begin_ = 0;
  double seconds_ = 0;
};

// One play: *requests becomes what it has found, the last num_kept still behind all others.
Result<SteadyRequests> PlayOn(const TierRoom& room, const SteadyPlay& play, std::optional<double> seconds,
                              size_t num_kept, std::vector<WorkloadRequest>* requests) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Strategy> strategy, CreateStrategy(play.strategy, play.costs));
  Play played(room, play, seconds, num_kept, std::move(strategy), *requests);
  TANDEM_RETURN_IF_ERROR(played.Run());
  SteadyRequests found{.played_s = played.played_s()};
  *requests = played.Found(room, &found);
  return found;
}

}  // namespace

int64_t BeginAmidWork(const TierRoom& room, std::vector<WorkloadRequest>* requests) {
  Placement placement(room);
  int64_t num_begun = 0;
  for (WorkloadRequest& request : *requests) {
    SpreadEvenly(num_begun, &request);
    request.begun = placement.Take(NumTokens(request)).has_value();
    if (!request.begun) {
      request.made_tokens = 0;
      break;
    }
    ++num_begun;
  }
  return num_begun;
}

std::vector<std::optional<Tier>> PlacesOf(const TierRoom& room,
                                          const std::vector<WorkloadRequest>& requests) {
  Placement placement(room);
  std::vector<std::optional<Tier>> places;
  places.reserve(requests.size());
  for (const WorkloadRequest& request : requests)
    places.push_back(request.begun ? placement.Take(NumTokens(request)) : std::nullopt);
  return places;
}

Result<SteadyRequests> PlayIntoSteadyState(const TierRoom& room, const SteadyPlay& play,
                                           std::vector<WorkloadRequest>* requests) {
  std::vector<WorkloadRequest> played = *requests;
  const auto num_begun = static_cast<size_t>(std::ranges::count(played, true, &WorkloadRequest::begun));
  const size_t num_kept = std::min(played.size() / 3, (played.size() - num_begun) / 2);
  Shuffle(std::span(played).subspan(num_begun, played.size() - num_begun - num_kept));
  TANDEM_ASSIGN_OR_RETURN(SteadyRequests found, PlayOn(room, play, std::nullopt, num_kept, &played));
  // Riding goes on for less than it begins for, and where the run begins nobody is amid a token: the engine
  // may give up there what the play has kept.
  constexpr int kMostTimes = 3;
  constexpr double kSeconds = 12;
  constexpr double kLasting = 0.75;
  TierRoom as_found = room;
  as_found.max_cpu_requests = room.max_num_seqs;
  for (int i = 0; i < kMostTimes && found.num_in_cpu_tier > 0; ++i) {
    std::vector<WorkloadRequest> later = played;
    TANDEM_ASSIGN_OR_RETURN(SteadyRequests next, PlayOn(as_found, play, kSeconds, num_kept, &later));
    if (static_cast<double>(next.num_in_cpu_tier) >= kLasting * static_cast<double>(found.num_in_cpu_tier))
      break;
    next.played_s += found.played_s;
    found = next;
    played = std::move(later);
  }
  const auto num_left = std::min(num_kept, played.size() - static_cast<size_t>(found.num_begun));
  std::rotate(played.begin() + found.num_begun, played.end() - static_cast<std::ptrdiff_t>(num_left),
              played.end());
  *requests = std::move(played);
  return found;
}

}  // namespace tandem
