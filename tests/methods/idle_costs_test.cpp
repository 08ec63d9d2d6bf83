// What speculation costs while it does not pay: look-ups that are asked rarely, learning that reads
// no logits, the account of joined drafts, and the bandit among their parts. In the prices of rows
// that are given here; nothing is timed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/draft_bandit.h"
#include "methods/idle_backoff.h"
#include "methods/joined_draft.h"
#include "methods/lookup/candidate_matrix.h"
#include "methods/loss_account.h"
#include "methods/model_draft/model_drafter.h"
#include "methods/step.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::idle_costs_test {
namespace {

using methods::DraftBandit;
using methods::HeldPlan;
using methods::JoinMode;
using methods::LossAccount;
using methods::TokenTree;
using testing::ElementsAre;

constexpr int kVocab = 40;
constexpr double kRow = 0.1, kForward = 0.2;  // plain steps

engine::RowCostTable row_prices() {
  engine::RowCostTable table;
  for (const int n : {1, 2, 4, 8, 16, 32, 64, 512}) {
    engine::RowCost cost;
    cost.rows = n;
    cost.ms = 10 * (1 + kRow * (n - 1));
    table.rows.push_back(cost);
  }
  return table;
}

LogitTable counts_on() {
  return [](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[static_cast<size_t>((context.back() + 1) % kVocab)] = 1;
  };
}

LogitTable never_right() {
  return [](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[static_cast<size_t>((context.back() + 7) % kVocab)] = 1;
  };
}

// ---- Look-ups that are asked rarely.

TokenTree first_choice(int32_t root, int32_t token) {
  TokenTree tree;
  tree.reset(root);
  if (token >= 0) tree.add(token, 0);
  return tree;
}

// Lengths of the text at which it is asked, of a text of `n` tokens 0, 1, 2, ... `guess(length)`:
// the first choice of a draft then.
template <typename Guess>
std::vector<size_t> asked_at(int rarest, size_t n, const Guess& guess, size_t used_at = 0) {
  methods::IdleBackoff backoff;
  backoff.start(rarest);
  Tokens text;
  std::vector<size_t> asked;
  while (text.size() < n) {
    text.push_back(static_cast<int32_t>(text.size()));
    if (!backoff.due(text)) continue;
    asked.push_back(text.size());
    backoff.asked(text, first_choice(text.back(), guess(text.size())));
    backoff.note_used(text.size() == used_at);
  }
  return asked;
}

TEST(IdleBackoff, AsksEverMoreSeldomUntilSomethingComesTrue) {
  const auto wrong = [](size_t) { return 1000; };
  const auto none = [](size_t) { return -1; };
  EXPECT_THAT(asked_at(8, 40, wrong), ElementsAre(1, 3, 7, 15, 23, 31, 39));
  EXPECT_THAT(asked_at(8, 40, none), ElementsAre(1, 3, 7, 15, 23, 31, 39));
  EXPECT_EQ(asked_at(1, 40, wrong).size(), 40u) << "as published";
  const auto right = [](size_t length) { return static_cast<int32_t>(length); };
  EXPECT_EQ(asked_at(8, 40, right).size(), 40u) << "its first choice comes every time";
  const auto right_at_7 = [](size_t length) { return length == 7 ? 7 : 1000; };
  EXPECT_THAT(asked_at(8, 20, right_at_7), ElementsAre(1, 3, 7, 8, 10, 14));
  EXPECT_THAT(asked_at(8, 20, wrong, 7), ElementsAre(1, 3, 7, 8, 10, 14)) << "it was verified";
}

class SeldomAsked final : public methods::Drafter {
 public:
  explicit SeldomAsked(int* asked) : asked_(asked) {}
  void start(const methods::GenerationContext&) override {}
  void draft(std::span<const int32_t>, int, TokenTree& tree) override {
    ++*asked_;
    tree.add(0, 0);
  }
  int rarest_query() const override { return 32; }
  double expected(int, int) const override { return 0.01; }

