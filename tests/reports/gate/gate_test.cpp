// The gate's decision on synthetic runs: each exit code by planting what it stands for.
#include "reports/gate/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/base/rng.h"
#include "tests/results/synthetic.h"

namespace evalrun::reports {
namespace {

using base::ExitCode;
using results::GenerationRecord;
using results::ResultStore;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::SyntheticArm;
using tests::SyntheticRun;

class GateTest : public ::testing::Test {
 protected:
  GateTest() : store_(folder_.file("a.db")) {
    run_.arms = tests::usual_arms();
    run_.prompts_per_task = 24;
    run_.repeats = 3;
  }

 public:
  // 1.5 % noise on every generation unless told otherwise; `spoil` comes on top.
  using Spoil = std::function<void(GenerationRecord&, const SyntheticArm&, int prompt)>;

 protected:
  int64_t measure(const std::string& key, const Spoil& spoil = nullptr, double noise = 0.05) {
    run_.key = key;
    auto rng = std::make_shared<base::Rng>(std::hash<std::string>{}(key));
    run_.change = [=](GenerationRecord& g, const SyntheticArm& a, int prompt, int, int) {
      const double factor = 1 + noise * (rng->uniform() - 0.5);
      g.turns[0].decode_ns = std::llround(factor * static_cast<double>(g.turns[0].decode_ns));
      if (spoil) spoil(g, a, prompt);
    };
    return tests::fill(store_, run_);
  }
  GateResult gate(int64_t base, int64_t current, const GateOptions& options = {}) {
    return evaluate_gate(store_, base, store_, current, options);
  }
  static const GateCheck& find(const GateResult& g, const std::string& metric,
                               const std::string& method) {
    for (const GateCheck& v : g.checks)
      if (v.metric == metric && v.method == method) return v;
    throw std::runtime_error("no verdict " + metric);
  }
  static Spoil slower(double factor) {
    return [=](GenerationRecord& g, const SyntheticArm& a, int) {
      if (a.role == "method")
        g.turns[0].decode_ns = std::llround(factor * static_cast<double>(g.turns[0].decode_ns));
    };
  }

