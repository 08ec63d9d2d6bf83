// Joined drafts: how trees are merged, what of them is verified, which parts are asked, and that no
// combination of parts changes the text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/base/error.h"
#include "methods/draft_choice.h"
#include "methods/faults.h"
#include "methods/joined_draft.h"
#include "methods/joined_tree.h"
#include "methods/step.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::hybrid_test {
namespace {

using methods::DraftChoice;
using methods::JoinedTree;
using methods::parse_method;
using methods::RowPrice;
using methods::TokenTree;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

engine::RowCostTable linear_prices(double per_row) {
  engine::RowCostTable table;
  for (const int n : {1, 2, 4, 8, 16, 32, 64, 512}) {
    engine::RowCost cost;
    cost.rows = n;
    cost.ms = 10 * (1 + per_row * (n - 1));
    table.rows.push_back(cost);
  }
  return table;
}

TokenTree chain(const Tokens& tokens) {
  TokenTree tree;
  tree.reset(9);
  tree.add_path(tokens, false);
  return tree;
}

// ---- The tree.

TEST(JoinedTree, HoldsEachPathOnceWithTheLargestEstimate) {
  TokenTree branching = chain({1, 2, 3});
  branching.add(2, 0);
  branching.add(1, 0);  // a draft may hold equal siblings itself
  const TokenTree other = chain({1, 2, 4});
  JoinedTree joined;
  std::vector<int> first, second;
  for (int step = 0; step < 2; ++step) {  // reset() forgets the first
    joined.reset(9);
    EXPECT_EQ(joined.surest_first(), 0);
    joined.add(
        branching, [](int node) { return 0.1 * node; }, first);
    joined.add(
        other, [](int) { return 0.25; }, second);
    EXPECT_THAT(joined.tree().token, ElementsAre(9, 1, 2, 3, 2, 4));
    EXPECT_THAT(joined.tree().parent, ElementsAre(-1, 0, 1, 2, 0, 2));
    EXPECT_THAT(first, ElementsAre(0, 1, 2, 3, 4, 1));
    EXPECT_THAT(second, ElementsAre(0, 1, 2, 5));
    EXPECT_DOUBLE_EQ(joined.acceptance(1), 0.5) << "node 5 of the first draft";
    EXPECT_DOUBLE_EQ(joined.acceptance(2), 0.25);
    EXPECT_DOUBLE_EQ(joined.acceptance(5), 0.25);
    EXPECT_DOUBLE_EQ(joined.surest_first(), 0.5);
  }
  JoinedTree elsewhere;
  elsewhere.reset(8);
  EXPECT_THROW(elsewhere.add(
                   other, [](int) { return 1.0; }, first),
               base::InternalError);
}

// ---- The budget.

TokenTree chosen_of(const TokenTree& draft, const std::vector<double>& acceptance, double per_row,
                    const DraftChoice::Limits& limits = {}) {
  const engine::RowCostTable table = linear_prices(per_row);
  const RowPrice price(&table);
  DraftChoice choice(price);
  TokenTree tree;
  tree.reset(9);
  choice.choose(
      draft, [&](int node) { return acceptance[static_cast<size_t>(node)]; }, limits, tree);
  return tree;
}

TEST(DraftChoice, TakesTheLikeliestNodesWhileTheyPay) {
  TokenTree draft = chain({1, 2});
  draft.add(3, 0);
  const std::vector<double> acceptance = {1, 0.9, 0.8, 0.2};  // joint: 0.9, 0.72, 0.2
  EXPECT_THAT(chosen_of(draft, acceptance, 0.01).token, ElementsAre(9, 1, 2, 3));
  // A row costs 0.24 plain steps: 1.9 / 1.24, 2.62 / 1.48, 2.82 / 1.72.
  EXPECT_THAT(chosen_of(draft, acceptance, 0.2).token, ElementsAre(9, 1, 2));
  EXPECT_THAT(chosen_of(draft, acceptance, 2).token, ElementsAre(9)) << "plain decoding";
  // What was spent already makes more of a draft worth it: (2.82 / 4.72) > (2.62 / 4.48).
  EXPECT_THAT(chosen_of(draft, acceptance, 0.2, {.spent = 3}).token, ElementsAre(9, 1, 2, 3));
  EXPECT_THAT(chosen_of(draft, acceptance, 0.01, {.deepest = 1}).token, ElementsAre(9, 1, 3));
}

// ---- The text form.

std::string refusal(const std::string& drafts) {
  try {
    parse_method("hybrid:drafts=" + drafts);
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), HasSubstr("hybrid: drafts=" + drafts));
    return e.what();
  }
  return "no error";
}

