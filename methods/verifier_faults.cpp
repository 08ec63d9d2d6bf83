#include "methods/verifier_faults.h"

#include <cmath>
#include <limits>
#include <utility>

#include "engine/base/error.h"
#include "methods/speculative_method.h"

namespace evalrun::methods {
namespace {

// How a step is decided instead.
struct OtherVerifier {
  double temperature = 1;  // times the run's
  double top_p = 1;        // the smaller of this and the run's
  double least = 0;        // tokens of a smaller probability are dropped
  RejectionRule rule = {};
};

// Decides every sampled step once more, with the same numbers and by another rule.
class DecidesOtherwise {
 public:
  explicit DecidesOtherwise(OtherVerifier other) : other_(other) {}

  void operator()(const SpeculativeMethod::Verdict& verdict) {
    const engine::SamplingParams& own = verdict.context.sampling;
    if (own.greedy()) return;
    if (verdict.target.has_draws())
      throw base::usage_error("a fault of the verifier needs the target's logits on the host",
                              "use --device cpu");
    engine::SamplingParams sampling = own;
    sampling.temperature *= other_.temperature;
    sampling.top_p = std::min(sampling.top_p, other_.top_p);
    RejectionRule rule = other_.rule;
    rule.whole_paths = verdict.rule.whole_paths;
    rule.iid_paths = verdict.rule.iid_paths;
    Verifier verifier(sampling, verdict.drafter.siblings(), {}, rule);
    KeyedUniforms uniform(verdict.context.chance);
    uniform.begin_step(verdict.position);
    const auto logits_of = [&](int node) { return likely_enough(verdict, node); };
    const auto q_of = [&](int node) { return verdict.drafter.q_of(node); };
    const Verifier::Result result =
        verifier.verify(verdict.tree, TargetView::with_logits(logits_of), q_of, uniform,
                        verdict.drafter.max_accepted());
    verdict.path.assign(1, 0);
    verdict.path.insert(verdict.path.end(), result.path.begin(), result.path.end());
    verdict.bonus = result.bonus;
  }

 private:
  std::span<const float> likely_enough(const SpeculativeMethod::Verdict& verdict, int node) {
    const std::span<const float> logits = verdict.target.logits(node);
    if (other_.least == 0) return logits;
    engine::warp(logits, verdict.context.sampling, prob_, scratch_);
    kept_.assign(logits.begin(), logits.end());
    const int32_t best = engine::argmax(logits);  // stays, however flat the distribution is
    for (size_t i = 0; i < kept_.size(); ++i)
      if (prob_[i] < other_.least && static_cast<int32_t>(i) != best)
        kept_[i] = -std::numeric_limits<float>::infinity();
    return kept_;
  }

  OtherVerifier other_;
  std::vector<float> kept_;
  std::vector<double> prob_;
  engine::WarpScratch scratch_;
};

// Reports q^share, normalised: the law at 1/share of the temperature that it was drawn at.
class Misreporting final : public Drafter {
 public:
  Misreporting(std::unique_ptr<Drafter> drafter, double share)
      : drafter_(std::move(drafter)), share_(share) {}
  std::span<const double> q_of(int node) const override {
    const std::span<const double> q = drafter_->q_of(node);
    if (q.empty()) return q;
    reported_.assign(q.begin(), q.end());
    double sum = 0;
    for (double& x : reported_) sum += x = x > 0 ? std::pow(x, share_) : 0;
    for (double& x : reported_) x /= sum;
    return reported_;
  }
  std::unique_ptr<Drafter> another(int slot) const override {
    return std::make_unique<Misreporting>(drafter_->another(slot), share_);
  }
  void start(const GenerationContext& context) override {
    GenerationContext passed_on = context;
    passed_on.may_keep_dists = false;  // what stays on a device cannot be misreported here
    drafter_->start(passed_on);
  }
  engine::FeatureSet needs() const override { return drafter_->needs(); }
  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    drafter_->draft(sequence, max_depth, tree);
  }
  DraftGroup* group() override { return drafter_->group(); }
  bool stage(TokenTree& tree) override { return drafter_->stage(tree); }
  void take(TokenTree& tree) override { drafter_->take(tree); }
  void side_rows(int max_rows, SideRows& rows) override { drafter_->side_rows(max_rows, rows); }
  void side_tops(int32_t root, std::span<const int32_t> rows) override {
    drafter_->side_tops(root, rows);
  }
  SideInputs side_inputs() const override { return drafter_->side_inputs(); }
  void side_states(const engine::ForwardResult& result, int first_row,
                   std::span<const int> path) override {
    drafter_->side_states(result, first_row, path);
  }
  TargetWants wants() const override { return drafter_->wants(); }
  void learn(std::span<const int32_t> sequence, const TokenTree& tree, std::span<const int> path,
             TargetAnswers& answers) override {
    drafter_->learn(sequence, tree, path, answers);
  }
  int max_accepted() const override { return drafter_->max_accepted(); }
  Siblings siblings() const override { return drafter_->siblings(); }
  DraftDraw draw_of(int node) const override { return drafter_->draw_of(node); }
  void accepted(std::span<const int> path, int32_t bonus) override {
    drafter_->accepted(path, bonus);
  }
  size_t extra_parameter_bytes() const override { return drafter_->extra_parameter_bytes(); }
  size_t extra_kv_bytes() const override { return drafter_->extra_kv_bytes(); }
  void add_kept(KeptMemory& kept) const override { drafter_->add_kept(kept); }

 private:
  std::unique_ptr<Drafter> drafter_;
  double share_;
  mutable std::vector<double> reported_;
};

}  // namespace

const std::vector<VerifierFault>& verifier_faults() {
  static const std::vector<VerifierFault> faults = {
      {"verify-temperature", "verify-temperature:95%", 1000},
      {"verify-top-p", "verify-top-p:95%", 100},
      {"drop-below", "drop-below:0.1%", 100},
      {"scale-acceptance", "scale-acceptance:110%", 1000},
      {"misreport-draft", "misreport-draft:80%", 1000},
      {"redraw-from-target", "redraw-from-target", 0}};
  return faults;
}

void plant_verifier_fault(DecodingMethod& method, const VerifierFault& fault, double share) {
  SpeculativeMethod& speculative = with_verdicts(method, fmt::format("fault '{}'", fault.name));
  if (fault.name == "misreport-draft")
    return speculative.replace_drafter([&](std::unique_ptr<Drafter> drafter) {
      return std::make_unique<Misreporting>(std::move(drafter), share);
    });
  OtherVerifier other;
  if (fault.name == "verify-temperature") other.temperature = share;
  if (fault.name == "verify-top-p") other.top_p = share;
  if (fault.name == "drop-below") other.least = share;
  if (fault.name == "scale-acceptance") other.rule.accept_scale = share;
  if (fault.name == "redraw-from-target") other.rule.whole_bonus = true;
  speculative.set_verdict_hook(DecidesOtherwise(other));
}

}  // namespace evalrun::methods
