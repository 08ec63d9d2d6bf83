#include "reports/load/load_percentiles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "engine/base/rng.h"
#include "reports/figures/batch_measures.h"

namespace evalrun::reports {
namespace {

constexpr int kLoadResamples = 1000;
constexpr std::array<double, 3> kLoadShares = {0.5, 0.95, 0.99};

// `times` in ascending order, prompt i counted counts[i] times: the times at the places ceil(p n).
std::array<double, 3> at_shares(const std::vector<PromptTime>& times,
                                const std::vector<int64_t>& counts) {
  int64_t all = 0;
  for (const PromptTime& t : times) all += t.weight * counts[static_cast<size_t>(t.prompt)];
  std::array<double, 3> found = {};
  size_t next = 0;
  int64_t seen = 0;
  for (const PromptTime& t : times) {
    seen += t.weight * counts[static_cast<size_t>(t.prompt)];
    while (next < kLoadShares.size() &&
           static_cast<double>(seen) >=
               std::ceil(kLoadShares[next] * static_cast<double>(all) - 1e-9))
      found[next++] = t.ms;
  }
  return found;
}

base::Interval ends_of(std::vector<double> draws, double confidence) {
  std::sort(draws.begin(), draws.end());
  const double tail = (1 - confidence) / 2;
  const size_t k =
      std::max<size_t>(1, static_cast<size_t>(tail * static_cast<double>(draws.size() + 1) + 1e-9));
  return {draws[k - 1], draws[draws.size() - k]};
}

}  // namespace

std::optional<LoadPercentiles> percentiles_by_prompt(std::vector<PromptTime> times, uint64_t seed,
                                                     double confidence) {
  std::erase_if(times, [](const PromptTime& t) { return t.weight <= 0; });
  if (times.empty()) return std::nullopt;
  std::map<int, int> numbers;  // of the prompts that have times, without gaps
  for (const PromptTime& t : times) numbers.emplace(t.prompt, 0);
  int n = 0;
  for (auto& [prompt, number] : numbers) number = n++;
  LoadPercentiles result;
  std::vector<WeightedTime> weighted;
  for (PromptTime& t : times) {
    t.prompt = numbers.at(t.prompt);
    weighted.push_back({t.ms, t.weight});
    result.values += t.weight;
  }
  const Percentiles values = percentiles(std::move(weighted)).value();
  result.p50.value = values.p50, result.p95.value = values.p95, result.p99.value = values.p99;
  result.prompts = n;
  if (n < 2) return result;
  std::sort(times.begin(), times.end(),
            [](const PromptTime& a, const PromptTime& b) { return a.ms < b.ms; });
  base::Rng rng(seed);
  std::array<std::vector<double>, 3> draws;
  std::vector<int64_t> counts;
  for (int b = 0; b < kLoadResamples; ++b) {
    counts.assign(static_cast<size_t>(n), 0);
    for (int i = 0; i < n; ++i) ++counts[rng.below(static_cast<uint64_t>(n))];
    const std::array<double, 3> drawn = at_shares(times, counts);
    for (size_t k = 0; k < draws.size(); ++k) draws[k].push_back(drawn[k]);
  }
  result.p50.interval = ends_of(std::move(draws[0]), confidence);
  result.p95.interval = ends_of(std::move(draws[1]), confidence);
  result.p99.interval = ends_of(std::move(draws[2]), confidence);
  return result;
}

}  // namespace evalrun::reports