TEST(HybridText, PartsKeepTheirParametersInOneSpelling) {
  const auto spec = parse_method("hybrid:drafts= pld( k=04;ngram=3 ) +eagle2(total=59),mode=first");
  EXPECT_EQ(spec.params.text("drafts"), "pld(k=4)+eagle2(total=59)");
  EXPECT_EQ(parse_method(spec.canonical()).canonical(), spec.canonical());
  EXPECT_EQ(parse_method("hybrid:drafts=pld(k=10)+eagle2").canonical(),
            parse_method("hybrid").canonical());
  const std::string tree = "hybrid:drafts=pld+medusa(tree=0+00+1),enough=0.5";
  EXPECT_EQ(parse_method(tree).label(), tree);
  EXPECT_THAT(methods::split_method_list("ar," + tree + ",pld:k={2,3}"),
              ElementsAre("ar", tree, "pld:k=2", "pld:k=3"));
  EXPECT_THAT(methods::split_method_list("hybrid:drafts=pld(k={2,4})+eagle2"),
              ElementsAre("hybrid:drafts=pld(k=2)+eagle2", "hybrid:drafts=pld(k=4)+eagle2"));
}

TEST(HybridText, PartsThatCannotBeJoinedAreRefusedWithTheReason) {
  EXPECT_THAT(refusal("pdl+eagle2"), AllOf(HasSubstr("unknown method 'pdl'"), HasSubstr("pld")));
  EXPECT_THAT(refusal("pld+pld(k=10)"), HasSubstr("the part pld is given twice"));
  EXPECT_THAT(refusal("pld"), HasSubstr("nothing to be joined with"));
  EXPECT_THAT(refusal("pld+pia+eagle2+medusa"), HasSubstr("4 parts"));
  EXPECT_THAT(refusal("pld+bita"), HasSubstr("bita cannot be a part: its masks"));
  EXPECT_THAT(refusal("pld+space"), HasSubstr("space cannot be a part: it changes the target"));
  EXPECT_THAT(refusal("ar+pld"), HasSubstr("ar cannot be a part: it drafts nothing"));
  EXPECT_THAT(refusal("pld+hybrid"), HasSubstr("hybrid cannot be a part"));
  EXPECT_THAT(refusal("pld(adaptive=true)+eagle2"), HasSubstr("leave adaptive=true out"));
  EXPECT_THAT(refusal("pld+medusa(accept=typical)"), HasSubstr("lossy"));
  EXPECT_THAT(refusal("pld(kk=3)+eagle2"), HasSubstr("unknown parameter 'kk'"));
  EXPECT_THAT(refusal("pld(k=3+eagle2"), HasSubstr("opening parenthesis"));
  EXPECT_THAT(refusal("pld)+eagle2"), HasSubstr("closing parenthesis"));
  EXPECT_THAT(refusal("pld()+eagle2"), HasSubstr("empty parentheses"));
  EXPECT_THAT(refusal("pld(k=3)x+eagle2"), HasSubstr("does not end with its parameters"));
  EXPECT_THAT(refusal("pld+"), HasSubstr("an empty part"));
  EXPECT_THAT(refusal("pld:k=3+eagle2"), HasSubstr("'pld:k=3' is no name of a method"));
}

// A method is a part, or says why not.
TEST(HybridText, EveryMethodIsAPartOrSaysWhyNot) {
  for (const auto& [name, info] : methods::method_registry().entries())
    EXPECT_NE(static_cast<bool>(info.drafter), !info.alone.empty()) << name;
}

