// What-if from stored steps: traces small enough to be walked by hand.
#include "reports/predict/predict.h"

#include <gmock/gmock.h>

#include "engine/base/error.h"
#include "reports/figures/report.h"
#include "reports/predict/confirm.h"
#include "reports/predict/predict_report.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

results::StepRecord step(int drafted, int accepted, int emitted) {
  results::StepRecord s;
  s.drafted = s.drafted_depth = drafted;
  s.rows = 1 + drafted;
  s.accepted = accepted;
  s.emitted = emitted;
  return s;
}

TracedAnswer answer(std::vector<TracedTurn> turns) { return {.turns = std::move(turns)}; }

struct Walk {
  double steps = 0, rows = 0, depth = 0;
};
Walk walk(const DraftCut& cut, const TracedTurn& turn, const DraftShape& shape) {
  Walk w;
  cut.replay(turn, shape, [&](double share, int rows, int depth) {
    w.steps += share, w.rows += share * rows, w.depth += share * depth;
  });
  return w;
}

constexpr int kFar = 1000;  // max_new far past the end

TEST(DraftCut, SameDraftsGiveTheSameSteps) {
  const TracedTurn turn{.steps = {step(4, 4, 5), step(4, 1, 2), step(0, 0, 1), step(4, 2, 2)}};
  const DraftCut cut(std::vector{answer({turn})}, kFar);
  const Walk w = walk(cut, turn, chain_shape(4));
  EXPECT_DOUBLE_EQ(w.steps, 4);
  EXPECT_DOUBLE_EQ(w.rows, 16);
  EXPECT_DOUBLE_EQ(w.depth, 12);
}

// Tokens: a1 a2 a3 a4 b | a1 r2 | n | a1 a2 r3, with a accepted, r refused at that depth, b after
// a wholly accepted draft, n nothing drafted. alpha_cond is 3/3, 2/3, 1/2, 1/1; without rises 1,
// 2/3, 2/3, 2/3. In the deeper half 2 of 3 were right: so is b with 2/3.
// Cut to 2 tokens, steps begin at: a1 (3 tokens), a4 (2 tokens if b is wrong, else 3), then with
// 1/3 at a1 (2 tokens) and n, with 2/3 at r2, where a first token is always right (2 tokens, n is
// never drafted), then at a1.
TEST(DraftCut, ShorterDraftsByHand) {
  const TracedTurn turn{.steps = {step(4, 4, 5), step(4, 1, 2), step(0, 0, 1), step(4, 2, 3)}};
  const DraftCut cut(std::vector{answer({turn})}, kFar);
  EXPECT_THAT(cut.counts().tested, ElementsAre(3, 3, 2, 1));
  EXPECT_THAT(cut.counts().accepted, ElementsAre(3, 2, 1, 1));
  const Walk w = walk(cut, turn, chain_shape(2));
  EXPECT_NEAR(w.steps, 1 + 1 + 1.0 / 3 + 1.0 / 3 + 2.0 / 3 + 1, 1e-12);
  EXPECT_NEAR(w.rows, 3 + 3 + 3.0 / 3 + 1.0 / 3 + 3 * 2.0 / 3 + 3, 1e-12);
}

// A drafter that never errs earlier because it looks from nearer by: alpha_cond rises, 1/2 then 1.
// a1 a2 a3 b | r1: cut to one token, steps begin at a1 (2 tokens), a3 (2 tokens: b is covered by
// the target's own), and r1 is refused again.
TEST(DraftCut, RisingAcceptanceIsSelectionNotSkill) {
  const TracedTurn turn{.steps = {step(3, 3, 4), step(3, 0, 1)}};
  const DraftCut cut(std::vector{answer({turn})}, kFar);
  const Walk w = walk(cut, turn, chain_shape(1));
  EXPECT_DOUBLE_EQ(w.steps, 3);
  EXPECT_DOUBLE_EQ(w.rows, 6);
}

