// Paired comparison: verdicts, causes, and what cannot be compared.
#include "reports/compare/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "tests/reports/rendered.h"
#include "tests/results/synthetic.h"

namespace evalrun::reports {
namespace {

using results::GenerationRecord;
using results::ResultStore;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::SyntheticArm;
using tests::SyntheticRun;

class CompareTest : public ::testing::Test {
 protected:
  CompareTest() : store_(folder_.file("a.db")) {
    run_.arms = tests::usual_arms();
    run_.prompts_per_task = 20;
  }
  // Fills a run in which AR takes `ar` and the method `method` times as long, with `noise`
  // (standard deviation about noise / 3.5) on every generation.
  int64_t measure(const std::string& key, double ar, double method, double noise = 0) {
    run_.key = key;
    auto rng = std::make_shared<base::Rng>(std::hash<std::string>{}(key));
    const auto spoil = spoil_;
    run_.change = [=](GenerationRecord& g, const SyntheticArm& a, int prompt, int repeat,
                      int sample) {
      const double factor =
          (a.role == "method" ? method : ar) * (1 + noise * (rng->uniform() - 0.5));
      g.turns[0].decode_ns = std::llround(factor * static_cast<double>(g.turns[0].decode_ns));
      if (spoil) spoil(g, a, prompt, repeat, sample);
    };
    return tests::fill(store_, run_);
  }
  ArmComparison compare(int64_t a, int64_t b) {
    return compare_runs(store_, a, store_, b).arms.at(0);
  }

