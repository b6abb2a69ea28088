#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem {
namespace {

// Llama 3.1: long wavelengths are stretched by factor, short ones kept, those between blended.
float ScaleLlama3(float inverse_frequency, const RopeScaling& scaling) {
  const double wavelength = 2.0 * std::numbers::pi / static_cast<double>(inverse_frequency);
  const auto original = static_cast<double>(scaling.original_max_position);
  if (wavelength < original / scaling.high_freq_factor) return inverse_frequency;
  const double stretched = static_cast<double>(inverse_frequency) / scaling.factor;
  if (wavelength > original / scaling.low_freq_factor) return static_cast<float>(stretched);
  const double smooth = (original / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return static_cast<float>((1.0 - smooth) * stretched + smooth * static_cast<double>(inverse_frequency));
}

// The pair that turns num_rotations times over the original context, as a fraction of pairs.
double PairOfRotations(double num_rotations, const ModelConfig& config) {
  const auto original = static_cast<double>(config.rope_scaling.original_max_position);
  return static_cast<double>(config.head_dim) *
         std::log(original / (num_rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(config.rope_theta));
}

// YaRN: pairs that turn often within the original context are kept, those that turn less than once stretched,
// with a ramp over the pairs between.
float ScaleYarn(float inverse_frequency, int64_t pair, const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  double low = PairOfRotations(scaling.beta_fast, config);
  double high = PairOfRotations(scaling.beta_slow, config);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(config.head_dim - 1));
  if (low == high) high += 0.001;
  const double stretched = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
  const auto kept = static_cast<double>(inverse_frequency);
  return static_cast<float>(kept / scaling.factor * stretched + kept * (1.0 - stretched));
}

}  // namespace

std::vector<float> RopeInverseFrequencies(const ModelConfig& config) {
  const int64_t num_pairs = config.head_dim / 2;
  std::vector<float> frequencies(static_cast<size_t>(num_pairs));
  for (int64_t pair = 0; pair < num_pairs; ++pair) {
    const double exponent = static_cast<double>(2 * pair) / static_cast<double>(config.head_dim);
    auto frequency = static_cast<float>(1.0 / std::pow(config.rope_theta, exponent));
    const RopeScaling& scaling = config.rope_scaling;
    if (!config.rope_freq_divisors.empty()) {
      frequency /= config.rope_freq_divisors[static_cast<size_t>(pair)];
    } else if (scaling.type == RopeScaling::Type::kLinear) {
      frequency = static_cast<float>(static_cast<double>(frequency) / scaling.factor);
    } else if (scaling.type == RopeScaling::Type::kLlama3) {
      frequency = ScaleLlama3(frequency, scaling);
    } else if (scaling.type == RopeScaling::Type::kYarn) {
      frequency = ScaleYarn(frequency, pair, config);
    }
    frequencies[static_cast<size_t>(pair)] = frequency;
  }
  return frequencies;
}

std::vector<float> BuildRopeTable(const ModelConfig& config, int64_t max_position) {
  const std::vector<float> frequencies = RopeInverseFrequencies(config);
  const size_t num_pairs = frequencies.size();
  const auto attention_factor = static_cast<float>(
      config.rope_scaling.type == RopeScaling::Type::kYarn ? config.rope_scaling.attention_factor : 1.0);
  std::vector<float> table(static_cast<size_t>(max_position) * 2 * num_pairs);
  for (int64_t position = 0; position < max_position; ++position) {
    float* row = table.data() + static_cast<size_t>(position) * 2 * num_pairs;
    for (size_t pair = 0; pair < num_pairs; ++pair) {
      // The angle is rounded to fp32 first, as the reference implementations do.
      const float angle = static_cast<float>(position) * frequencies[pair];
      row[pair] = std::cos(angle) * attention_factor;
      row[num_pairs + pair] = std::sin(angle) * attention_factor;
    }
  }
  return table;
}

}  // namespace tandem
