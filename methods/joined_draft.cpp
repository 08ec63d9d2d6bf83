#include "methods/joined_draft.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "methods/draft_choice.h"
#include "methods/joined_group.h"
#include "methods/joined_part.h"
#include "methods/joined_tree.h"
#include "methods/loss_account.h"

namespace evalrun::methods {
namespace {

constexpr double kRecent = 0.2;    // weight of the newest draft in what a part brings and costs
constexpr int kRarestTrial = 128;  // tokens between trials of a part that does not pay

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
  Outlook outlook();
  Outlook with(const Outlook& before, const JoinedPart& part) const;
  bool pays(const JoinedPart& part, const Outlook& before) const;
  int depth_of(JoinedPart& part, const Outlook& before, int max_depth) const;
  int affordable_depth(const JoinedPart& part, const Outlook& before, int max_depth) const;
  void open_step(std::span<const int32_t> sequence);
  void draft_joined(std::span<const int32_t> sequence, int max_depth);
  void draft_by_bandit(std::span<const int32_t> sequence, int max_depth);
  void begin(JoinedPart& part, std::span<const int32_t> sequence, int max_depth);
  void complete(JoinedPart& part);
  void note_worth(JoinedPart& part);
  TargetWants wants_of(const JoinedPart& part) const;
  void choose(TokenTree& tree);

