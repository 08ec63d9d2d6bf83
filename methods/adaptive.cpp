#include "methods/adaptive.h"

#include <algorithm>
#include <array>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

constexpr double kMemory = 0.97;      // weight of the past when a node is added
constexpr double kPriorWeight = 2;    // nodes
constexpr double kUnknownRow = 0.05;  // price of a row without a table
constexpr double kMostLoss = 1.03;    // where nothing is ever accepted (adaptive.h)
// Drafts that cost something may lose this share of an answer, and this share of what goes by
// plainly.
constexpr double kTrialShare = 0.02, kAllowance = 0.005;
constexpr int kAdvance = 64;  // tokens whose share is granted at the start
constexpr double kTrial = 8;  // steps side rows must be affordable for, to begin with
// The table holds forwards back to back at one context. Between other work, and after longer texts,
// rows were measured about a fifth more expensive.
constexpr double kCaution = 1.2;

// Acceptance of nodes, by class, depth and rank.
class Acceptance {
 public:
  void start(const Drafter& drafter) {
    for (int c = 0; c < Drafter::kDraftClasses; ++c)
      for (int d = 0; d < kDepths; ++d)
        for (int r = 0; r < kRanks; ++r) {
          cells_[index(c, d, r)] = {kPriorWeight,
                                    kPriorWeight * drafter.expected(c, d + 1) / (1 + r)};
        }
  }
  double of(int draft_class, int depth, int rank) const {
    const Cell& cell = cells_[place(draft_class, depth, rank)];
    return cell.accepted / cell.tested;
  }
  void note(int draft_class, int depth, int rank, bool accepted) {
    Cell& cell = cells_[place(draft_class, depth, rank)];
    cell.tested = kMemory * cell.tested + 1;
    cell.accepted = kMemory * cell.accepted + accepted;
  }

 private:
  static constexpr int kDepths = 3, kRanks = 3;  // the last one and all after it
  struct Cell {
    double tested, accepted;
  };
  static size_t index(int c, int d, int r) {
    return static_cast<size_t>((c * kDepths + d) * kRanks + r);
  }
  static size_t place(int draft_class, int depth, int rank) {
    return index(draft_class, std::min(depth, kDepths) - 1, std::min(rank, kRanks - 1));
  }
  std::array<Cell, Drafter::kDraftClasses * kDepths * kRanks> cells_{};
};

class AdaptiveDrafter final : public Drafter {
 public:
  AdaptiveDrafter(std::unique_ptr<Drafter> drafter, const engine::RowCostTable* costs)
      : drafter_(std::move(drafter)),
        costs_(costs),
        price_(costs),
        free_(drafter_->draft_cost() == 0) {
    EVALRUN_CHECK(!free_ || drafter_->group() == nullptr, "forwards that cost nothing");
    full_.reserve(engine::kMaxRows);
    remembered_.tree.reserve(engine::kMaxRows);
    for (auto* v : {&rank_, &order_, &node_of_, &remembered_.rank, &remembered_.draft_class})
      v->reserve(engine::kMaxRows);
    joint_.reserve(engine::kMaxRows);
  }

  std::unique_ptr<Drafter> another(int slot) const override {
    return std::make_unique<AdaptiveDrafter>(drafter_->another(slot), costs_);
  }

  void start(const GenerationContext& context) override {
    GenerationContext passed_on = context;
    if (free_) passed_on.may_keep_dists = false;  // a part of a draft is no draw
    drafter_->start(passed_on);
    acceptance_.start(*drafter_);
    seen_ = context.prompt.size() + 1;
    remembered_.open = false;
    side_ = 0;
    // Not all of max_new: an answer may end long before.
    allowance_ = (free_ ? kFreeRows - 1 : kTrialShare) * std::min(context.max_new, kAdvance);
    credit_ = allowance_;
    tree_size_ = 1;
    side_tried_ = false;
    lag_ = 1;
    drafted_ = 0;
    asked_ = false;
    interval_ = 1;  // at once: nothing has to be caught up with yet
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    const int riding = side_;
    settle(static_cast<int>(sequence.size() - seen_));
    for (; seen_ < sequence.size(); ++seen_) resolve(sequence[seen_]);
    if (!free_) {
      const int depth = worthwhile_depth(max_depth);
      asked_ = depth > 0;
      if (asked_) drafter_->draft(sequence, depth, tree);
      return;
    }
    full_.reset(sequence.back());
    drafter_->draft(sequence, max_depth, full_);
    rank_nodes();
    remember();
    choose(riding, tree);
  }

  DraftGroup* group() override { return drafter_->group(); }
  bool stage(TokenTree& tree) override {
    if (!asked_) return false;
    if (drafter_->stage(tree)) return true;
    asked_ = false;
    drafted_ = tree.drafted();
    spent_ = price_(1 + drafted_) + cost_of(drafted_);
    return false;
  }
  void take(TokenTree& tree) override { drafter_->take(tree); }

