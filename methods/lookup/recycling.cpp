// Token Recycling (Luo et al. 2024, "Turning Trash into Treasure: Accelerating Inference of Large
// Language Models with Token Recycling", arXiv 2408.08696, ACL 2025;
// github.com/Luowaterbi/TokenRecycling). A matrix has, for each token of the vocabulary, the k
// tokens that the target found likeliest when it last stood behind that token. A step reads a tree
// of fixed shape out of it, level by level: below a node stand the candidates of the node's token.
// The forward that verifies the tree has computed what follows each of its tokens, accepted or not,
// and all of that goes back into the matrix.
//
// Nothing is looked up by more than one token, so that there is a draft almost always, and a
// candidate is the target's own opinion, though in another context.
//
// Differs from the released program:
// - As published the matrix lives on from prompt to prompt, which makes steps depend on the order
//   of prompts: that is state=warm. The default begins each answer with an empty one.
// - Nothing is learnt from the prompt: a prefill computes no logits, the same for every method.
//   Rows of tokens that no forward of this answer had are empty, and their nodes have no children.
// - Where a token stands at several nodes of a tree its row is that of the last of them, and of one
//   on the accepted path if there is any.
// - A node that would be a stop token is left out, with what is below it: the target supplies it.
// - adaptive=true learns at little cost where it drafts nothing. To find the k likeliest tokens of
//   a row its logits must be written and read, which showed in plain steps: +15 % with the model of
//   135M parameters in 4 bits on two AVX-512 cores. So in a step that verifies nothing only the
//   token that came is learnt: it becomes the first of its row, and the others stay after it in
//   their order. Under greedy decoding that is what the published rule finds first. The k likeliest
//   are read in the first such step of an answer and in every 32nd after the last time. Steps that
//   verify a node update all rows, as published. The row costs that adaptive decides by do not
//   include this reading. A part of `hybrid` learns like this, too.
// - tree=auto is ours: methods/lookup/grown_tree.h.
// - Under sampling a draft token is taken where the target's own draw is the same.
#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/heads/rank_tree.h"
#include "methods/lookup/candidate_matrix.h"
#include "methods/lookup/grown_tree.h"
#include "methods/lookup/stop_ids.h"

namespace evalrun::methods {
namespace {

struct RecyclingShape {
  bool adaptive = false;
  int k = 8;
  bool warm = false;  // state=
  std::string tree = "token_recycling";
};

constexpr const char* kGrownByName = "auto";
constexpr int kIdleSteps = 32;  // that verify nothing, between two that read the k likeliest
// Of tree=auto at most: the published tree's.
constexpr int kRecycledLevels = 6, kRecycledNodes = 80;

class RecyclingDrafter final : public Drafter {
 public:
  // `price`: of tree=auto; `plan` is empty then.
  RecyclingDrafter(const RecyclingShape& shape, int vocab, RankTree plan,
                   std::optional<RowPrice> price)
      : shape_(shape),
        vocab_(vocab),
        price_(std::move(price)),
        plan_(std::move(plan)),
        matrix_(vocab, shape.k) {
    if (price_) grown_.emplace(limits(), price_);
    node_.reserve(static_cast<size_t>(most_nodes()) + 1);
  }

  std::unique_ptr<Drafter> another(int) const override {
    return std::make_unique<RecyclingDrafter>(shape_, vocab_, plan_, price_);
  }

  void start(const GenerationContext& context) override {
    stop_ids_ = context.stop_ids;
    if (!shape_.warm) matrix_.clear();
    if (grown_) grown_->start();
    unread_ = kIdleSteps;
    to_learn_ = false;
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    root_ = sequence.back();
    to_learn_ = true;
    const RankTree& plan = grown_ ? grown_->grow() : plan_;
    node_.assign(static_cast<size_t>(plan.size()) + 1, -1);
    node_[0] = 0;
    for (size_t i = 0; i < plan.rank.size(); ++i) {
      const int parent = node_[static_cast<size_t>(plan.parent[i])];
      if (parent < 0 || plan.level[i] > max_depth) continue;
      const int32_t token = matrix_.at(tree.token[static_cast<size_t>(parent)], plan.rank[i]);
      if (token >= 0 && !is_stop(stop_ids_, token)) node_[i + 1] = tree.add(token, parent);
    }
  }

