// Which load a server sustains: the highest rate of requests at which latency stays within a limit (NEO
// figure 6).
#pragma once

#include <optional>
#include <vector>

namespace tandem {

// One run of the search. latency_s is infinite where requests failed or none was answered.
struct RateTrial {
  double rate = 0;       // requests a second
  double latency_s = 0;  // a token, of the run
};

// Says which rate to run next, from what the runs before have shown: from a first rate twice as many, or
// half, until one rate is within the limit and one beyond it, then the geometric mean of the two.
class RateSearch {
 public:
  // Both positive. The search ends where the rate beyond is at most kResolution times the one within, or
  // after kMaxTrials.
  RateSearch(double first_rate, double limit_s);

  static constexpr double kResolution = 1.05;
  static constexpr int kMaxTrials = 12;

  // Absent: the search is at its end.
  std::optional<double> NextRate() const;
  void Add(const RateTrial& trial);

  const std::vector<RateTrial>& trials() const { return trials_; }
  // The highest rate within the limit that is below all rates beyond it; the lowest beyond. Absent: there was
  // none. Noise may put a rate beyond the limit below one that was within: then the lower one counts.
  std::optional<RateTrial> within() const;
  std::optional<RateTrial> beyond() const;
  // Linear in latency between the two; the one within where there is none beyond, or one without a latency.
  // Absent: none was within.
  std::optional<double> highest_rate() const;

 private:
  double first_rate_;
  double limit_s_;
  std::vector<RateTrial> trials_;
};

}  // namespace tandem