// alpha_cond of depth 2 is 1/4; of depth 1, after steps that kept something, 2/3. a1 a2 b | a1 r2
// | r1, cut to one token: at a1; at b, right with 1/4; with 3/4 at the second a1, with 1/4 at r2,
// which is right from nearer by with (2/3 - 1/4) / (3/4) and then covers r1; else at r1.
TEST(DraftCut, FallingAcceptanceHelpsFromNearerBy) {
  const TracedTurn turn{.steps = {step(2, 2, 3), step(2, 1, 2), step(2, 0, 1)}};
  const TracedTurn more{.steps = {step(2, 1, 2), step(2, 1, 2)}};
  const DraftCut cut(std::vector{answer({turn, more})}, kFar);
  EXPECT_DOUBLE_EQ(cut.counts().share(1), 0.8);
  EXPECT_DOUBLE_EQ(cut.counts().share(2), 0.25);
  const double from_nearer = (2.0 / 3 - 0.25) / 0.75;
  EXPECT_NEAR(walk(cut, turn, chain_shape(1)).steps,
              1 + 1 + 0.75 + 0.25 + 0.75 + 0.25 * (1 - from_nearer), 1e-12);
}

// Seven tokens in all, the first from the prefill: after three accepted ones and the target's own
// a draft has room for one token.
TEST(DraftCut, TheLimitLeavesNoRoom) {
  const TracedTurn turn{.steps = {step(4, 4, 5), step(0, 0, 1)}};
  const DraftCut cut(std::vector{answer({turn})}, 7);
  const Walk w = walk(cut, turn, chain_shape(3));
  EXPECT_DOUBLE_EQ(w.steps, 2);
  EXPECT_DOUBLE_EQ(w.rows, 4 + 2);
  EXPECT_DOUBLE_EQ(w.depth, 3 + 1);
}

// The second draft ended after two tokens though there was room for four: from its second token on
// there is one left.
TEST(DraftCut, DraftsThatEndedByThemselvesStayShort) {
  const TracedTurn turn{.steps = {step(4, 0, 1), step(2, 2, 3)}};
  const DraftCut cut(std::vector{answer({turn})}, kFar);
  const Walk three = walk(cut, turn, chain_shape(3));
  EXPECT_DOUBLE_EQ(three.steps, 2);
  EXPECT_DOUBLE_EQ(three.rows, 4 + 3);
  EXPECT_THROW(walk(cut, turn, chain_shape(5)), base::InternalError);
  // Six tokens in all leave the second draft room for three; it had two, so it ended by itself.
  const Walk roomy = walk(DraftCut(std::vector{answer({turn})}, 6), turn, chain_shape(3));
  EXPECT_DOUBLE_EQ(roomy.rows, 4 + 3);
}

TEST(DraftCut, FallingPoolsRises) {
  EXPECT_THAT(falling(std::vector{1.0, 0.5, 0.8}, std::vector{1.0, 2.0, 1.0}),
              ElementsAre(1.0, DoubleNear(0.6, 1e-12), DoubleNear(0.6, 1e-12)));
  EXPECT_THAT(falling(std::vector{0.2, 0.4, 0.9}, std::vector{1.0, 1.0, 2.0}),
              Each(DoubleNear(0.6, 1e-12)));
  EXPECT_TRUE(falling({}, {}).empty());
}

// Of 10 steps the first choice was accepted in 5, the second in 2; after them a first choice in 4
// of 7.
TracedAnswer tree_answer() {
  TracedAnswer a = answer({{}});
  a.turns[0].nodes = {{.depth = 1, .rank = 0, .tested = 10, .accepted = 5},
                      {.depth = 1, .rank = 1, .tested = 10, .accepted = 2},
                      {.depth = 2, .rank = 0, .tested = 7, .accepted = 4}};
  for (int i = 0; i < 10; ++i) {
    results::StepRecord s = step(2, i < 4 ? 2 : i < 7 ? 1 : 0, i < 4 ? 3 : i < 7 ? 2 : 1);
    s.drafted = 4;
    s.rows = 5;
    a.turns[0].steps.push_back(s);
  }
  return a;
}

