#include "engine/model/config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/base/error.h"

namespace evalrun::engine {
namespace {

// Far above any published model; what exceeds them is a damaged file, and products of them fit 64
// bits.
constexpr int kMaxLayers = 4096;
constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxVocabulary = 1 << 24;
constexpr int kMaxHeadDim = 4096;
constexpr int kMaxContext = 1 << 27;

float power(float base, float exponent) {
  return static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
}

// theta^(2i / head_dim), i < head_dim / 2.
std::vector<float> position_frequencies(const ModelConfig& config) {
  std::vector<float> out(static_cast<size_t>(config.head_dim / 2));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = power(static_cast<float>(config.rope.theta),
                   static_cast<float>(2 * i) / static_cast<float>(config.head_dim));
  return out;
}

// Llama 3.1: long waves are slowed down by `factor`, short ones kept, those between interpolated.
void scale_llama3(const RopeConfig& rope, std::vector<float>& inv_freq) {
  const auto context = static_cast<float>(rope.original_context);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto factor = static_cast<float>(rope.factor);
  const auto low_wavelength = static_cast<float>(rope.original_context / rope.low_freq_factor);
  const auto high_wavelength = static_cast<float>(rope.original_context / rope.high_freq_factor);
  const auto span = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  for (float& f : inv_freq) {
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / f;
    if (wavelength > low_wavelength) {
      f = f / factor;
    } else if (!(wavelength < high_wavelength)) {
      const float smooth = (context / wavelength - low) / span;
      f = (1.0f - smooth) * f / factor + smooth * f;
    }
  }
}

// YaRN (Peng et al. 2023): between `low` and `high` the frequencies pass from extrapolated (kept)
// to interpolated (divided by the factor).
void scale_yarn(const ModelConfig& config, std::vector<float>& inv_freq) {
  const RopeConfig& rope = config.rope;
  const double dim = config.head_dim;
  const auto correction = [&](double rotations) {
    return dim * std::log(rope.original_context / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = correction(rope.beta_fast), high = correction(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const std::vector<float> frequencies = position_frequencies(config);
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float kept = 1.0f - ramp;
    const float interpolated = 1.0f / (static_cast<float>(rope.factor) * frequencies[i]);
    inv_freq[i] = interpolated * (1.0f - kept) + inv_freq[i] * kept;
  }
}

// What cos and sin are multiplied by.
float rope_magnitude(const RopeConfig& rope) {
  if (rope.scaling != RopeConfig::Scaling::kYarn) return 1.0f;
  if (rope.attention_factor != 0) return static_cast<float>(rope.attention_factor);
  return rope.factor <= 1 ? 1.0f : static_cast<float>(0.1 * std::log(rope.factor) + 1.0);
}

class Checker {
 public:
  explicit Checker(const std::string& file) : file_(file) {}
  [[noreturn]] void fail(const char* field, const std::string& what) const {
    throw base::data_error(file_, field, what,
                           "the model's configuration is damaged or not supported");
  }
  void range(const char* field, int value, int max) const {
    if (value < 1 || value > max) fail(field, fmt::format("must be 1..{}, not {}", max, value));
  }
  void positive(const char* field, double value) const {
    if (!(value > 0) || !std::isfinite(value))
      fail(field, fmt::format("must be a positive number, not {}", value));
  }

 private:
  const std::string& file_;
};

void validate_rope(const ModelConfig& config, const Checker& check) {
  using Scaling = RopeConfig::Scaling;
  const RopeConfig& rope = config.rope;
  check.positive("rope theta", rope.theta);
  if (rope.theta <= 1) check.fail("rope theta", fmt::format("must be above 1, not {}", rope.theta));
  if (rope.scaling != Scaling::kNone) check.positive("rope scaling factor", rope.factor);
  if (rope.scaling == Scaling::kLlama3 || rope.scaling == Scaling::kYarn)
    check.positive("rope original context", rope.original_context);
  if (rope.scaling == Scaling::kLlama3) {
    check.positive("rope low_freq_factor", rope.low_freq_factor);
    check.positive("rope high_freq_factor", rope.high_freq_factor);
    if (rope.low_freq_factor >= rope.high_freq_factor)
      check.fail("rope low_freq_factor", fmt::format("must be below high_freq_factor ({} and {})",
                                                     rope.low_freq_factor, rope.high_freq_factor));
  }
  if (rope.scaling == Scaling::kYarn) {
    check.positive("rope beta_fast", rope.beta_fast);
    check.positive("rope beta_slow", rope.beta_slow);
    if (rope.attention_factor != 0) check.positive("rope attention_factor", rope.attention_factor);
  }
  if (!rope.factors.empty() && rope.factors.size() != static_cast<size_t>(config.head_dim / 2))
    check.fail("rope factors",
               fmt::format("must be {} values, not {}", config.head_dim / 2, rope.factors.size()));
  for (const float f : rope.factors) check.positive("rope factors", static_cast<double>(f));
}

}  // namespace

void ModelConfig::validate(const std::string& file) const {
  const Checker check(file);
  check.range("number of layers", n_layers, kMaxLayers);
  check.range("hidden size", d_model, kMaxWidth);
  check.range("number of heads", n_heads, kMaxWidth);
  check.range("number of key/value heads", n_kv_heads, n_heads);
  check.range("head size", head_dim, kMaxHeadDim);
  check.range("feed-forward size", d_ffn, kMaxWidth);
  check.range("vocabulary size", vocab_size, kMaxVocabulary);
  check.range("context length", max_context, kMaxContext);
  if (n_heads % n_kv_heads != 0)
    check.fail("number of key/value heads",
               fmt::format("{} does not divide the number of heads, {}", n_kv_heads, n_heads));
  if (head_dim % 2 != 0) check.fail("head size", fmt::format("must be even, not {}", head_dim));
  if (int64_t{n_heads} * head_dim > kMaxWidth)
    check.fail("number of heads", fmt::format("{} heads of {} are too wide", n_heads, head_dim));
  check.positive("norm epsilon", static_cast<double>(norm_eps));
  if (sliding_window < 0)
    check.fail("sliding window", fmt::format("must not be negative: {}", sliding_window));
  if (!windowed.empty() && windowed.size() != static_cast<size_t>(n_layers))
    check.fail("sliding window",
               fmt::format("layer types are given for {} of {} layers", windowed.size(), n_layers));
  validate_rope(*this, check);
}

RopeTable make_rope_table(const ModelConfig& config, int positions) {
  EVALRUN_CHECK(positions >= 0 && config.head_dim % 2 == 0);
  const RopeConfig& rope = config.rope;
  std::vector<float> inv_freq = position_frequencies(config);
  for (float& f : inv_freq) f = 1.0f / f;
  switch (rope.scaling) {
    case RopeConfig::Scaling::kNone:
      break;
    case RopeConfig::Scaling::kLinear:
      for (float& f : inv_freq) f /= static_cast<float>(rope.factor);
      break;
    case RopeConfig::Scaling::kLlama3:
      scale_llama3(rope, inv_freq);
      break;
    case RopeConfig::Scaling::kYarn:
      scale_yarn(config, inv_freq);
      break;
  }
  if (!rope.factors.empty())
    for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] /= rope.factors[i];

  const float magnitude = rope_magnitude(rope);
  RopeTable table{positions, config.head_dim / 2, {}, {}};
  const size_t n = static_cast<size_t>(positions) * inv_freq.size();
  table.cos.resize(n);
  table.sin.resize(n);
  for (size_t p = 0, at = 0; p < static_cast<size_t>(positions); ++p) {
    for (const float f : inv_freq) {
      const float angle = static_cast<float>(p) * f;
      // Through double: rounded to float32 correctly, and so the same on every C library.
      table.cos[at] = static_cast<float>(std::cos(static_cast<double>(angle))) * magnitude;
      table.sin[at] = static_cast<float>(std::sin(static_cast<double>(angle))) * magnitude;
      ++at;
    }
  }
  return table;
}

}  // namespace evalrun::engine
