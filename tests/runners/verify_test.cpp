// Certificates: what is lossless is certified, what is not is found, and a test that could not have
// found it says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "methods/faults.h"
#include "runners/measure/plain_logits.h"
#include "runners/verify/certify.h"
#include "tests/formats/test_files.h"
#include "tests/methods/support/harness.h"
#include "tests/runners/fakes.h"

namespace evalrun::runners {
namespace {

using ::testing::HasSubstr;

TEST(FormatSpacing, IsThatOfTheNumberFormat) {
  EXPECT_EQ(format_spacing(17.5, "bf16"), 0.125);
  EXPECT_EQ(format_spacing(-31.9, "int8"), 0.125);
  EXPECT_EQ(format_spacing(32, "bf16"), 0.25);
  EXPECT_EQ(format_spacing(1, "f32"), 0x1p-23);
  EXPECT_EQ(format_spacing(0, "bf16"), 0);
}

TEST(TokenDifference, IsANearTieWithinTwoSpacings) {
  TokenDifference d;
  d.spacing = 0.125;
  d.gap = 0.25;
  EXPECT_TRUE(d.near_tie());
  d.gap = 0.26;
  EXPECT_FALSE(d.near_tie());
  d.gap = std::numeric_limits<double>::infinity();  // one answer ended
  EXPECT_FALSE(d.near_tie());
}

// ---- Text distribution
// -----------------------------------------------------------------------------------

// Answers whose tokens depend on each other: each repeats the one before it with probability 0.7,
// else it is drawn from `distribution`.
std::vector<SampledText> sticky_texts(base::Rng& rng, const std::vector<double>& dist) {
  std::vector<SampledText> texts;
  for (int prompt = 0; prompt < 4; ++prompt)
    for (int s = 0; s < 12; ++s) {
      SampledText text{prompt, {}};
      for (int i = 0; i < 24; ++i)
        text.tokens.push_back(i > 0 && rng.uniform() < 0.7 ? text.tokens.back()
                                                           : engine::draw(dist, rng));
      texts.push_back(std::move(text));
    }
  return texts;
}

TEST(TextDistribution, HoldsItsLevelAlthoughTokensDependOnEachOther) {
  const std::vector<double> dist = {.4, .3, .2, .1};
  base::Rng rng(1);
  TextDistributionOptions options;
  options.max_new = 24;
  int rejected = 0, tests = 0;
  for (int i = 0; i < 60; ++i) {
    options.seed = static_cast<uint64_t>(i);
    const TextDistribution result =
        compare_texts(sticky_texts(rng, dist), sticky_texts(rng, dist), options);
    ASSERT_EQ(result.tests.size(), 3u);
    for (const TextTest& test : result.tests) rejected += test.p < 0.1;
    tests += 3;
  }
  // 18 expected of 180 at this level; a chi-square distribution would reject most of them.
  EXPECT_GE(rejected, 4);
  EXPECT_LE(rejected, 36);
}

TEST(TextDistribution, FindsAnotherDistribution) {
  base::Rng rng(2);
  TextDistributionOptions options;
  options.max_new = 24;
  const TextDistribution result = compare_texts(sticky_texts(rng, {.4, .3, .2, .1}),
                                                sticky_texts(rng, {.1, .2, .3, .4}), options);
  EXPECT_TRUE(result.rejected(level_of_part(3))) << result.smallest_p();
  // No exchange of 29,999 differs as much, by the best of three tests.
  EXPECT_NEAR(result.p(), 3 / 30'000.0, 1e-12);
}

// ---- Step distribution
// -----------------------------------------------------------------------------------

// A random model with text that repeats, so that look-ups find something to draft.
struct Steps {
  std::shared_ptr<const engine::Model> model = tests::small_model(3);
  std::unique_ptr<engine::Session> session = tests::make_session(model);
  std::vector<StepContext> contexts = {{"t", "a", 1, {1, 2, 3, 4, 1, 2, 3, 4, 1, 2}, {3}},
                                       {"t", "b", 9, {5, 6, 7, 5, 6, 7, 5}, {6, 9, 5, 6}}};
  StepDistributionOptions options;
  base::SteadyClock clock;
  Steps() {
    options.draws = 600;
    options.sampling = {1.0, 6, 1.0};
  }
  StepDistribution test(const std::string& name, const std::string& fault = "") {
    auto method = tests::build_method(name, model);
    if (!fault.empty()) method = methods::plant_fault(std::move(method), fault);
    return test_step_dist(*method, *session, contexts, options, clock, [] {});
  }
};

TEST(StepDistribution, HoldsForLosslessMethods) {
  Steps steps;
  for (const char* name :
       {"ar", "pld:k=3", "pld:k=2,match=frequent,candidates=3", "sps:draft=layers:1,k=3",
        "lookahead:window=2,ngram=3,guesses=3,pool_from_prompt=true"}) {
    const StepDistribution dist = steps.test(name);
    EXPECT_GE(dist.tests.size(), 2u) << name;
    EXPECT_FALSE(dist.rejected(kCertificateLevel)) << name << ": " << dist.smallest_p();
    EXPECT_EQ(dist.draws, 1200) << name;
    if (std::string(name) != "ar") {
      EXPECT_GT(dist.tested, 0) << name;
      EXPECT_GT(dist.accepted, 0) << name;
    }
  }
}

TEST(StepDistribution, RefusesAWrongAcceptance) {
  Steps steps;
  for (const char* name : {"pld:k=3", "sps:draft=layers:1,k=3"})
    for (const char* fault : {"wrong-accept:100%", kNegativeControl})
      EXPECT_TRUE(steps.test(name, fault).rejected(level_of_part(3))) << name << " " << fault;
  // Where nothing is drafted nothing can be accepted wrongly, and the test must not claim more.
  EXPECT_FALSE(steps.test("ar", kNegativeControl).rejected(kCertificateLevel));
}

// Lookahead drafts from n-grams that its own steps find: at the first step of an answer it has
// none.
TEST(StepDistribution, ALeadLetsDraftsOfEarlierStepsBeTested) {
  Steps steps;
  const std::string name = "lookahead:window=6,ngram=3,guesses=6";
  const std::vector<int32_t> text = {1, 2, 3, 4, 1, 2};
  steps.contexts = {{"t", "cold", 1, text, {3}}};
  const StepDistribution cold = steps.test(name);
  steps.contexts = {{"t", "led", 9, text, {3, 4, 1, 2, 3, 4, 1, 2, 3}}};
  const StepDistribution led = steps.test(name);
  EXPECT_GT(led.tested, 2 * cold.tested);
  EXPECT_FALSE(led.rejected(kCertificateLevel)) << led.smallest_p();
}

TEST(StepDistribution, PrefersPlacesWhereDraftsAreRefused) {
  Steps steps;
  steps.contexts.insert(steps.contexts.begin(),
                        {"t", "nothing recurs", 1, {10, 11, 12, 13, 14, 15}, {16}});
  const auto method = tests::build_method("pld:k=3", steps.model);
  const auto chosen =
      most_refused(*method, *steps.session, steps.contexts, 2, steps.options, steps.clock);
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(chosen[0].prompt, "a");
  EXPECT_EQ(chosen[1].prompt, "b");
}

// One small p among many is what Bonferroni sees, many that are a bit small what Fisher's sum sees.
TEST(StepDistribution, JoinsItsTests) {
  const auto joined = [](const std::vector<double>& ps) {
    StepDistribution dist;
    for (const double p : ps) dist.tests.push_back({0, 1, 300, 5, p});
    return dist.p();
  };
  EXPECT_DOUBLE_EQ(joined({}), 1);
  EXPECT_NEAR(joined({0.01}), 0.01, 1e-12);
  // Bonferroni 5e-5; Fisher gives 1.46e-3.
  EXPECT_LT(joined({1e-5, .5, .5, .5, .5}), 1e-4);
  // Sum of ln: 4 ln .01 = -18.42; P(X >= 36.84) with 8 degrees of freedom, 1.231e-5.
  EXPECT_LT(joined({.01, .01, .01, .01}), 2.462e-5);
  EXPECT_DOUBLE_EQ(joined({0, .5}), 0);
  EXPECT_GT(joined({.9, .9, .9}), 0.99);
}

// Of independent p-values, its p lies below a level as often as the level says.
TEST(StepDistribution, KeepsItsLevel) {
  base::Rng rng(5);
  int below = 0;
  constexpr int kDistributions = 4000;
  for (int i = 0; i < kDistributions; ++i) {
    StepDistribution dist;
    for (int t = 0; t < 7; ++t) dist.tests.push_back({0, 1, 300, 5, 1 - rng.uniform()});
    below += dist.p() < 0.05;
  }
  EXPECT_NEAR(below, 200, 56);  // four standard deviations
}

// ---- Outcomes -----------------------------------------------------------------------------------

StepDistribution distribution_of(double p) {
  StepDistribution dist;
  dist.tests = {{0, 1, 300, 5, p}};
  return dist;
}

TEST(Certificate, SaysWhatTheTestsAllowToSay) {
  Certificate c;
  c.arm.lossless = "both";
  EXPECT_EQ(outcome_of(c), Outcome::kInconclusive);
  c.greedy.emplace();
  c.greedy->answers = c.greedy->identical = 3;
  c.greedy->tokens = 2560;
  EXPECT_EQ(outcome_of(c), Outcome::kHolds);
  EXPECT_EQ(proven_parts(c), "greedy: identical");
  EXPECT_EQ(sampling_grade(c), Grade::kNotShown);
  c.steps = Controlled<StepDistribution>{distribution_of(0.2), distribution_of(0.2)};
  EXPECT_EQ(outcome_of(c), Outcome::kInconclusive) << "a control that passes shows nothing";
  EXPECT_EQ(sampling_grade(c), Grade::kNotShown);
  c.steps->control = distribution_of(1e-6);
  c.steps->result.smallest_found = 0.12;
  c.settings["steps"] = {{"temperature", 0.7}, {"top_k", 40}, {"top_p", 0.9}};
  EXPECT_EQ(outcome_of(c), Outcome::kHolds);
  EXPECT_EQ(sampling_grade(c), Grade::kNotRefuted);
  EXPECT_EQ(smallest_found(c), 0.12);
  EXPECT_EQ(proven_parts(c), "greedy: identical") << "a law that is not refuted is not proven";
  EXPECT_EQ(shown_parts(c),
            "greedy: identical over 2,560 tokens; sampling T=0.7 top_k=40 top_p=0.9: law not "
            "refuted (would find 0.12)");
  c.steps->result = distribution_of(1e-5);
  EXPECT_EQ(outcome_of(c), Outcome::kFails);
  EXPECT_EQ(proven_parts(c), "");
  c.arm.lossless = "greedy";  // claims nothing under sampling
  EXPECT_EQ(outcome_of(c), Outcome::kHolds);
  EXPECT_EQ(proven_parts(c), "greedy: identical");
  c.greedy->identical = 2;
  c.greedy->near_ties = 1;
  EXPECT_EQ(outcome_of(c), Outcome::kFails) << "the same tokens are claimed, not similar ones";
  c.arm.lossless = "none";
  EXPECT_EQ(outcome_of(c), Outcome::kLossy);
}

// 0.001 in all: a part alone has it, each of three a third.
TEST(Certificate, PartsThatTestLawsShareTheLevel) {
  EXPECT_EQ(level_of_part(0), 0.001);
  EXPECT_EQ(level_of_part(1), 0.001);
  EXPECT_NEAR(level_of_part(3), 0.00033333, 1e-8);
  Certificate c;
  c.arm.lossless = "both";
  EXPECT_EQ(level_of_part(c), 0.001);
  c.steps = Controlled<StepDistribution>{distribution_of(0.2), distribution_of(6e-4)};
  EXPECT_EQ(level_of_part(c), 0.001);
  EXPECT_EQ(sampling_grade(c), Grade::kNotRefuted) << "its control is refused at 0.001";
  c.law.emplace();
  c.law->rows.push_back({1000, 0, 0, 7, 6e-4});
  EXPECT_EQ(level_of_part(c), 0.0005);
  EXPECT_EQ(outcome_of(*c.law, 0.001), Outcome::kFails);
  EXPECT_EQ(outcome_of(*c.law, level_of_part(c)), Outcome::kHolds);
  EXPECT_EQ(sampling_grade(c), Grade::kNotShown) << "and not at half of it";
  EXPECT_EQ(outcome_of(c), Outcome::kInconclusive);
  c.texts.emplace();
  EXPECT_NEAR(level_of_part(c), 0.001 / 3, 1e-18);
  c.law->rows[0].p = 4e-4;
  EXPECT_EQ(outcome_of(*c.law, level_of_part(c)), Outcome::kHolds);
  c.law->rows[0].p = 3e-4;
  EXPECT_EQ(outcome_of(c), Outcome::kFails);
  const auto document = to_json(c);
  for (const char* part : {"law", "steps", "texts"})
    EXPECT_NEAR(document[part]["level"].get<double>(), 0.001 / 3, 1e-18) << part;
  EXPECT_EQ(document["law"]["rejected"], true);
  EXPECT_EQ(document["steps"]["negative_control"]["rejected"], false);
}

TEST(Certificate, SaysWhyAnAuditIsInconclusive) {
  Certificate c;
  c.arm.lossless = "both";
  EXPECT_EQ(why_open(c), "") << "nothing was sampled";
  c.audit.emplace();
  c.audit->answers = c.audit->equal = 2;
  EXPECT_EQ(why_open(c), "no decision was made");
  c.audit->draws = 300;
  EXPECT_EQ(why_open(c), "no drawn draft was tested");
  c.audit->tests = 1700;
  EXPECT_EQ(why_open(c), "no draft was refused");
  c.audit->refused = 40;
  EXPECT_EQ(why_open(c), "");
  EXPECT_EQ(outcome_of_sampled(c), Outcome::kHolds);
  EXPECT_FALSE(to_json(c)["sampled"].contains("why"));
  // One may be, and one in ten thousand of 2,000.
  c.audit->undecided = 2;
  EXPECT_EQ(why_open(c), "2 of 2,000 decisions are within rounding of another one");
  c.audit->borders = 2;
  EXPECT_EQ(why_open(c),
            "2 of 2,000 decisions are within rounding of another one, mostly where the top-p set "
            "is just full");
  EXPECT_EQ(to_json(c)["sampled"]["why"], why_open(c));
  EXPECT_EQ(to_json(c)["sampled"]["undecided_by_top_p"], 2);
  c.audit->undecided = c.audit->borders = 1;
  EXPECT_EQ(why_open(c), "");
  c.audit->blocked = "the distributions stay on the device";
  EXPECT_EQ(why_open(c), "the distributions stay on the device");
  c.audit->blocked.clear();
  c.plain_audit.emplace();
  EXPECT_EQ(why_open(c), "plain decoding: no decision was made");
  EXPECT_EQ(to_json(c)["sampled"]["plain_decoding"]["why"], "no decision was made");
  c.plain_audit->draws = 10;
  EXPECT_EQ(why_open(c), "") << "plain decoding tests no drafts";
  c.audit->first.push_back({"t", "p", 0, "wrong"});
  c.audit->undecided = 99;
  EXPECT_EQ(why_open(c), "") << "it fails";
  EXPECT_FALSE(to_json(c)["sampled"].contains("why"));
  c.audit.reset();
  c.sampled.emplace();
  EXPECT_EQ(why_open(c), "no answer was compared");
}

TEST(Certificate, OnlyEqualityAndAnAuditProve) {
  Certificate c;
  c.arm.lossless = "both";
  c.settings["sampled"] = {
      {"temperature", 1.0}, {"top_k", 0}, {"top_p", 1.0}, {"sampler", "gumbel"}};
  c.sampled.emplace();
  c.sampled->answers = 5;
  c.sampled->identical = 4;
  EXPECT_EQ(outcome_of(c), Outcome::kFails);
  c.sampled->identical = 5;
  EXPECT_EQ(proven_parts(c), "sampling T=1 by gumbel: identical");
  c.sampled->tokens = 320;
  EXPECT_EQ(shown_parts(c), "sampling T=1 by gumbel: identical over 320 tokens");
  EXPECT_EQ(smallest_found(c), 0);
  c.sampled.reset();

  c.audit.emplace();
  c.audit->answers = c.audit->equal = 2;
  c.audit->draws = 100;
  EXPECT_EQ(outcome_of(c), Outcome::kInconclusive) << "no draft was refused";
  c.audit->tests = 100;
  c.audit->refused = 40;
  EXPECT_EQ(sampling_grade(c), Grade::kAudited);
  // 160 places: 60 tests that passed, and 100 draws. 1 - 0.05^(1/160).
  EXPECT_NEAR(*smallest_found(c), 0.0185491, 1e-7);
  EXPECT_EQ(proven_parts(c), "sampling T=1 by gumbel: decisions audited");
  EXPECT_EQ(shown_parts(c), "sampling T=1 by gumbel: decisions audited (200; would find 0.019)");
  c.audit->on_host = true;
  EXPECT_EQ(proven_parts(c), "sampling T=1 by gumbel: decisions audited on the host");
  EXPECT_EQ(to_json(c)["sampled"]["on_host"], true);
  c.audit->on_host = false;
  c.plain_audit = c.audit;
  EXPECT_EQ(sampling_grade(c), Grade::kAudited);
  c.plain_audit->first.push_back({"t", "p", 0, "wrong"});
  EXPECT_EQ(outcome_of(c), Outcome::kFails) << "plain decoding does not draw from its law";
  c.plain_audit.reset();
  c.audit->undecided = 50;
  EXPECT_EQ(outcome_of(c), Outcome::kInconclusive) << "too many are within rounding";
  c.audit->undecided = 0;
  c.audit->blocked = "on the device";
  EXPECT_EQ(outcome_of(c), Outcome::kInconclusive);
  c.audit->blocked.clear();
  // A proof stands beside a test that could not have seen a fault, not beside one that saw it.
  c.steps = Controlled<StepDistribution>{distribution_of(0.2), distribution_of(0.2)};
  EXPECT_EQ(outcome_of(c), Outcome::kHolds);
  c.steps->result = distribution_of(1e-6);
  EXPECT_EQ(outcome_of(c), Outcome::kFails);
  c.steps.reset();
  c.law.emplace();
  c.law->rows.push_back({1000, 0, 0, 7, 1e-5});
  EXPECT_EQ(outcome_of(c), Outcome::kFails) << "every method rests on plain decoding's law";
}

TEST(Certificate, IsBoundToBuildWeightsAndEngineMode) {
  results::ArmRecord arm;
  arm.method = "eagle";
  arm.settings = {{"adapter", "abc"}, {"seed", "1"}, {"order", "interleaved"}};
  const std::string key = results::certificate_key(arm, "c1");
  EXPECT_NE(results::certificate_key(arm, "c2"), key);
  const auto changed = [&](auto change) {
    results::ArmRecord other = arm;
    change(other);
    return results::certificate_key(other, "c1");
  };
  EXPECT_NE(changed([](auto& a) { a.settings["adapter"] = "abd"; }), key);
  EXPECT_NE(changed([](auto& a) { a.dtype = "bf16"; }), key);
  EXPECT_NE(changed([](auto& a) { a.model_hash = "x"; }), key);
  EXPECT_NE(changed([](auto& a) { a.params = "k=4"; }), key);
  // What a run measures with it changes no token's distribution.
  EXPECT_EQ(changed([](auto& a) { a.settings["seed"] = "2"; }), key);
  EXPECT_EQ(changed([](auto& a) { a.max_new = 7; }), key);
  EXPECT_EQ(changed([](auto& a) { a.temperature = 1; }), key);
  EXPECT_EQ(changed([](auto& a) { a.settings["sampler"] = "gumbel"; }), key);
  EXPECT_EQ(changed([](auto& a) { a.batch = 8, a.settings["batch_mode"] = "static"; }), key);
}

// Of one arm there is one for each way of sampling: another does not replace it.
TEST(Certificate, IsStoredByHowItsAnswersWereSampled) {
  Certificate c;
  c.arm.method = "sps";
  c.commit = "c1";
  const std::string arm = results::certificate_key(c.arm, c.commit);
  EXPECT_EQ(key_by_tests(c.arm, c.commit, c.settings), arm);
  c.settings["greedy"] = {{"prompts", 3}, {"max_new", 8}};
  EXPECT_EQ(to_json(c)["key"], arm) << "nothing was sampled";
  std::vector<std::string> keys;
  for (const char* part : {"sampled", "steps", "texts", "law"}) {
    nlohmann::ordered_json asked = c.settings;
    asked[part] = {{"temperature", 1.0}, {"top_k", 0}, {"top_p", 1.0}, {"sampler", "inverse"}};
    keys.push_back(key_by_tests(c.arm, c.commit, asked));
    EXPECT_EQ(keys.back(), results::stored_key(arm, {1, 0, 1, "inverse"})) << part;
    asked[part]["sampler"] = "gumbel";
    EXPECT_NE(key_by_tests(c.arm, c.commit, asked), keys.back()) << part;
    EXPECT_TRUE(key_by_tests(c.arm, c.commit, asked).starts_with(arm)) << part;
    asked[part]["sampler"] = "inverse";
    asked[part]["temperature"] = 0.7;
    EXPECT_NE(key_by_tests(c.arm, c.commit, asked), keys.back()) << part;
  }
  c.settings["sampled"] = {
      {"temperature", 1.0}, {"top_k", 0}, {"top_p", 1.0}, {"sampler", "inverse"}};
  EXPECT_EQ(to_json(c)["key"], keys[0]);
}

// ---- Whole --------------------------------------------------------------------------------------

class Certify : public ::testing::Test {
 protected:
  Certify() {
    const std::string file = folder_.file("prompts.jsonl");
    std::ofstream(file) << R"({"id": "a", "turns": ["abcabcabcabcabcabc"]})"
                        << "\n"
                        << R"({"id": "b", "turns": ["xyxyxyxyxyxyxyxyxy"]})"
                        << "\n";
    request_.plan.target = tests::tiny_model(1024);
    request_.plan.suite.tasks = {{.task = "jsonl:" + file}};
    request_.plan.suite.methods = {"pld:k=2,ngram=1", "sps:draft=layers:1,k=2"};
    request_.plan.suite.aa = false;
    request_.plan.suite.max_new = 16;
    request_.plan.session.n_threads = 1;
    complete_suite(request_.plan.suite, "test");
    request_.contexts = 3;
    request_.text_prompts = 2;
    request_.answers = {{1.0, 5, 1.0}, 1, 3};
    request_.law_options.sampling = {1.0, 5, 1.0};
    request_.law_options.draws = 100'000;
    request_.step_options = {400, {1.0, 5, 1.0}, 1};
    request_.text_options = {40, 12, {1.0, 5, 1.0}, 1};
  }
  std::vector<Certificate> certify_all() {
    std::vector<Certificate> list;
    certify(
        request_, clock_, [](const auto&, const auto&) { return false; },
        [&](const Certificate& c) { list.push_back(c); });
    return list;
  }
  engine::testing::TempFolder folder_;
  CertifyRequest request_;
  base::SteadyClock clock_;
};

TEST_F(Certify, LosslessMethods) {
  const auto list = certify_all();
  ASSERT_EQ(list.size(), 2u) << "plain decoding is not certified against itself";
  for (const Certificate& c : list) {
    const std::string text = to_json(c).dump();
    EXPECT_EQ(c.greedy->identical, 2) << text;
    EXPECT_EQ(c.greedy->tokens, 32) << text;
    EXPECT_NE(outcome_of(c), Outcome::kFails) << text;
    EXPECT_THAT(proven_parts(c), HasSubstr("greedy: identical")) << text;
    EXPECT_FALSE(c.law->rejected(kCertificateLevel)) << text;
    EXPECT_EQ(c.plain_audit->equal, 6) << text;
    EXPECT_EQ(c.plain_texts->rejected(kCertificateLevel), false) << text;
  }
  EXPECT_EQ(outcome_of(*list[0].steps, list[0].arm, level_of_part(3)), Outcome::kHolds)
      << to_json(list[0]).dump();
  // The power is that of the level which each of three parts has.
  PlainLaw law = *list[0].law;
  law.find_power(level_of_part(3), 1);
  EXPECT_EQ(law.smallest_found, list[0].law->smallest_found);
  StepDistribution steps = list[0].steps->result;
  steps.find_power(level_of_part(3), 1);
  EXPECT_EQ(steps.smallest_found, list[0].steps->result.smallest_found);
  EXPECT_EQ(list[0].sampled->identical, 6) << "look-ups give plain decoding's tokens";
  EXPECT_EQ(sampling_grade(list[0]), Grade::kIdentical);
  ASSERT_TRUE(list[1].audit.has_value());
  EXPECT_EQ(list[1].audit->equal, 6) << to_json(list[1]).dump();
  // Its draft is the whole of this model, so that nothing is ever refused and the control has
  // nothing to keep: no proof.
  EXPECT_EQ(outcome_of(*list[1].steps, list[1].arm, level_of_part(3)), Outcome::kInconclusive)
      << to_json(list[1]).dump();
  EXPECT_EQ(why_open(list[1]), "no draft was refused");
}

// The step test looks at places of drawn answers; the seed chooses them.
TEST_F(Certify, PlainAnswersAreDrawnAsAsked) {
  const RunPlan plan = make_plan(request_.plan);
  const Conversation conversation(*request_.plan.target);
  const auto session =
      engine::Session::create(request_.plan.target, planned_session(request_.plan, plan));
  const auto answers = [&](const engine::SamplingParams& sampling, uint64_t seed) {
    return decode_plainly(*session, plan.prompts, conversation, {sampling, seed, 1}, clock_, [] {})
        .answer;
  };
  const engine::SamplingParams hot = {5.0, 0, 1.0};
  EXPECT_EQ(answers({}, 1), answers({}, 2)) << "greedy";
  EXPECT_EQ(answers(hot, 1), answers(hot, 1));
  EXPECT_NE(answers(hot, 1), answers(hot, 2));
  EXPECT_NE(answers(hot, 1), answers({}, 1));
}

TEST_F(Certify, FindsAFaultInEveryPart) {
  request_.fault = "wrong-accept";
  request_.plan.suite.max_new = 40;  // where every draft is right the fault takes its time
  request_.sampled = request_.law = request_.steps = request_.texts = false;
  for (const Certificate& c : certify_all()) {
    EXPECT_EQ(outcome_of(c), Outcome::kFails) << to_json(c).dump();
    EXPECT_GT(c.greedy->divergent, 0);
    EXPECT_FALSE(c.greedy->first.empty());
    EXPECT_GT(c.greedy->replayed, 0);
    EXPECT_FALSE(c.greedy->replay.empty());
    for (const TokenDifference& d : c.greedy->first) {
      EXPECT_GT(d.gap, 0) << "plain decoding took its likeliest token";
      EXPECT_GT(d.spacing, 0);
    }
  }
  request_.fault = "wrong-accept:100%";
  request_.greedy = false;
  request_.sampled = true;
  for (const Certificate& c : certify_all()) {
    EXPECT_EQ(outcome_of_sampled(c), c.sampled ? Outcome::kFails : Outcome::kInconclusive)
        << "the draft is the whole of this model: nothing is refused, or kept wrongly";
  }
  request_.sampled = false;
  request_.steps = true;
  request_.plan.suite.methods = {"ar", "pld:k=2,ngram=1"};
  for (const Certificate& c : certify_all())
    EXPECT_EQ(outcome_of(c), Outcome::kFails) << to_json(c).dump();
  request_.steps = false;
  request_.texts = true;
  for (const Certificate& c : certify_all())
    EXPECT_EQ(outcome_of(c), Outcome::kFails) << to_json(c).dump();
}

TEST_F(Certify, StopsBetweenPromptsAndKeepsWhatIsWhole) {
  int asked = 0, whole = 0;
  request_.sampled = request_.law = request_.steps = request_.texts = false;
  request_.runner.stop = [&] {
    return ++asked > 5;
  };  // two plain answers and the first method's two
  try {
    certify(
        request_, clock_, [](const auto&, const auto&) { return false; },
        [&](const Certificate&) { ++whole; });
    FAIL() << "not stopped";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kInterrupted);
  }
  EXPECT_EQ(whole, 1);
  // Those that are known are left out.
  request_.runner.stop = nullptr;
  int known = 0;
  certify(
      request_, clock_, [&](const auto& arm, const auto&) { return ++known, arm.method == "pld"; },
      [&](const Certificate& c) { EXPECT_EQ(c.arm.method, "sps"); });
  EXPECT_EQ(known, 2);
}

TEST_F(Certify, RefusesAPlanWithoutMethods) {
  request_.plan.suite.methods = {"ar"};
  EXPECT_THROW(certify_all(), base::Error);
}

}  // namespace
}  // namespace evalrun::runners