TEST(TreePlaces, ShapeKeepsItsShareOfWhatTheMeasuredTreeGot) {
  const std::vector<TracedAnswer> answers = {tree_answer()};
  const TreePlaces places = count_places(answers);
  EXPECT_EQ(places.drafted, 40);
  EXPECT_EQ(places.tested, 27);
  EXPECT_EQ(places.accepted, 11);
  const DepthCounts depths = count_depths(answers);
  const std::vector<TreePath> tree = {{0}, {0, 0}};
  const DraftShape shape = tree_shape(tree, places, depths);
  EXPECT_THAT(shape.nodes, ElementsAre(1, 1));
  EXPECT_NEAR(shape.kept[0], 0.5 / 0.7, 1e-12);
  EXPECT_NEAR(shape.kept[1], 1, 1e-12) << "whatever follows the first choice is in the tree";
  const DraftCut cut(answers, kFar);
  // One of seven tokens the measured tree got right is lost, and with it all after it.
  const Walk w = walk(cut, answers[0].turns[0], shape);
  EXPECT_GT(w.steps, 10);
  EXPECT_THROW(tree_shape(std::vector<TreePath>{{2}}, places, depths), base::InternalError);
}

TEST(TreePlaces, BestPathsAreConnectedAndInOrder) {
  const std::vector<TracedAnswer> answers = {tree_answer()};
  const auto best = best_paths(count_places(answers), 10);
  ASSERT_EQ(best.size(), 4u) << "no path can be made of places never tested";
  EXPECT_EQ(best[0].path, TreePath({0}));
  EXPECT_EQ(best[1].path, TreePath({0, 0}));
  EXPECT_EQ(best[2].path, TreePath({1}));
  EXPECT_EQ(best[3].path, TreePath({1, 0}));
  EXPECT_NEAR(best[1].gain, 0.5 * 4 / 7, 1e-12);
  EXPECT_NEAR(best[3].gain, 0.2 * 4 / 7, 1e-12);
  EXPECT_EQ(best_paths(count_places(answers), 2).size(), 2u);
}

TEST(StepCosts, TableBetweenWhatWasMeasured) {
  const TimesByRows times = {{1, {.n = 50, .ns = 50 * 10}},
                             {5, {.n = 100, .ns = 50 * 20 + 50 * 40}},
                             {3, {.n = 49, .ns = 49 * 99}}};  // too few to say anything
  const auto table = [](int rows) { return 8.0 + 2 * rows; };
  const VerifyCost with(times, table), without(times, {});
  EXPECT_DOUBLE_EQ(with.ns(1), 10);
  EXPECT_DOUBLE_EQ(with.ns(5), 30);
  EXPECT_NEAR(with.ns(3), 14 * (1 + 30.0 / 18) / 2, 1e-12);
  EXPECT_NEAR(with.ns(9), 26 * 30.0 / 18, 1e-12);
  EXPECT_DOUBLE_EQ(without.ns(3), 20);
  EXPECT_DOUBLE_EQ(without.ns(9), 50);
  EXPECT_THROW(VerifyCost({}, table), base::InternalError);
}

TEST(StepCosts, ABatchHasItsOwnTableOrThatOfOne) {
  RowTimes times;
  EXPECT_FALSE(times);
  EXPECT_FALSE(times.of(1));
  EXPECT_FALSE(times.of(4));
  times.one = [](int rows) { return 8.0 + 2 * rows; };
  times.batches[4] = [](int rows) { return 100.0 * rows; };
  EXPECT_TRUE(times);
  EXPECT_EQ(times.of(1)(3), 14);
  EXPECT_EQ(times.of(2)(3), 20);
  EXPECT_EQ(times.of(4)(3), 300);
}