TEST(HybridText, CarriesWhatItsPartsCarry) {
  using methods::StepReproducibility;
  EXPECT_EQ(parse_method("hybrid").steps(), StepReproducibility::kFollowMachine);
  EXPECT_EQ(parse_method("hybrid:drafts=pia(persist=true)+eagle2").steps(),
            StepReproducibility::kCarryState);
}

// ---- What each part is told. A chain of tokens, which notes what it hears.

struct Heard {
  std::vector<Tokens> texts;  // of each draft
  std::vector<std::pair<int, int32_t>> accepted;
};

class ChainDrafter final : public methods::Drafter {
 public:
  ChainDrafter(Tokens tokens, double expected, Heard* heard)
      : tokens_(std::move(tokens)), expected_(expected), heard_(heard) {}
  void start(const methods::GenerationContext&) override {}
  void draft(std::span<const int32_t> text, int, TokenTree& tree) override {
    heard_->texts.emplace_back(text.begin(), text.end());
    tree.add_path(tokens_, false);
  }
  double expected(int, int) const override { return expected_; }
  void accepted(std::span<const int> path, int32_t bonus) override {
    heard_->accepted.emplace_back(static_cast<int>(path.size()), bonus);
  }

 private:
  const Tokens tokens_;
  const double expected_;
  Heard* const heard_;
};

struct TwoChains {
  explicit TwoChains(double expected, const methods::JoinOptions& options = {}) {
    std::vector<std::unique_ptr<methods::Drafter>> parts;
    parts.push_back(std::make_unique<ChainDrafter>(Tokens{1, 2, 3}, expected, &first));
    parts.push_back(std::make_unique<ChainDrafter>(Tokens{1, 4, 5}, 0.9, &second));
    joined = methods::make_joined(std::move(parts), options, nullptr);
    methods::GenerationContext context;
    context.prompt = prompt;
    context.max_new = 20;
    joined->start(context);
    tree.reset(9);
    methods::draft_alone(*joined, text, 10, tree);
  }
  const Tokens prompt = {7}, text = {7, 9};
  Heard first, second;
  std::unique_ptr<methods::Drafter> joined;
  TokenTree tree;
};

TEST(JoinedDraft, TellsEachPartItsOwnViewOfWhatWasAccepted) {
  TwoChains two(0.9);
  const int one = two.tree.child(0, 1), four = two.tree.child(one, 4);
  ASSERT_GE(one, 0);
  ASSERT_GE(four, 0);
  ASSERT_GE(two.tree.child(one, 2), 0) << "both chains are likely";
  EXPECT_EQ(two.tree.size(), 6) << "the first token once";
  const std::vector<int> path = {one, four};
  two.joined->accepted(path, 8);
  EXPECT_THAT(two.first.accepted, ElementsAre(std::pair(1, 4))) << "4 came where it had drafted 2";
  EXPECT_THAT(two.second.accepted, ElementsAre(std::pair(2, 8)));
}

TEST(JoinedDraft, FirstAsksTheSecondOnlyWhereTheFirstIsNotSure) {
  const methods::JoinOptions first{methods::JoinMode::kFirst, 0.6};
  TwoChains sure(0.8, first), unsure(0.3, first), merged(0.8);
  EXPECT_EQ(sure.second.texts.size(), 0u);
  EXPECT_EQ(unsure.second.texts.size(), 1u);
  EXPECT_EQ(merged.second.texts.size(), 1u);
  sure.joined->accepted({}, 5);
  EXPECT_TRUE(sure.second.accepted.empty()) << "it has drafted nothing";
}

// ---- The text of every combination is plain decoding's.