  tests::TempFolder folder_;
  ResultStore store_;
  SyntheticRun run_;
  decltype(SyntheticRun::change) spoil_;
};

// Twenty prompts in batches of eight are three units.
TEST_F(CompareTest, PromptsOfABatchAreOneUnit) {
  const int64_t a = measure("a", 1, 1, 0.02), b = measure("b", 1, 1, 0.02);
  const ArmComparison alone = compare(a, b);
  EXPECT_EQ(alone.n_eff, 20);
  store_.execute("UPDATE arm SET batch = 8");
  const ArmComparison together = compare(a, b);
  EXPECT_DOUBLE_EQ(together.ratio, alone.ratio);
  EXPECT_NEAR(together.n_eff, 400.0 / (64 + 64 + 16), 1e-9);
  store_.execute("UPDATE arm SET batch = 32");
  EXPECT_TRUE(compare(a, b).one_unit);
  EXPECT_FALSE(compare(a, b).interval.has_value());
}

TEST_F(CompareTest, TheSameTwiceIsNoDifference) {
  const ArmComparison c = compare(measure("a", 1, 1, 0.02), measure("b", 1, 1, 0.02));
  EXPECT_EQ(c.change, Change::kNoDifference);
  EXPECT_EQ(c.n_prompts, 20);
  EXPECT_EQ(c.identical_share, 1);
  EXPECT_THAT(c.causes, IsEmpty());
}

TEST_F(CompareTest, ASlowerMethod) {
  const ArmComparison c = compare(measure("a", 1, 1, 0.02), measure("b", 1, 1.1, 0.02));
  EXPECT_EQ(c.change, Change::kSlower);
  EXPECT_NEAR(c.ratio, 1 / 1.1, 0.01);
  EXPECT_LT(*c.p_value, 1e-6);
  EXPECT_THAT(c.causes, ElementsAre(Cause::kMethodSlower));
}

TEST_F(CompareTest, AFasterBaselineLowersTheSpeedupToo) {
  const ArmComparison c = compare(measure("a", 1, 1), measure("b", 0.8, 1));
  EXPECT_EQ(c.change, Change::kSlower);
  EXPECT_NEAR(c.ratio, 0.8, 1e-6);
  EXPECT_THAT(c.causes, ElementsAre(Cause::kArFaster));
}

// Causes are of the fastest repeats: others' load on some of them is no change of the program.
TEST_F(CompareTest, DisturbedRepeatsNameNoCause) {
  run_.repeats = 3;
  const int64_t quiet = measure("a", 1, 1);
  spoil_ = [](GenerationRecord& g, const SyntheticArm& a, int, int repeat, int) {
    if (a.role == "baseline" && repeat > 0) g.turns[0].decode_ns += g.turns[0].decode_ns / 4;
  };
  const ArmComparison c = compare(quiet, measure("b", 1, 1));
  EXPECT_NEAR(c.b.base_tok_s, c.a.base_tok_s / 1.25, 1e-3);  // of the median repeat
  EXPECT_THAT(c.causes, IsEmpty());
}

TEST_F(CompareTest, TheRatioHidesBothSlower) {
  const ArmComparison c = compare(measure("a", 1, 1), measure("b", 1.3, 1.3));
  EXPECT_EQ(c.change, Change::kNoDifference);
  EXPECT_THAT(c.causes, ElementsAre(Cause::kBothSlower));
}

TEST_F(CompareTest, NoiseIsInconclusive) {
  const ArmComparison c = compare(measure("a", 1, 1, 0.9), measure("b", 1, 1, 0.9));
  EXPECT_EQ(c.change, Change::kInconclusive);
}

TEST_F(CompareTest, RatioAndIntervalByHand) {
  run_.prompts_per_task = 2;
  spoil_ = [](GenerationRecord& g, const SyntheticArm& a, int prompt, int, int) {
    if (a.role == "method" && prompt == 1) g.turns[0].decode_ns *= 2;
  };
  const int64_t b = measure("b", 1, 1);
  spoil_ = nullptr;
  const ArmComparison c = compare(measure("a", 1, 1), b);
  // d = {0, -ln 2}: mean -ln 2 / 2, SE = sd / sqrt 2 = (ln 2 / sqrt 2) / sqrt 2.
  EXPECT_NEAR(c.ratio, std::sqrt(0.5), 1e-12);
  const double half = std::tan(0.475 * M_PI) * std::log(2) / 2;
  EXPECT_NEAR(c.interval->hi, std::sqrt(0.5) * std::exp(half), 1e-8);
  // t = -1 with one degree of freedom: P = 1/2.
  EXPECT_NEAR(*c.p_value, 0.5, 1e-12);
}

// Runs of five prompts at most whose ln s_i fell by these amounts. Prompts of groups and categories
// that belong together count as such where the scope is not the fixed set.
class CompareDesigns : public CompareTest {
 protected:
  void measure_fall(const std::vector<double>& fall) {
    run_.prompts_per_task = static_cast<int>(fall.size());
    a_ = measure("a", 1, 1);
    spoil_ = [fall](GenerationRecord& g, const SyntheticArm& a, int prompt, int, int) {
      if (a.role != "method") return;
      const auto ns = static_cast<double>(g.turns[0].decode_ns);
      g.turns[0].decode_ns = std::llround(ns * std::exp(fall[static_cast<size_t>(prompt)]));
    };
    b_ = measure("b", 1, 1);
  }
  // By the number in the prompt's name, gsm8k/0 and so on.
  void name(const std::string& column, const std::string& by_number) {
    store_.execute("UPDATE prompt SET " + column + " = (SELECT " + by_number +
                   " FROM (SELECT CAST(substr(name, 7) AS INTEGER) AS n))");
  }
  Comparison all(Scope scope) { return compare_runs(store_, a_, store_, b_, {.scope = scope}); }
  ArmComparison of(Scope scope) { return all(scope).arms.at(0); }
  // ln of the interval: mean +- half.
  static void expect_interval(const ArmComparison& c, double mean, double half) {
    EXPECT_NEAR(std::log(c.ratio), mean, 1e-7);
    ASSERT_TRUE(c.interval);
    EXPECT_NEAR(std::log(c.interval->lo), mean - half, 1e-6);
    EXPECT_NEAR(std::log(c.interval->hi), mean + half, 1e-6);
  }