 private:
  int* const asked_;
};

Turn long_turn(int max_new) {
  Turn turn{{1, 2, 3}};
  turn.max_new = max_new;
  return turn;
}

LogitTable always_five() {
  return [](std::span<const int32_t>, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[5] = 1;
  };
}

TEST(IdleBackoff, AdaptiveAndJoinedDraftsAskALookUpRarely) {
  const engine::RowCostTable costs = row_prices();
  int asked = 0;
  const auto adaptive = methods::make_speculative_method(
      methods::make_adaptive(std::make_unique<SeldomAsked>(&asked), &costs));
  FakeSession session(kVocab, 1000, always_five());
  run(*adaptive, session, long_turn(320));
  EXPECT_LE(asked, 5 + 320 / 32);
  EXPECT_GE(asked, 320 / 32);

  int first = 0, second = 0;
  std::vector<std::unique_ptr<methods::Drafter>> parts;
  parts.push_back(std::make_unique<SeldomAsked>(&first));
  parts.push_back(std::make_unique<SeldomAsked>(&second));
  const auto joined =
      methods::make_speculative_method(methods::make_joined(std::move(parts), {}, &costs));
  session.reset();
  run(*joined, session, long_turn(320));
  EXPECT_LE(first, 5 + 320 / 32);
  EXPECT_EQ(first, second);
}

// ---- Learning without logits.

TEST(CandidateMatrix, PutsATokenBeforeTheOthersOfItsRow) {
  methods::CandidateMatrix matrix(4, 3);
  const auto row = [&](int32_t token) {
    return Tokens{matrix.at(token, 0), matrix.at(token, 1), matrix.at(token, 2)};
  };
  matrix.put_first(2, 7);
  EXPECT_THAT(row(2), ElementsAre(7, -1, -1));
  matrix.put_first(2, 8);
  matrix.put_first(2, 9);
  EXPECT_THAT(row(2), ElementsAre(9, 8, 7));
  matrix.put_first(2, 7);
  EXPECT_THAT(row(2), ElementsAre(7, 9, 8)) << "one that is there moves";
  matrix.put_first(2, 1);
  EXPECT_THAT(row(2), ElementsAre(1, 7, 9)) << "the last one goes";
  EXPECT_THAT(row(1), ElementsAre(-1, -1, -1));
}

// Counts the steps whose rows are read for their likeliest tokens.
TEST(Recycling, ReadsFewLogitsWhileItDraftsNothing) {
  const engine::RowCostTable costs = row_prices();
  for (const bool adaptive : {false, true}) {
    methods::MethodBuildContext context;
    context.target = small_model(1, 2000);
    context.session = session_options(1000);
    context.row_cost = &costs;
    const auto spec = methods::parse_method(adaptive ? "recycling:adaptive=true" : "recycling");
    const auto method = spec.info->build(spec.params, context);
    // Nothing repeats, so that no row is known of any root.
    FakeSession session(2000, 1000, [](std::span<const int32_t> text, std::span<float> logits) {
      std::fill(logits.begin(), logits.end(), 0.0f);
      logits[text.size() + 1000] = 1;
    });
    int steps = 0, reading = 0;
    session.watch = [&](const engine::ForwardRequest& request) {
      ++steps;
      reading += request.best > 0;
    };
    run(*method, session, long_turn(200));
    if (adaptive)
      EXPECT_LE(reading, 1 + 200 / 32);
    else
      EXPECT_GE(reading, steps - 2) << "as published; not for the prompt, not in the last step";
    EXPECT_GE(reading, 1);
  }
}

// ---- The account.

TEST(LossAccount, GrantsAShareAndKeepsLittleOfWhatIsGained) {
  LossAccount account;
  account.start(1000);
  EXPECT_NEAR(account.floor(), -1.28, 1e-12);
  EXPECT_TRUE(account.affords(1.27));
  EXPECT_FALSE(account.affords(1.29));
  account.settle(1, 2.2);
  EXPECT_NEAR(account.balance(), -1.2, 1e-12);
  EXPECT_FALSE(account.affords(0.2));
  for (int i = 0; i < 63; ++i) account.settle(1, 1);
  EXPECT_NEAR(account.floor(), -0.03 * 64, 1e-12) << "3 % of 64 tokens";
  EXPECT_TRUE(account.affords(0.7));
  for (int i = 0; i < 100; ++i) account.settle(3, 1);
  EXPECT_DOUBLE_EQ(account.balance(), LossAccount::kMostCredit);
  account.start(32);
  EXPECT_EQ(account.balance(), 0);
  EXPECT_NEAR(account.floor(), -0.64, 1e-12);
}

struct Joined {
  double balance = 0, lowest_above_floor = 0;  // of the account, by the true prices; least so far
  int forwards = 0;                            // of the draft model
  int tokens = 0;
};

// A look-up that drafts nothing and a draft model, `draft`, on a text that counts.
Joined run_joined(const LogitTable& draft, int max_new, JoinMode mode) {
  const engine::RowCostTable costs = row_prices();
  Joined result;
  methods::ModelDrafter::Options options;
  options.length.k = 5;
  options.draft_vocab = options.common_vocab = kVocab;
  options.cost = kForward;
  auto draft_session = std::make_unique<FakeSession>(kVocab, 4000, draft);
  const FakeSession& drafts = *draft_session;
  int asked = 0;
  std::vector<std::unique_ptr<methods::Drafter>> parts;
  parts.push_back(std::make_unique<SeldomAsked>(&asked));
  parts.push_back(std::make_unique<methods::ModelDrafter>(std::move(draft_session), options));
  const auto method =
      methods::make_speculative_method(methods::make_joined(std::move(parts), {mode}, &costs));
  FakeSession session(kVocab, 4000, counts_on());
  LossAccount account;
  account.start(max_new);
  std::vector<int> drafted_by;  // forwards of the draft model before each forward of the target
  session.watch = [&](const engine::ForwardRequest&) { drafted_by.push_back(drafts.forwards); };
  const auto turn = run(*method, session, long_turn(max_new));
  int lag = 1;
  for (size_t i = 0; i < turn.steps.size(); ++i) {
    const auto& step = turn.steps[i];
    // The first forward of the target has read the prompt's end.
    const int forwards = drafted_by[i + 1] - drafted_by[i];
    double cost = costs.ratio(step.rows) + kForward * forwards;
    if (forwards > 0 && lag > 1) cost += kForward * costs.ratio(lag);
    lag = forwards > 0 ? step.emitted : lag + step.emitted;
    account.settle(step.emitted, cost);
    result.forwards += forwards;
    result.tokens += step.emitted;
    result.lowest_above_floor =
        std::min(result.lowest_above_floor, account.balance() - account.floor());
  }
  result.balance = account.balance();
  return result;
}

// A step of one level: a forward, and the rows that the prior of five levels lets it verify.
constexpr double kOneTry = kForward + 5 * kRow;

TEST(LossAccount, AUselessPartNeverLosesMoreThanTheBoundAndOneTry) {
  for (const JoinMode mode : {JoinMode::kMerge, JoinMode::kBandit})
    for (const int max_new : {32, 64, 300, 2000}) {
      const Joined got = run_joined(never_right(), max_new, mode);
      EXPECT_GT(got.forwards, 0) << "it is given a chance";
      EXPECT_GE(got.lowest_above_floor, -kOneTry) << max_new;
      EXPECT_GE(got.balance, -0.03 * std::max(got.tokens, 64) - kOneTry) << max_new;
    }
}

TEST(LossAccount, AGoodPartIsNotHeldBack) {
  for (const JoinMode mode : {JoinMode::kMerge, JoinMode::kBandit}) {
    const Joined got = run_joined(counts_on(), 400, mode);
    EXPECT_GT(got.balance, 10) << "six tokens for 2.5 plain steps, once the account affords it";
    EXPECT_GT(got.forwards, 100);
  }
}

// ---- The bandit.

TEST(DraftBandit, FollowsTheBetterOfTwoThatAreTold) {
  DraftBandit bandit({true, true});
  const auto any = [](int) { return true; };
  EXPECT_EQ(bandit.choose(any), 0) << "nothing is known: the first";
  for (int i = 0; i < 20; ++i) {
    bandit.note(0, 1.2);
    bandit.note(1, 1.5);
  }
  EXPECT_EQ(bandit.choose(any), 1);
  bandit.start();
  EXPECT_EQ(bandit.choose(any), 0) << "nothing is left of the answer before";
  for (int i = 0; i < 20; ++i) {
    bandit.note(0, 0.9);
    bandit.note(1, 0.8);
  }
  EXPECT_EQ(bandit.choose(any), DraftBandit::kPlain);
}

TEST(DraftBandit, TriesWhatIsNotToldAndLeavesWhatMayNotBe) {
  DraftBandit bandit({true, false});
  EXPECT_EQ(bandit.choose([](int) { return false; }), 0);
  EXPECT_EQ(bandit.choose([](int) { return true; }), 1) << "it is not known";
  for (int i = 0; i < 5; ++i) bandit.note(1, 0.1);
  bandit.note(0, 1);
  EXPECT_EQ(bandit.choose([](int) { return true; }), 0);
  EXPECT_THROW(bandit.note(0, -1), base::InternalError);
}

// Two arms change places every 250 steps; the better gives 2, the worse 1.
double regret(bool told, int steps) {
  DraftBandit bandit({told, told});
  double lost = 0;
  for (int t = 0; t < steps; ++t) {
    const int better = t / 250 % 2;
    const int chosen = bandit.choose([](int) { return true; });
    for (int arm = 0; arm < 2; ++arm)
      if (told || arm == chosen) bandit.note(arm, arm == better ? 2 : 1);
    lost += chosen == better ? 0 : 1;
  }
  return lost;
}

TEST(DraftBandit, ItsRegretIsBoundedWhereArmsChangePlaces) {
  // A change is found within about 50 steps: the window of what fades. 125 of 250 without learning.
  EXPECT_LE(regret(true, 1000), 4 * 50);
  EXPECT_LE(regret(false, 1000), 4 * 75);
  EXPECT_EQ(regret(false, 1000), regret(false, 1000)) << "nothing is drawn";
}

TEST(HeldPlan, TellsWhatAPlanGaveWhetherOrNotItWasVerified) {
  TokenTree plan;
  plan.reset(9);
  plan.add_path(Tokens{1, 2}, false);
  plan.add(4, 0);
  HeldPlan held;
  held.hold(plan, 1.5);
  EXPECT_EQ(held.see(1), -1);
  held.hold(first_choice(1, 8), 1);  // another one is open
  EXPECT_EQ(held.see(2), -1);
  EXPECT_DOUBLE_EQ(held.see(3), 3 / 1.5) << "two of it, and the target's own";
  EXPECT_EQ(held.see(3), -1) << "it has ended";
  held.hold(first_choice(3, -1), 1);
  EXPECT_DOUBLE_EQ(held.see(5), 1) << "plain decoding";
}

}  // namespace
}  // namespace evalrun::tests::idle_costs_test