  const JoinOptions options_;
  const engine::RowCostTable* const costs_;
  const RowPrice price_;
  std::vector<JoinedPart> parts_;  // those that cost nothing first
  std::vector<size_t> dear_;       // parts that draft by forwards, in the order of group_
  const std::shared_ptr<JoinedGroup> group_;
  LossAccount account_;
  DraftBandit bandit_;
  size_t seen_ = 0;  // tokens of the text that are accounted for
  int riding_ = 0;   // side rows of the last step
  // Of this step.
  bool open_ = false;  // it has drafted, and what came of it is not known
  double spent_ = 0;   // plain steps that its drafts have cost
  int verified_ = 1;   // rows, without side rows
  int beside_ = 0;     // side rows that are expected
  JoinedTree joined_;
  DraftChoice choice_{price_};
  TokenTree plan_;              // not verified: what would be chosen
  std::vector<int> joined_of_;  // [node of the verified tree]
  std::vector<int> on_path_;    // [joined node] its place on the accepted path, from 1; 0 = none
  std::vector<int32_t> path_;   // tokens of the accepted path
};

std::vector<bool> cost_nothing(const std::vector<std::unique_ptr<Drafter>>& drafters) {
  std::vector<bool> free;
  for (const std::unique_ptr<Drafter>& drafter : drafters)
    free.push_back(drafter->group() == nullptr);
  return free;
}

JoinedDrafter::JoinedDrafter(std::vector<std::unique_ptr<Drafter>> drafters,
                             const JoinOptions& options, const engine::RowCostTable* costs,
                             std::shared_ptr<JoinedGroup> group)
    : options_(options),
      costs_(costs),
      price_(costs),
      group_(std::move(group)),
      bandit_(cost_nothing(drafters)) {
  const int most = engine::kMaxRows * static_cast<int>(drafters.size());
  parts_.resize(drafters.size());
  for (size_t i = 0; i < drafters.size(); ++i) {
    parts_[i].own(std::move(drafters[i]));
    if (parts_[i].dear) dear_.push_back(i);
  }
  joined_.reserve(most);
  choice_.reserve(most);
  plan_.reserve(engine::kMaxRows);
  joined_of_.reserve(engine::kMaxRows);
  on_path_.reserve(static_cast<size_t>(most));
  path_.reserve(engine::kMaxRows);
}

void JoinedDrafter::start(const GenerationContext& context) {
  GenerationContext passed_on = context;
  passed_on.may_keep_dists = false;  // drafts are matched, whatever they were drawn from
  for (JoinedPart& part : parts_) part.start(passed_on);
  account_.start(context.max_new);
  bandit_.start();
  seen_ = context.prompt.size() + 1;
  riding_ = 0;
  open_ = false;
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
  after.spent += part.cost_of(part.forwards, price_);
  after.rows += static_cast<int>(part.nodes + 0.5);
  return after;
}

bool JoinedDrafter::pays(const JoinedPart& part, const Outlook& before) const {
  const auto speed = [this](const Outlook& o) {
    return o.tokens / (price_(o.rows + beside_) + o.spent);
  };
  return speed(with(before, part)) > speed(before);
}

// Levels that a part drafts which costs forwards; 0 = it is not asked.
int JoinedDrafter::depth_of(JoinedPart& part, const Outlook& before, int max_depth) const {
  const bool worth = pays(part, before);
  if (!worth && part.lag < part.interval) return 0;
  const int depth = affordable_depth(part, before, max_depth);
  if (depth > 0) part.interval = worth ? 1 : std::min(2 * part.interval, kRarestTrial);
  return depth;
}

// Levels that the account affords: at worst nothing comes true of what is verified. A part that
// needs as many forwards whatever the depth has all of them or none. The first draft of an answer
// is made in any case: nothing else tells what a part is worth.
int JoinedDrafter::affordable_depth(const JoinedPart& part, const Outlook& before,
                                    int max_depth) const {
  const int most = static_cast<int>(part.draft_rows.size());
  const auto affords = [&](int forwards) {
    const int rows = before.rows + beside_ + static_cast<int>(part.nodes + 0.5);
    return account_.affords(before.spent + part.cost_of(forwards, price_) + price_(rows) - 1);
  };
  if (affords(most)) return max_depth;
  int depth = std::min(most - 1, max_depth);
  while (depth > 0 && !affords(depth)) --depth;
  if (depth > 0) return depth;
  return part.tried ? 0 : std::min(1, max_depth);
}

void JoinedDrafter::begin(JoinedPart& part, std::span<const int32_t> sequence, int max_depth) {
  part.draft.tree.reset(sequence.back());
  part.drafter->draft(sequence, max_depth, part.draft.tree);
  part.last_text = sequence.size();
  part.drafted = true;
  part.drafting = part.dear;
  part.tried = true;
  part.ran = 0;
  if (part.dear) return;
  part.backoff.asked(sequence, part.draft.tree);
  complete(part);
}

void JoinedDrafter::complete(JoinedPart& part) {
  part.drafting = false;
  part.draft.rate(*part.drafter);
  part.watched.watch(part.draft);
  if (part.joins)
    part.join(joined_);
  else
    part.node_of.assign(static_cast<size_t>(part.draft.tree.size()), 0);
  if (part.dear || options_.mode == JoinMode::kBandit) note_worth(part);
}

void JoinedDrafter::note_worth(JoinedPart& part) {
  plan_.reset(part.draft.tree.token[0]);
  choice_.choose(
      part.draft.tree, [&part](int node) { return part.acceptance.of(part.draft, node); },
      {.riding = beside_}, plan_);
  if (options_.mode == JoinMode::kBandit)
    part.held.hold(plan_, price_(plan_.size() + beside_) + part.cost_of(part.ran, price_));
  part.gain += kRecent * (choice_.expected() - 1 - part.gain);
  part.nodes += kRecent * (plan_.drafted() - part.nodes);
  part.forwards += kRecent * (part.ran - part.forwards);
}

// What came since the last step.
void JoinedDrafter::open_step(std::span<const int32_t> sequence) {
  beside_ = riding_;
  riding_ = 0;
  for (; seen_ < sequence.size(); ++seen_)
    for (size_t i = 0; i < parts_.size(); ++i) {
      JoinedPart& part = parts_[i];
      part.watched.see(sequence[seen_], part.acceptance);
      if (const double reward = part.held.see(sequence[seen_]); reward >= 0)
        bandit_.note(static_cast<int>(i), reward);
    }
  joined_.reset(sequence.back());
  for (JoinedPart& part : parts_) {
    part.lag = static_cast<int>(sequence.size() - part.last_text);
    part.drafted = part.drafting = part.staged = part.joins = false;
    part.side.clear();
  }
  open_ = true;
}

void JoinedDrafter::draft(std::span<const int32_t> sequence, int max_depth, TokenTree&) {
  open_step(sequence);
  if (options_.mode == JoinMode::kBandit)
    draft_by_bandit(sequence, max_depth);
  else
    draft_joined(sequence, max_depth);
}

void JoinedDrafter::draft_joined(std::span<const int32_t> sequence, int max_depth) {
  Outlook so_far;
  bool free_ones = true;
  for (JoinedPart& part : parts_) {
    // Free drafts are there already when the others are weighed.
    if (!part.dear) so_far.sure = joined_.surest_first();
    if (part.dear && std::exchange(free_ones, false)) so_far = outlook();
    if (options_.mode == JoinMode::kFirst && so_far.sure >= options_.enough) continue;
    const int depth = part.dear                    ? depth_of(part, so_far, max_depth)
                      : part.backoff.due(sequence) ? max_depth
                                                   : 0;
    if (depth == 0) continue;
    part.joins = true;
    begin(part, sequence, depth);
    if (part.dear) so_far = with(so_far, part);
  }
}

// Look-ups draft whatever is chosen: they are told what they would have given.
void JoinedDrafter::draft_by_bandit(std::span<const int32_t> sequence, int max_depth) {
  const auto levels = [&](int arm) {
    return affordable_depth(parts_[static_cast<size_t>(arm)], Outlook{}, max_depth);
  };
  const int chosen = bandit_.choose([&](int arm) { return levels(arm) > 0; });
  for (size_t i = 0; i < parts_.size(); ++i) {
    JoinedPart& part = parts_[i];
    part.joins = chosen == static_cast<int>(i);
    if (part.dear ? part.joins : part.backoff.due(sequence))
      begin(part, sequence, part.dear ? levels(chosen) : max_depth);
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
  spent_ = 0;
  for (const JoinedPart& part : parts_)
    if (part.drafted) spent_ += part.cost_of(part.ran, price_);
  choice_.choose(
      joined_.tree(), [this](int node) { return joined_.acceptance(node); },
      {.riding = beside_, .spent = spent_}, tree);
  verified_ = tree.size();
  joined_of_.assign(static_cast<size_t>(tree.size()), 0);
  const std::span<const int> node_of = choice_.node_of();
  for (size_t i = 1; i < node_of.size(); ++i)
    if (node_of[i] > 0) joined_of_[static_cast<size_t>(node_of[i])] = static_cast<int>(i);
  for (JoinedPart& part : parts_)
    if (part.drafted && !part.dear)
      part.backoff.note_used(std::ranges::any_of(part.node_of, [&](int node) {
        return node_of[static_cast<size_t>(node)] > 0;  // the root became 0
      }));
}

void JoinedDrafter::side_rows(int max_rows, SideRows& rows) {
  for (JoinedPart& part : parts_) {
    part.first_side = rows.size();
    if (!part.drafted || !part.joins) continue;  // they go on from its draft
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

TargetWants JoinedDrafter::wants_of(const JoinedPart& part) const {
  return verified_ == 1 ? part.drafter->idle_wants() : part.drafter->wants();
}

TargetWants JoinedDrafter::wants() const {
  TargetWants all;
  for (const JoinedPart& part : parts_) {
    const TargetWants wants = wants_of(part);
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
    const TargetWants wants = wants_of(part);
    if (!wants.any()) continue;
    answers.narrow(wants.best);
    part.drafter->learn(sequence, tree, path, answers);
  }
}

void JoinedDrafter::accepted(std::span<const int> path, int32_t bonus) {
  if (!std::exchange(open_, false)) return;  // the last token of an answer, without a draft
  account_.settle(static_cast<int>(path.size()) + 1, price_(verified_ + riding_) + spent_);
  on_path_.assign(static_cast<size_t>(joined_.tree().size()), 0);
  path_.clear();
  for (const int node : path) {
    const auto joined = static_cast<size_t>(joined_of_[static_cast<size_t>(node)]);
    path_.push_back(joined_.tree().token[joined]);
    on_path_[joined] = static_cast<int>(path_.size());
  }
  for (JoinedPart& part : parts_)
    if (std::exchange(part.drafted, false)) part.tell(on_path_, path_, bonus);
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