  int64_t a_ = 0, b_ = 0;
  // Student's t at 97.5 % with 1, 3 and 4 degrees of freedom.
  static constexpr double kT1 = 12.706204736174698, kT3 = 3.182446305284263,
                          kT4 = 2.7764451051977987;
};

// Three prompts of mean 0.3 and one of 0.7. Without one group the mean is 0.7, without the other
// 0.3: a standard error of 0.2 with one degree of freedom. 16 / (9 + 1) groups of equal weight.
TEST_F(CompareDesigns, GroupsByHand) {
  measure_fall({0.1, 0.3, 0.5, 0.7});
  name("group_name", "CASE WHEN n < 3 THEN 'many' ELSE '' END");
  for (const Scope scope : {Scope::kSameKind, Scope::kNewKinds}) {
    const ArmComparison c = of(scope);
    EXPECT_EQ(c.n_prompts, 4);
    EXPECT_NEAR(c.n_eff, 1.6, 1e-12);
    expect_interval(c, -0.4, kT1 * 0.2);
    // t = -2: of one degree of freedom F(t) = 1/2 + atan(t) / pi.
    EXPECT_NEAR(*c.p_value, 1 - 2 * std::atan(2) / M_PI, 1e-6);
  }
  // Each prompt on its own: sd of 0.1, 0.3, 0.5, 0.7 is 0.258199.
  const ArmComparison fixed = of(Scope::kFixedSet);
  EXPECT_EQ(fixed.n_eff, 4);
  expect_interval(fixed, -0.4, kT3 * std::sqrt(0.2 / 3) / 2);
}

// 1, 3 | 10, 14, 18 hundredths, as MeanInterval.OfStrataByHand. As clusters: 9.2 of all, 14 without
// the one, 2 without the other, which is a standard error of 6; 25 / (4 + 9) of equal weight.
TEST_F(CompareDesigns, CategoriesAreStrataOrClusters) {
  measure_fall({0.01, 0.03, 0.10, 0.14, 0.18});
  name("category", "CASE WHEN n < 2 THEN 'x' ELSE 'y' END");
  const ArmComparison same = of(Scope::kSameKind), others = of(Scope::kNewKinds);
  EXPECT_DOUBLE_EQ(same.n_eff, 5);
  expect_interval(same, -0.092, kT3 * 0.01 * std::sqrt(2.08));
  EXPECT_NEAR(others.n_eff, 25.0 / 13, 1e-12);
  expect_interval(others, -0.092, kT1 * 0.06);
}

// Pooled, single prompts are one stratum; one alone goes to the others. Both ways this is Student's
// t over five prompts: variance 51.7e-4 of 1, 3, 10, 14, 18 hundredths.
TEST_F(CompareDesigns, StrataOfOnePromptArePooled) {
  measure_fall({0.01, 0.03, 0.10, 0.14, 0.18});
  const double half = kT4 * 0.01 * std::sqrt(51.7 / 5);
  for (const char* categories : {"'kind ' || n", "CASE WHEN n = 0 THEN 'single' ELSE 'many' END"}) {
    name("category", categories);
    expect_interval(of(Scope::kSameKind), -0.092, half);
    EXPECT_THAT(all(Scope::kSameKind).warnings, IsEmpty());
  }
}

TEST_F(CompareDesigns, OneClusterHasNoIntervalAndIsNamed) {
  measure_fall({0.1, 0.3, 0.5, 0.7});
  name("group_name", "'the only one'");
  const Comparison grouped = all(Scope::kSameKind);
  const ArmComparison& c = grouped.arms.at(0);
  EXPECT_NEAR(std::log(c.ratio), -0.4, 1e-7);
  EXPECT_FALSE(c.interval || c.p_value);
  EXPECT_EQ(c.n_eff, 1);
  EXPECT_EQ(c.change, Change::kInconclusive);
  EXPECT_THAT(grouped.warnings, ElementsAre("gsm8k: no interval: all prompts are of one group"));
  EXPECT_THAT(to_text(grouped),
              HasSubstr("Note: gsm8k: no interval: all prompts are of one group"));
  EXPECT_TRUE(of(Scope::kFixedSet).interval) << "the prompts are given";
  EXPECT_THAT(all(Scope::kFixedSet).warnings, IsEmpty());
  name("group_name", "''");
  EXPECT_TRUE(of(Scope::kNewKinds).interval) << "no kinds, and groups of one";
  name("category", "'one'");
  EXPECT_THAT(all(Scope::kNewKinds).warnings,
              ElementsAre("gsm8k: no interval for new kinds: all prompts are of one kind"));
}

TEST_F(CompareTest, ChangedTextIsSaid) {
  spoil_ = [](GenerationRecord& g, const SyntheticArm&, int prompt, int, int) {
    if (prompt < 5) g.turns[0].tokens[2] += 1;
  };
  const int64_t b = measure("b", 1, 1);
  spoil_ = nullptr;
  const ArmComparison c = compare(measure("a", 1, 1), b);
  EXPECT_DOUBLE_EQ(c.identical_share, 0.75);
  EXPECT_THAT(c.causes, ElementsAre(Cause::kTextChanged));
}

TEST_F(CompareTest, AcrossTwoFiles) {
  tests::TempFolder other;
  ResultStore second(other.file("b.db"));
  const int64_t a = measure("a", 1, 1);
  tests::fill(second, run_);
  run_.key = "b";
  const int64_t b = tests::fill(second, run_);
  EXPECT_EQ(compare_runs(store_, a, second, b).arms.at(0).change, Change::kNoDifference);
}

TEST_F(CompareTest, DifferingSettingsAreWarnings) {
  const int64_t a = measure("a", 1, 1);
  run_.isa = "avx2";
  run_.prompts_per_task = 19;
  const Comparison c = compare_runs(store_, a, store_, measure("b", 1, 1));
  EXPECT_THAT(c.warnings, Contains(HasSubstr("isa is avx512 in A, avx2 in B")));
  EXPECT_THAT(c.warnings, Contains(HasSubstr("1 prompts are in A only")));
}

TEST_F(CompareTest, DifferingSettingsAreNamedOneByOne) {
  for (SyntheticArm& arm : run_.arms) arm.settings["seed"] = "1";
  run_.arms[2].settings["adapter_budget"] = R"({"epochs": 1})";
  const int64_t a = measure("a", 1, 1);
  for (SyntheticArm& arm : run_.arms) arm.settings["seed"] = "2";
  run_.arms[0].settings["max_turns"] = "1";
  run_.arms[2].settings["adapter_budget"] = R"({"epochs": 2})";
  const int64_t b = measure("b", 1, 1);
  run_.arms[2].settings.erase("adapter_budget");
  const int64_t c = measure("c", 1, 1);
  EXPECT_THAT(compare_runs(store_, a, store_, b).warnings,
              ElementsAre("ar: max_turns is not set in A, 1 in B", "ar: seed is 1 in A, 2 in B",
                          "ar (A/A): seed is 1 in A, 2 in B",
                          "pld:k=4: adapter_budget is one in A, another in B",
                          "pld:k=4: seed is 1 in A, 2 in B"));
  EXPECT_THAT(compare_runs(store_, b, store_, c).warnings,
              ElementsAre("pld:k=4: adapter_budget is one in A, not set in B"));
  EXPECT_THAT(compare_runs(store_, c, store_, b).warnings,
              ElementsAre("pld:k=4: adapter_budget is not set in A, one in B"));
}

// Whose texts differ by the way they were drawn have nothing to pair.
TEST_F(CompareTest, AnotherSamplerIsRefused) {
  const auto drawn = [&](const std::string& key, const std::string& sampler,
                         double temperature = 1) {
    for (SyntheticArm& arm : run_.arms) {
      arm.temperature = temperature;
      arm.settings.clear();
      if (!sampler.empty()) arm.settings["sampler"] = sampler;
    }
    return measure(key, 1, 1);
  };
  // As evalrun 1.0 stored it: without a sampler.
  const int64_t inverse = drawn("inverse", "inverse"), gumbel = drawn("gumbel", "gumbel"),
                old = drawn("old", "");
  const auto refused = [&](int64_t a, int64_t b, const std::string& why,
                           const std::string& remedy) {
    try {
      compare(a, b);
      ADD_FAILURE() << why;
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kNoBaseline);
      EXPECT_THAT(e.message(), HasSubstr(why));
      EXPECT_THAT(e.hint(), HasSubstr(remedy));
    }
  };
  refused(inverse, gumbel, "ar: sampler is inverse in A, gumbel in B",
          "A with --sampler gumbel, or B with --sampler inverse");
  refused(old, inverse, "ar: sampler is not stored in A, inverse in B",
          "measure A again, with --sampler inverse");
  refused(gumbel, old, "ar: sampler is gumbel in A, not stored in B",
          "measure B again, with --sampler gumbel");
  // Of one sampler, or of none on both sides, as before.
  EXPECT_EQ(compare(gumbel, drawn("gumbel again", "gumbel")).identical_share, 1);
  EXPECT_EQ(compare(old, drawn("old again", "")).identical_share, 1);
  // Greedy arms draw nothing.
  const int64_t greedy = drawn("greedy", "", 0);
  EXPECT_EQ(compare(greedy, drawn("greedy again", "gumbel", 0)).identical_share, 1);
  EXPECT_THAT(compare_runs(store_, greedy, store_, gumbel).warnings,
              Contains("pld:k=4: sampler is not set in A, gumbel in B"));
}

// Labels of older runs hold whole paths.
TEST_F(CompareTest, ALabelMayHoldMoreOfAPath) {
  const auto arms = [&](const std::vector<std::string>& adapters) {
    run_.arms.resize(2);
    for (const std::string& adapter : adapters) {
      run_.arms.push_back(tests::usual_arms()[2]);
      run_.arms.back().label = "medusa:adapter=" + adapter + ",any_target=true";
    }
  };
  arms({"/some/where/heads.st"});
  const int64_t one = measure("one", 1, 1, 0.02);
  arms({"/some/where/heads.st", "/else/where/heads.st"});
  const int64_t two = measure("two", 1, 1, 0.02);
  arms({"heads.st"});
  const int64_t file = measure("file", 1, 1, 0.02);
  arms({"some/where/heads.st", "else/where/heads.st"});
  const int64_t tails = measure("tails", 1, 1, 0.02);
  arms({"eads.st", "heads.st/", "/heads.st,k=2"});
  const int64_t others = measure("others", 1, 1, 0.02);
  const auto common = [&](int64_t a, int64_t b) {
    const Comparison c = compare_runs(store_, a, store_, b);
    return std::pair(c.arms.size(), c.warnings.size());
  };
  EXPECT_EQ(common(one, file), std::pair(size_t{1}, size_t{0}));
  EXPECT_EQ(common(file, one), std::pair(size_t{1}, size_t{0}));
  EXPECT_EQ(common(two, tails), std::pair(size_t{2}, size_t{0}));
  EXPECT_EQ(common(tails, two), std::pair(size_t{2}, size_t{0}));
  EXPECT_EQ(common(one, tails), std::pair(size_t{1}, size_t{1}));  // and one in B only
  EXPECT_THROW(common(others, one), base::Error);                  // no method is in both
  // Which of the two it was, nobody can tell.
  EXPECT_THROW(common(file, two), base::Error);
}

TEST_F(CompareTest, ATunedTargetHasItsOwnPlainDecoding) {
  run_.arms = tests::arms_with_a_tuned_target();
  const int64_t a = measure("a", 1, 1, 0.02), b = measure("b", 1, 1, 0.02);
  const Comparison c = compare_runs(store_, a, store_, b);
  ASSERT_EQ(c.arms.size(), 2u);
  EXPECT_EQ(c.arms[0].method, "pld:k=4");
  EXPECT_EQ(c.arms[1].method, "space");
  EXPECT_NEAR(c.arms[0].a.base_tok_s, 100, 3);
  EXPECT_NEAR(c.arms[1].a.base_tok_s, 125, 3);
}

TEST_F(CompareTest, SeveralSessionsASideByHand) {
  run_.prompts_per_task = 5;
  // ln of the method's time, session by session; the same for every prompt.
  std::vector<StoredRun> a, b;
  for (const double shift : {0.00, 0.02, 0.04})
    a.push_back({&store_, measure(fmt::format("a{}", shift), 1, std::exp(shift))});
  for (const double shift : {0.10, 0.14})
    b.push_back({&store_, measure(fmt::format("b{}", shift), 1, std::exp(shift))});
  const Comparison c = compare_runs(a, b);
  ASSERT_EQ(c.a.size(), 3u);
  ASSERT_EQ(c.b.size(), 2u);
  const ArmComparison& pld = c.arms.at(0);
  // Means .02 and .12. Squares .0004 x 2 + .0004 x 2 over 3 + 2 - 2 degrees of freedom.
  EXPECT_NEAR(std::log(pld.ratio), -0.10, 1e-7);
  const double sd = std::sqrt(0.0016 / 3), se = sd * std::sqrt(1.0 / 3 + 1.0 / 2);
  EXPECT_NEAR(*pld.session_sd, sd, 1e-7);
  EXPECT_NEAR(std::log(pld.interval->hi), -0.10 + 3.182446305284263 * se, 1e-6);
  EXPECT_NEAR(*pld.p_value, 2 * base::student_t_cdf(-0.10 / se, 3), 1e-5);
  // 5 prompts, 2 of the 5 sessions: times of all sessions are in the totals.
  EXPECT_NEAR(pld.b.tok_s / pld.a.tok_s,
              ((1 + std::exp(0.02) + std::exp(0.04)) / 3) / ((std::exp(0.10) + std::exp(0.14)) / 2),
              1e-6);
  EXPECT_THAT(c.warnings, Contains(HasSubstr("A has 3 sessions")));
  EXPECT_THAT(to_text(c), HasSubstr("from the spread between sessions"));
  EXPECT_THAT(to_text(c), HasSubstr("sd of sessions"));
  // The same runs, one a side: the spread over prompts is nothing, and the interval with it.
  const Comparison one = compare_runs({&a[0], 1}, {&b[0], 1});
  EXPECT_LT(one.arms[0].interval->hi / one.arms[0].interval->lo, 1 + 1e-6);
  EXPECT_FALSE(one.arms[0].session_sd.has_value());
  EXPECT_THAT(to_text(one), HasSubstr("what another session would add is not in it"));
}

TEST_F(CompareTest, EnoughSessionsAreNotWarnedAbout) {
  std::vector<StoredRun> a, b;
  for (int r = 0; r < 5; ++r) {
    a.push_back({&store_, measure(fmt::format("a{}", r), 1, 1, 0.02)});
    b.push_back({&store_, measure(fmt::format("b{}", r), 1, 1.1, 0.02)});
  }
  const Comparison c = compare_runs(a, b, {.scope = Scope::kSameKind});
  EXPECT_THAT(c.warnings, IsEmpty());
  EXPECT_EQ(c.arms.at(0).change, Change::kSlower);
  EXPECT_THAT(to_markdown(c), HasSubstr("(same-kind)"));
  EXPECT_THAT(to_json(c), HasSubstr("\"scope\": \"same-kind\""));
}

TEST_F(CompareTest, ChangedTextBetweenSessionsIsSaid) {
  std::vector<StoredRun> a = {{&store_, measure("a", 1, 1)}};
  spoil_ = [](GenerationRecord& g, const SyntheticArm& arm, int prompt, int, int) {
    if (prompt < 5 && arm.role == "method") g.turns[0].tokens[2] += 1;
  };
  a.push_back({&store_, measure("a2", 1, 1)});
  spoil_ = nullptr;
  const StoredRun b = {&store_, measure("b", 1, 1)};
  EXPECT_THAT(compare_runs(a, {&b, 1}).warnings,
              Contains(HasSubstr("of A differ on 5 of 20 prompts")));
}

TEST_F(CompareTest, SessionsMustBeOfOneThing) {
  const StoredRun a = {&store_, measure("a", 1, 1)};
  const auto refused = [&](const std::string& why) {
    const std::vector<StoredRun> side = {a, {&store_, measure(why, 1, 1)}};
    try {
      compare_runs(side, {&a, 1});
      ADD_FAILURE() << why;
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kData);
      EXPECT_THAT(e.what(), HasSubstr(why));
      EXPECT_THAT(e.hint(), HasSubstr("--no-resume"));
    }
  };
  const SyntheticRun usual = run_;
  run_.isa = "avx2";
  refused("isa is avx2, and avx512 in the first");
  run_ = usual;
  run_.arms[0].settings["seed"] = "2";
  refused("ar: seed is 2, and not set in the first");
  run_ = usual;
  run_.prompts_per_task = 19;
  refused("lacks the prompt");
  run_.prompts_per_task = 21;
  refused("has the prompt");
  run_ = usual;
  run_.arms.pop_back();
  refused("has no arm pld:k=4");
  run_ = usual;
  run_.arms.push_back(run_.arms.back());
  run_.arms.back().label = "sps";
  refused("has an arm sps more");
  run_ = usual;
  run_.environment["cpu"] = "Another CPU";
  refused("was measured on 'Another CPU', not 'Some CPU'");
  run_ = usual;
  run_.commit = "fedcba987654";
  refused("is of commit fedcba987654");
  const std::vector<StoredRun> twice = {a, a};
  EXPECT_THROW(compare_runs(twice, {&a, 1}), base::Error);
}