  void side_rows(int max_rows, SideRows& rows) override {
    const double spare = credit_ / (side_tried_ ? 1 : kTrial);
    const double limit = credit_ > 0 ? std::max(kFreeRows, 1 + spare) : 1;
    const int affordable = price_.affordable(limit) - tree_size_;
    drafter_->side_rows(std::min(max_rows, affordable), rows);
    side_ = rows.size();
  }
  void side_tops(int32_t root, std::span<const int32_t> rows) override {
    drafter_->side_tops(root, rows);
  }
  TargetWants wants() const override { return drafter_->wants(); }
  void learn(std::span<const int32_t> sequence, const TokenTree& tree, std::span<const int> path,
             TargetAnswers& answers) override {
    drafter_->learn(sequence, tree, path, answers);
  }
  engine::FeatureSet needs() const override { return drafter_->needs(); }
  LargestStep largest_step() const override {
    LargestStep step = drafter_->largest_step();
    step.limit = kMostLoss;
    return step;
  }
  int max_accepted() const override { return drafter_->max_accepted(); }
  std::span<const double> q_of(int node) const override {
    return free_ ? std::span<const double>() : drafter_->q_of(node);
  }
  DraftDraw draw_of(int node) const override { return drafter_->draw_of(node); }
  Siblings siblings() const override { return drafter_->siblings(); }
  engine::DistributionStore* dists() const override { return drafter_->dists(); }
  int distribution_of(int node) const override { return drafter_->distribution_of(node); }
  void accepted(std::span<const int> path, int32_t bonus) override {
    if (!free_) {
      const int n = static_cast<int>(path.size());
      for (int depth = 1; depth <= std::min(drafted_, n + 1); ++depth)
        acceptance_.note(0, depth, 0, depth <= n);
      if (probing_ && drafted_ > 0) interval_ = n > 0 ? 1 : std::min(2 * interval_, kLastProbe);
    }
    drafter_->accepted(path, bonus);
  }
  size_t extra_parameter_bytes() const override { return drafter_->extra_parameter_bytes(); }
  size_t extra_kv_bytes() const override { return drafter_->extra_kv_bytes(); }

 private:
  static constexpr int kLastProbe = 128;

  // The draft that is held against the tokens to come. One at a time: the next is remembered when
  // this one has ended, on a token it does not hold.
  struct Remembered {
    TokenTree tree;
    std::vector<int> rank, draft_class;
    int at = 0;  // node whose children are due
    bool open = false;
  };

  void rank_nodes() {
    rank_.assign(static_cast<size_t>(full_.size()), 0);
    node_of_.assign(static_cast<size_t>(full_.size()), 0);  // children met so far
    for (size_t i = 1; i < full_.token.size(); ++i)
      rank_[i] = node_of_[static_cast<size_t>(full_.parent[i])]++;
  }

  void remember() {
    if (remembered_.open || full_.drafted() == 0) return;
    remembered_.tree = full_;
    remembered_.rank = rank_;
    remembered_.draft_class.assign(1, 0);
    for (int i = 1; i < full_.size(); ++i)
      remembered_.draft_class.push_back(drafter_->draft_class(i));
    remembered_.at = 0;
    remembered_.open = true;
  }

  void resolve(int32_t token) {
    if (!remembered_.open) return;
    const TokenTree& tree = remembered_.tree;
    int next = -1;
    for (int i = remembered_.at + 1; i < tree.size(); ++i) {
      const auto node = static_cast<size_t>(i);
      if (tree.parent[node] != remembered_.at) continue;
      const bool hit = tree.token[node] == token;
      acceptance_.note(remembered_.draft_class[node], tree.level[node], remembered_.rank[node],
                       hit);
      if (hit && next < 0) next = i;
    }
    remembered_.open = next >= 0;
    remembered_.at = next;
  }

  // The nodes of full_ that pay beside `riding` side rows, as many as there were last, into `tree`.
  void choose(int riding, TokenTree& tree) {
    const auto n = static_cast<size_t>(full_.size());
    joint_.assign(n, 1.0);
    for (size_t i = 1; i < n; ++i)
      joint_[i] =
          joint_[static_cast<size_t>(full_.parent[i])] *
          acceptance_.of(drafter_->draft_class(static_cast<int>(i)), full_.level[i], rank_[i]);
    order_.clear();
    for (int i = 1; i < full_.size();
         ++i)  // beyond a cap a match gives what the target says anyway
      if (full_.level[static_cast<size_t>(i)] <= drafter_->max_accepted()) order_.push_back(i);
    std::sort(order_.begin(), order_.end(), [this](int a, int b) {
      const double x = joint_[static_cast<size_t>(a)], y = joint_[static_cast<size_t>(b)];
      return x > y || (x == y && a < b);
    });
    size_t best = 0;
    double expected = 1, best_speed = 1 / price_(1 + riding);
    for (size_t k = 0; k < order_.size(); ++k) {
      expected += joint_[static_cast<size_t>(order_[k])];
      const double speed = expected / price_(2 + riding + static_cast<int>(k));
      if (speed > best_speed) {
        best_speed = speed;
        best = k + 1;
      }
    }
    node_of_.assign(n, -1);
    node_of_[0] = 0;
    for (size_t k = 0; k < best; ++k) node_of_[static_cast<size_t>(order_[k])] = 1;
    for (size_t i = 1; i < n; ++i)  // parents stand before their children
      if (node_of_[i] > 0)
        node_of_[i] = tree.add(full_.token[i], node_of_[static_cast<size_t>(full_.parent[i])]);
    tree_size_ = tree.size();
  }

