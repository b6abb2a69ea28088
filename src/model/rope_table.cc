#include "model/rope_table.h"

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
    }
    frequencies[static_cast<size_t>(pair)] = frequency;
  }
  return frequencies;
}

std::vector<float> BuildRopeTable(const ModelConfig& config, int64_t max_position) {
  const std::vector<float> frequencies = RopeInverseFrequencies(config);
  const size_t num_pairs = frequencies.size();
  std::vector<float> table(static_cast<size_t>(max_position) * 2 * num_pairs);
  for (int64_t position = 0; position < max_position; ++position) {
    float* row = table.data() + static_cast<size_t>(position) * 2 * num_pairs;
    for (size_t pair = 0; pair < num_pairs; ++pair) {
      // The angle is rounded to fp32 first, as the reference implementations do.
      const float angle = static_cast<float>(position) * frequencies[pair];
      row[pair] = std::cos(angle);
      row[num_pairs + pair] = std::sin(angle);
    }
  }
  return table;
}

}  // namespace tandem
