// The table of planted faults in short (docs/measurement.md, "Planted faults"): each is found by
// the check that claims to find it, honest builds by none, and a fault is as large as the table
// says.
#include "tests/runners/fault_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <span>
#include <utility>

#include "engine/base/goodness_of_fit.h"
#include "methods/faults.h"
#include "methods/speculative_method.h"
#include "methods/step.h"
#include "runners/verify/certify.h"
#include "tests/methods/support/harness.h"
#include "tests/runners/fault_law.h"
#include "tests/temp_folder.h"

namespace evalrun::runners {
namespace {

const std::string kDrawnDrafts = "sps:draft=layers:1,k=3";

// They act on the rejection rule alone, so that nothing is wrong where tokens decide.
bool acts_on_rejection(const std::string& fault) {
  return fault == "redraw-from-target" || fault.starts_with("scale-acceptance") ||
         fault.starts_with("misreport-draft");
}

TEST(FaultTable, EachFaultIsFoundByTheProofsThatClaimIt) {
  FaultBudget budget;
  budget.seeds = 3;
  budget.answers = {4};
  budget.draws = budget.samples = {};
  FaultTable table(tiny_subject(kDrawnDrafts, 64), budget);
  EXPECT_EQ(table.sampler_of_tokens(), engine::Sampler::kGumbel);
  // 0.1 % of a vocabulary of 24 is hardly anything.
  for (const std::string fault :
       {"wrong-accept:1%", "wrong-accept:2%", "wrong-accept:5%", "wrong-accept:10%",
        "redraw-from-target", "verify-temperature:95%", "verify-temperature:98%",
        "verify-top-p:95%", "drop-below:1%", "misreport-draft:80%", "scale-acceptance:110%"}) {
    const FaultRow row = table.row(fault);
    EXPECT_EQ(row.audited.at(0), 3) << fault;
    EXPECT_EQ(row.other_tokens.at(0), acts_on_rejection(fault) ? 0 : 3) << fault;
    ASSERT_TRUE(row.variation.has_value()) << fault;
    EXPECT_GT(*row.variation, 0) << fault;
    EXPECT_LT(*row.variation, 0.5) << fault;
    EXPECT_LE(row.steps.front(), row.steps.back());
    EXPECT_GE(row.decisions.front(), 1) << fault;
  }
  const FaultRow honest = table.row(kNoFault);
  EXPECT_EQ(honest.audited.at(0), 0);
  EXPECT_EQ(honest.other_tokens.at(0), 0);
  EXPECT_EQ(honest.variation.value_or(1), 0);
  EXPECT_GT(honest.steps.front(), 700) << "of 3,072 tokens, four a step at most";
}

TEST(FaultTable, BudgetsCountFromTheFirstOneThatReachesAFault) {
  FaultBudget budget;
  budget.seeds = 2;
  budget.answers = {1, 30};
  budget.draws = budget.samples = {};
  FaultTable table(tiny_subject(kDrawnDrafts, 4), budget);
  // One refused draft in 50 is kept, and twelve answers of four tokens have 36 steps at most.
  const FaultRow row = table.row("wrong-accept:2%");
  EXPECT_EQ(row.audited, (std::vector<int>{0, 2}));
  EXPECT_EQ(table.row("wrong-accept:100%").audited, (std::vector<int>{2, 2}));
}

TEST(FaultTable, LawsRefuteWhatIsCoarseAndNoHonestBuild) {
  FaultBudget budget;
  budget.seeds = 2;
  budget.answers = {};
  budget.draws = {200};
  FaultTable table(tiny_subject(kDrawnDrafts, 32), budget);
  const FaultRow coarse = table.row("wrong-accept:100%"), honest = table.row(kNoFault);
  EXPECT_EQ(coarse.by_steps.at(0), 2);
  EXPECT_EQ(coarse.by_texts.at(0), 2);
  EXPECT_EQ(honest.by_steps.at(0), 0);
  EXPECT_EQ(honest.by_texts.at(0), 0);
  EXPECT_TRUE(coarse.audited.empty());
}

// A method that only looks up promises the tokens by either sampler, and drafts from no law.
TEST(FaultTable, AMethodWithoutDrawnDraftsIsComparedByTokens) {
  FaultBudget budget;
  budget.seeds = 1;
  budget.answers = {1};
  budget.draws = budget.samples = {};
  FaultTable table(tiny_subject("pld:k=3", 64), budget);
  EXPECT_EQ(table.sampler_of_tokens(), engine::Sampler::kInverse);
  const FaultRow row = table.row("verify-temperature:80%");
  EXPECT_EQ(row.other_tokens.at(0), 1);
  EXPECT_EQ(row.audited.at(0), 1);
  EXPECT_FALSE(row.variation.has_value());
}

// What a certificate by a law alone may let pass: the audit fails each, and proves an honest
// build.
TEST(FaultTable, CertificatesOfFaultsThatALawMayLetPassFail) {
  const tests::TempFolder folder;
  const std::string file = folder.file("prompts.jsonl");
  std::ofstream(file) << R"({"id": "a", "turns": ["abcabcabcabc"]})"
                      << "\n"
                      << R"({"id": "b", "turns": ["xyxyxyxyxyxy"]})"
                      << "\n"
                      << R"({"id": "c", "turns": ["abdcefabdcef"]})"
                      << "\n";
  CertifyRequest request;
  request.plan.target = tiny_subject(kDrawnDrafts, 64).model;
  request.plan.suite.tasks = {{.task = "jsonl:" + file}};
  request.plan.suite.methods = {kDrawnDrafts};
  request.plan.suite.aa = false;
  request.plan.suite.max_new = 64;
  request.plan.session.n_threads = 1;
  complete_suite(request.plan.suite, "test");
  request.greedy = request.law = request.steps = request.texts = false;
  base::SteadyClock clock;
  const auto certified = [&](const std::string& fault, uint64_t seed) {
    request.fault = fault;
    request.answers = {{1.0, 0, 1.0}, seed, 6};
    std::vector<Certificate> list;
    certify(
        request, clock, [](const auto&, const auto&) { return false; },
        [&](const Certificate& c) { list.push_back(c); });
    return list.at(0);
  };
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    for (const char* fault : {"wrong-accept:1%", "redraw-from-target", "verify-temperature:95%"}) {
      const Certificate c = certified(fault, seed);
      EXPECT_EQ(outcome_of(c), Outcome::kFails) << fault << ", seed " << seed;
      EXPECT_EQ(sampling_grade(c), Grade::kNotShown) << fault;
      EXPECT_EQ(shown_parts(c), "") << fault;
    }
    const Certificate honest = certified("", seed);
    EXPECT_EQ(outcome_of(honest), Outcome::kHolds) << "seed " << seed << why_open(honest);
    EXPECT_EQ(sampling_grade(honest), Grade::kAudited);
    EXPECT_LT(smallest_found(honest).value_or(1), 0.01);
  }
}

// ---- How large a fault is -----------------------------------------------------------------------

TEST(FaultLaw, ByHand) {
  const std::vector<double> p = {0.5, 0.3, 0.2}, q = {0.8, 0.1, 0.1};
  std::vector<float> logits;
  for (const double x : p) logits.push_back(static_cast<float>(std::log(x)));
  const engine::SamplingParams sampling{1.0, 0, 1.0};
  const auto expect = [&](const char* fault, const std::vector<double>& law) {
    const auto found = faulty_law(fault, logits, sampling, q);
    ASSERT_TRUE(found.has_value()) << fault;
    ASSERT_EQ(found->size(), law.size());
    for (size_t i = 0; i < law.size(); ++i) EXPECT_NEAR((*found)[i], law[i], 1e-6) << fault << i;
  };
  expect("none", p);
  // 0.3 of the drafts are refused, all of them token 0. What p has above q: 0, 0.2, 0.1.
  expect("wrong-accept:100%", q);
  expect("wrong-accept:10%", {0.53, 0.28, 0.19});
  expect("redraw-from-target", {0.5 + 0.3 * 0.5, 0.1 + 0.3 * 0.3, 0.1 + 0.3 * 0.2});
  // Accepted: 0.6, 0.1, 0.1. What p has above that: 0, 0.2, 0.1, of which 0.2 is drawn.
  expect("scale-acceptance:120%", {0.6, 0.1 + 0.2 * 2 / 3, 0.1 + 0.2 / 3});
  expect("verify-top-p:60%", {0.625, 0.375, 0});
  expect("drop-below:25%", {0.625, 0.375, 0});
  expect("drop-below:90%", {1, 0, 0});
  // p^2, normalised.
  expect("verify-temperature:50%", {25.0 / 38, 9.0 / 38, 4.0 / 38});
  // q is said to be its root: 0.894, 0.316, 0.316 over 1.527, which is 0.586, 0.207, 0.207. Token 0
  // passes with 0.5 / 0.586, token 2 with 0.2 / 0.207; only token 1 has more in p.
  const double root = std::sqrt(0.8) + 2 * std::sqrt(0.1);
  const double first = 0.8 * 0.5 / (std::sqrt(0.8) / root),
               third = 0.1 * 0.2 / (std::sqrt(0.1) / root);
  expect("misreport-draft:50%", {first, 1 - first - third, third});
  EXPECT_FALSE(faulty_law("wrong-accept", logits, sampling, q).has_value());
  EXPECT_FALSE(faulty_law("slow:10%", logits, sampling, q).has_value());
  EXPECT_NEAR(total_variation(p, q), 0.3, 1e-12);
}

// The next token of a method with one drafted token, drawn often at one place.
class NextTokens {
 public:
  NextTokens(const std::shared_ptr<const engine::Model>& model, tests::Tokens text)
      : model_(model), session_(tests::make_session(model)), text_(std::move(text)) {}
  std::vector<int64_t> count(const std::string& fault, int draws) {
    auto method = tests::build_method("sps:draft=layers:1,k=1", model_);
    if (fault != kNoFault) method = methods::plant_fault(std::move(method), fault);
    methods::PhaseTimer timer(clock_);
    std::vector<int64_t> counts(static_cast<size_t>(model_->config().vocab_size));
    for (int i = 0; i < draws; ++i) {
      begin(*method, static_cast<uint64_t>(i));
      const auto step = methods::run_alone(*method, *session_, timer);
      ++counts[static_cast<size_t>(step.tokens.front())];
    }
    return counts;
  }
  std::vector<double> law(const std::string& fault) {
    std::vector<double> found;
    const auto method = tests::build_method("sps:draft=layers:1,k=1", model_);
    methods::with_verdicts(*method, "a test")
        .set_verdict_hook([&](const methods::SpeculativeMethod::Verdict& verdict) {
          const auto logits = verdict.target.logits(0);
          found = faulty_law(fault, logits, sampling_, verdict.drafter.q_of(1)).value();
        });
    begin(*method, 1);
    methods::PhaseTimer timer(clock_);
    methods::run_alone(*method, *session_, timer);
    return found;
  }