  tests::TempFolder folder_;
  ResultStore store_;
  SyntheticRun run_;
};

// What a batch does to its prompts alike is no evidence of as many prompts.
TEST_F(GateTest, PromptsOfABatchAreOneUnit) {
  const int64_t a = measure("a"), b = measure("b");
  const GateCheck alone = find(gate(a, b), "speed", "pld:k=4");
  store_.execute("UPDATE arm SET batch = 12");
  const GateCheck two = find(gate(a, b), "speed", "pld:k=4");
  EXPECT_NEAR(*two.effect, *alone.effect, 1e-12);
  EXPECT_NE(*two.lo, *alone.lo);
  store_.execute("UPDATE arm SET batch = 24");
  const GateCheck one = find(gate(a, b), "speed", "pld:k=4");
  EXPECT_EQ(one.outcome, Outcome::kInconclusive);
  EXPECT_THAT(one.reason, HasSubstr("fewer than two batches"));
}

// Baselines of older versions hold whole paths.
TEST_F(GateTest, ALabelMayHoldMoreOfAPath) {
  const auto adapter = [&](const std::string& path) {
    run_.arms.back().label = "medusa:adapter=" + path;
  };
  adapter("/some/where/heads.st");
  const int64_t base = measure("base");
  adapter("heads.st");
  const GateResult same = gate(base, measure("file"));
  EXPECT_EQ(same.code, ExitCode::kOk) << same.summary;
  for (const GateCheck& check : same.checks) EXPECT_NE(check.metric, "complete");
  adapter("tails.st");
  EXPECT_NE(gate(base, measure("other")).code, ExitCode::kOk);
}

TEST_F(GateTest, UnchangedIsOk) {
  const GateResult g = gate(measure("a"), measure("b"));
  EXPECT_EQ(g.code, ExitCode::kOk) << to_text(g);
  EXPECT_EQ(find(g, "speed", "pld:k=4").outcome, Outcome::kOk);
  EXPECT_THAT(g.summary, HasSubstr("check: ok"));
}

TEST_F(GateTest, ARunAgainstItselfIsOk) {
  const int64_t a = measure("a", nullptr, 0);  // no spread at all: the test degenerates
  EXPECT_EQ(gate(a, a).code, ExitCode::kOk);
  const GateResult g = gate(a, measure("b", slower(1.1), 0));
  EXPECT_EQ(g.code, ExitCode::kRegression) << to_text(g);
}

TEST_F(GateTest, TenPercentSlowerIsARegression) {
  const GateResult g = gate(measure("a"), measure("b", slower(1.1)));
  EXPECT_EQ(g.code, ExitCode::kRegression) << to_text(g);
  const GateCheck& v = find(g, "speed", "pld:k=4");
  EXPECT_NEAR(*v.effect, 1 / 1.1 - 1, 0.01);
  EXPECT_LT(*v.hi, -0.03);
  EXPECT_LT(*v.p_value, 0.001);
  EXPECT_EQ(v.n, 24);
  EXPECT_EQ(find(g, "tokens", "pld:k=4").outcome, Outcome::kOk);
}

TEST_F(GateTest, TheMarginDecides) {
  const int64_t a = measure("a"), b = measure("b", slower(1.1));
  EXPECT_EQ(gate(a, b, {.max_regression = 0.15}).code, ExitCode::kOk);
  EXPECT_EQ(gate(a, b, {.max_regression = 0.05}).code, ExitCode::kRegression);
}

TEST_F(GateTest, FasterIsAnImprovementAndPasses) {
  const GateResult g = gate(measure("a"), measure("b", slower(0.85)));
  EXPECT_EQ(g.code, ExitCode::kOk);
  EXPECT_EQ(find(g, "speed", "pld:k=4").outcome, Outcome::kImprovement);
}

// Factors on the decode times of plain decoding (both arms of it) and of the method.
GateTest::Spoil times(double plain, double method) {
  return [=](GenerationRecord& g, const SyntheticArm& a, int) {
    const double factor = a.role == "method" ? method : plain;
    g.turns[0].decode_ns = std::llround(factor * static_cast<double>(g.turns[0].decode_ns));
  };
}

TEST_F(GateTest, TheCauseIsTold) {
  const int64_t a = measure("a");
  struct Case {
    double plain, method;  // on the times
    std::vector<Cause> causes;
    ExitCode code;
  };
  const std::vector<Case> cases = {
      {1, 1.05, {Cause::kMethodSlower}, ExitCode::kRegression},
      {1, 0.9, {Cause::kMethodFaster}, ExitCode::kOk},
      // The speedup falls although the method is what it was.
      {0.9, 1, {Cause::kArFaster}, ExitCode::kRegression},
      // The speedup rises: no improvement.
      {1.05, 1, {Cause::kArSlower}, ExitCode::kRegression},
      // What the ratio hides.
      {1.05, 1.05, {Cause::kBothSlower}, ExitCode::kOk},
      // A session in which everything takes 2 % longer or less does not hide who moved.
      {1.02, 1.075, {Cause::kMethodSlower}, ExitCode::kRegression},
      {1.075, 1.02, {Cause::kArSlower}, ExitCode::kRegression},
      {0.98, 1.03, {Cause::kMethodSlower}, ExitCode::kRegression},
      // Drift and a slower method.
      {1.05, 1.12, {Cause::kMethodSlower, Cause::kBothSlower}, ExitCode::kRegression},
      {1.05, 0.94, {Cause::kMethodFaster, Cause::kArSlower}, ExitCode::kOk},
      {1.1, 0.95, {Cause::kArSlower, Cause::kMethodFaster}, ExitCode::kRegression},
      {0.94, 1.05, {Cause::kArFaster, Cause::kMethodSlower}, ExitCode::kRegression}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    const GateResult g = gate(a, measure(fmt::format("b{}", i), times(c.plain, c.method)));
    EXPECT_EQ(g.code, c.code) << i << "\n" << to_text(g);
    const GateCheck& v = find(g, "speed", "pld:k=4");
    EXPECT_EQ(v.causes, c.causes) << i << "\n" << to_text(g);
    EXPECT_THAT(v.reason, HasSubstr(to_string(c.causes.front())));
  }
  EXPECT_THAT(find(gate(a, measure("c")), "speed", "pld:k=4").causes, testing::IsEmpty());
}

TEST_F(GateTest, SessionsAreJudgedByTheirSpread) {
  // Sessions shift all their prompts: within one, every prompt agrees on 6 %.
  const auto shifted = [&](const std::string& key, double factor) {
    return measure(key, slower(factor), 0.01);
  };
  const std::vector<int64_t> base = {shifted("a1", 1), shifted("a2", 1.06), shifted("a3", 0.95)};
  const std::vector<int64_t> same = {shifted("b1", 1.06), shifted("b2", 0.96), shifted("b3", 1.01)};
  EXPECT_EQ(gate(base[0], same[0]).code, ExitCode::kRegression);  // what one session would say
  const GateResult all = evaluate_gate({store_, base}, {store_, same});
  EXPECT_EQ(all.code, ExitCode::kInconclusive) << to_text(all);
  const GateCheck& v = find(all, "speed", "pld:k=4");
  EXPECT_LT(std::fabs(*v.effect), 0.02);
  EXPECT_GT(*v.hi - *v.lo, 0.1);  // t with 4 degrees of freedom, sd 5 %
  // Sessions that agree: 10 % is found.
  const GateResult slow =
      evaluate_gate({store_, {shifted("c1", 1), shifted("c2", 1.002), shifted("c3", 0.998)}},
                    {store_, {shifted("d1", 1.1), shifted("d2", 1.099), shifted("d3", 1.102)}});
  EXPECT_EQ(slow.code, ExitCode::kRegression) << to_text(slow);
  EXPECT_NEAR(*find(slow, "speed", "pld:k=4").effect, 1 / 1.1 - 1, 0.01);
}

TEST_F(GateTest, EverySessionIsChecked) {
  const std::vector<int64_t> base = {measure("a1"), measure("a2")};
  const int64_t good = measure("b1");
  const int64_t bad = measure("b2", [](GenerationRecord& r, const SyntheticArm& arm, int prompt) {
    if (arm.role == "method" && prompt == 7) r.turns[0].tokens[9] += 1;
  });
  const GateResult g = evaluate_gate({store_, base}, {store_, {good, bad}});
  EXPECT_EQ(g.code, ExitCode::kCorrectness) << to_text(g);
  EXPECT_THAT(to_text(g), HasSubstr("session 2: tokens differ"));
  run_.threads = 1;
  EXPECT_THROW(evaluate_gate({store_, base}, {store_, {good, measure("b3")}}), base::Error);
}

class GateQuality : public GateTest {
 protected:
  GateQuality() {
    for (SyntheticArm& arm : run_.arms) arm.temperature = 1;
    run_.repeats = 1;
  }
  // Prompt i of the method scores 0.5 + shift, +-spread in turn; plain decoding 0.5 everywhere.
  int64_t scored(const std::string& key, double shift, double spread) {
    run_.commit = key;  // another build: draws may differ
    const int64_t run = measure(key, nullptr, 0);
    store_.query(
        "SELECT g.id, a.role FROM generation g JOIN arm a ON a.id = g.arm_id WHERE "
        "g.run_id = ? ORDER BY g.prompt_id, a.id",
        {run}, [&](const results::Row& r) {
          results::ScoreRecord score;
          score.evaluator = "exact", score.version = "1";  // instead of the synthetic ones
          const bool method = r.text(1) == "method";
          const double sign = r.integer(0) / 3 % 2 == 0 ? 1 : -1;
          score.value = 0.5 + (method ? shift + sign * spread : 0);
          scores_.emplace_back(r.integer(0), score);
          return true;
        });
    store_.put_scores(scores_);
    scores_.clear();
    return run;
  }
  // Scores of every generation by the label of its arm and the place of its prompt.
  using Score = std::function<double(const std::string& label, int prompt)>;
  int64_t scored_by(const std::string& key, const Score& score,
                    const std::vector<std::string>& evaluators = {"exact"}) {
    run_.commit = key;
    const int64_t run = measure(key, nullptr, 0);
    store_.query(
        "SELECT g.id, a.label, p.key FROM generation g JOIN arm a ON a.id = g.arm_id "
        "JOIN prompt p ON p.id = g.prompt_id WHERE g.run_id = ? ORDER BY g.id",
        {run}, [&](const results::Row& r) {
          const std::string prompt = r.text(2);
          for (const std::string& evaluator : evaluators) {
            results::ScoreRecord record;
            record.evaluator = evaluator, record.version = "1";
            record.value = score(r.text(1), std::stoi(prompt.substr(prompt.rfind('-') + 1)));
            scores_.emplace_back(r.integer(0), record);
          }
          return true;
        });
    store_.put_scores(scores_);
    scores_.clear();
    return run;
  }
  std::vector<std::pair<int64_t, results::ScoreRecord>> scores_;
};

TEST_F(GateQuality, NotInferiorWithinTheMargin) {
  const int64_t a = scored("a", 0, 0);
  const auto outcome = [&](const std::string& key, double shift, double spread,
                           GateOptions options = {}) {
    const GateResult g = gate(a, scored(key, shift, spread), options);
    EXPECT_EQ(find(g, "quality", "ar").outcome, Outcome::kOk) << to_text(g);
    EXPECT_THAT(find(g, "quality", "ar").reason, HasSubstr("same scores"));
    return find(g, "quality", "pld:k=4");
  };
  EXPECT_THAT(outcome("b", 0, 0).reason, HasSubstr("exact@1: same scores"));
  EXPECT_EQ(outcome("c", -0.01, 0.01).outcome, Outcome::kOk);  // 2 % lost, 5 % may be
  EXPECT_EQ(outcome("d", 0.1, 0.01).outcome, Outcome::kOk);
  const GateCheck worse = outcome("e", -0.05, 0.01);
  EXPECT_EQ(worse.outcome, Outcome::kCorrectness);
  EXPECT_THAT(worse.reason, HasSubstr("from 0.500; a loss of 0.025 (5 %) passes"));
  EXPECT_EQ(worse.n, 24);
  EXPECT_EQ(outcome("f", -0.05, 0.01, {.max_quality_loss = 0.2}).outcome, Outcome::kOk);
  // Too few prompts to tell, and no repeat of a time would help.
  const GateResult open = gate(a, scored("g", -0.02, 0.3));
  EXPECT_EQ(find(open, "quality", "pld:k=4").outcome, Outcome::kInconclusive) << to_text(open);
  EXPECT_EQ(open.code, ExitCode::kInconclusive);
  EXPECT_FALSE(open.more_repeats_help());
  EXPECT_EQ(gate(a, scored("h", -0.05, 0.01)).code, ExitCode::kCorrectness);
}

double half_of_all(const std::string&, int) { return 0.5; }

TEST_F(GateQuality, HolmOverArmsAndEvaluators) {
  // One method loses 0.0709, the others nothing, all with a standard deviation of 0.1.
  const Score scores = [](const std::string& label, int prompt) {
    if (label.starts_with("ar")) return 0.5;
    return 0.5 + (prompt % 2 == 0 ? 0.1 : -0.1) - (label == "pld:k=4" ? 0.0709 : 0);
  };
  // Of 24 prompts, against a loss of 0.025: t = -2.2.
  const double p = base::student_t_cdf((0.025 - 0.0709) / (0.1 / std::sqrt(23.0)), 23);
  ASSERT_NEAR(p, 0.019, 1e-4);
  // Alone with plain decoding it is proven.
  const GateResult alone = gate(scored_by("a", half_of_all), scored_by("b", scores));
  EXPECT_EQ(alone.code, ExitCode::kCorrectness) << to_text(alone);
  EXPECT_NEAR(*find(alone, "quality", "pld:k=4").p_value, 2 * p, 1e-9);
  // With two evaluators there are four comparisons.
  const std::vector<std::string> two = {"exact", "other"};
  const GateResult both = gate(scored_by("c", half_of_all, two), scored_by("d", scores, two));
  EXPECT_NEAR(*find(both, "quality", "pld:k=4").p_value, 4 * p, 1e-9);
  EXPECT_EQ(both.code, ExitCode::kInconclusive) << to_text(both);
  // One of twenty honest methods is as low by chance.
  SyntheticArm pld = run_.arms[2];
  for (int k = 5; k < 24; ++k) {
    pld.label = fmt::format("pld:k={}", k);
    run_.arms.push_back(pld);
  }
  const GateResult twenty = gate(scored_by("e", half_of_all), scored_by("f", scores));
  EXPECT_EQ(twenty.code, ExitCode::kInconclusive) << to_text(twenty);
  const GateCheck& low = find(twenty, "quality", "pld:k=4");
  EXPECT_EQ(low.outcome, Outcome::kInconclusive);
  EXPECT_NEAR(*low.p_value, 21 * p, 1e-9);
  EXPECT_THAT(low.reason, HasSubstr("one of 21 comparisons may be as low by chance (p 0.40)"));
}

TEST_F(GateQuality, PromptsOfAGroupAreOneUnit) {
  // Groups of four lose 0.175 or gain 0.025, in turn.
  const Score scores = [](const std::string& label, int prompt) {
    if (label.starts_with("ar")) return 0.5;
    return 0.5 - 0.075 + (prompt / 4 % 2 == 0 ? 0.1 : -0.1);
  };
  const int64_t a = scored_by("a", half_of_all), b = scored_by("b", scores);
  const GateCheck apart = find(gate(a, b), "quality", "pld:k=4");
  EXPECT_EQ(apart.outcome, Outcome::kCorrectness);
  EXPECT_NEAR(*apart.p_value, 2 * base::student_t_cdf(-0.05 / (0.1 / std::sqrt(23.0)), 23), 1e-9);
  store_.execute(
      "UPDATE prompt SET group_name = CAST(replace(key, 'prompt-gsm8k-', '') AS INTEGER) / 4");
  const GateCheck grouped = find(gate(a, b), "quality", "pld:k=4");
  EXPECT_EQ(grouped.outcome, Outcome::kInconclusive);
  EXPECT_NEAR(*grouped.p_value, 2 * base::student_t_cdf(-0.05 / (0.1 / std::sqrt(5.0)), 5), 1e-9);
  EXPECT_EQ(grouped.n, 24);
  store_.execute("UPDATE prompt SET group_name = 'one'");
  EXPECT_THAT(find(gate(a, b), "quality", "pld:k=4").reason, HasSubstr("all prompts are of one"));
}

// Three prompts of 24 that lost everything: their kurtosis is 43 / 7, which leaves 2 * 24 / (36 /
// 7) degrees of freedom.
TEST_F(GateQuality, FewPromptsThatDifferCountAsFew) {
  const Score scores = [](const std::string& label, int prompt) {
    return label.starts_with("ar") || prompt >= 3 ? 1.0 : 0.0;
  };
  const auto all = [](const std::string&, int) { return 1.0; };
  const GateCheck v =
      find(gate(scored_by("a", all), scored_by("b", scores), {.max_quality_loss = 0}), "quality",
           "pld:k=4");
  const double t = -0.125 / std::sqrt(0.125 * 0.875 / 23);
  EXPECT_NEAR(*v.p_value, 2 * base::student_t_cdf(t, 28.0 / 3), 1e-9);
  EXPECT_EQ(v.outcome, Outcome::kInconclusive);
}

TEST_F(GateTest, MoreRepeatsHelpWhereSpeedIsOpen) {
  const GateResult g = gate(measure("a", nullptr, 1.0), measure("b", nullptr, 1.0));
  EXPECT_TRUE(g.more_repeats_help()) << to_text(g);
  EXPECT_FALSE(gate(measure("c"), measure("d")).more_repeats_help());
}

TEST_F(GateTest, NoiseIsInconclusive) {
  const GateResult g = gate(measure("a", nullptr, 1.0), measure("b", nullptr, 1.0));
  EXPECT_EQ(g.code, ExitCode::kInconclusive) << to_text(g);
}

TEST_F(GateTest, TheMarginIsNeverBelowTwiceTheNoiseFloor) {
  // The A/A arm is 6 % slower than its twin: below 12 % nothing can be called a regression.
  const Spoil biased = [](GenerationRecord& g, const SyntheticArm& a, int) {
    if (a.role == "aa") g.turns[0].decode_ns = g.turns[0].decode_ns * 106 / 100;
  };
  const Spoil both = [&](GenerationRecord& g, const SyntheticArm& a, int prompt) {
    biased(g, a, prompt);
    slower(1.1)(g, a, prompt);
  };
  const GateResult g = gate(measure("a", biased, 0), measure("b", both, 0));
  EXPECT_NEAR(g.noise_floor, std::log(1.06), 1e-6);
  EXPECT_NEAR(g.margin, 2 * std::log(1.06), 1e-6);
  // Not proven to be more than noise, and certainly not fine.
  EXPECT_EQ(g.code, ExitCode::kInconclusive) << to_text(g);
}

// The A/A arm of batch 8 is 12 % slower than its twin. That says nothing about batch 1.
TEST_F(GateTest, EveryBatchHasTheMarginOfItsOwnNoise) {
  for (SyntheticArm a : tests::usual_arms()) {
    a.label = a.role == "aa" ? "ar, batch 8 (A/A)" : a.label + ", batch 8";
    a.batch = 8;
    a.settings["batch_mode"] = "static";
    run_.arms.push_back(std::move(a));
  }
  const Spoil biased = [](GenerationRecord& g, const SyntheticArm& a, int) {
    if (a.role == "aa" && a.batch == 8) g.turns[0].decode_ns = g.turns[0].decode_ns * 112 / 100;
  };
  const Spoil both = [&](GenerationRecord& g, const SyntheticArm& a, int prompt) {
    biased(g, a, prompt);
    slower(1.1)(g, a, prompt);
  };
  const GateResult g = gate(measure("a", biased, 0), measure("b", both, 0));
  const GateCheck& alone = find(g, "speed", "pld:k=4");
  const GateCheck& together = find(g, "speed", "pld:k=4, batch 8");
  EXPECT_DOUBLE_EQ(*alone.margin, 0.03);
  EXPECT_EQ(alone.outcome, Outcome::kRegression) << to_text(g);
  EXPECT_NEAR(*together.margin, 2 * std::log(1.12), 1e-6);
  EXPECT_EQ(together.outcome, Outcome::kInconclusive) << to_text(g);
  EXPECT_NEAR(g.noise_floor, std::log(1.12), 1e-6);
  EXPECT_NEAR(g.margin, 2 * std::log(1.12), 1e-6);
}

TEST_F(GateTest, AWrongAcceptanceIsACorrectnessFailure) {
  const int64_t a = measure("a");
  const GateResult g =
      gate(a, measure("b", [](GenerationRecord& r, const SyntheticArm& arm, int prompt) {
             if (arm.role == "method" && prompt == 7) r.turns[0].tokens[9] += 1;
           }));
  EXPECT_EQ(g.code, ExitCode::kCorrectness);
  const GateCheck& own = find(g, "lossless", "pld:k=4");
  EXPECT_EQ(own.outcome, Outcome::kCorrectness);
  EXPECT_THAT(own.reason, HasSubstr("on 1 of 24 prompts, first gsm8k/7"));
  EXPECT_EQ(find(g, "tokens", "pld:k=4").outcome, Outcome::kCorrectness);
  EXPECT_EQ(find(g, "tokens", "ar").outcome, Outcome::kOk);
}

TEST_F(GateTest, TokensChangedInEveryArmAreStillSeen) {
  const int64_t a = measure("a");
  const GateResult g =
      gate(a, measure("b", [](GenerationRecord& r, const SyntheticArm&, int prompt) {
             if (prompt == 7) r.turns[0].tokens[9] += 1;
           }));
  EXPECT_EQ(g.code, ExitCode::kCorrectness);
  EXPECT_EQ(find(g, "lossless", "pld:k=4").outcome, Outcome::kOk);
  EXPECT_EQ(find(g, "tokens", "ar").outcome, Outcome::kCorrectness);
}

TEST_F(GateTest, ATunedTargetIsLosslessAgainstItsOwnPlainDecoding) {
  run_.arms = tests::arms_with_a_tuned_target();
  const auto tuned = [](GenerationRecord& g, const SyntheticArm& a, int) {
    if (a.model_hash == "tuned") g.turns[0].tokens[0] += 1000;
  };
  const int64_t a = measure("a", tuned);
  const GateResult g = gate(a, measure("b", tuned));
  EXPECT_EQ(g.code, ExitCode::kOk) << to_text(g);
  EXPECT_EQ(find(g, "lossless", "space").outcome, Outcome::kOk);
  EXPECT_EQ(find(g, "speed", "space").outcome, Outcome::kOk);
  EXPECT_THROW(find(g, "lossless", "ar_tuned"), std::runtime_error);  // as ar: nothing to equal
  EXPECT_THROW(find(g, "speed", "ar_tuned"), std::runtime_error);
  const GateResult wrong =
      gate(a, measure("c", [&](GenerationRecord& r, const SyntheticArm& arm, int prompt) {
             if (arm.label != "space") tuned(r, arm, prompt);
           }));
  EXPECT_EQ(find(wrong, "lossless", "space").outcome, Outcome::kCorrectness);
}

TEST_F(GateTest, ATunedTargetWithoutItsPlainDecodingIsInconclusive) {
  run_.arms = tests::arms_with_a_tuned_target();
  std::erase_if(run_.arms, [](const SyntheticArm& a) { return a.method == "ar_tuned"; });
  const GateResult g = gate(measure("a"), measure("b"));
  EXPECT_EQ(g.code, ExitCode::kInconclusive) << to_text(g);
  const GateCheck& v = find(g, "lossless", "space");
  EXPECT_EQ(v.outcome, Outcome::kInconclusive);
  EXPECT_THAT(v.reason, HasSubstr("measure ar_tuned"));
}

TEST_F(GateTest, OneRepeatThatDiffersIsSeen) {
  const int64_t a = measure("a");
  int calls = 0;
  const GateResult g =
      gate(a, measure("b", [&](GenerationRecord& r, const SyntheticArm& arm, int prompt) {
             if (arm.role == "method" && prompt == 7 && calls++ == 1) r.turns[0].tokens[9] += 1;
           }));
  EXPECT_EQ(g.code, ExitCode::kCorrectness);
  EXPECT_EQ(find(g, "repeats", "pld:k=4").outcome, Outcome::kCorrectness);
}

TEST_F(GateTest, AMiscountIsACorrectnessFailure) {
  const int64_t a = measure("a");
  const GateResult g = gate(a, measure("b", [](GenerationRecord& r, const SyntheticArm& arm, int) {
                              if (arm.role == "method") r.turns[0].steps[2].accepted += 1;
                            }));
  EXPECT_EQ(g.code, ExitCode::kCorrectness);
  EXPECT_EQ(find(g, "accounting", "pld:k=4").outcome, Outcome::kCorrectness);
  EXPECT_EQ(find(g, "counters", "pld:k=4").outcome, Outcome::kCorrectness);
}

TEST_F(GateTest, AConsistentChangeOfTauIsSeenWithoutStatistics) {
  const int64_t a = measure("a");
  run_.arms[2].accepted = {3, 1, 0, 1};  // same tokens, more steps, well counted
  const GateResult g = gate(a, measure("b"));
  EXPECT_EQ(g.code, ExitCode::kCorrectness);
  EXPECT_EQ(find(g, "accounting", "").outcome, Outcome::kOk);
  EXPECT_EQ(find(g, "tokens", "pld:k=4").outcome, Outcome::kOk);
  EXPECT_THAT(find(g, "counters", "pld:k=4").reason, HasSubstr("tau 2.5"));
}

TEST_F(GateTest, FailedGenerationsAreACorrectnessFailure) {
  const int64_t a = measure("a");
  const GateResult g =
      gate(a, measure("b", [](GenerationRecord& r, const SyntheticArm& arm, int prompt) {
             if (arm.role != "method" || prompt != 1) return;
             r.status = "failed: x";
             r.turns.clear(), r.texts.clear();
           }));
  EXPECT_EQ(g.code, ExitCode::kCorrectness);
  EXPECT_THAT(find(g, "failures", "pld:k=4").reason, HasSubstr("3 of 72"));
}

TEST_F(GateTest, AnotherEngineModeIsNotComparable) {
  const int64_t a = measure("a");
  run_.isa = "avx2";
  GateResult g = gate(a, measure("b"));
  EXPECT_EQ(g.code, ExitCode::kNoBaseline);
  EXPECT_THAT(to_text(g), HasSubstr("isa was avx512, is avx2"));
  run_.isa = "avx512";
  run_.threads = 1;
  g = gate(a, measure("c", slower(1.5)));
  EXPECT_EQ(g.code, ExitCode::kNoBaseline);  // and not a regression
  EXPECT_THAT(to_text(g), HasSubstr("threads was 2, is 1"));
}

// Nor is a run of evalrun 1.0, which stored no sampler.
TEST_F(GateTest, AnotherSamplerIsNotComparable) {
  const auto drawn = [&](const std::string& key, const std::string& sampler) {
    for (SyntheticArm& arm : run_.arms) {
      arm.temperature = 1;
      arm.settings.clear();
      if (!sampler.empty()) arm.settings["sampler"] = sampler;
    }
    return measure(key);
  };
  const int64_t inverse = drawn("inverse", "inverse"), gumbel = drawn("gumbel", "gumbel"),
                old = drawn("old", "");
  const auto reasons = [&](int64_t base, int64_t current) {
    const GateResult g = gate(base, current);
    EXPECT_EQ(g.code, ExitCode::kNoBaseline) << to_text(g);
    std::vector<std::string> said;
    for (const GateCheck& check : g.checks)
      if (check.metric == "comparable") said.push_back(check.reason);
    return said;
  };
  EXPECT_THAT(reasons(inverse, gumbel), ElementsAre("ar: sampler was inverse, is gumbel",
                                                    "ar (A/A): sampler was inverse, is gumbel",
                                                    "pld:k=4: sampler was inverse, is gumbel"));
  EXPECT_THAT(reasons(old, inverse), ElementsAre("ar: sampler was not set, is inverse",
                                                 "ar (A/A): sampler was not set, is inverse",
                                                 "pld:k=4: sampler was not set, is inverse"));
}

// Both of one architecture, so of one engine mode.
TEST_F(GateTest, AnotherGpuIsNotComparable) {
  for (SyntheticArm& a : run_.arms) a.device = "cuda:0";
  run_.environment["gpu"] = "Some GPU";
  const int64_t base = measure("a");
  EXPECT_EQ(gate(base, measure("b")).code, ExitCode::kOk);
  run_.environment["gpu"] = "Another GPU";
  const GateResult g = gate(base, measure("c"));
  EXPECT_EQ(g.code, ExitCode::kNoBaseline) << to_text(g);
  EXPECT_THAT(to_text(g), HasSubstr("the GPU was Some GPU, is Another GPU"));
}

TEST_F(GateTest, OtherPromptsOrMethodsAreNotComparable) {
  const int64_t a = measure("a");
  run_.prompts_per_task = 23;
  GateResult g = gate(a, measure("b"));
  EXPECT_EQ(g.code, ExitCode::kNoBaseline);
  EXPECT_THAT(to_text(g), HasSubstr("1 prompts of the baseline are missing"));
  run_.prompts_per_task = 24;
  run_.arms[2].label = "pld:k=5";
  g = gate(a, measure("c"));
  EXPECT_EQ(g.code, ExitCode::kNoBaseline);
  EXPECT_THAT(to_text(g), HasSubstr("pld:k=4 is in the baseline only"));
}

TEST_F(GateTest, AWrongRunIsWrongWhateverTheBaseline) {
  const int64_t a = measure("a");
  run_.threads = 1;
  const GateResult g = gate(a, measure("b", [](GenerationRecord& r, const SyntheticArm& arm, int) {
                              if (arm.role == "method") r.turns[0].tokens[9] += 1;
                            }));
  EXPECT_EQ(g.code, ExitCode::kCorrectness);
}

TEST_F(GateTest, AnUnfinishedRunIsInconclusive) {
  const int64_t a = measure("a");
  run_.repeats = 1;
  const int64_t b = measure("b");
  // The last prompt's method cell was never measured.
  store_.execute("DELETE FROM generation WHERE id = (SELECT max(id) FROM generation)");
  const GateResult g = gate(a, b);
  EXPECT_EQ(g.code, ExitCode::kInconclusive) << to_text(g);
  EXPECT_THAT(find(g, "complete", "").reason, HasSubstr("1 of the baseline's 72 cells"));
}

TEST_F(GateTest, PlantedFaultsCountOnlyWhenAskedFor) {
  const int64_t a = measure("a");
  run_.arms[2].fault = "slow:10%";
  const int64_t b = measure("b", slower(1.1));
  EXPECT_EQ(gate(a, b, {.faults = Faults::kInclude}).code, ExitCode::kRegression);
  // Left out they are cells that were not measured, never a pass.
  EXPECT_EQ(gate(a, b).code, ExitCode::kInconclusive);
}

TEST_F(GateTest, SampledTokensAreComparedOnlyForTheSameBuild) {
  for (SyntheticArm& arm : run_.arms) arm.temperature = 1;
  const int64_t a = measure("a");
  const Spoil other_draw = [](GenerationRecord& r, const SyntheticArm& arm, int) {
    if (arm.role == "method") r.turns[0].tokens[9] += 1;
  };
  EXPECT_EQ(gate(a, measure("b", other_draw)).code, ExitCode::kCorrectness);
  run_.commit = "fedcba987654";
  EXPECT_EQ(gate(a, measure("c", other_draw)).code, ExitCode::kOk);
}

// Sampled tokens that an arm promises are plain decoding's in every build.
TEST_F(GateTest, PromisedTokensAreComparedWhenSampled) {
  const Spoil other_draw = [](GenerationRecord& r, const SyntheticArm& arm, int prompt) {
    if (arm.role == "method" && prompt == 7) r.turns[0].tokens[9] += 1;
  };
  const auto measured = [&](const std::string& key, const std::string& promise,
                            const Spoil& spoil) {
    for (SyntheticArm& arm : run_.arms) {
      arm.temperature = 1;
      arm.settings["sampler"] = "inverse";
      arm.settings["sampled"] = arm.role == "method" ? promise : "same tokens";
    }
    run_.commit = key;  // another build each time
    return measure(key, spoil);
  };
  const int64_t a = measured("a", "same tokens", nullptr);
  const GateResult kept = gate(a, measured("b", "same tokens", nullptr));
  EXPECT_EQ(kept.code, ExitCode::kOk) << to_text(kept);
  EXPECT_EQ(find(kept, "lossless", "pld:k=4").outcome, Outcome::kOk);
  EXPECT_EQ(find(kept, "tokens", "pld:k=4").outcome, Outcome::kOk);
  const GateResult broken = gate(a, measured("c", "same tokens", other_draw));
  EXPECT_EQ(broken.code, ExitCode::kCorrectness) << to_text(broken);
  EXPECT_THAT(find(broken, "lossless", "pld:k=4").reason,
              HasSubstr("differ from plain decoding on 1 of 24 prompts, first gsm8k/7"));
  EXPECT_THAT(find(broken, "tokens", "pld:k=4").reason,
              HasSubstr("differ from the baseline's on 1 of 24 prompts"));
  EXPECT_EQ(find(broken, "tokens", "ar").outcome, Outcome::kOk);
  // Who promises the distribution may draw other tokens.
  const int64_t d = measured("d", "same distribution", nullptr);
  const GateResult other = gate(d, measured("e", "same distribution", other_draw));
  EXPECT_NE(other.code, ExitCode::kCorrectness) << to_text(other);
  EXPECT_THROW(find(other, "lossless", "pld:k=4"), std::runtime_error);
  EXPECT_THROW(find(other, "tokens", "pld:k=4"), std::runtime_error);
  EXPECT_EQ(find(other, "tokens", "ar").outcome, Outcome::kOk);
}

TEST_F(GateTest, MoreLooksAskForMoreEvidence) {
  const int64_t a = measure("a", nullptr, 0.4), b = measure("b", slower(1.06), 0.4);
  const GateResult one = gate(a, b), three = gate(a, b, {.looks = 3});
  EXPECT_GT(*find(three, "speed", "pld:k=4").hi, *find(one, "speed", "pld:k=4").hi);
  EXPECT_LT(*find(three, "speed", "pld:k=4").lo, *find(one, "speed", "pld:k=4").lo);
}

TEST_F(GateTest, HolmOverMethods) {
  // Twenty methods without any change: at 5 % each one in twenty would fall by chance if there were
  // no margin. With a margin of zero, the family is right about 19 times in 20.
  SyntheticArm pld = run_.arms[2];
  run_.arms.resize(2);
  for (int i = 0; i < 20; ++i) {
    pld.label = fmt::format("pld:k={}", i);
    run_.arms.push_back(pld);
  }
  run_.repeats = 1;
  run_.prompts_per_task = 6;
  const GateResult g =
      gate(measure("a", nullptr, 0.2), measure("b", nullptr, 0.2), {.max_regression = 0});
  std::vector<double> p, alone;  // alone: worked out again from the limits
  for (const GateCheck& v : g.checks)
    if (v.metric == "speed") {
      p.push_back(*v.p_value);
      const double mean = std::log1p(*v.effect), dof = static_cast<double>(v.n - 1);
      const double half = (std::log1p(*v.hi) - std::log1p(*v.lo)) / 2;
      const double t = (mean - std::log1p(-*v.margin)) / half * base::student_t_quantile(0.95, dof);
      alone.push_back(base::student_t_cdf(t, dof));
    }
  ASSERT_EQ(p.size(), 20u);
  const std::vector<double> expected = base::adjusted_p(alone, base::Adjustment::kHolm);
  for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(p[i], expected[i], 1e-9);
  EXPECT_NE(g.code, ExitCode::kRegression);
  EXPECT_LE(*std::max_element(p.begin(), p.end()), 1);
}

TEST_F(GateTest, FalseAlarmsAreRare) {
  // 60 unchanged comparisons at 3 % noise (uniform, +-5 %): no red, whatever else.
  run_.repeats = 1;
  run_.prompts_per_task = 20;
  const int64_t a = measure("a", nullptr, 0.1);
  int red = 0, ok = 0;
  for (int i = 0; i < 60; ++i) {
    const GateResult g = gate(a, measure(fmt::format("b{}", i), nullptr, 0.1));
    red += g.code == ExitCode::kRegression;
    ok += g.code == ExitCode::kOk;
  }
  EXPECT_EQ(red, 0);
  EXPECT_GT(ok, 30);
}

TEST_F(GateTest, JsonSaysTheSame) {
  const GateResult g = gate(measure("a"), measure("b", slower(1.1)));
  const auto j = nlohmann::json::parse(to_json(g));
  EXPECT_EQ(j["exit_code"], 1);
  EXPECT_EQ(j["outcome"], "regression");
  EXPECT_EQ(j["verdicts"][0]["metric"], "speed");
  EXPECT_EQ(j["verdicts"].size(), g.checks.size());
}

}  // namespace
}  // namespace evalrun::reports
