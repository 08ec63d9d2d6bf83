// Drafter + Verifier = DecodingMethod: a step drafts a tree, asks the target for its rows and
// verifies. Autoregressive decoding is this class with a drafter that proposes nothing, so that the
// baseline is measured by the same code as every method.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "methods/method.h"
#include "methods/verifier.h"

namespace evalrun::methods {

class SpeculativeMethod final : public DecodingMethod {
 public:
  explicit SpeculativeMethod(std::unique_ptr<Drafter> drafter,
                             std::optional<TypicalAcceptance> typical = {},
                             RejectionRule rule = {});

  // With the hook as it is: one that knows of a single method is set in each.
  std::unique_ptr<DecodingMethod> another(int slot) const override;
  void start(const GenerationContext& context) override;
  void begin_step() override;
  DraftGroup* group() override { return drafter_->group(); }
  bool stage() override;
  void take() override { drafter_->take(tree_); }
  engine::ForwardRequest rows() override;
  std::span<const int> accept(const engine::ForwardResult& result) override;
  void read_side_rows(const engine::ForwardResult& result) override;
  StepOutcome finish_step() override;
  size_t extra_parameter_bytes() const override { return drafter_->extra_parameter_bytes(); }
  size_t extra_kv_bytes() const override { return drafter_->extra_kv_bytes(); }
  void add_kept(KeptMemory& kept) const override { drafter_->add_kept(kept); }
  engine::FeatureSet needs() const override { return drafter_->needs(); }
  LargestStep largest_step() const override;

  // Called between verification and commit; may change what is kept. `path` holds node ids in
  // order, root included; `bonus` follows it. `step` counts from 0 in each generation. For planted
  // faults, negative controls, audits and methods/replay.h only.
  struct Verdict {
    const TokenTree& tree;
    const TargetView& target;  // logits only where the verifier needs them
    std::vector<int>& path;
    int32_t& bonus;
    int64_t step;
    const GenerationContext& context;
    const Drafter& drafter;
    const RejectionRule& rule;
    int64_t position;  // of the answer's token after the root
  };
  using VerdictHook = std::function<void(const Verdict&)>;
  void set_verdict_hook(VerdictHook hook) { hook_ = std::move(hook); }
  const VerdictHook& verdict_hook() const { return hook_; }
  // Whether drawn drafts may stay on a device, to be tried there (engine/rejection.h). An audit
  // reads their distributions, so it has the host draw and verify them. From the next start() on.
  void let_keep_dists(bool may) { may_keep_dists_ = may; }
  // For planted faults only; between generations.
  void replace_drafter(
      const std::function<std::unique_ptr<Drafter>(std::unique_ptr<Drafter>)>& replace) {
    drafter_ = replace(std::move(drafter_));
    verifier_.reset();
  }

 private:
  // How deep this step may go, and with how many rows: at most as deep as tokens are still wanted,
  // at most as many rows as fit after the context.
  struct Budget {
    int depth = 0, rows = 0;
  };
  Budget budget() const;
  void add_side_rows(const SideInputs& inputs);
  // What the drafter wants of this step's answers: nothing where there is no next step.
  TargetWants wants() const { return limit_.depth > 0 ? drafter_->wants() : TargetWants{}; }
  // Whether the target draws the tokens of this step's nodes: where it does so cheaply and no
  // verification needs a distribution on the host.
  bool target_draws() const;
  // Asks for the rejection_tests of nodes whose children were drawn from kept distributions.
  void add_rejection_tests(engine::ForwardRequest& request);
  void note_tested();

  std::unique_ptr<Drafter> drafter_;
  std::optional<TypicalAcceptance> typical_;
  RejectionRule rule_;
  GenerationContext context_;
  std::optional<Verifier> verifier_;
  std::optional<KeyedUniforms> uniform_;
  VerdictHook hook_;
  bool may_keep_dists_ = true;
  // Of the step at hand.
  Budget limit_;
  int64_t position_ = 0;  // of the answer's token after the root
  TokenTree tree_;
  SideRows side_;
  std::vector<engine::Row> rows_;
  std::vector<TestedNode> tested_;
  bool ahead_ = false;            // target_draws()
  std::vector<double> uniforms_;  // [level] of its draws
  std::vector<engine::RejectionTest> rejection_tests_;
  static constexpr int32_t kNoChild = -2;
  std::vector<int32_t> children_;            // tokens, by parent
  std::vector<int32_t> first_child_, dist_;  // [node], of its children
  std::vector<int> path_;                    // accepted nodes with the root in front
  int32_t bonus_ = -1;                       // the target's token after it
  TargetAnswers answers_;
  std::vector<int32_t> sequence_;  // prompt and everything emitted, the root last
  int64_t step_ = 0;
};

// The method as one whose verdicts can be hooked. usage_error that `what` ("fault 'x'", "replay")
// is not possible for a method that lacks the common verifier.
SpeculativeMethod& with_verdicts(DecodingMethod& method, const std::string& what);

}  // namespace evalrun::methods