TEST_F(CompareTest, RowsAreOneFamily) {
  // 20 methods without any change, compared 10 times: row by row about one in twenty is called
  // changed, as a family hardly any.
  SyntheticArm pld = run_.arms[2];
  run_.arms.resize(2);
  for (int i = 0; i < 20; ++i) {
    pld.label = fmt::format("pld:k={}", i);
    run_.arms.push_back(pld);
  }
  run_.prompts_per_task = 6;
  const int64_t a = measure("a", 1, 1, 0.6);
  std::map<base::Adjustment, int> calls;
  for (int i = 0; i < 10; ++i) {
    const int64_t b = measure(fmt::format("b{}", i), 1, 1, 0.6);
    for (const auto how :
         {base::Adjustment::kNone, base::Adjustment::kHolm, base::Adjustment::kBenjaminiHochberg}) {
      const Comparison c = compare_runs(store_, a, store_, b, {.adjustment = how});
      std::vector<double> p;
      for (const ArmComparison& x : c.arms) p.push_back(*x.p_value);
      p = base::adjusted_p(p, how);
      for (size_t row = 0; row < p.size(); ++row) {
        const ArmComparison& x = c.arms[row];
        const bool called = x.change == Change::kFaster || x.change == Change::kSlower;
        calls[how] += called;
        EXPECT_EQ(called, p[row] < 0.05) << x.method;
        EXPECT_EQ(x.p_adjusted.has_value(), how != base::Adjustment::kNone);
        if (x.p_adjusted) {
          EXPECT_EQ(*x.p_adjusted, p[row]);
        }
      }
    }
  }
  EXPECT_GT(calls[base::Adjustment::kNone], calls[base::Adjustment::kBenjaminiHochberg]);
  EXPECT_GE(calls[base::Adjustment::kBenjaminiHochberg], calls[base::Adjustment::kHolm]);
}

