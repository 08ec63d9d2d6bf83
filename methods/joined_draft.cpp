#include "methods/joined_draft.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "methods/draft_choice.h"
#include "methods/joined_group.h"
#include "methods/joined_tree.h"

namespace evalrun::methods {
namespace {

constexpr double kRecent = 0.2;    // weight of the newest draft in what a part brings and costs
constexpr int kRarestTrial = 128;  // tokens between trials of a part that does not pay

struct JoinedPart {
  std::unique_ptr<Drafter> drafter;
  bool dear = false;            // drafts by forwards
  double cost = 0;              // of a forward of one row, in plain steps of the target
  std::vector<int> draft_rows;  // of each forward at most
  Acceptance acceptance;
  WatchedDraft watched;
  // What its drafts brought and took lately: tokens, nodes that paid, forwards.
  double gain = 0, nodes = 0, forwards = 0;
  size_t last_text = 0;  // tokens of the text when it drafted last
  int interval = 1;      // tokens until it is tried although it does not pay
  // Of this step.
  RatedDraft draft;
  std::vector<int> node_of;  // [node of draft], of the joined tree
  bool drafted = false;
  bool drafting = false;  // by forwards, and not complete
  bool staged = false;
  int ran = 0, lag = 1;  // forwards; tokens since its last draft
  SideRows side;
  int first_side = 0;
  std::vector<int> path;
};

class JoinedDrafter final : public Drafter {
 public:
  JoinedDrafter(std::vector<std::unique_ptr<Drafter>> drafters, const JoinOptions& options,
                const engine::RowCostTable* costs, std::shared_ptr<JoinedGroup> group);

  std::unique_ptr<Drafter> another(int slot) const override {
    std::vector<std::unique_ptr<Drafter>> drafters;
    for (const JoinedPart& part : parts_) drafters.push_back(part.drafter->another(slot));
    return std::make_unique<JoinedDrafter>(std::move(drafters), options_, costs_, group_);
  }
  void start(const GenerationContext& context) override;
  engine::FeatureSet needs() const override;
  LargestStep largest_step() const override;
  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override;
  DraftGroup* group() override { return group_.get(); }
  bool stage(TokenTree& tree) override;
  void take(TokenTree& tree) override;
  void side_rows(int max_rows, SideRows& rows) override;
  void side_tops(int32_t root, std::span<const int32_t> rows) override;
  TargetWants wants() const override;
  void learn(std::span<const int32_t> sequence, const TokenTree& tree, std::span<const int> path,
             TargetAnswers& answers) override;
  void accepted(std::span<const int> path, int32_t bonus) override;
  size_t extra_parameter_bytes() const override;
  size_t extra_kv_bytes() const override;
  void add_kept(KeptMemory& kept) const override {
    for (const JoinedPart& part : parts_) part.drafter->add_kept(kept);
  }

 private:
  // What the parts that were asked so far are expected to give.
  struct Outlook {
    double tokens = 1, sure = 0, spent = 0;  // sure: acceptance of the likeliest first token
    int rows = 1;
  };
  double cost_of(const JoinedPart& part, double forwards) const;
  Outlook outlook();
  Outlook with(const Outlook& before, const JoinedPart& part) const;
  bool asks(JoinedPart& part, const Outlook& before) const;
  void begin(JoinedPart& part, std::span<const int32_t> sequence, int max_depth);
  void complete(JoinedPart& part);
  void note_worth(JoinedPart& part);
  void choose(TokenTree& tree);
  void tell(JoinedPart& part, std::span<const int> path, int32_t bonus);

