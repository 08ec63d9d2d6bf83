#include "runners/verify/decision_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "methods/speculative_method.h"
#include "runners/verify/path_audit.h"
#include "runners/verify/plain_distribution.h"
#include "runners/verify/plain_walk.h"

namespace evalrun::runners {
namespace {

using methods::SpeculativeMethod;
using methods::TokenTree;
using Verdict = SpeculativeMethod::Verdict;

long double sum_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0L);
}

// One decision: the token that must follow, and the draft nodes that hold it.
struct Decision {
  PlainDraw token;
  int child = -1;         // accepted by a test
  bool by_tests = false;  // else every node with the token is accepted
  bool border = false;    // PlainDistribution's
  bool undecided = false;
};

}  // namespace

class DecisionAuditor::Impl {
 public:
  Impl(methods::DecodingMethod& method, engine::Session& beside, base::Clock& clock)
      : method_(methods::with_verdicts(method, "an audit of decisions")),
        before_(method_.verdict_hook()),
        walk_(beside),
        clock_(clock) {
    method_.let_keep_dists(false);
    method_.set_verdict_hook([this](const Verdict& verdict) {
      if (before_) before_(verdict);
      const int64_t begin = clock_.now_ns();
      if (!closed_) step(verdict);
      audit_.audit_seconds += static_cast<double>(clock_.now_ns() - begin) * 1e-9;
    });
  }
  ~Impl() {
    method_.set_verdict_hook(std::move(before_));
    method_.let_keep_dists(true);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void begin(std::span<const int32_t> prompt, const engine::SamplingParams& sampling,
             uint64_t seed) {
    const int64_t begin = clock_.now_ns();
    found_.reset();
    closed_ = false;
    sampling_ = sampling;
    chance_ = base::KeyedChance(seed);
    walk_.begin(prompt);
    first_ = plain_draw(walk_.after(prompt.back()), 0);
    border_at_first_ = border_;
    if (border_at_first_) ++audit_.undecided, ++audit_.borders;
    audit_.audit_seconds += static_cast<double>(clock_.now_ns() - begin) * 1e-9;
  }
  void end(std::span<const int32_t> tokens, const std::string& task, const std::string& prompt) {
    ++audit_.answers;
    audit_.tokens += static_cast<int64_t>(tokens.size());
    if (!first_.is(tokens.front()) && !border_at_first_)
      found_ = AuditDifference{{},
                               {},
                               0,
                               fmt::format("the first token is {}, plain decoding draws {}",
                                           tokens.front(), first_.token)};
    if (found_) {
      found_->task = task;
      found_->prompt = prompt;
      audit_.first.push_back(*found_);
    } else if (audit_.blocked.empty()) {
      ++audit_.equal;
    }
  }
  DecisionAudit audit_;

 private:
  void differs(int64_t index, std::string what) {
    if (closed_) return;
    closed_ = true;
    found_ = AuditDifference{{}, {}, static_cast<int>(index), std::move(what)};
  }

  PlainDraw draw(std::span<const double> prob, int64_t position, double slack) {
    ++audit_.draws;
    const double uniform = chance_.target(position);
    return sampling_.sampler == engine::Sampler::kGumbel ? draw_by_race(prob, uniform)
                                                         : draw_by_inverse(prob, uniform, slack);
  }
  PlainDraw plain_draw(std::span<const float> logits, int64_t position) {
    const PlainDistribution dist = plain_distribution(logits, sampling_);
    border_ = dist.border;
    return draw(dist.prob, position, mass_slack(logits.size()));
  }

  void step(const Verdict& verdict) {
    if (verdict.drafter.dists() != nullptr) {
      audit_.blocked = "the distributions of drawn drafts stay on the device";
      closed_ = true;
      return;
    }
    ++audit_.steps;
    if (verdict.rule.whole_paths && draws(verdict)) return step_paths(verdict);
    const TokenTree& tree = verdict.tree;
    alive_.assign(1, 0);
    int32_t token = tree.token[0];
    for (size_t depth = 0;; ++depth) {
      const int64_t position = verdict.position + static_cast<int64_t>(depth);
      const Decision decision = decide(verdict, alive_.front(), position, walk_.after(token));
      if (closed_) return;
      const bool last = depth + 1 == verdict.path.size();
      const int node = last ? -1 : verdict.path[depth + 1];
      token = last ? verdict.bonus : tree.token[static_cast<size_t>(node)];
      audit_.undecided += decision.undecided ? 1 : 0;
      audit_.borders += decision.border ? 1 : 0;
      if (!decision.undecided && !decision.token.is(token))
        return differs(position, fmt::format("token {} follows, the decision made again gives {}{}",
                                             token, decision.token.token, reason(decision)));
      follow(tree, decision, token, node);
      const bool ends = alive_.empty() || static_cast<int>(depth) == verdict.drafter.max_accepted();
      if (!decision.undecided && last != ends)
        return differs(position, last ? "the step ends before a draft token that passes"
                                      : "a draft token is kept that does not pass");
      if (last) return;
      if (alive_.empty()) alive_.assign(1, node);  // undecided, and followed
    }
  }

  static bool draws(const Verdict& verdict) {
    for (int node = 1; node < verdict.tree.size(); ++node)
      if (!verdict.drafter.q_of(node).empty()) return true;
    return false;
  }

  // A step whose draft was tested by whole paths: that is never done on a device.
  void step_paths(const Verdict& verdict) {
    const TokenTree& tree = verdict.tree;
    const int before = walk_.length();
    if (!scale_fits(verdict, verdict.position)) return;
    const PathAudit again = audit_paths(verdict, sampling_, chance_, walk_);
    audit_.drafts += again.drafts, audit_.tests += again.tests, audit_.refused += again.refused;
    audit_.undecided += again.undecided;
    if (!again.wrong.empty()) return differs(verdict.position, again.wrong);
    if (again.border) {  // the step is followed, with all of its tokens
      const auto n = static_cast<int64_t>(verdict.path.size());
      audit_.undecided += n, audit_.borders += n;
      walk_.back_to(before);
      for (const int node : verdict.path) walk_.after(tree.token[static_cast<size_t>(node)]);
      return;
    }
    std::vector<int> path;
    for (int node = again.end; node >= 0; node = tree.parent[static_cast<size_t>(node)])
      path.push_back(node);
    std::reverse(path.begin(), path.end());
    const auto kept = path.begin() + std::min(static_cast<std::ptrdiff_t>(path.size()),
                                              std::ptrdiff_t{verdict.drafter.max_accepted()} + 1);
    const auto [here, there] =
        std::mismatch(path.begin(), kept, verdict.path.begin(), verdict.path.end());
    if (here != kept || there != verdict.path.end())
      return differs(verdict.position + (here - path.begin()) - 1,
                     fmt::format("{} draft tokens are kept, the tests made again keep {}",
                                 verdict.path.size() - 1, kept - path.begin() - 1));
    const int64_t position = verdict.position + (kept - path.begin()) - 1;
    PlainDraw token{tree.token[static_cast<size_t>(again.end)]};
    if (kept == path.end()) {
      ++audit_.draws;
      audit_.redraws += again.refused > 0 ? 1 : 0;
      if (!(sum_of(again.left) > 1e-12L)) {  // only rounding can have left the path's end
        ++audit_.undecided;
        return;
      }
      token = draw_by_inverse(again.left, chance_.target(position), again.slack);
    }
    if (!token.is(verdict.bonus))
      differs(position, fmt::format("token {} follows, the decision made again gives {} (a draw "
                                    "after the tests of whole paths)",
                                    verdict.bonus, token.token));
  }

  static const char* reason(const Decision& decision) {
    if (!decision.by_tests) return " (a draw of plain decoding)";
    return decision.child >= 0 ? " (a draft token that passes)" : " (a draw after the refusals)";
  }

  // The nodes that are still in the race after `token`.
  void follow(const TokenTree& tree, const Decision& decision, int32_t token, int node) {
    next_.clear();
    if (decision.undecided) {
      if (node >= 0) next_.push_back(node);
    } else if (decision.by_tests) {
      if (decision.child >= 0) next_.push_back(decision.child);
    } else {
      for (int i = 1; i < tree.size(); ++i)
        if (tree.token[static_cast<size_t>(i)] == token &&
            std::find(alive_.begin(), alive_.end(), tree.parent[static_cast<size_t>(i)]) !=
                alive_.end())
          next_.push_back(i);
    }
    alive_.swap(next_);
  }

  Decision decide(const Verdict& verdict, int node, int64_t position,
                  std::span<const float> logits) {
    const TokenTree& tree = verdict.tree;
    children_.clear();
    bool drawn = false;
    for (int i = node + 1; i < tree.size(); ++i)
      if (tree.parent[static_cast<size_t>(i)] == node) {
        children_.push_back(i);
        drawn |= !verdict.drafter.q_of(i).empty();
      }
    Decision decision;
    if (!drawn) {
      decision.token = plain_draw(logits, position);
      decision.undecided = decision.border = border_;
      return decision;
    }
    PlainDistribution dist = plain_distribution(logits, sampling_);
    decision.by_tests = true;
    decision.undecided = decision.border = dist.border;
    audit_.on_host |= verdict.context.target->draws_cheaply();
    try_children(verdict, position, dist.prob, decision);
    if (decision.child >= 0) {
      decision.token.token = tree.token[static_cast<size_t>(decision.child)];
    } else if (!decision.undecided && !closed_) {
      ++audit_.redraws;
      ++audit_.draws;
      // What is left may be little, and rounding a larger share of it.
      const auto left = static_cast<double>(sum_of(dist.prob));
      decision.token =
          draw_by_inverse(dist.prob, chance_.target(position), kAuditRounding + 1e-14 / left);
    }
    return decision;
  }

  // The tests follow the rule's scale, so they cannot find that it is too large.
  bool scale_fits(const Verdict& verdict, int64_t position) {
    const double scale = verdict.rule.accept_scale;
    if (scale > 1)
      differs(position, fmt::format("the rule accepts more than p/q, {:g} times as much", scale));
    return !(scale > 1);
  }

  // Leaves in `p` what is left of the target's distribution.
  void try_children(const Verdict& verdict, int64_t position, std::vector<double>& p,
                    Decision& decision) {
    const bool independent = verdict.drafter.siblings() == methods::Siblings::kIndependent;
    const double scale = verdict.rule.accept_scale;
    if (!scale_fits(verdict, position)) return;
    bool reported = false;  // q_ holds what the next child was drawn from
    int trial = 0;
    for (const int child : children_) {
      const int32_t token = verdict.tree.token[static_cast<size_t>(child)];
      const auto at = static_cast<size_t>(token);
      const std::span<const double> q = verdict.drafter.q_of(child);
      const double u = chance_.accept(position, trial++);
      const auto left = static_cast<double>(sum_of(p));
      if (q.empty()) {  // a point mass
        if (passes(u, p[at] / left, 1, child, decision) || decision.undecided) return;
        p[at] = 0;
        continue;
      }
      if (!reported || independent) q_.assign(q.begin(), q.end());
      reported = true;
      const auto mass = static_cast<double>(sum_of(q_));
      check_draft(verdict, child, position);
      if (closed_) return;
      if (passes(u, scale * p[at] / left, q_[at] / mass, child, decision) || decision.undecided)
        return;
      for (size_t i = 0; i < std::min(p.size(), q_.size()); ++i)
        p[i] = std::max(0.0, p[i] / left - std::min(q_[i] / mass, scale * p[i] / left));
      for (size_t i = q_.size(); i < p.size(); ++i) p[i] /= left;
      // Equal distributions: only rounding can have refused the token.
      if (!(sum_of(p) > 1e-12L)) {
        decision.undecided = true;
        return;
      }
      if (!independent) q_[at] = 0;
    }
  }

  bool passes(double uniform, double target_prob, double draft_prob, int child,
              Decision& decision) {
    ++audit_.tests;
    const double have = uniform * draft_prob;
    if (std::abs(have - target_prob) <= kAuditRounding * target_prob) decision.undecided = true;
    const bool accepted = have < target_prob;
    if (accepted) decision.child = child;
    if (!accepted) ++audit_.refused;
    return accepted;
  }

  // The token must be the draw of what the drafter says that it was drawn from.
  void check_draft(const Verdict& verdict, int child, int64_t position) {
    ++audit_.drafts;
    const std::string wrong = wrong_draft(verdict, child, q_, chance_);
    if (!wrong.empty()) differs(position, wrong);
  }

  SpeculativeMethod& method_;
  SpeculativeMethod::VerdictHook before_;  // a planted fault, which is to be seen
  PlainWalk walk_;
  base::Clock& clock_;
  std::optional<AuditDifference> found_;
  engine::SamplingParams sampling_;
  base::KeyedChance chance_;
  PlainDraw first_;
  bool border_at_first_ = false;
  bool closed_ = false;  // nothing more of this answer is audited
  bool border_ = false;  // PlainDistribution's, of the last draw
  std::vector<int> alive_, next_, children_;
  std::vector<double> q_;
};

double DecisionAudit::smallest_found() const {
  const auto n = static_cast<double>(places());
  return n > 0 ? 1 - std::pow(0.05, 1 / n) : 1;
}

DecisionAuditor::DecisionAuditor(methods::DecodingMethod& method, engine::Session& beside,
                                 base::Clock& clock)
    : impl_(std::make_unique<Impl>(method, beside, clock)) {}
DecisionAuditor::~DecisionAuditor() = default;
void DecisionAuditor::begin(std::span<const int32_t> prompt, const engine::SamplingParams& sampling,
                            uint64_t seed) {
  impl_->begin(prompt, sampling, seed);
}
void DecisionAuditor::end(std::span<const int32_t> tokens, const std::string& task,
                          const std::string& prompt) {
  impl_->end(tokens, task, prompt);
}
const DecisionAudit& DecisionAuditor::audit() const { return impl_->audit_; }

DecisionAudit audit_decisions(methods::DecodingMethod& method, engine::Session& session,
                              engine::Session& beside, std::span<const PlannedPrompt> prompts,
                              const PlainAnswers& plain, const Conversation& conversation,
                              const AnswerOptions& options, base::Clock& clock,
                              const std::function<void()>& tick) {
  const int64_t begin = clock.now_ns();
  DecisionAuditor auditor(method, beside, clock);
  const auto per_prompt = static_cast<size_t>(options.per_prompt);
  for (size_t i = 0; i < prompts.size() * per_prompt; ++i) {
    const size_t prompt = i / per_prompt;
    auditor.begin(plain.prompt[prompt], options.sampling, base::combine_seeds({options.seed, i}));
    auditor.end(decode_answer(method, session, prompts, plain, i, conversation, options, clock),
                prompts[prompt].record.task, prompts[prompt].record.id);
    tick();
    if (!auditor.audit().blocked.empty()) break;
  }
  DecisionAudit audit = auditor.audit();
  audit.step_seconds = static_cast<double>(clock.now_ns() - begin) * 1e-9 - audit.audit_seconds;
  return audit;
}

}  // namespace evalrun::runners
