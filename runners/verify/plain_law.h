// The law of plain decoding alone: whether the engine's sampler draws from the distribution that it
// should, which every method that gives plain decoding's tokens rests on. No forward is needed: a
// row of logits is enough for as many draws as one likes.
//
// What is expected is computed by a second implementation (plain_distribution.h).
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/goodness_of_fit.h"
#include "engine/sampling.h"

namespace evalrun::runners {

// Of one row of logits.
struct PlainCounts {
  std::vector<int64_t> counts;  // [token]
  int64_t draws = 0;
  // Draws by the inverse go by a table of the engine's masses. As many of them were drawn by
  // engine::draw() as well, and so many of these gave another token.
  int64_t compared = 0, differing = 0;
};

struct PlainLawOptions {
  engine::SamplingParams sampling{1.0, 0, 1.0};  // temperature > 0
  int64_t draws = 10'000'000;                    // of each row
  double seconds = 20;  // of draws by noise, which take 10 to 100 microseconds; all rows together
  int64_t compared = 10'000;  // of each row, where a table is used
  uint64_t seed = 1;
};

// Draws of `row`, for positions 0, 1, ... of a generation. At most `most_seconds` by `clock`, but a
// thousand draws at least.
PlainCounts count_draws(std::span<const float> logits, const PlainLawOptions& options, size_t row,
                        double most_seconds, base::Clock& clock);

struct PlainLawRow {
  int64_t draws = 0, compared = 0, differing = 0;
  int cells = 0;
  double p = 1;
};

struct PlainLaw {
  std::vector<PlainLawRow> rows;
  std::vector<base::GoodnessOfFit> fits;  // of the rows, for find_power()
  // As StepDistribution's.
  std::optional<double> smallest_found;

  void add(const PlainCounts& drawn, std::span<const double> expected, uint64_t seed);
  int64_t draws() const;
  int64_t differing() const;
  double p() const;  // of all rows (base::joint_p); 0 where a draw differs from its table
  bool rejected(double level) const { return p() < level; }
  void find_power(double level, uint64_t seed);
};

// `tick` after every row. Power is not computed. Throws data_error for logits that give no
// distribution.
PlainLaw test_plain_law(std::span<const std::vector<float>> rows, const PlainLawOptions& options,
                        base::Clock& clock, const std::function<void()>& tick);

}  // namespace evalrun::runners
