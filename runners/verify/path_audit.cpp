#include "runners/verify/path_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "methods/greedy_paths.h"
#include "runners/verify/plain_distribution.h"

namespace evalrun::runners {
namespace {

using Verdict = methods::SpeculativeMethod::Verdict;
using methods::TokenTree;

long double mass_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0L);
}

class PathReplay {
 public:
  PathReplay(const Verdict& verdict, const engine::SamplingParams& sampling,
             const base::KeyedChance& chance, PlainWalk& walk, PathAudit& audit)
      : verdict_(verdict),
        sampling_(sampling),
        chance_(chance),
        walk_(walk),
        audit_(audit),
        deepest_(verdict.drafter.max_accepted() + 1) {}

  // Whether a path through `node` or to it passes, which comes here with this probability; its
  // relative error is below `slack`.
  bool passes(int node, double share, double slack) {
    if (!(share > 0)) return false;
    const int level = verdict_.tree.level[static_cast<size_t>(node)];
    const int before = walk_.length();
    Here here;
    here.slack = slack;
    if (level < deepest_ && has_children(node)) {
      if (!enter(node, here)) return false;
      const int taken = verdict_.rule.iid_paths > 0 ? taken_child(node, here) : -1;
      if (stopped()) return false;
      for (double& mass : here.rest) mass *= share;
      for (int child = node + 1; child < verdict_.tree.size(); ++child) {
        if (verdict_.tree.parent[static_cast<size_t>(child)] != node) continue;
        if (taken >= 0 && child != taken) continue;
        if (passes_below(child, here)) return true;
        if (stopped()) return false;
      }
      share = here.reach > 0 ? static_cast<double>(mass_of(here.rest) / here.reach) : share;
    }
    if (node > 0 && !test(node, share, here.slack)) {
      walk_.back_to(before);
      return false;
    }
    if (level < deepest_ && here.rest.empty() && !enter(node, here)) return false;
    audit_.end = node;
    audit_.left = std::move(here.rest);
    audit_.slack = here.slack;
    return true;
  }

 private:
  struct Here {
    std::vector<double> rest;  // [token], given out to nobody yet
    long double reach = 1;     // of all that comes to this point
    std::vector<double> q;     // of the next child; empty before the first drawn one
    double slack = 0;
  };

  bool stopped() const { return audit_.border || !audit_.wrong.empty(); }
  bool has_children(int node) const {
    const auto& parent = verdict_.tree.parent;
    return std::find(parent.begin() + node + 1, parent.end(), node) != parent.end();
  }

  // Plain decoding's distribution after `node`, which the walk takes.
  bool enter(int node, Here& here) {
    PlainDistribution dist =
        plain_distribution(walk_.after(verdict_.tree.token[static_cast<size_t>(node)]), sampling_);
    audit_.border |= dist.border;
    here.rest = std::move(dist.prob);
    return !dist.border;
  }

  // Of several paths: the child that the greatest of them has. Leaves that choice's law in here.q.
  int taken_child(int node, Here& here) {
    const TokenTree& tree = verdict_.tree;
    int taken = -1;
    const auto first = static_cast<int>(
        std::find(tree.parent.begin() + node + 1, tree.parent.end(), node) - tree.parent.begin());
    const std::span<const double> q = verdict_.drafter.q_of(first);
    const auto mass = static_cast<double>(mass_of(q));
    std::vector<std::pair<int, size_t>> order;  // class, then the larger id first: from the lowest
    for (size_t x = 0; x < std::min(q.size(), here.rest.size()); ++x)
      if (q[x] > 0) order.emplace_back(class_of(here.rest[x], q[x], mass), x);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    here.q.assign(here.rest.size(), 0.0);
    const long double all = greatest_within(below_, through_);
    long double lower = below_, next_below = 0, next_through = 0;
    for (const auto& [its_class, x] : order) {
      const long double through = through_ * static_cast<long double>(q[x] / mass);
      here.q[x] = static_cast<double>(greatest_within(lower, through) / all);
      for (int child = first; child < tree.size(); ++child)
        if (tree.parent[static_cast<size_t>(child)] == node &&
            tree.token[static_cast<size_t>(child)] == static_cast<int32_t>(x))
          taken = child, next_below = lower, next_through = through;
      lower += through;
    }
    below_ = next_below, through_ = next_through;
    if (taken < 0)
      audit_.wrong = fmt::format("no child of draft node {} can have been drawn", node);
    return taken;
  }
  // That the greatest of all paths is one of those of mass `through` with `below` under them.
  long double greatest_within(long double below, long double through) const {
    const auto n = static_cast<long double>(verdict_.rule.iid_paths);
    const long double up_to = below + through;
    return -std::pow(up_to, n) * std::expm1(n * std::log1p(-through / up_to));
  }
  int class_of(double p, double q, double mass) {
    constexpr double kRounding = 2e-13;
    const int its_class = methods::ratio_class(p, q, mass);
    audit_.border |= methods::ratio_class(p * (1 - kRounding), q, mass) != its_class ||
                     methods::ratio_class(p * (1 + kRounding), q, mass) != its_class;
    return its_class;
  }