TEST(StepCosts, DraftTimeIsALineInDepth) {
  const auto timed = [](int depth, int64_t ns) {
    results::StepRecord s = step(depth, 0, 1);
    s.draft_ns = ns;
    return s;
  };
  TracedTurn turn;
  for (int i = 0; i < 6; ++i) {
    turn.steps.push_back(timed(1, 150));
    turn.steps.push_back(timed(3, 350));
    turn.steps.push_back(timed(0, 7));
  }
  const DraftCost line(std::vector{answer({turn})});
  EXPECT_FALSE(line.assumed());
  EXPECT_DOUBLE_EQ(line.ns(2), 250);
  EXPECT_DOUBLE_EQ(line.ns(0), 7);
  for (auto& s : turn.steps)
    if (s.drafted_depth == 1) s.draft_ns = 50;
  EXPECT_NEAR(DraftCost(std::vector{answer({turn})}).ns(2), 2 * (50 + 3 * 350) / 10.0, 1e-9)
      << "no line below zero";
  const DraftCost one(std::vector{answer({{.steps = {timed(4, 400)}}})});
  EXPECT_TRUE(one.assumed());
  EXPECT_DOUBLE_EQ(one.ns(1), 100);
}

// Plain steps take 10 ms (9.9 of them the forward); of 4 drafted tokens the first is right, the
// second never: 2 tokens in 12 ms (forward of 5 rows 11.5, draft 0.2, overhead 0.3).
class PredictorTest : public ReportTest {
 protected:
  PredictorTest() {
    run_.arms[2].accepted = {1};
    tests::SyntheticArm shorter = run_.arms[2];
    shorter.label = "pld:k=1";
    shorter.depth = 1;
    shorter.verify_ns = 10'300'000;
    shorter.draft_ns = 50'000;
    run_.arms.push_back(shorter);
  }
  void fill() {
    id_ = tests::fill(store_, run_);
    store_.execute("UPDATE arm SET params = 'k=4,ngram=3' WHERE label = 'pld:k=4'");
    store_.execute("UPDATE arm SET params = 'k=1,ngram=3' WHERE label = 'pld:k=1'");
    data_ = load_run(store_, id_);
  }
  PredictSources sources() const { return {store_, data_}; }
  Predictor predictor(const std::string& label = "pld:k=4") const {
    return Predictor(sources(), *data_.arm(label));
  }
  int64_t id_ = 0;
  RunData data_;
};

TEST_F(PredictorTest, AsMeasuredIsWhatTheReportSays) {
  run_.repeats = 4;  // the middle two count half each
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt,
                   int repeat, int) {
    const int64_t more = repeat * 100'000 + (a.label == "pld:k=4" ? prompt * 500'000 : 0);
    for (auto& s : g.turns[0].steps) {
      s.verify_ns += more;
      g.turns[0].decode_ns += more;
    }
  };
  fill();
  const Report r = build_report(store_, id_);
  const Prediction p = predictor().predict({});
  const ReportRow& expected = row(r, "pld:k=4", "gsm8k");
  EXPECT_NEAR(p.speedup->value, *expected.speed.speedup, 1e-9);
  EXPECT_NEAR(p.speedup->interval->lo, expected.speed.interval->lo, 1e-9);
  EXPECT_NEAR(p.tau->value, 2, 1e-12);
  EXPECT_NEAR(p.t_ratio, *expected.why.t_ratio, 1e-9);
  EXPECT_NEAR(p.draft_share, *expected.why.draft_share, 1e-9);
  EXPECT_NEAR(p.overhead, *expected.why.overhead, 1e-9);
}

TEST_F(PredictorTest, ShorterDraftsCostLess) {
  fill();
  PredictSources others = sources();
  others.left_out_arm = data_.arm("pld:k=1")->id;
  const Predictor predictor(others, *data_.arm("pld:k=4"));
  const Prediction p = predictor.predict({.name = "k=1", .length = 1, .tree = {}});
  EXPECT_NEAR(p.tau->value, 2, 1e-12);
  EXPECT_NEAR(p.rows, 2, 1e-12);
  // Between 9.9 ms of one row and 11.5 of five; drafting in proportion.
  EXPECT_NEAR(p.t_ratio, 10.3 / 9.9, 1e-9);
  EXPECT_NEAR(p.speedup->value, 20 / (10.3 + 0.05 + 0.3), 1e-9);
}