  const JoinOptions options_;
  const engine::RowCostTable* const costs_;
  const RowPrice price_;
  std::vector<JoinedPart> parts_;  // those that cost nothing first
  std::vector<size_t> dear_;       // parts that draft by forwards, in the order of group_
  const std::shared_ptr<JoinedGroup> group_;
  size_t seen_ = 0;  // tokens of the text that are accounted for
  int riding_ = 0;   // side rows of the last step
  // Of this step.
  int beside_ = 0;  // side rows that are expected
  JoinedTree joined_;
  DraftChoice choice_{price_};
  TokenTree plan_;              // not verified: what would be chosen
  std::vector<int> joined_of_;  // [node of the verified tree]
  std::vector<int> on_path_;    // [joined node] its place on the accepted path, from 1; 0 = none
};

JoinedDrafter::JoinedDrafter(std::vector<std::unique_ptr<Drafter>> drafters,
                             const JoinOptions& options, const engine::RowCostTable* costs,
                             std::shared_ptr<JoinedGroup> group)
    : options_(options), costs_(costs), price_(costs), group_(std::move(group)) {
  const int most = engine::kMaxRows * static_cast<int>(drafters.size());
  parts_.resize(drafters.size());
  for (size_t i = 0; i < drafters.size(); ++i) {
    JoinedPart& part = parts_[i];
    part.drafter = std::move(drafters[i]);
    part.dear = part.drafter->group() != nullptr;
    if (part.dear) dear_.push_back(i);
    const LargestStep step = part.drafter->largest_step();
    part.cost = step.draft_cost;
    part.draft_rows = step.draft_rows;
    part.draft.reserve(engine::kMaxRows);
    part.watched.reserve(engine::kMaxRows);
    part.node_of.reserve(engine::kMaxRows);
    part.path.reserve(engine::kMaxRows);
    for (std::vector<int32_t>* v : {&part.side.token, &part.side.parent})
      v->reserve(engine::kMaxRows);
    part.side.read.reserve(engine::kMaxRows);
  }
  joined_.reserve(most);
  choice_.reserve(most);
  plan_.reserve(engine::kMaxRows);
  joined_of_.reserve(engine::kMaxRows);
  on_path_.reserve(static_cast<size_t>(most));
}

void JoinedDrafter::start(const GenerationContext& context) {
  GenerationContext passed_on = context;
  passed_on.may_keep_dists = false;  // drafts are matched, whatever they were drawn from
  for (JoinedPart& part : parts_) {
    part.drafter->start(passed_on);
    part.acceptance.start(*part.drafter);
    part.watched.forget();
    // As its most forwards would do where the likeliest of each level came true as expected.
    part.forwards = part.nodes = static_cast<double>(part.draft_rows.size());
    part.gain = 0;
    double joint = 1;
    for (int depth = 1; depth <= static_cast<int>(part.draft_rows.size()); ++depth)
      part.gain += joint *= part.acceptance.of(0, depth, 0);
    part.last_text = context.prompt.size();
    part.interval = 1;  // at once: nothing has to be caught up with yet
    part.drafted = part.drafting = part.staged = false;
    part.side.clear();
  }
  seen_ = context.prompt.size() + 1;
  riding_ = 0;
}

engine::FeatureSet JoinedDrafter::needs() const {
  engine::FeatureSet all;
  for (const JoinedPart& part : parts_) {
    const engine::FeatureSet set = part.drafter->needs();
    all.hidden = all.hidden || set.hidden;
    if (!set.residual_layers.empty()) all.residual_layers = set.residual_layers;
  }
  return all;
}

LargestStep JoinedDrafter::largest_step() const {
  LargestStep all;
  all.rows = 1;
  for (const JoinedPart& part : parts_) {
    const LargestStep step = part.drafter->largest_step();
    all.rows += step.rows - 1;
    all.draft_cost = std::max(all.draft_cost, step.draft_cost);
    all.draft_rows.insert(all.draft_rows.end(), step.draft_rows.begin(), step.draft_rows.end());
  }
  return all;
}

// Of a draft that takes so many forwards, in plain steps; what went by without a draft is computed
// first.
double JoinedDrafter::cost_of(const JoinedPart& part, double forwards) const {
  if (!part.dear || part.draft_rows.empty()) return 0;
  double rows = 0;
  const size_t whole = static_cast<size_t>(std::max(forwards + 0.5, 1.0));
  for (size_t i = 0; i < whole; ++i)
    rows += price_(std::max(part.draft_rows[std::min(i, part.draft_rows.size() - 1)], 1));
  if (part.lag > 1 && part.drafter->must_catch_up()) rows += price_(part.lag);
  return part.cost * rows;
}

JoinedDrafter::Outlook JoinedDrafter::outlook() {
  plan_.reset(joined_.tree().token[0]);
  choice_.choose(
      joined_.tree(), [this](int node) { return joined_.acceptance(node); }, {.riding = beside_},
      plan_);
  return {choice_.expected(), joined_.surest_first(), 0, plan_.size()};
}

// A part brings what it brought so far where the others' first token is wrong.
JoinedDrafter::Outlook JoinedDrafter::with(const Outlook& before, const JoinedPart& part) const {
  Outlook after = before;
  after.tokens += (1 - before.sure) * part.gain;
  after.sure = std::max(before.sure, part.acceptance.of(0, 1, 0));
  after.spent += cost_of(part, part.forwards);
  after.rows += static_cast<int>(part.nodes + 0.5);
  return after;
}

bool JoinedDrafter::asks(JoinedPart& part, const Outlook& before) const {
  if (options_.first && before.sure >= options_.enough) return false;
  if (!part.dear) return true;
  const auto speed = [this](const Outlook& o) {
    return o.tokens / (price_(o.rows + beside_) + o.spent);
  };
  if (speed(with(before, part)) > speed(before)) {
    part.interval = 1;
    return true;
  }
  if (part.lag < part.interval) return false;
  part.interval = std::min(2 * part.interval, kRarestTrial);
  return true;
}

void JoinedDrafter::begin(JoinedPart& part, std::span<const int32_t> sequence, int max_depth) {
  part.draft.tree.reset(sequence.back());
  part.drafter->draft(sequence, max_depth, part.draft.tree);
  part.last_text = sequence.size();
  part.drafted = true;
  part.drafting = part.dear;
  part.ran = 0;
  if (!part.dear) complete(part);
}

void JoinedDrafter::complete(JoinedPart& part) {
  part.drafting = false;
  part.draft.rate(*part.drafter);
  part.watched.watch(part.draft);
  joined_.add(
      part.draft.tree, [&part](int node) { return part.acceptance.of(part.draft, node); },
      part.node_of);
  if (part.dear) note_worth(part);
}

void JoinedDrafter::note_worth(JoinedPart& part) {
  plan_.reset(part.draft.tree.token[0]);
  choice_.choose(
      part.draft.tree, [&part](int node) { return part.acceptance.of(part.draft, node); },
      {.riding = beside_}, plan_);
  part.gain += kRecent * (choice_.expected() - 1 - part.gain);
  part.nodes += kRecent * (plan_.drafted() - part.nodes);
  part.forwards += kRecent * (part.ran - part.forwards);
}

void JoinedDrafter::draft(std::span<const int32_t> sequence, int max_depth, TokenTree&) {
  beside_ = riding_;
  riding_ = 0;
  for (; seen_ < sequence.size(); ++seen_)
    for (JoinedPart& part : parts_) part.watched.see(sequence[seen_], part.acceptance);
  joined_.reset(sequence.back());
  Outlook so_far;
  bool free_ones = true;
  for (JoinedPart& part : parts_) {
    part.lag = static_cast<int>(sequence.size() - part.last_text);
    part.drafted = part.drafting = part.staged = false;
    part.side.clear();
    // Free drafts are there already when the others are weighed.
    if (!part.dear) so_far.sure = joined_.surest_first();
    if (part.dear && std::exchange(free_ones, false)) so_far = outlook();
    if (!asks(part, so_far)) continue;
    begin(part, sequence, max_depth);
    if (part.dear) so_far = with(so_far, part);
  }
}

bool JoinedDrafter::stage(TokenTree& tree) {
  if (group_ != nullptr) {
    JoinedPart& part = parts_[dear_[group_->at()]];
    if (part.drafting) {
      if (part.drafter->stage(part.draft.tree)) {
        part.staged = true;
        ++part.ran;
        group_->note_staged();
        return true;
      }
      complete(part);
    }
    if (!group_->last()) return true;  // waits for the other slots
  }
  choose(tree);
  return false;
}

void JoinedDrafter::take(TokenTree&) {
  JoinedPart& part = parts_[dear_[group_->at()]];
  if (std::exchange(part.staged, false)) part.drafter->take(part.draft.tree);
}

void JoinedDrafter::choose(TokenTree& tree) {
  double spent = 0;
  for (const JoinedPart& part : parts_)
    if (part.drafted) spent += cost_of(part, part.ran);
  choice_.choose(
      joined_.tree(), [this](int node) { return joined_.acceptance(node); },
      {.riding = beside_, .spent = spent}, tree);
  joined_of_.assign(static_cast<size_t>(tree.size()), 0);
  const std::span<const int> node_of = choice_.node_of();
  for (size_t i = 1; i < node_of.size(); ++i)
    if (node_of[i] > 0) joined_of_[static_cast<size_t>(node_of[i])] = static_cast<int>(i);
}

void JoinedDrafter::side_rows(int max_rows, SideRows& rows) {
  for (JoinedPart& part : parts_) {
    part.first_side = rows.size();
    if (!part.drafted) continue;  // they go on from its draft
    part.drafter->side_rows(max_rows - rows.size(), part.side);
    for (size_t i = 0; i < part.side.token.size(); ++i) {
      const int32_t parent = part.side.parent[i];
      EVALRUN_CHECK(part.side.token[i] >= 0 && parent >= SideRows::under(0),
                    "a part of joined drafts has masks or rows under draft nodes");
      rows.add(part.side.token[i], parent < 0 ? parent : part.first_side + parent,
               part.side.read[i] != 0);
    }
  }
  riding_ = rows.size();
}

void JoinedDrafter::side_tops(int32_t root, std::span<const int32_t> rows) {
  for (JoinedPart& part : parts_)
    if (part.side.size() > 0)
      part.drafter->side_tops(root, rows.subspan(static_cast<size_t>(part.first_side),
                                                 static_cast<size_t>(part.side.size())));
}

TargetWants JoinedDrafter::wants() const {
  TargetWants all;
  for (const JoinedPart& part : parts_) {
    const TargetWants wants = part.drafter->wants();
    all.best = std::max(all.best, wants.best);
    all.log_sums = all.log_sums || wants.log_sums;
    all.tokens = all.tokens || wants.tokens;
  }
  return all;
}

// Of all that was verified, whichever part drafted it: more to learn from.
void JoinedDrafter::learn(std::span<const int32_t> sequence, const TokenTree& tree,
                          std::span<const int> path, TargetAnswers& answers) {
  for (const JoinedPart& part : parts_) {
    const TargetWants wants = part.drafter->wants();
    if (!wants.any()) continue;
    answers.narrow(wants.best);
    part.drafter->learn(sequence, tree, path, answers);
  }
}

void JoinedDrafter::accepted(std::span<const int> path, int32_t bonus) {
  on_path_.assign(static_cast<size_t>(joined_.tree().size()), 0);
  for (size_t i = 0; i < path.size(); ++i) {
    const int node = joined_of_[static_cast<size_t>(path[i])];
    on_path_[static_cast<size_t>(node)] = static_cast<int>(i) + 1;
  }
  for (JoinedPart& part : parts_)
    if (std::exchange(part.drafted, false)) tell(part, path, bonus);
}

// The longest beginning of the accepted path that the part has drafted, in its own nodes. What
// followed it in the text is its next root; the part catches up where the text went on without it.
void JoinedDrafter::tell(JoinedPart& part, std::span<const int> path, int32_t bonus) {
  int last = 0, length = 0;
  for (int i = 1; i < part.draft.tree.size(); ++i) {
    const int node = part.node_of[static_cast<size_t>(i)];
    const int place = on_path_[static_cast<size_t>(node)];
    if (place <= length) continue;
    length = place;
    last = i;
  }
  part.path.clear();
  for (int node = last; node > 0; node = part.draft.tree.parent[static_cast<size_t>(node)])
    part.path.push_back(node);
  std::reverse(part.path.begin(), part.path.end());
  const auto at = static_cast<size_t>(length);
  if (at < path.size()) {
    const int next = joined_of_[static_cast<size_t>(path[at])];
    bonus = joined_.tree().token[static_cast<size_t>(next)];
  }
  part.drafter->accepted(part.path, bonus);
}

size_t JoinedDrafter::extra_parameter_bytes() const {
  size_t bytes = 0;
  for (const JoinedPart& part : parts_) bytes += part.drafter->extra_parameter_bytes();
  return bytes;
}

size_t JoinedDrafter::extra_kv_bytes() const {
  size_t bytes = 0;
  for (const JoinedPart& part : parts_) bytes += part.drafter->extra_kv_bytes();
  return bytes;
}

}  // namespace

std::unique_ptr<Drafter> make_joined(std::vector<std::unique_ptr<Drafter>> parts,
                                     const JoinOptions& options,
                                     const engine::RowCostTable* costs) {
  EVALRUN_CHECK(parts.size() >= 2, "joined drafts of {} parts", parts.size());
  std::stable_partition(parts.begin(), parts.end(), [](const std::unique_ptr<Drafter>& part) {
    return part->group() == nullptr;
  });
  std::vector<DraftGroup*> groups;
  std::vector<int> layers;
  for (const std::unique_ptr<Drafter>& part : parts) {
    if (DraftGroup* const group = part->group(); group != nullptr) groups.push_back(group);
    const std::vector<int> own = part->needs().residual_layers;
    if (!own.empty() && !layers.empty() && own != layers)
      throw base::usage_error("hybrid: two parts read streams of different layers of the target",
                              "take one of them (their adapters' residual_layers)");
    if (!own.empty()) layers = own;
  }
  std::shared_ptr<JoinedGroup> group;
  if (!groups.empty()) group = std::make_shared<JoinedGroup>(std::move(groups));
  return std::make_unique<JoinedDrafter>(std::move(parts), options, costs, std::move(group));
}

}  // namespace evalrun::methods