constexpr int kVocab = 12, kCapacity = 300;
const char* const kCombinations[] = {
    "hybrid:drafts=pld(match=recent)+eagle2(adapter=@eagle)",
    "hybrid:drafts=pld+eagle(adapter=@eagle),mode=first",
    "hybrid:drafts=eagle3(adapter=@eagle3;k=4;levels=4;total=9)+pia",
    "hybrid:drafts=pld+eagle2(adapter=@eagle)+medusa(adapter=@medusa;draft=drawn)",
    "hybrid:drafts=falcon(adapter=@falcon)+sps(draft=layers:1)",
    "hybrid:drafts=pld+self_spec(attention=1;mlp=none;k=5)+sps(draft=layers:1;k=3)",
    "hybrid:drafts=lookahead(window=3;ngram=3;guesses=2)+self_draft",
    "hybrid:drafts=recycling(k=3;tree=0+1+00)+eagle2(adapter=@eagle),mode=bandit",
    "hybrid:drafts=pld+pia,mode=bandit",
};

std::vector<Turn> some_turns(const engine::SamplingParams& sampling) {
  base::Rng rng(17);
  std::vector<Turn> turns;
  for (const int length : {5, 1, 40, 17, kCapacity - 10}) {
    Turn turn{random_tokens(rng, length, kVocab)};
    for (int i = 4; i < length; ++i)
      turn.prompt[static_cast<size_t>(i)] = turn.prompt[static_cast<size_t>(i - 4)];
    turn.max_new = 40;
    turn.sampling = sampling;
    turn.seed = rng.next();
    turns.push_back(turn);
  }
  return turns;
}

std::vector<Tokens> plain_texts(const std::shared_ptr<const engine::Model>& model,
                                const std::vector<Turn>& turns) {
  const auto plain = build_method("ar", model, kCapacity);
  const auto session = make_session(model, kCapacity);
  std::vector<Tokens> texts;
  for (const Turn& turn : turns) {
    session->reset();
    texts.push_back(run(*plain, *session, turn).tokens);
  }
  return texts;
}

TEST(Hybrid, GivesTheTokensOfPlainDecodingAloneAndInBatches) {
  const auto model = small_model(5, kVocab);
  std::map<std::string, int> accepted;
  for (const engine::SamplingParams& sampling :
       {engine::SamplingParams{}, engine::SamplingParams{0.9, 8, 0.95},
        engine::SamplingParams{1.0, 0, 1, engine::Sampler::kGumbel}}) {
    const std::vector<Turn> turns = some_turns(sampling);
    const std::vector<Tokens> want = plain_texts(model, turns);
    for (const char* spec : kCombinations)
      for (const int n : {1, 3}) {
        const auto slots = methods::make_slots(build_arm(arm_of(spec), model, kCapacity, n), n);
        const auto session = make_session(model, kCapacity, n);
        const auto got = run_batch(slots, *session, turns, methods::BatchMode::kContinuous);
        for (size_t i = 0; i < turns.size(); ++i) {
          EXPECT_EQ(got[i].tokens, want[i]) << spec << ", " << n << " slots, turn " << i;
          for (const auto& step : got[i].steps) accepted[spec] += step.accepted;
        }
      }
  }
  for (const char* spec : kCombinations)
    EXPECT_GT(accepted[spec], 0) << spec << ": nothing was ever accepted";
}

// The check above can fail.
TEST(Hybrid, APlantedWrongAcceptanceChangesTheText) {
  const auto model = small_model(5, kVocab);
  const std::vector<Turn> turns = some_turns({});
  const std::vector<Tokens> want = plain_texts(model, turns);
  const auto method =
      methods::plant_fault(build_method(kCombinations[0], model, kCapacity), "wrong-accept");
  const auto session = make_session(model, kCapacity);
  bool differs = false;
  for (size_t i = 0; i < turns.size(); ++i) {
    session->reset();
    differs = differs || run(*method, *session, turns[i]).tokens != want[i];
  }
  EXPECT_TRUE(differs);
}

TEST(Hybrid, ItsLargestStepIsThatOfAllParts) {
  const auto model = small_model(1);
  const auto step =
      build_method("hybrid:drafts=pld(k=4)+sps(draft=layers:1;k=3)", model)->largest_step();
  EXPECT_EQ(step.rows, 1 + 4 + 3);
  EXPECT_THAT(step.draft_rows, ElementsAre(1, 1, 1));
  EXPECT_GT(step.draft_cost, 0);
}

}  // namespace
}  // namespace evalrun::tests::hybrid_test
