// Adaptive drafting: what it may cost on hostile text and must gain on kind text, in the prices of
// rows it was given; nothing here is timed.
#include "methods/adaptive.h"

#include <gtest/gtest.h>

#include "tests/methods/fake_session.h"
#include "tests/methods/harness.h"

namespace evalrun::tests {
namespace {

constexpr int kVocab = 40;

engine::RowCostTable prices(double per_row) {
  engine::RowCostTable table;
  for (const int n : {1, 2, 4, 8, 16, 32, 64, 512}) {
    engine::RowCost cost;
    cost.rows = n;
    cost.ms = 10 * (1 + per_row * (n - 1));
    table.rows.push_back(cost);
  }
  return table;
}

// No pattern: what follows a text depends on all of it.
LogitTable hostile() {
  return [](std::span<const int32_t> context, std::span<float> logits) {
    uint64_t state = context.size();
    for (const int32_t token : context) state = base::mix64(state ^ static_cast<uint32_t>(token));
    base::Rng rng(state);
    for (float& l : logits) l = static_cast<float>(rng.uniform());
  };
}

LogitTable counting() {
  return [](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[static_cast<size_t>((context.back() + 1) % kVocab)] = 1;
  };
}

// Plain steps a generation of 256 tokens cost, by the prices, over the tokens it made.
double relative_cost(const std::string& spec, const LogitTable& table, double per_row,
                     double draft_cost = 0) {
  const engine::RowCostTable costs = prices(per_row);
  methods::MethodBuildContext context;
  context.target = small_model(1, kVocab);
  context.session = session_options(4000);
  context.draft = context.target->first_layers(1);
  context.row_cost = &costs;
  const methods::MethodSpec method = methods::parse_method(spec);
  const auto built = method.info->build(method.params, context);
  FakeSession session(kVocab, 4000, table);
  base::Rng rng(3);
  double cost = 0, tokens = 0;
  for (int i = 0; i < 4; ++i) {
    Turn turn{random_tokens(rng, 60, kVocab)};
    turn.max_new = 256;
    session.reset();
    for (const auto& step : run(*built, session, turn).steps) {
      cost += costs.ratio(step.rows) + draft_cost * step.drafted;
      tokens += step.emitted;
    }
  }
  return cost / tokens;
}

const char* const kFree[] = {"pld:adaptive=true", "pld:adaptive=true,match=frequent,candidates=4",
                             "lookahead:adaptive=true,pool_from_prompt=true",
                             "self_draft:adaptive=true"};

TEST(Adaptive, LosesAtMostThreePercentWhereNothingComesTrue) {
  for (const char* spec : kFree)
    for (const double per_row : {0.01, 0.1, 0.5})
      EXPECT_LE(relative_cost(spec, hostile(), per_row), 1.03) << spec << " at " << per_row;
  // The same without it loses far more, so that the bound means something.
  EXPECT_GT(relative_cost("self_draft", hostile(), 0.1), 2);
}

TEST(Adaptive, GainsWhereDraftsComeTrue) {
  for (const char* spec : kFree) EXPECT_LE(relative_cost(spec, counting(), 0.05), 0.5) << spec;
}

TEST(Adaptive, VerifiesMoreWhereRowsAreCheaper) {
  const double cheap = relative_cost("pld:adaptive=true,k=32", counting(), 0.002);
  const double dear = relative_cost("pld:adaptive=true,k=32", counting(), 0.3);
  EXPECT_LT(cheap, 0.25);  // nothing repeats within the first 40 tokens
  EXPECT_GT(dear, cheap);
  EXPECT_LE(dear, 1.0);
}

// A drafting model costs something also where its drafts are not verified.
TEST(Adaptive, AUselessDraftModelIsAskedEverMoreSeldom) {
  // The draft model is a random network, the target counts: they agree by chance only.
  const methods::MethodSpec method = methods::parse_method("sps:adaptive=true,draft=layers:1,k=6");
  methods::MethodBuildContext context;
  context.target = small_model(1, kVocab);
  context.session = session_options(4000);
  const engine::RowCostTable costs = prices(0.1);
  context.row_cost = &costs;
  const auto built = method.info->build(method.params, context);
  FakeSession session(kVocab, 4000, hostile());
  Turn turn{{1, 2, 3}};
  turn.max_new = 1000;
  const auto record = run(*built, session, turn);
  int drafted = 0, late = 0;
  for (size_t i = 0; i < record.steps.size(); ++i) {
    drafted += record.steps[i].drafted;
    if (i > 500) late += record.steps[i].drafted;
  }
  EXPECT_GT(drafted, 0) << "it is given a chance";
  EXPECT_LT(drafted, 50);
  EXPECT_LE(late, 6);
}

TEST(Adaptive, ADraftModelThatIsRightIsUsed) {
  const auto model = small_model(6);
  const auto session = make_session(model);
  const auto method = build_method("sps:draft=layers:2,k=5,adaptive=true", model);
  Turn turn{{5, 6, 7, 5}, 0, 200};
  // Two of two layers: the draft is the target, at its full price; rows cost 5 % without a table.
  const auto record = run(*method, *session, turn);
  int drafted = 0;
  for (const auto& step : record.steps) drafted += step.drafted;
  EXPECT_LT(drafted, 60) << "a draft as dear as the target never pays";
}

TEST(RowPrice, FollowsTheTableAndWhatIsAffordable) {
  const engine::RowCostTable table = prices(0.1);
  const methods::RowPrice price(&table), unknown(nullptr);
  EXPECT_DOUBLE_EQ(price(1), 1);
  EXPECT_NEAR(price(5), 1 + 1.2 * 0.4, 1e-12);
  EXPECT_EQ(price.affordable(1.5), 5);
  EXPECT_EQ(price.affordable(0.5), 1);
  EXPECT_NEAR(unknown(3), 1.1, 1e-12);
}

}  // namespace
}  // namespace evalrun::tests
