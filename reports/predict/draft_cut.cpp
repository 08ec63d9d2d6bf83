#include "reports/predict/draft_cut.h"

#include <algorithm>
#include <numeric>

#include "engine/base/error.h"

namespace evalrun::reports {

using results::StepRecord;

namespace {

size_t at(int depth) { return static_cast<size_t>(depth - 1); }

// Cut by the stop rule: it has no token of the target.
bool is_cut(const StepRecord& s) { return s.emitted <= s.accepted; }

}  // namespace

int DraftShape::nodes_within(int levels) const {
  return std::accumulate(nodes.begin(), nodes.begin() + std::min(levels, depth()), 0);
}

DraftShape chain_shape(int length) {
  const auto n = static_cast<size_t>(length);
  return {std::vector<int>(n, 1), std::vector<double>(n, 1)};
}

double DepthCounts::share(int d) const {
  if (tested.empty()) return 0;
  const size_t i = at(std::min(d, depth()));
  return tested[i] > 0 ? accepted[i] / tested[i] : 0;
}

DepthCounts count_depths(std::span<const TracedAnswer> answers) {
  DepthCounts counts;
  for (const TracedAnswer& answer : answers)
    for (const TracedTurn& turn : answer.turns)
      for (const StepRecord& s : turn.steps) {
        if (s.drafted_depth > counts.depth()) {
          counts.tested.resize(static_cast<size_t>(s.drafted_depth));
          counts.accepted.resize(static_cast<size_t>(s.drafted_depth));
        }
        for (int d = 1; d <= std::min(s.accepted, s.drafted_depth); ++d) {
          counts.tested[at(d)] += answer.weight;
          counts.accepted[at(d)] += answer.weight;
        }
        if (s.accepted < s.drafted_depth && !is_cut(s))
          counts.tested[at(s.accepted + 1)] += answer.weight;
      }
  return counts;
}

// First draft tokens of steps right after a step that accepted some: a text that was easy stays so.
struct Count {
  double tested = 0, accepted = 0;
};
Count first_behind_accepted(std::span<const TracedAnswer> answers) {
  Count count;
  for (const TracedAnswer& answer : answers)
    for (const TracedTurn& turn : answer.turns)
      for (size_t i = 1; i < turn.steps.size(); ++i) {
        const StepRecord& s = turn.steps[i];
        if (turn.steps[i - 1].accepted == 0 || s.drafted_depth == 0 || s.emitted == 0) continue;
        count.tested += answer.weight;
        if (s.accepted > 0) count.accepted += answer.weight;
      }
  return count;
}

std::vector<double> falling(std::span<const double> values, std::span<const double> weights) {
  // Pool adjacent violators: neighbours that rise become one block of their mean.
  struct Block {
    double sum, weight;
    size_t size;
    double mean() const { return weight > 0 ? sum / weight : 0; }
  };
  std::vector<Block> blocks;
  for (size_t i = 0; i < values.size(); ++i) {
    blocks.push_back({values[i] * weights[i], weights[i], 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].mean() < blocks.back().mean()) {
      const Block last = blocks.back();
      blocks.pop_back();
      blocks.back().sum += last.sum;
      blocks.back().weight += last.weight;
      blocks.back().size += last.size;
    }
  }
  std::vector<double> result;
  for (const Block& b : blocks) result.insert(result.end(), b.size, b.mean());
  return result;
}

DraftCut::DraftCut(std::span<const TracedAnswer> answers, int max_new)
    : max_new_(max_new), counts_(count_depths(answers)) {
  std::vector<double> shares;
  double tested = 0, accepted = 0;
  for (int d = 1; d <= depth(); ++d) {
    shares.push_back(counts_.share(d));
    if (2 * d <= depth()) continue;
    tested += counts_.tested[at(d)];
    accepted += counts_.accepted[at(d)];
  }
  if (const Count first = first_behind_accepted(answers); first.tested > 0)
    shares[0] = first.accepted / first.tested;
  by_depth_ = falling(shares, counts_.tested);
  behind_ = tested > 0 ? accepted / tested : 0;
}

std::vector<DraftCut::Place> DraftCut::places(const TracedTurn& turn) const {
  std::vector<Place> list;
  for (const StepRecord& s : turn.steps) {
    const int begin = static_cast<int>(list.size());
    // Shorter than others though the answer had room for more: the drafter had no more to say.
    const bool ended = s.drafted_depth < std::min(depth(), max_new_ - 2 - begin);
    const auto left = [&](int d) { return ended ? s.drafted_depth - d + 1 : -1; };
    const int accepted = std::min(s.accepted, s.emitted);
    for (int d = 1; d <= accepted; ++d) list.push_back({Fate::kAccepted, d, left(d)});
    if (s.emitted <= accepted) continue;
    const int d = accepted + 1;
    if (s.drafted_depth == 0)
      list.push_back({Fate::kUndrafted, d, 0});
    else if (accepted < s.drafted_depth)
      list.push_back({Fate::kRefused, d, left(d)});
    else
      list.push_back({Fate::kBehind, d, -1});
  }
  return list;
}

double DraftCut::chance(const Place& place, int d) const {
  const double here = by_depth_[at(std::min(d, depth()))];
  const double there = by_depth_[at(std::min(place.depth, depth()))];
  switch (place.fate) {
    case Fate::kAccepted:
      return there > 0 ? std::min(1.0, here / there) : 1;
    case Fate::kRefused:
      return there < 1 ? std::max(0.0, (here - there) / (1 - there)) : 0;
    case Fate::kBehind:
      return behind_;
    case Fate::kUndrafted:
      break;  // a draft that got here would have been found there
  }
  return 0;
}

void DraftCut::replay(const TracedTurn& turn, const DraftShape& shape, const Visit& visit) const {
  EVALRUN_CHECK(shape.depth() <= depth(), "a draft of depth {}, measured to {}", shape.depth(),
                depth());
  const std::vector<Place> list = places(turn);
  const size_t n = list.size();
  std::vector<double> begins(n + 1);  // that a step begins at this token
  if (n > 0) begins[0] = 1;
  for (size_t t = 0; t < n; ++t) {
    if (begins[t] <= 0) continue;
    const Place& first = list[t];
    // The prefill's token and the target's own are emitted besides.
    const int room = max_new_ - 2 - static_cast<int>(t);
    int levels = std::clamp(room, 0, shape.depth());
    if (first.left >= 0) levels = std::min(levels, first.left);
    visit(begins[t], 1 + shape.nodes_within(levels), levels);
    double reached = begins[t];
    for (int d = 1; d <= levels; ++d) {
      const size_t place = t + static_cast<size_t>(d) - 1;
      if (place >= n) break;
      const double right = chance(list[place], d) * shape.kept[at(d)];
      begins[place + 1] += reached * (1 - right);
      reached *= right;
    }
    begins[std::min(n, t + static_cast<size_t>(levels) + 1)] += reached;
  }
}

}  // namespace evalrun::reports