TEST_F(PredictorTest, VerifyTimesAreReadOnce) {
  fill();
  VerifyTimes times(store_, id_);
  const TimesByRows& all = times.of("cafe", 1, 0);
  ASSERT_TRUE(all.contains(5));
  const size_t steps = all.at(5).n;
  EXPECT_GT(steps, 0u);
  const int64_t out = data_.arm("pld:k=4")->id;
  EXPECT_FALSE(times.of("cafe", 1, out).contains(5)) << "the arm left out has them alone";
  EXPECT_TRUE(times.of("cafe", 2, 0).empty());
  EXPECT_TRUE(times.of("another", 1, 0).empty());
  store_.execute("DELETE FROM step");
  EXPECT_EQ(&times.of("cafe", 1, 0), &all);
  EXPECT_EQ(all.at(5).n, steps);
  EXPECT_TRUE(times.of("cafe", 1, out + 100).empty());
  // A predictor asks the sources' own, and copies of the sources have the same.
  const PredictSources source = sources(), copy = source;
  EXPECT_EQ(source.verify_times, copy.verify_times);
}

TEST_F(PredictorTest, ADrafterThatStopsEarlierIsNotCut) {
  fill();
  store_.execute("UPDATE arm SET params = 'k=9,ngram=3' WHERE label = 'pld:k=4'");
  data_ = load_run(store_, id_);
  EXPECT_NEAR(predictor().predict({.name = "k=7", .length = 7, .tree = {}}).speedup->value,
              20 / 12.0, 1e-9);
  EXPECT_THROW(predictor().predict({.name = "k=10", .length = 10, .tree = {}}), base::Error);
}

TEST_F(PredictorTest, AnotherDeviceAndBatches) {
  fill();
  PredictSources other = sources();
  other.other.one = [](int rows) { return rows <= 8 ? 1.0 : 1.0 + (rows - 8) / 8.0; };
  other.other.batches[2] = [](int rows) { return rows; };
  const Predictor p(other, *data_.arm("pld:k=4"));
  EXPECT_NEAR(p.predict({}).speedup->value, 20 / (9.9 + 0.2 + 0.3), 1e-9) << "rows are free";
  // Four answers: 20 rows cost 2.5, 4 rows 1.
  EXPECT_NEAR(p.predict({}, 4).speedup->value, 20 / (2.5 * 9.9 + 0.2 + 0.3), 1e-9);
  // Two: by their own table 5 rows of each cost 5, 1 row 1.
  EXPECT_NEAR(p.predict({}, 2).speedup->value, 20 / (5 * 9.9 + 0.2 + 0.3), 1e-9);
  EXPECT_NEAR(predictor().predict({}, 1).speedup->value, 20 / 12.0, 1e-9);
}

TEST_F(PredictorTest, WhatCannotBeSaidIsRefused) {
  run_.arms[3].label = "beside";
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int, int) {
    for (auto& s : g.turns[0].steps)
      if (a.label == "beside") ++s.rows;
  };
  fill();
  const auto message = [&](const std::function<void()>& work) -> std::string {
    try {
      work();
    } catch (const base::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message([&] { predictor("ar"); }), HasSubstr("ar drafts nothing"));
  EXPECT_THAT(message([&] { predictor().predict({.name = "k=5", .length = 5, .tree = {}}); }),
              HasSubstr("at most 4"));
  const Draft tree{.name = "tree=0+1", .length = 0, .tree = {{0}, {1}}};
  EXPECT_THAT(message([&] { predictor().predict(tree); }), HasSubstr("tested at 1"));
  EXPECT_THAT(
      message([&] { predictor("beside").predict({.name = "k=1", .length = 1, .tree = {}}); }),
      HasSubstr("rows beside the draft"));
  EXPECT_EQ(message([&] { predictor("beside").predict({}, 2); }), "");
  store_.execute("UPDATE arm SET params = 'adaptive=true,k=4' WHERE label = 'pld:k=4'");
  data_ = load_run(store_, id_);
  EXPECT_THAT(predictor().not_cut(), HasSubstr("those before it"));
  store_.execute("DELETE FROM step");
  EXPECT_THAT(message([&] { predictor(); }), HasSubstr("no steps are stored"));
}

