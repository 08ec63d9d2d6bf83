#include "runners/verify/plain_law.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/fit_power.h"
#include "engine/base/rng.h"
#include "engine/sampling_arith.h"
#include "runners/verify/plain_distribution.h"

namespace evalrun::runners {
namespace {

constexpr int64_t kLeastByNoise = 1000, kDrawsBetweenLooks = 256;

// Uniform numbers to tokens by the engine's masses: the token is the first at which the masses,
// added by id, exceed the place of the draw. The leading bits of the number say where to begin.
class InverseTable {
 public:
  InverseTable(std::span<const float> logits, const engine::SamplingParams& sampling) {
    engine::WarpScratch scratch;
    std::vector<uint64_t> mass;
    total_ = engine::dist_masses(logits, sampling, mass, scratch);
    uint64_t sum = 0;
    for (size_t i = 0; i < mass.size(); ++i) {
      if (mass[i] == 0) continue;
      ends_.push_back(sum += mass[i]);
      tokens_.push_back(static_cast<int32_t>(i));
    }
    first_.resize(kBuckets);
    uint32_t at = 0;
    for (size_t b = 0; b < kBuckets; ++b) {
      const uint64_t place =
          engine::place_of_draw(static_cast<double>(b) / static_cast<double>(kBuckets), total_);
      while (ends_[at] <= place) ++at;
      first_[b] = at;
    }
  }
  int32_t token(double uniform) const {
    const uint64_t place = engine::place_of_draw(uniform, total_);
    uint32_t at = first_[static_cast<size_t>(uniform * static_cast<double>(kBuckets))];
    while (ends_[at] <= place) ++at;
    return tokens_[at];
  }

 private:
  static constexpr size_t kBuckets = size_t{1} << 16;
  uint64_t total_ = 0;
  std::vector<uint64_t> ends_;
  std::vector<int32_t> tokens_;
  std::vector<uint32_t> first_;  // in ends_, of each bucket of numbers
};

}  // namespace

PlainCounts count_draws(std::span<const float> logits, const PlainLawOptions& options, size_t row,
                        double most_seconds, base::Clock& clock) {
  engine::check_finite_best(engine::largest_logit(logits));
  const base::KeyedChance chance(base::combine_seeds({options.seed, row}));
  engine::WarpScratch scratch;
  const auto by_engine = [&](int64_t position) {
    return engine::draw(logits, options.sampling, chance.target(position), scratch);
  };
  PlainCounts drawn;
  drawn.counts.resize(logits.size());
  if (options.sampling.sampler == engine::Sampler::kInverse) {
    const InverseTable table(logits, options.sampling);
    for (int64_t i = 0; i < options.draws; ++i)
      ++drawn.counts[static_cast<size_t>(table.token(chance.target(i)))];
    drawn.draws = options.draws;
    drawn.compared = std::min(options.compared, options.draws);
    for (int64_t i = 0; i < drawn.compared; ++i)
      drawn.differing += by_engine(i) != table.token(chance.target(i)) ? 1 : 0;
    return drawn;
  }
  const auto end = clock.now_ns() + static_cast<int64_t>(most_seconds * 1e9);
  while (drawn.draws < options.draws) {
    ++drawn.counts[static_cast<size_t>(by_engine(drawn.draws++))];
    if (drawn.draws >= kLeastByNoise && drawn.draws % kDrawsBetweenLooks == 0 &&
        clock.now_ns() > end)
      break;
  }
  return drawn;
}

void PlainLaw::add(const PlainCounts& drawn, std::span<const double> expected, uint64_t seed) {
  base::GoodnessOfFit fit(expected, drawn.draws);
  const double p = fit.p(drawn.counts, base::combine_seeds({seed, rows.size(), 0}));
  rows.push_back(
      {drawn.draws, drawn.compared, drawn.differing, fit.cells(), drawn.differing > 0 ? 0 : p});
  fits.push_back(std::move(fit));
}

int64_t PlainLaw::draws() const {
  int64_t sum = 0;
  for (const PlainLawRow& row : rows) sum += row.draws;
  return sum;
}

int64_t PlainLaw::differing() const {
  int64_t sum = 0;
  for (const PlainLawRow& row : rows) sum += row.differing;
  return sum;
}

double PlainLaw::p() const {
  std::vector<base::TestP> list;
  for (const PlainLawRow& row : rows) list.push_back({row.p, row.cells > 1});
  return base::joint_p(list);
}

void PlainLaw::find_power(double level, uint64_t seed) {
  smallest_found = base::smallest_variation_found(fits, level, seed);
}

PlainLaw test_plain_law(std::span<const std::vector<float>> rows, const PlainLawOptions& options,
                        base::Clock& clock, const std::function<void()>& tick) {
  PlainLaw law;
  for (size_t i = 0; i < rows.size(); ++i) {
    law.add(
        count_draws(rows[i], options, i, options.seconds / static_cast<double>(rows.size()), clock),
        plain_distribution(rows[i], options.sampling).prob, options.seed);
    tick();
  }
  return law;
}

}  // namespace evalrun::runners