  TargetWants wants() const override { return {.best = shape_.k}; }
  TargetWants idle_wants() const override {
    return unread_ >= kIdleSteps ? wants() : TargetWants{};
  }
  void learn(std::span<const int32_t>, const TokenTree& tree, std::span<const int> path,
             TargetAnswers& answers) override {
    to_learn_ = false;
    unread_ = 0;
    if (grown_) grown_->note(tree, path);
    const auto keep = [&](int node) {
      matrix_.set(tree.token[static_cast<size_t>(node)], answers.best(node));
    };
    for (int node = 1; node < tree.size(); ++node)
      if (!std::binary_search(path.begin(), path.end(), node)) keep(node);
    keep(0);
    for (const int node : path) keep(node);
  }
  void accepted(std::span<const int> path, int32_t bonus) override {
    if (!std::exchange(to_learn_, false)) return;
    ++unread_;
    if (path.empty()) matrix_.put_first(root_, bonus);
  }

  LargestStep largest_step() const override { return {.rows = 1 + most_nodes()}; }
  void add_kept(KeptMemory& kept) const override {
    kept.grown.per_slot += CandidateMatrix::bytes(vocab_, shape_.k);
  }
  // One token says little, at the root as anywhere else.
  double expected(int, int) const override { return 0.4; }

 private:
  GrownTree::Limits limits() const { return {kRecycledLevels, shape_.k, kRecycledNodes}; }
  int most_nodes() const { return price_ ? kRecycledNodes : plan_.size(); }

  const RecyclingShape shape_;
  const int vocab_;
  const std::optional<RowPrice> price_;
  const RankTree plan_;
  std::optional<GrownTree> grown_;
  CandidateMatrix matrix_;
  std::span<const int32_t> stop_ids_;
  std::vector<int> node_;    // [plan node] of the draft, -1 = not there
  int32_t root_ = -1;        // of the last draft
  bool to_learn_ = false;    // nothing is learnt from the last draft's step yet
  int unread_ = kIdleSteps;  // steps since the k likeliest were read
};

void check_recycling(const RecyclingShape& shape) {
  if (shape.tree == kGrownByName) return;
  const RankTree tree = parse_rank_tree("recycling", shape.tree);
  if (tree.width() > shape.k)
    throw base::usage_error(
        fmt::format("recycling: tree={} takes a token's {} best candidates, k={} are kept",
                    shape.tree, tree.width(), shape.k),
        fmt::format("take k={}, or a narrower tree", tree.width()));
}

}  // namespace

MethodInfo recycling_method() {
  MethodInfo info;
  info.name = "recycling";
  info.summary =
      "a matrix of what the target last found likely after each token drafts a tree, level by "
      "level";
  info.source = "Token Recycling, Luo et al. 2024, arXiv 2408.08696";
  info.needs = "nothing";
  info.version = "2";
  info.notes =
      "Defaults are the paper's: eight candidates a token, the released tree of 80 nodes (template "
      "2.2.2). As published the matrix lives on from prompt to prompt (state=warm). Memory: 4k "
      "bytes a token of the vocabulary in each slot, however long it lives.";
  using Shape = RecyclingShape;
  const auto parameters =
      adaptive_parameters<Shape>()
          .add("k", &Shape::k, {1, engine::kMostBest}, "candidates kept for each token")
          .choice("state", &Shape::warm, {{"cold", false}, {"warm", true}},
                  "whether an answer begins with an empty matrix or with that of the answers "
                  "before; runs then depend on order")
          .with(&ParamInfo::steps_at, {"warm", StepReproducibility::kCarryState})
          .add("tree", &Shape::tree,
               "a published tree by name, chain:N, delayed:K:L1:L2, paths (0+00+1), or auto: grown "
               "from what is "
               "accepted in this answer, as large as pays at this machine's T(n)/T(1)")
          .with(&ParamInfo::steps_at, {kGrownByName, StepReproducibility::kFollowMachine});
  info.params = parameters.infos();
  info.check = parameters.bound(check_recycling);
  draft_by(info, parameters, [](const Shape& shape, const MethodBuildContext& context) {
    const bool grows = shape.tree == kGrownByName;
    return std::make_unique<RecyclingDrafter>(
        shape, context.target->config().vocab_size,
        grows ? RankTree{} : parse_rank_tree("recycling", shape.tree),
        grows ? std::optional(RowPrice(context.row_cost)) : std::nullopt);
  });
  return info;
}

}  // namespace evalrun::methods
