#include "runners/verify/acceptance_bound.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "methods/speculative_method.h"
#include "runners/verify/plain_distribution.h"
#include "runners/verify/plain_walk.h"
#include "runners/verify/transport_bound.h"

namespace evalrun::runners {
namespace {

using Json = nlohmann::ordered_json;
using HookedVerdict = methods::SpeculativeMethod::Verdict;

constexpr double kBoundConfidence = 0.95;

bool is_chain(const methods::TokenTree& tree) {
  for (int node = 1; node < tree.size(); ++node)
    if (tree.parent[static_cast<size_t>(node)] != node - 1) return false;
  return true;
}

// Why nothing is known about the drafts of a step; "" = it is.
std::string why_unknown(const HookedVerdict& verdict) {
  if (verdict.drafter.dists() != nullptr)
    return "the distributions of drawn drafts stay on the device";
  for (int node = 1; node < verdict.tree.size(); ++node)
    if (verdict.drafter.q_of(node).empty())
      return "drafts come without the distribution that they were drawn from";
  return "";
}

// A ratio of sums over prompts, `term` of a prompt over its steps.
PerStep ratio_over_steps(const std::vector<KeptDrafts>& prompts,
                         const std::function<double(const KeptDrafts&)>& term) {
  double sum = 0, steps = 0;
  for (const KeptDrafts& p : prompts) sum += term(p), steps += static_cast<double>(p.steps);
  if (!(steps > 0)) return {};
  PerStep result{sum / steps, std::nullopt};
  std::vector<double> around;  // the ratio, each prompt's influence on it added: their mean is it
  for (const KeptDrafts& p : prompts)
    around.push_back(result.value + (term(p) - result.value * static_cast<double>(p.steps)) *
                                        static_cast<double>(prompts.size()) / steps);
  if (const auto t = base::t_interval(around, kBoundConfidence)) result.interval = t->interval;
  return result;
}

void put_per_step(Json& out, const std::string& name, const PerStep& figure, double shift) {
  out[name] = figure.value + shift;
  out[name + "_lo"] = figure.interval ? Json(figure.interval->lo + shift) : Json();
  out[name + "_hi"] = figure.interval ? Json(figure.interval->hi + shift) : Json();
}

}  // namespace

int64_t AcceptanceBound::steps() const {
  int64_t sum = 0;
  for (const KeptDrafts& p : prompts) sum += p.steps;
  return sum;
}

PerStep AcceptanceBound::per_step(double KeptDrafts::*of) const {
  return ratio_over_steps(prompts, [&](const KeptDrafts& p) { return p.*of; });
}

PerStep AcceptanceBound::left(double KeptDrafts::*most, double KeptDrafts::*kept) const {
  return ratio_over_steps(prompts, [&](const KeptDrafts& p) { return p.*most - p.*kept; });
}

Json to_json(const AcceptanceBound& bound) {
  Json out = {{"answers", bound.answers},
              {"prompts", bound.prompts.size()},
              {"steps", bound.steps()},
              {"confidence", kBoundConfidence}};
  put_per_step(out, "tau", bound.per_step(&KeptDrafts::kept), 1);
  put_per_step(out, "first_kept", bound.per_step(&KeptDrafts::first), 0);
  if (!bound.without_bound.empty()) {
    out["without_bound"] = bound.without_bound;
    return out;
  }
  if (bound.whole_steps) {
    put_per_step(out, "most_tau", bound.per_step(&KeptDrafts::most_kept), 1);
    put_per_step(out, "tau_left", bound.left(&KeptDrafts::most_kept, &KeptDrafts::kept), 0);
  }
  put_per_step(out, "most_first_kept", bound.per_step(&KeptDrafts::most_first), 0);
  put_per_step(out, "first_kept_left", bound.left(&KeptDrafts::most_first, &KeptDrafts::first), 0);
  return out;
}

class AcceptanceMeter::Impl {
 public:
  Impl(methods::DecodingMethod& method, engine::Session& beside)
      : method_(methods::with_verdicts(method, "a bound of acceptance")),
        before_(method_.verdict_hook()),
        walk_(beside) {
    method_.let_keep_dists(false);
    method_.set_verdict_hook([this](const HookedVerdict& verdict) {
      if (before_) before_(verdict);
      step(verdict);
    });
  }
  ~Impl() {
    method_.set_verdict_hook(std::move(before_));
    method_.let_keep_dists(true);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void begin(std::span<const int32_t> prompt, const engine::SamplingParams& sampling) {
    EVALRUN_CHECK(!bound.prompts.empty(), "an answer before any prompt");
    ++bound.answers;
    sampling_ = sampling;
    if (!bound.without_bound.empty()) return;
    walk_.begin(prompt);
    walk_.after(prompt.back());
  }
  AcceptanceBound bound;

 private:
  void step(const HookedVerdict& verdict) {
    KeptDrafts& sums = bound.prompts.back();
    ++sums.steps;
    sums.kept += static_cast<double>(verdict.path.size()) - 1;
    sums.first += verdict.path.size() > 1 ? 1 : 0;
    if (!bound.without_bound.empty()) return;
    bound.without_bound = why_unknown(verdict);
    if (!bound.without_bound.empty()) return;
    before_step_ = walk_.length();
    entered_.clear();
    if (verdict.tree.drafted() > 0) add_bound(verdict, sums);
    follow(verdict);
  }

  void add_bound(const HookedVerdict& verdict, KeptDrafts& sums) {
    const methods::TokenTree& tree = verdict.tree;
    const auto p_of = [&](int node) { return target_after(tree, node); };
    const auto q_of = [&](int node) { return verdict.drafter.q_of(node); };
    if (verdict.rule.iid_paths > 0 || is_chain(tree)) {
      const MostKept most = transport_.of_chains(tree, std::max(1, verdict.rule.iid_paths),
                                                 verdict.drafter.max_accepted(), p_of, q_of);
      sums.most_kept += most.tokens;
      sums.most_first += most.first;
      return;
    }
    bound.whole_steps = false;
    int draws = 0;
    for (int child = tree.next_child(0, 0); child >= 0; child = tree.next_child(0, child)) ++draws;
    const std::span<const double> p = p_of(0), q = q_of(1);
    sums.most_first += verdict.drafter.siblings() == methods::Siblings::kIndependent
                           ? transport_.of_independent(p, q, 1, 1, draws)
                           : transport_.of_distinct(p, q, draws);
  }

  // The walk stands after the node's parent or at something below it.
  std::span<const double> target_after(const methods::TokenTree& tree, int node) {
    const int level = tree.level[static_cast<size_t>(node)];
    walk_.back_to(before_step_ + level);
    entered_.resize(static_cast<size_t>(level));
    entered_.push_back(node);
    dist_ = plain_distribution(walk_.after(tree.token[static_cast<size_t>(node)]), sampling_);
    return dist_.prob;
  }

  // The walk goes on along what the step kept.
  void follow(const HookedVerdict& verdict) {
    const auto [kept, unused] =
        std::mismatch(verdict.path.begin(), verdict.path.end(), entered_.begin(), entered_.end());
    walk_.back_to(before_step_ + static_cast<int>(kept - verdict.path.begin()));
    for (auto node = kept; node != verdict.path.end(); ++node)
      walk_.after(verdict.tree.token[static_cast<size_t>(*node)]);
  }

  methods::SpeculativeMethod& method_;
  methods::SpeculativeMethod::VerdictHook before_;  // a planted fault, which is to be seen
  PlainWalk walk_;
  TransportBound transport_;
  engine::SamplingParams sampling_;
  PlainDistribution dist_;
  int before_step_ = 0;       // tokens of the walk before the step's root
  std::vector<int> entered_;  // nodes that the walk stands after, root first
};

AcceptanceMeter::AcceptanceMeter(methods::DecodingMethod& method, engine::Session& beside)
    : impl_(std::make_unique<Impl>(method, beside)) {}
AcceptanceMeter::~AcceptanceMeter() = default;
void AcceptanceMeter::next_prompt() { impl_->bound.prompts.emplace_back(); }
void AcceptanceMeter::begin(std::span<const int32_t> prompt,
                            const engine::SamplingParams& sampling) {
  impl_->begin(prompt, sampling);
}
const AcceptanceBound& AcceptanceMeter::bound() const { return impl_->bound; }

AcceptanceBound measure_acceptance(methods::DecodingMethod& method, engine::Session& session,
                                   engine::Session& beside, std::span<const PlannedPrompt> prompts,
                                   const PlainAnswers& plain, const Conversation& conversation,
                                   const AnswerOptions& options, base::Clock& clock,
                                   const std::function<void()>& tick) {
  AcceptanceMeter meter(method, beside);
  const auto per_prompt = static_cast<size_t>(options.per_prompt);
  for (size_t i = 0; i < prompts.size() * per_prompt; ++i) {
    if (i % per_prompt == 0) meter.next_prompt();
    meter.begin(plain.prompt[i / per_prompt], options.sampling);
    decode_answer(method, session, prompts, plain, i, conversation, options, clock);
    tick();
  }
  return meter.bound();
}

}  // namespace evalrun::runners