TEST_F(PredictorTest, ConfirmedByAMeasuredArm) {
  fill();
  const auto no_tree = [](const std::string&) { return std::nullopt; };
  const Confirmations c = confirm(sources(), sources(), no_tree);
  ASSERT_EQ(c.rows.size(), 1u);
  EXPECT_EQ(c.rows[0].arm, "pld:k=1");
  EXPECT_EQ(c.rows[0].predicted.arm, "pld:k=4");
  EXPECT_EQ(c.rows[0].n_prompts, 4);
  EXPECT_NEAR(c.rows[0].error(), 0, 1e-9);
  EXPECT_THAT(c.left_out, ElementsAre(HasSubstr("pld:k=4 (")));
  PredictReport report;
  report.run = data_.run;
  report.confirmations = c;
  report.confirmed_by = data_.run;
  EXPECT_THAT(to_text(report), HasSubstr("Median error 0.0 %"));
}

TEST_F(PredictorTest, ASlowerArmShowsAsAnError) {
  run_.arms[3].verify_ns = 11'365'000;  // 10 % of its 10.65 ms
  fill();
  const auto no_tree = [](const std::string&) { return std::nullopt; };
  EXPECT_NEAR(*confirm(sources(), sources(), no_tree).median_error(), 0.1, 1e-9);
  store_.execute("UPDATE arm SET params = 'k=1,ngram=2' WHERE label = 'pld:k=1'");
  data_ = load_run(store_, id_);
  EXPECT_THROW(confirm(sources(), sources(), no_tree), base::Error) << "two parameters differ";
}

TEST_F(PredictorTest, TreesAreChosenAndScoredOnHalvesOfThePrompts) {
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int, int) {
    if (a.label != "pld:k=4") return;
    for (auto& s : g.turns[0].steps) s.drafted_depth = 2;
    const auto n = static_cast<int64_t>(g.turns[0].steps.size());
    g.turns[0].nodes = {{.depth = 1, .rank = 0, .tested = n, .accepted = n - 2},
                        {.depth = 1, .rank = 1, .tested = n, .accepted = 2},
                        {.depth = 2, .rank = 0, .tested = n, .accepted = 0}};
  };
  fill();
  store_.execute("UPDATE arm SET params = 'tree=0+00+1+10' WHERE label = 'pld:k=4'");
  data_ = load_run(store_, id_);
  const TreeReport r = tree_report(sources(), *data_.arm("pld:k=4"), 16);
  EXPECT_EQ(r.chosen_on, 2);
  EXPECT_EQ(r.scored_on, 2);
  ASSERT_EQ(r.trees.size(), 2u) << "what was never accepted is in no tree";
  EXPECT_EQ(r.trees[1].tree, (std::vector<TreePath>{{0}, {1}}));
  EXPECT_NEAR(r.trees[1].tau_chosen_on, 2, 1e-9);
  EXPECT_NEAR(r.trees[1].others.tau->value, 2, 1e-9);
  EXPECT_LT(r.trees[0].others.tau->value, 2);
  EXPECT_EQ(r.trees[0].others.n_prompts, 2);
  EXPECT_THAT(tree_report(sources(), *data_.arm("pld:k=1"), 16).no_trees, HasSubstr("chains"));
  store_.execute("DELETE FROM node");
  EXPECT_THAT(tree_report(sources(), *data_.arm("pld:k=4"), 16).no_trees,
              HasSubstr("no draft nodes"));
}

}  // namespace
}  // namespace evalrun::reports
