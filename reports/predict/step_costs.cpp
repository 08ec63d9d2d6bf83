#include "reports/predict/step_costs.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/stats.h"

namespace evalrun::reports {

namespace {

template <class Visit>
void for_each_step(std::span<const TracedAnswer> answers, const Visit& visit) {
  for (const TracedAnswer& answer : answers)
    for (const TracedTurn& turn : answer.turns)
      for (const results::StepRecord& s : turn.steps) visit(s);
}

double between(std::pair<double, double> a, std::pair<double, double> b, double x) {
  return a.second + (b.second - a.second) * (x - a.first) / (b.first - a.first);
}

}  // namespace

const TimesByRows& VerifyTimes::of(const std::string& model_hash, int64_t batch,
                                   int64_t left_out_arm) {
  const auto [found, is_new] = read_.try_emplace({model_hash, batch, left_out_arm});
  TimesByRows& times = found->second;
  if (!is_new) return times;
  store_.query(
      "SELECT s.rows, s.verify_ns FROM arm a JOIN generation g ON g.arm_id = a.id"
      " JOIN turn t ON t.generation_id = g.id JOIN step s ON s.turn_id = t.id"
      " WHERE a.run_id = ? AND a.model_hash = ? AND a.batch = ? AND a.id <> ?"
      " AND g.status = 'ok' AND g.fault = ''",
      {run_id_, model_hash, batch, left_out_arm}, [&](const results::Row& r) {
        TimeSum& sum = times[static_cast<int>(r.integer(0))];
        ++sum.n, sum.ns += r.number(1);
        return true;
      });
  return times;
}

RowTime RowTimes::of(int sequences) const {
  if (const auto own = batches.find(sequences); own != batches.end()) return own->second;
  if (sequences == 1 || !one) return one;
  return [time = one, sequences](int rows) { return time(rows * sequences); };
}

VerifyCost::VerifyCost(const TimesByRows& times, RowTime table) : table_(std::move(table)) {
  size_t most = 0;
  for (const auto& [rows, sum] : times) most = std::max(most, sum.n);
  EVALRUN_CHECK(most > 0, "no step has a time");
  for (const auto& [rows, sum] : times)
    if (sum.n >= std::min(most, kLeastSteps)) known_[rows] = sum.ns / static_cast<double>(sum.n);
}

double VerifyCost::ns(int rows) const {
  const auto above = known_.lower_bound(rows);
  if (above != known_.end() && above->first == rows) return above->second;
  // What is interpolated: times, or where there is a table, times over the table's.
  const auto value = [&](std::map<int, double>::const_iterator it) {
    return std::pair<double, double>(it->first, it->second / (table_ ? table_(it->first) : 1));
  };
  const double scale = table_ ? table_(rows) : 1;
  if (above == known_.begin()) return scale * value(above).second;
  const auto below = std::prev(above);
  if (above != known_.end()) return scale * between(value(below), value(above), rows);
  if (table_ || below == known_.begin()) return scale * value(below).second;
  return std::max(below->second, between(value(std::prev(below)), value(below), rows));
}

DraftCost::DraftCost(std::span<const TracedAnswer> answers) {
  std::map<int, std::vector<double>> times;
  for_each_step(answers, [&](const results::StepRecord& s) {
    times[s.drafted_depth].push_back(static_cast<double>(s.draft_ns));
  });
  if (const auto nothing = times.find(0); nothing != times.end()) {
    nothing_ = base::mean(nothing->second);
    times.erase(nothing);
  }
  if (times.empty()) return;
  size_t most = 0;
  for (const auto& [depth, list] : times) most = std::max(most, list.size());
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;  // weighted sums over depths
  size_t depths = 0;
  for (const auto& [depth, list] : times) {
    if (list.size() < std::min(most, kLeastSteps)) continue;
    const auto weight = static_cast<double>(list.size());
    const double ns = base::median(list);
    n += weight, x += weight * depth, y += weight * ns;
    xx += weight * depth * depth, xy += weight * depth * ns;
    ++depths;
  }
  assumed_ = depths < 2;
  if (assumed_) {
    slope_ = y / x;
    return;
  }
  slope_ = std::max(0.0, (n * xy - x * y) / (n * xx - x * x));
  base_ = (y - slope_ * x) / n;
  if (base_ >= 0) return;
  base_ = 0;
  slope_ = xy / xx;
}

double DraftCost::ns(int depth) const {
  return depth == 0 ? nothing_ : std::max(0.0, base_ + slope_ * depth);
}

}  // namespace evalrun::reports
