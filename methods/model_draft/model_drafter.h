// Drafts a chain, or several drawn alike, with a model: a second, smaller one with a session of its
// own (SpS), or the target itself with sublayers left out (self-speculative decoding), which drafts
// in the target's session and rewinds it. Greedy decoding takes the drafting model's argmax.
// Sampling draws from its warped distribution, by the rule that is asked for
// (methods/draft_rule.h); for rejection the row is kept, on the device where both models are on
// one. The slots of a batch draft token by token together.
//
// Several chains (verify=gbv) are drawn each by numbers of its own, and those that begin alike
// share nodes. So a forward of the drafting model is spent on each node that goes on, once. They
// are drawn depth first: the session holds the path to the current node, and is rewound where the
// next node is on another.
//
// A chain may be guessed from the text before it is drafted (methods/model_draft/draft_lookup.h):
// then a forward of the drafting model has the guesses behind its token, and drafts as many tokens
// as were right, and one. What it drafts stays the same.
//
// Vocabularies: ids mean the same in both models, but the widths of the logits may differ by
// padding. Draft logits are cut to the common width before the softmax; the target's stay whole, so
// that its distribution is that of the target alone. A token the draft model has no embedding for
// ends drafting for the rest of the generation, and so does a draft context that is full.
//
// Foreign vocabularies (methods/model_draft/foreign_vocabulary.h): the draft model's context is the
// text in its own tokens (methods/model_draft/foreign_context.h), and so are the tokens that a
// draft goes on from. With vocab=intersect outputs are chosen among those that are target tokens.
// With vocab=text the model drafts by itself, and the tree gets the target's tokens of that text
// when the draft is complete.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/options.h"
#include "methods/draft_rule.h"
#include "methods/method.h"
#include "methods/model_draft/draft_length.h"
#include "methods/model_draft/draft_lookup.h"
#include "methods/model_draft/draft_model.h"
#include "methods/model_draft/foreign_context.h"
#include "methods/model_draft/foreign_vocabulary.h"

namespace evalrun::methods {

// Of the parameter verify=.
inline const std::vector<base::Named<DraftRule>> kRules = {
    {"auto", DraftRule::kAuto},    {"rejection", DraftRule::kRejection},
    {"block", DraftRule::kPaths},  {"gbv", DraftRule::kManyPaths},
    {"match", DraftRule::kMatch},  {"argmax", DraftRule::kArgmax},
    {"gumbel", DraftRule::kGumbel}};
inline constexpr const char* kRuleText =
    "when sampling: rejection of drawn drafts; block, rejection that tests whole "
    "drafts (block verification, never accepts less on average); gbv, the same of one of several "
    "drafts drawn alike (see paths); match, drawn drafts that the target draws too; "
    "argmax, the draft's likeliest tokens that the target draws; gumbel, drafts by the target's "
    "noise (--sampler gumbel); auto = gumbel where the run has it, else rejection";

inline constexpr int kMostPaths = 8;
inline constexpr const char* kPathsText =
    "drafts of verify=gbv, each drawn by itself; those that begin alike share rows";

class ModelDrafter final : public Drafter {
 public:
  struct Options {
    DraftLengthRule length;
    int draft_vocab = 0;          // ids the draft model knows, or can draft
    int common_vocab = 0;         // width of both models' logits that is compared
    std::vector<int32_t> ids;     // id of each output of a draft over fewer ids; empty = same
    std::vector<int32_t> logits;  // those that are the outputs; empty = the first of all
    std::shared_ptr<const ForeignVocabulary> foreign;  // null: ids mean the same in both
    size_t extra_weights = 0;                          // bytes the draft model adds to the target's
    DraftRule rule = DraftRule::kAuto;                 // when sampling
    std::optional<double> temperature;  // of the draft when sampling; the target's without it
    engine::SkipSet skip;               // sublayers a draft leaves out
    double cost = 0;                    // of a drafted token, in plain steps of the target
    int slots = 1;                      // sequences that are decoded at once
    int paths = 1;                      // 1..kMostPaths, drawn by kManyPaths
    int guesses = 0;                    // most tokens of a forward that were found in the text
  };
  // Slot 0 of those that the session has sequences for. Without a session the target's own is used.
  ModelDrafter(std::unique_ptr<engine::Session> session, const Options& options);
  std::unique_ptr<Drafter> another(int slot) const override;

  void start(const GenerationContext& context) override;
  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override;
  DraftGroup* group() override { return model_.get(); }
  bool stage(TokenTree& tree) override;
  void take(TokenTree& tree) override;
  std::span<const double> q_of(int node) const override;
  engine::DistributionStore* dists() const override {
    return keeps_ ? model_->dists().store() : nullptr;
  }
  int distribution_of(int node) const override { return keeps_ ? dist(drawn(node).forward) : -1; }
  // List: the level that it was drawn after. Draw: the first path that has it.
  DraftDraw draw_of(int node) const override { return drawn(node).draw; }
  void accepted(std::span<const int> path, int32_t bonus) override;
  LargestStep largest_step() const override {
    return {.rows = 1 + options_.paths * most_,
            .draft_cost = options_.cost,
            .draft_rows = std::vector<int>(q_.size(), 1 + options_.guesses)};
  }
  double draft_cost() const override { return options_.cost; }
  bool must_catch_up() const override { return model_->own() != nullptr; }
  size_t extra_parameter_bytes() const override { return options_.extra_weights; }
  size_t extra_kv_bytes() const override {
    return model_->own() == nullptr ? 0 : model_->own()->kv_bytes();
  }
  void add_kept(KeptMemory& kept) const override {
    if (model_->own() != nullptr) kept.sessions.push_back(model_->own());
  }