  // Of n drafted tokens, in plain steps; what went by without a draft is computed first.
  double cost_of(int n) const {
    const double catch_up = lag_ > 1 && drafter_->must_catch_up() ? price_(lag_) : 0;
    return drafter_->draft_cost() * (n + catch_up);
  }

  int worthwhile_depth(int max_depth) {
    int best = 0;
    double expected = 1, joint = 1, best_speed = 1;
    for (int d = 1; d <= max_depth; ++d) {
      joint *= acceptance_.of(0, d, 0);
      expected += joint;
      const double speed = expected / (price_(1 + d) + drafter_->draft_cost() * d);
      if (speed > best_speed) {
        best_speed = speed;
        best = d;
      }
      if (joint < 1e-3) break;
    }
    probing_ = best == 0;
    if (probing_ && lag_ < interval_) return 0;
    int depth = probing_ ? std::min(max_depth, 1) : best;
    // At worst nothing of it is accepted.
    while (depth > 0 && credit_ < price_(1 + depth) + cost_of(depth) - 1) --depth;
    return depth;
  }

  // What the last step earned or lost against plain decoding, where it tried something expensive.
  void settle(int emitted) {
    allowance_ += (free_ ? kFreeRows - 1 : kAllowance) * emitted;
    if (side_ > 0) {  // gains pay back what was lost, and finance no more than that
      credit_ = std::min(credit_ + emitted - price_(tree_size_ + side_), allowance_);
      side_tried_ = true;
    }
    if (!free_) {
      lag_ += emitted;
      if (drafted_ > 0) lag_ = 1;
      if (drafted_ > 0)
        credit_ += emitted - spent_;
      else if (credit_ < allowance_)
        credit_ += kAllowance * emitted;
    }
    drafted_ = 0;
    side_ = 0;
    tree_size_ = 1;
  }

  std::unique_ptr<Drafter> drafter_;
  const engine::RowCostTable* costs_;
  RowPrice price_;
  bool free_;
  Acceptance acceptance_;
  TokenTree full_;
  Remembered remembered_;
  std::vector<int> rank_, order_, node_of_;
  std::vector<double> joint_;     // probability that the target gets to a node
  size_t seen_ = 0;               // tokens of the text that are accounted for
  int side_ = 0, tree_size_ = 1;  // rows of the last step
  // Plain steps that may still be lost, and that could be lost so far if nothing was gained.
  double credit_ = 0, allowance_ = 0;
  bool side_tried_ = false;
  double spent_ = 0;                          // by the last step that drafted
  int drafted_ = 0, lag_ = 1, interval_ = 1;  // lag_: tokens since the last draft
  bool probing_ = false;
  bool asked_ = false;  // the drafter, which has not completed its draft
};

}  // namespace

RowPrice::RowPrice(const engine::RowCostTable* table) {
  price_.reserve(engine::kMaxRows);
  double price = 1;
  for (int n = 1; n <= engine::kMaxRows; ++n) {
    const bool known = table != nullptr && !table->empty();
    price =
        std::max(price, known ? 1 + kCaution * (table->ratio(n) - 1) : 1 + kUnknownRow * (n - 1));
    price_.push_back(price);  // rising: where a table says otherwise it is noise
  }
}

double RowPrice::operator()(int rows) const {
  EVALRUN_CHECK(rows >= 1, "{} rows", rows);
  return price_[static_cast<size_t>(std::min(rows, engine::kMaxRows)) - 1];
}

int RowPrice::affordable(double limit) const {
  int rows = 1;
  while (rows < engine::kMaxRows && price_[static_cast<size_t>(rows)] <= limit) ++rows;
  return rows;
}

std::unique_ptr<Drafter> make_adaptive(std::unique_ptr<Drafter> drafter,
                                       const engine::RowCostTable* costs) {
  return std::make_unique<AdaptiveDrafter>(std::move(drafter), costs);
}

std::unique_ptr<DecodingMethod> finish_method(std::unique_ptr<Drafter> drafter, bool adaptive,
                                              const MethodBuildContext& context) {
  if (adaptive) drafter = make_adaptive(std::move(drafter), context.row_cost);
  return make_speculative_method(std::move(drafter));
}

}  // namespace evalrun::methods
