// Durations counted in buckets of a few percent: mean exact, percentiles within a bucket, constant size.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tandem {

class DurationHistogram {
 public:
  void AddUs(double duration_us) {
    sum_us_ += duration_us;
    ++count_;
    ++counts_[BucketOf(duration_us)];
  }
  void Add(const DurationHistogram& other) {
    sum_us_ += other.sum_us_;
    count_ += other.count_;
    for (size_t i = 0; i < kNumBuckets; ++i) counts_[i] += other.counts_[i];
  }
  uint64_t count() const { return count_; }
  double SumUs() const { return sum_us_; }
  double MeanUs() const { return count_ == 0 ? 0.0 : sum_us_ / static_cast<double>(count_); }
  // quantile: 0..1. The middle of the bucket that holds it; 0 if nothing was counted.
  double QuantileUs(double quantile) const {
    const auto wanted = static_cast<uint64_t>(std::ceil(quantile * static_cast<double>(count_)));
    uint64_t seen = 0;
    for (size_t bucket = 0; bucket < kNumBuckets; ++bucket) {
      seen += counts_[bucket];
      if (seen > 0 && seen >= wanted)
        return std::pow(kGrowth, static_cast<double>(bucket) + 0.5) * kSmallestUs;
    }
    return 0.0;
  }
  // What was counted since `earlier`, a copy of this histogram taken before.
  DurationHistogram Since(const DurationHistogram& earlier) const {
    DurationHistogram difference = *this;
    difference.sum_us_ -= earlier.sum_us_;
    difference.count_ -= earlier.count_;
    for (size_t i = 0; i < kNumBuckets; ++i) difference.counts_[i] -= earlier.counts_[i];
    return difference;
  }

 private:
  // From 0.1 us to more than 1,000 s in steps of 4 %.
  static constexpr double kSmallestUs = 0.1;
  static constexpr double kGrowth = 1.04;
  static constexpr size_t kNumBuckets = 600;

  static size_t BucketOf(double duration_us) {
    if (!(duration_us > kSmallestUs)) return 0;
    const double bucket = std::log(duration_us / kSmallestUs) / std::log(kGrowth);
    return std::min(static_cast<size_t>(bucket), kNumBuckets - 1);
  }

  double sum_us_ = 0;
  uint64_t count_ = 0;
  std::array<uint64_t, kNumBuckets> counts_ = {};
};

}  // namespace tandem