 private:
  ModelDrafter(std::shared_ptr<DraftModel> model, std::shared_ptr<const Options> options, int slot);
  // The levels that there is room for, and as fresh_ what the drafting model has not computed of
  // the text; false where it cannot draft.
  bool follow(std::span<const int32_t> sequence);
  bool follow_foreign(std::span<const int32_t> sequence);
  // All paths whole: which of their nodes there is room for must not depend on what was drawn.
  int levels_of_paths() const;
  // The fresh tokens and the guesses as a request, which asks for what follows the last fresh one
  // and each guess.
  engine::ForwardRequest request();
  void find_guesses(const TokenTree& tree);
  // The token drafted after a row. `stops` is set where the draft ends with it: the model is too
  // unsure.
  int32_t read(const engine::ForwardResult& result, size_t row, bool& stops);
  int32_t choose(std::span<const float> logits);  // the output chosen
  // What outputs are drawn from, and where drafts are rejected by it the row that q_of() returns.
  std::span<const double> draw_from(std::span<const float> logits);
  void read_paths(const engine::ForwardResult& result, TokenTree& tree);
  void add_node(TokenTree& tree, int32_t token, uint32_t paths, bool stops);
  // By text: all nodes, when the draft is complete.
  void add_text(TokenTree& tree);
  // The next of open_ as the current node, with the session before its token.
  void go_on(const TokenTree& tree);
  bool draws() const { return rule_ != DraftRule::kArgmax; }
  // Of the answer's token that the first draft token is for.
  int64_t position() const { return root_ + 1 - static_cast<int64_t>(prompt_); }
  double draft_number(int path) const { return chance_.draft(position(), level_, path); }
  bool rejects() const { return rule_ == DraftRule::kRejection; }
  bool can_keep_dists(const GenerationContext& context) const;
  // Whether the draft model's own top token is all that is wanted, and none of its ids is cut.
  bool by_top() const {
    return !draws() && !length_.watches_entropy() && options_.logits.empty() &&
           (!options_.ids.empty() || options_.common_vocab == options_.draft_vocab);
  }
  // Of an output chosen; notes the draft model's own id of it.
  int32_t id_of(int32_t output) {
    own_ = options_.logits.empty() ? output : options_.logits[static_cast<size_t>(output)];
    return options_.ids.empty() ? output : options_.ids[static_cast<size_t>(output)];
  }
  // The outputs of a row of logits.
  std::span<const float> outputs_of(std::span<const float> logits);
  bool by_text() const { return foreign_ && options_.foreign->by_text(); }
  int dist(int forward) const { return model_->dists().first(slot_) + forward; }
  bool known(int32_t token) const { return token >= 0 && token < options_.draft_vocab; }

  // New tokens of a chain, in one forward.
  static constexpr size_t kChainRows = 2;
  const std::shared_ptr<DraftModel> model_;
  const std::shared_ptr<const Options> shared_options_;
  const Options& options_;
  const int slot_;
  engine::Session* session_ = nullptr;  // the drafting model's own or the target's
  int sequence_ = 0;                    // of it
  DraftLength length_;
  engine::SamplingParams sampling_;      // of the draft
  DraftRule rule_ = DraftRule::kArgmax;  // in this run
  base::KeyedChance chance_;
  size_t prompt_ = 0;               // tokens
  int target_capacity_ = 0;         // tokens of the target's sequence
  bool able_ = true;                // every token so far is known to the draft model
  int root_ = 0;                    // position of the root of the last draft
  int own_root_ = 0;                // the same in the drafting model's session
  int asked_ = 0, drafted_ = 0;     // levels, by the last draft
  bool drafting_ = false;           // the current draft is not complete
  std::span<const int32_t> fresh_;  // tokens that the next forward takes
  std::optional<DraftLookup> lookup_;
  std::span<const int32_t> guesses_;  // behind them in the same forward
  int paths_ = 1;                     // in this run
  int node_ = 0, level_ = 0;          // that is drafted from
  int forwards_ = 0;                  // rows of this draft that gave tokens before the current one
  struct Drawn {
    int forward = 0;  // whose row it was drawn from, as forwards_ counts
    DraftDraw draw;
    uint32_t paths = 1;  // bits: those that have it
  };
  const Drawn& drawn(int node) const { return drawn_[static_cast<size_t>(node) - 1]; }
  std::vector<Drawn> drawn_;            // [node - 1]
  std::vector<int> open_;               // nodes that go on, the next one last
  std::vector<int> held_;               // those after the root that the session holds, by level
  size_t part_ = 0;                     // of the group's forward
  const int most_;                      // levels that rows are kept for
  std::vector<std::vector<double>> q_;  // [forward], rows of this step's draft
  bool keeps_ = false;                  // the same on the device instead
  std::vector<double> drawn_from_;      // over a draft's own outputs
  std::vector<int32_t> outputs_;
  engine::WarpScratch scratch_;
  std::vector<engine::Row> rows_;
  engine::DistributionDraw draw_;  // of the last row

  // Of a foreign vocabulary.
  std::optional<ForeignContext> foreign_;
  TokenTree own_tree_;                      // the draft in the draft model's ids
  int32_t own_ = 0;                         // id of the output chosen last
  std::span<const int32_t> sequence_text_;  // of draft(); it stays until accepted()
  std::vector<float> logits_;               // of the outputs
  std::vector<int32_t> text_;               // by text: the target's tokens of the draft
  int most_text_ = 0;                       // the most of them
};

}  // namespace evalrun::methods
