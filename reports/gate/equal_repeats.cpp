#include "reports/gate/equal_repeats.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "engine/base/error.h"
#include "results/generation_queries.h"

namespace evalrun::reports {

double expected_fastest(std::vector<double> times, int k) {
  const int n = static_cast<int>(times.size());
  EVALRUN_CHECK(k >= 1 && k <= n, "{} of {} repeats", k, n);
  std::sort(times.begin(), times.end());
  // The i-th fastest is the fastest of a choice that leaves out all before it: C(n-1-i, k-1) of
  // C(n, k). The first has the share k / n; each next one a part of the one before.
  double share = 1.0 * k / n, sum = 0;
  for (int i = 0; i + k <= n; ++i) {
    sum += share * times[static_cast<size_t>(i)];
    if (i + k < n) share *= 1.0 * (n - i - k) / (n - 1 - i);
  }
  return sum;
}

namespace {

using RepeatedCell = std::tuple<std::string, std::string, int>;  // arm label, prompt key, sample

// Of the rows of one run.
class RepeatedCells {
 public:
  explicit RepeatedCells(const RunData& data) {
    for (const ArmInfo& a : data.arms) labels_[a.id] = &a.label;
    for (const PromptInfo& p : data.prompts) keys_[p.id] = &p.key;
  }
  RepeatedCell of(const SampleRow& s) const {
    return {*labels_.at(s.arm_id), *keys_.at(s.prompt_id), s.sample};
  }

 private:
  std::unordered_map<int64_t, const std::string*> labels_, keys_;
};

// Decode times of every repeat, by arm, prompt and sample.
using RepeatTimes = std::map<std::tuple<int64_t, int64_t, int64_t>, std::vector<double>>;

RepeatTimes times_of(const StoredRunData& run) {
  RepeatTimes times;
  for (const results::RepeatTimeRow& row :
       results::repeat_times(*run.store, run.data->run.id, run.faults == Faults::kInclude))
    times[{row.arm_id, row.prompt_id, row.sample}].push_back(row.decode_ns);
  return times;
}

}  // namespace

void equalise_repeats(const std::vector<StoredRunData>& runs) {
  std::map<RepeatedCell, int> fewest, most;
  for (const StoredRunData& run : runs) {
    const RepeatedCells cells(*run.data);
    for (const SampleRow& s : run.data->samples) {
      const RepeatedCell cell = cells.of(s);
      const auto [it, is_new] = fewest.try_emplace(cell, s.n_repeats);
      if (!is_new) it->second = std::min(it->second, s.n_repeats);
      most[cell] = std::max(most[cell], s.n_repeats);
    }
  }
  if (fewest == most) return;
  for (const StoredRunData& run : runs) {
    const RepeatTimes times = times_of(run);
    const RepeatedCells cells(*run.data);
    const std::map<int64_t, double> scales = run.data->time_scales();
    for (SampleRow& s : run.data->samples) {
      const int k = fewest.at(cells.of(s));
      const auto found = times.find({s.arm_id, s.prompt_id, s.sample});
      if (found != times.end() && static_cast<int>(found->second.size()) > k)
        s.fastest_ns =
            expected_fastest(found->second, k) * (scales.empty() ? 1 : scales.at(s.prompt_id));
    }
  }
}

}  // namespace evalrun::reports