TEST_F(CompareTest, TheAdjustmentIsNamed) {
  const int64_t a = measure("a", 1, 1, 0.02), b = measure("b", 1, 1.1, 0.02);
  const auto text = [&](base::Adjustment how) {
    return to_text(compare_runs(store_, a, store_, b, {.adjustment = how}));
  };
  EXPECT_THAT(text(base::Adjustment::kBenjaminiHochberg), HasSubstr("p adj. (Benjamini-Hochberg"));
  EXPECT_THAT(text(base::Adjustment::kHolm), HasSubstr("p adj. (Holm"));
  EXPECT_THAT(text(base::Adjustment::kNone), HasSubstr("not adjusted"));
  EXPECT_THAT(text(base::Adjustment::kNone), ::testing::Not(HasSubstr("p adj.")));
  EXPECT_THAT(to_json(compare_runs(store_, a, store_, b)), HasSubstr("\"adjust\": \"bh\""));
}

TEST_F(CompareTest, NothingInCommonIsAnError) {
  const int64_t a = measure("a", 1, 1);
  run_.arms[2].label = "sps";
  const int64_t b = measure("b", 1, 1);
  EXPECT_THROW(compare_runs(store_, a, store_, b), base::Error);
  run_.arms.erase(run_.arms.begin());
  const int64_t without_ar = measure("c", 1, 1);
  EXPECT_THROW(compare_runs(store_, a, store_, without_ar), base::Error);
  EXPECT_THROW(compare_runs(store_, a, store_, 999), base::Error);
}

}  // namespace
}  // namespace evalrun::reports