  // What passed below a child is given out, whichever of its paths it was.
  bool passes_below(int child, Here& here) {
    const auto at = static_cast<size_t>(verdict_.tree.token[static_cast<size_t>(child)]);
    const std::span<const double> reported = verdict_.drafter.q_of(child);
    std::vector<double> q(here.rest.size(), 0.0);  // as mass of `reach`
    if (reported.empty()) {
      q[at] = static_cast<double>(here.reach);
    } else {
      const bool independent = verdict_.drafter.siblings() == methods::Siblings::kIndependent;
      if (verdict_.rule.iid_paths == 0) {  // else taken_child() has set it
        if (here.q.empty() || independent) here.q.assign(reported.begin(), reported.end());
        ++audit_.drafts;
        audit_.wrong = wrong_draft(verdict_, child, here.q, chance_);
      }
      if (stopped()) return false;
      const long double scale = here.reach / mass_of(here.q);
      for (size_t i = 0; i < std::min(q.size(), here.q.size()); ++i)
        q[i] = static_cast<double>(here.q[i] * scale);
      here.q[at] = 0;
    }
    const double scale = reported.empty() ? 1 : verdict_.rule.accept_scale;
    // A draft that has a probability, by wrong_draft().
    const double share = q[at] > 0 ? std::min(1.0, scale * here.rest[at] / q[at]) : 0;
    if (passes(child, share, here.slack)) return true;
    for (size_t i = 0; i < q.size(); ++i) {
      const double given = std::min(q[i], scale * here.rest[i]);
      here.rest[i] -= given;
      here.reach -= static_cast<long double>(given);
    }
    // Differences of masses near 1: the less is left, the larger is their error's share of it.
    const auto least = static_cast<double>(std::min(mass_of(here.rest), here.reach));
    here.slack += 1e-14 / std::max(least, 1e-14);
    return false;
  }

  bool test(int node, double share, double slack) {
    ++audit_.tests;
    const double u = chance_.accept(verdict_.position, node - 1);
    bool passed = u < share;
    if (std::abs(u - share) <= slack * share) {
      ++audit_.undecided;
      passed = ends_the_verdict(node);
    }
    if (!passed) ++audit_.refused;
    return passed;
  }
  // Where a step accepts no more, the last token of the path is its bonus.
  bool ends_the_verdict(int node) const {
    const auto at = static_cast<size_t>(node);
    const int last = verdict_.path.back();
    if (verdict_.tree.level[at] < deepest_) return last == node;
    return verdict_.tree.parent[at] == last && verdict_.tree.token[at] == verdict_.bonus;
  }

  const Verdict& verdict_;
  const engine::SamplingParams& sampling_;
  const base::KeyedChance& chance_;
  PlainWalk& walk_;
  PathAudit& audit_;
  const int deepest_;
  // Of several paths: shares of all paths, under the node at hand and through it.
  long double below_ = 0, through_ = 1;
};

// The nodes of `tree` that one of several paths has, marked in `on_path`; what is wrong where the
// tree lacks one of its tokens.
std::string mark_path(const Verdict& verdict, int path, const base::KeyedChance& chance,
                      std::vector<bool>& on_path, int64_t& drafts) {
  const TokenTree& tree = verdict.tree;
  for (int node = 0, first = tree.next_child(0, 0); first >= 0;
       first = tree.next_child(node, node)) {
    const std::span<const double> q = verdict.drafter.q_of(first);
    const int level = tree.level[static_cast<size_t>(node)];
    const PlainDraw again =
        draw_by_inverse(q, chance.draft(verdict.position, level, path), kAuditRounding);
    ++drafts;
    const int child = tree.child(node, again.token);
    node = child >= 0 ? child : tree.child(node, again.near);
    if (node < 0)
      return fmt::format("draft path {} has token {} after {} others, and the tree has not", path,
                         again.token, level);
    on_path[static_cast<size_t>(node)] = true;
  }
  return "";
}

std::string wrong_paths(const Verdict& verdict, const base::KeyedChance& chance, int64_t& drafts) {
  const TokenTree& tree = verdict.tree;
  std::vector<bool> on_path(static_cast<size_t>(tree.size()), false);
  on_path[0] = true;
  for (int path = 0; path < verdict.rule.iid_paths; ++path) {
    std::string wrong = mark_path(verdict, path, chance, on_path, drafts);
    if (!wrong.empty()) return wrong;
  }
  const auto other = std::find(on_path.begin(), on_path.end(), false);
  if (other == on_path.end()) return "";
  return fmt::format("draft token {} is on none of the {} paths",
                     tree.token[static_cast<size_t>(other - on_path.begin())],
                     verdict.rule.iid_paths);
}

}  // namespace

std::string wrong_draft(const Verdict& verdict, int child, const std::vector<double>& dist,
                        const base::KeyedChance& chance) {
  const methods::DraftDraw draw = verdict.drafter.draw_of(child);
  const int32_t token = verdict.tree.token[static_cast<size_t>(child)];
  if (draw.list < 0)
    return fmt::format("draft token {} has a distribution, and no number that it was drawn by",
                       token);
  const PlainDraw again =
      draw_by_inverse(dist, chance.draft(verdict.position, draw.list, draw.draw), kAuditRounding);
  if (again.is(token)) return "";
  return fmt::format(
      "draft token {} is not the draw of the distribution reported for it, which is {}", token,
      again.token);
}

PathAudit audit_paths(const Verdict& verdict, const engine::SamplingParams& sampling,
                      const base::KeyedChance& chance, PlainWalk& walk) {
  PathAudit audit;
  if (verdict.rule.iid_paths > 0) audit.wrong = wrong_paths(verdict, chance, audit.drafts);
  if (!audit.wrong.empty()) return audit;
  PathReplay(verdict, sampling, chance, walk, audit).passes(0, 1, kAuditRounding);
  return audit;
}

}  // namespace evalrun::runners