 private:
  void begin(methods::DecodingMethod& method, uint64_t seed) {
    session_->reset();
    const std::span<const int32_t> text = text_;
    session_->prefill(text.first(text.size() - 1));
    methods::GenerationContext context;
    context.target = session_.get();
    context.prompt = text.first(text.size() - 1);
    context.first_token = text.back();
    context.max_new = 40;
    context.sampling = sampling_;
    context.chance = base::KeyedChance(base::combine_seeds({seed, 5}));
    method.start(context);
  }

  std::shared_ptr<const engine::Model> model_;
  std::unique_ptr<engine::Session> session_;
  tests::Tokens text_;
  engine::SamplingParams sampling_{1.0, 0, 1.0};
  base::SteadyClock clock_;
};

TEST(FaultLaw, IsWhatAFaultyMethodDraws) {
  constexpr int kDraws = 5000;
  int seen = 0;
  for (const tests::Tokens& text :
       {tests::Tokens{1, 2, 3, 4, 1, 2, 3, 4, 1, 2}, tests::Tokens{5, 9, 7, 5, 9, 7, 5, 11}}) {
    NextTokens next(tests::small_model(3), text);
    const std::vector<double> target = next.law(kNoFault);
    for (const char* fault :
         {kNoFault, "wrong-accept:50%", "redraw-from-target", "scale-acceptance:200%",
          "misreport-draft:50%", "verify-temperature:70%", "verify-top-p:70%", "drop-below:5%"}) {
      const std::vector<double> law = next.law(fault);
      const std::vector<int64_t> counts = next.count(fault, kDraws);
      EXPECT_GT(base::GoodnessOfFit(law, kDraws).p(counts, 1), 1e-4) << fault;
      if (total_variation(law, target) < 0.06) continue;
      ++seen;
      EXPECT_LT(base::GoodnessOfFit(target, kDraws).p(counts, 1), 1e-3) << fault;
    }
  }
  EXPECT_GT(seen, 4) << "faults that are large enough to be told from an honest build";
}

}  // namespace
}  // namespace evalrun::runners
