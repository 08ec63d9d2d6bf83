// The audit of decisions: every lossless method passes it whatever it drafts and however it
// samples, every planted fault of graded size is found, and rounding is not taken for a fault.
#include "runners/verify/decision_audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "methods/faults.h"
#include "methods/model_draft/model_drafter.h"
#include "methods/residual.h"
#include "methods/speculative_method.h"
#include "runners/verify/certificate.h"
#include "runners/verify/plain_distribution.h"
#include "tests/methods/support/cheap_draws.h"
#include "tests/methods/support/harness.h"

namespace evalrun::runners {
namespace {

using engine::Sampler;
using engine::SamplingParams;
using ::testing::HasSubstr;
using tests::Tokens;

// ---- The second implementation ------------------------------------------------------------------

std::vector<float> random_row(base::Rng& rng, size_t n, bool ties) {
  std::vector<float> row(n);
  for (float& x : row) {
    x = static_cast<float>(6 * rng.uniform() - 3);
    if (ties) x = std::round(x);
  }
  return row;
}

TEST(PlainDistribution, IsTheEnginesByOtherMeans) {
  base::Rng rng(3);
  engine::WarpScratch scratch;
  std::vector<double> prob;
  int rows = 0, borders = 0;
  for (const bool ties : {false, true})
    for (const size_t n : {2, 3, 50, 700})
      for (const SamplingParams& sampling :
           {SamplingParams{1.0, 0, 1.0}, SamplingParams{0.3, 0, 1.0}, SamplingParams{1.0, 5, 1.0},
            SamplingParams{1.0, 0, 0.9}, SamplingParams{0.7, 40, 0.95},
            SamplingParams{1.0, 0, 1e-9}, SamplingParams{1.0, 1, 0.5}})
        for (int i = 0; i < 20; ++i, ++rows) {
          const std::vector<float> row = random_row(rng, n, ties);
          engine::warp(row, sampling, prob, scratch);
          const PlainDistribution dist = plain_distribution(row, sampling);
          borders += dist.border ? 1 : 0;
          if (dist.border) continue;
          // Each is right to 1e-15 times its distance from the best logit: 20 at most here, where
          // it is small.
          for (size_t t = 0; t < n; ++t) ASSERT_NEAR(dist.prob[t], prob[t], 1e-14) << t;
        }
  EXPECT_LT(borders, rows / 20) << "ties can lie on the border, little else does";
}

TEST(PlainDistribution, DrawsAreTheEngines) {
  base::Rng rng(4);
  engine::WarpScratch scratch;
  int near = 0, draws = 0;
  for (const Sampler sampler : {Sampler::kInverse, Sampler::kGumbel})
    for (const SamplingParams& base :
         {SamplingParams{1.0, 0, 1.0}, SamplingParams{0.5, 0, 0.9}, SamplingParams{1.3, 20, 1.0}})
      for (int i = 0; i < 300; ++i, ++draws) {
        SamplingParams sampling = base;
        sampling.sampler = sampler;
        const std::vector<float> row = random_row(rng, 600, i % 2 == 0);
        const double u = rng.uniform();
        const PlainDistribution dist = plain_distribution(row, sampling);
        if (dist.border) continue;
        const PlainDraw draw = sampler == Sampler::kGumbel
                                   ? draw_by_race(dist.prob, u)
                                   : draw_by_inverse(dist.prob, u, mass_slack(row.size()));
        near += draw.near >= 0 ? 1 : 0;
        ASSERT_EQ(draw.token, engine::draw(row, sampling, u, scratch)) << i;
      }
  EXPECT_EQ(near, 0) << "of " << draws << ": rounding decides next to nothing";
}

TEST(PlainDistribution, ANumberOnTheBorderAllowsBothTokens) {
  const std::vector<double> prob = {0.25, 0, 0.25, 0.5};
  const auto draw = [&](double u) { return draw_by_inverse(prob, u, 1e-9); };
  EXPECT_EQ(draw(0.25).token, 2);
  EXPECT_TRUE(draw(0.25).is(0));
  EXPECT_TRUE(draw(0.25 - 1e-12).is(2));
  EXPECT_FALSE(draw(0.3).is(0));
  EXPECT_FALSE(draw(0.3).is(3));
  EXPECT_FALSE(draw(0.3).is(1)) << "has no probability";
  EXPECT_EQ(draw(0).token, 0);
  EXPECT_EQ(draw(1 - 0x1p-53).token, 3);
  EXPECT_FALSE(draw(0.3).is(-1));
}

// ---- Methods ------------------------------------------------------------------------------------

struct Audited {
  DecisionAudit audit;
  std::vector<Tokens> answers;
};

class AuditTest : public ::testing::Test {
 protected:
  std::shared_ptr<const engine::Model> model_ = tests::small_model(3);
  std::unique_ptr<engine::Session> session_ = tests::make_session(model_),
                                   beside_ = tests::make_session(model_);
  base::SteadyClock clock_;

  Tokens decode(methods::DecodingMethod& method, const SamplingParams& sampling, uint64_t seed) {
    tests::Turn turn{{1, 2, 3, 4, 1, 2, 3, 4, 1, 2}, 0, 40};
    turn.sampling = sampling;
    turn.seed = seed;
    session_->reset();
    return tests::run(method, *session_, turn).tokens;
  }
  Audited audit(methods::DecodingMethod& method, const SamplingParams& sampling, int answers) {
    Audited audited;
    DecisionAuditor auditor(method, *beside_, clock_);
    const Tokens prompt = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2};
    for (int i = 0; i < answers; ++i) {
      const auto seed = static_cast<uint64_t>(i) + 1;
      auditor.begin(prompt, sampling, seed);
      audited.answers.push_back(decode(method, sampling, seed));
      auditor.end(audited.answers.back(), "t", "p");
    }
    audited.audit = auditor.audit();
    return audited;
  }
  DecisionAudit faulty(const std::string& name, const std::string& fault, int answers,
                       const SamplingParams& sampling = {1.0, 0, 1.0}) {
    const auto method = methods::plant_fault(tests::build_method(name, model_), fault);
    return audit(*method, sampling, answers).audit;
  }
};

TEST_F(AuditTest, EveryLosslessMethodPasses) {
  int64_t refused = 0, redraws = 0, drafts = 0;
  for (const tests::Arm& arm : tests::all_arms()) {
    if (arm.lossy) continue;
    for (const SamplingParams& base :
         {SamplingParams{0.5, 0, 1.0}, SamplingParams{0.9, 8, 0.95}, SamplingParams{1.2, 0, 1.0}})
      for (const Sampler sampler : {Sampler::kInverse, Sampler::kGumbel}) {
        SamplingParams sampling = base;
        sampling.sampler = sampler;
        sampling = tests::sampling_for(arm, sampling);
        const auto method = tests::build_arm(arm, model_);
        const DecisionAudit a = audit(*method, sampling, 1).audit;
        const std::string what = a.first.empty() ? "" : a.first.front().what;
        ASSERT_EQ(a.equal, 1) << arm.name << " T " << sampling.temperature << " "
                              << engine::to_string(sampling.sampler) << ": " << what;
        EXPECT_GT(a.draws, 0) << arm.name;
        EXPECT_LE(a.undecided, 1) << arm.name;
        refused += a.refused, redraws += a.redraws, drafts += a.drafts;
      }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(redraws, 500);
  EXPECT_GT(drafts, 1000);
}

TEST_F(AuditTest, ChangesNothing) {
  const SamplingParams sampling{1.0, 0, 1.0};
  const auto method = tests::build_method("sps:draft=layers:1,k=3", model_);
  const Audited audited = audit(*method, sampling, 3);
  for (size_t i = 0; i < audited.answers.size(); ++i)
    EXPECT_EQ(audited.answers[i], decode(*method, sampling, i + 1)) << "with and without an audit";
  EXPECT_EQ(audited.audit.answers, 3) << "the hook is gone";
}

// Drawn drafts, a chain and a tree; 40 answers of 40 tokens.
TEST_F(AuditTest, FindsEveryPlantedFault) {
  const std::vector<std::string> faults = {"wrong-accept:2%",        "wrong-accept:25%",
                                           "verify-temperature:95%", "verify-temperature:98%",
                                           "verify-top-p:95%",       "drop-below:1%",
                                           "scale-acceptance:110%",  "misreport-draft:80%",
                                           "misreport-draft:98%",    "redraw-from-target"};
  for (const char* name :
       {"sps:draft=layers:1,k=3", "medusa:adapter=@medusa,draft=drawn",
        "sps:draft=layers:1,k=3,verify=block", "medusa:adapter=@medusa,draft=traversal",
        "sps:draft=layers:1,k=3,verify=gbv,paths=3"})
    for (const std::string& fault : faults) {
      const DecisionAudit a = faulty(name, fault, 40);
      EXPECT_FALSE(a.first.empty())
          << name << " " << fault << ", " << a.decisions() << " decisions, refused " << a.refused;
      EXPECT_EQ(a.equal + static_cast<int>(a.first.size()), 40);
    }
}

// Block verification whose refused drafts are followed by a draw from max(p - q, 0), the residual
// of rejection token by token, instead of the path's: tests are right, and the text is not.
TEST_F(AuditTest, ATokensResidualAfterABlockIsFound) {
  const auto method = tests::build_method("sps:draft=layers:1,k=3,verify=block", model_);
  const auto plain = [](const methods::SpeculativeMethod::Verdict& verdict) {
    const int next = verdict.path.back() + 1;  // of a chain
    if (next >= verdict.tree.size()) return;
    std::vector<double> p;
    engine::WarpScratch scratch;
    engine::warp(verdict.target.logits(verdict.path.back()), verdict.context.sampling, p, scratch);
    methods::subtract(p, 1, verdict.drafter.q_of(next), 1, 1);
    const auto depth = static_cast<int64_t>(verdict.path.size()) - 1;
    verdict.bonus = engine::draw(p, verdict.context.chance.target(verdict.position + depth));
  };
  methods::with_verdicts(*method, "a test").set_verdict_hook(plain);
  const DecisionAudit a = audit(*method, {1.0, 0, 1.0}, 40).audit;
  ASSERT_FALSE(a.first.empty()) << a.decisions() << " decisions, refused " << a.refused;
  EXPECT_THAT(a.first[0].what, HasSubstr("a draw after the tests of whole paths"));
}

// Several paths, of which one is verified by the law of another number of them, or as if it were
// drawn alone.
TEST_F(AuditTest, ThePathOfAnotherLawIsFound) {
  for (const int told : {1, 2, 4}) {
    const auto method = tests::build_method("sps:draft=layers:1,k=3,verify=gbv,paths=3", model_);
    const auto otherwise = [told](const methods::SpeculativeMethod::Verdict& verdict) {
      methods::RejectionRule rule = verdict.rule;
      rule.iid_paths = told;
      methods::Verifier verifier(verdict.context.sampling, verdict.drafter.siblings(), {}, rule);
      methods::KeyedUniforms uniform(verdict.context.chance);
      uniform.begin_step(verdict.position);
      const auto logits_of = [&](int node) { return verdict.target.logits(node); };
      const auto q_of = [&](int node) { return verdict.drafter.q_of(node); };
      const auto result =
          verifier.verify(verdict.tree, methods::TargetView::with_logits(logits_of), q_of, uniform);
      verdict.path.assign(1, 0);
      verdict.path.insert(verdict.path.end(), result.path.begin(), result.path.end());
      verdict.bonus = result.bonus;
    };
    methods::with_verdicts(*method, "a test").set_verdict_hook(otherwise);
    EXPECT_FALSE(audit(*method, {1.0, 0, 1.0}, 40).audit.first.empty()) << told;
  }
}

// Two paths are said to be all, and the tree has a third.
TEST_F(AuditTest, APathTooManyIsFound) {
  methods::ModelDrafter::Options options;
  options.length.k = 3;
  options.draft_vocab = options.common_vocab = model_->config().vocab_size;
  options.rule = methods::DraftRule::kManyPaths;
  options.paths = 3;
  const auto found = [&](int told) {
    methods::SpeculativeMethod method(std::make_unique<methods::ModelDrafter>(
                                          tests::make_session(model_->first_layers(1)), options),
                                      {},
                                      methods::rejection_by(methods::DraftRule::kManyPaths, told));
    return audit(method, {1.0, 0, 1.0}, 5).audit;
  };
  ASSERT_FALSE(found(2).first.empty());
  EXPECT_THAT(found(2).first[0].what, HasSubstr("is on none of the 2 paths"));
  ASSERT_FALSE(found(4).first.empty());
  EXPECT_THAT(found(4).first[0].what, HasSubstr("draft path 3 has token"));
  EXPECT_EQ(found(3).equal, 5);
}

// One kept draft token fewer than passed, with the target's own draw there.
TEST_F(AuditTest, APathThatEndsTooEarlyIsFound) {
  for (const char* name :
       {"sps:draft=layers:1,k=3,verify=block", "medusa:adapter=@medusa,draft=traversal",
        "sps:draft=layers:1,k=3,verify=gbv"}) {
    const auto method = tests::build_method(name, model_);
    const auto shorter = [](const methods::SpeculativeMethod::Verdict& verdict) {
      if (verdict.path.size() < 2) return;
      verdict.bonus = verdict.tree.token[static_cast<size_t>(verdict.path.back())];
      verdict.path.pop_back();
    };
    methods::with_verdicts(*method, "a test").set_verdict_hook(shorter);
    const DecisionAudit a = audit(*method, {1.0, 0, 1.0}, 3).audit;
    ASSERT_FALSE(a.first.empty()) << name;
    EXPECT_THAT(a.first[0].what, HasSubstr("the tests made again keep")) << name;
  }
}

// Whole paths are never tested on a device, so that the audit is of what a run does there.
TEST_F(AuditTest, WholePathsStayWithTheHost) {
  const SamplingParams sampling{1.0, 0, 1.0};
  auto device = std::make_unique<tests::CheapDraws>(tests::make_session(model_));
  const tests::CheapDraws& tried = *device;
  session_ = std::move(device);
  for (const char* name :
       {"sps:draft=layers:1,k=3,verify=block", "medusa:adapter=@medusa,draft=traversal",
        "sps:draft=layers:1,k=3,verify=gbv"}) {
    const auto method = tests::build_method(name, model_);
    decode(*method, sampling, 1);
    EXPECT_EQ(tried.rejection_tests, 0) << name;
    const DecisionAudit a = audit(*method, sampling, 5).audit;
    EXPECT_EQ(a.equal, 5) << name << (a.first.empty() ? "" : a.first[0].what);
    EXPECT_GT(a.refused, 0) << name;
    EXPECT_GT(a.redraws, 0) << name;
    EXPECT_FALSE(a.on_host) << name;
  }
}

// The tests are made again by the rule's own scale, so the rule itself is looked at.
TEST_F(AuditTest, ARuleThatAcceptsMoreThanPOverQIsFound) {
  const auto scaled = [&](double scale) {
    methods::ModelDrafter::Options options;
    options.length.k = 3;
    options.draft_vocab = options.common_vocab = model_->config().vocab_size;
    methods::SpeculativeMethod method(std::make_unique<methods::ModelDrafter>(
                                          tests::make_session(model_->first_layers(1)), options),
                                      {}, {.accept_scale = scale});
    return audit(method, {1.0, 0, 1.0}, 3).audit;
  };
  const DecisionAudit larger = scaled(1.1);
  EXPECT_EQ(larger.equal, 0);
  ASSERT_EQ(larger.first.size(), 3u) << "every answer";
  EXPECT_EQ(larger.first[0].index, 1) << "the first step";
  EXPECT_EQ(larger.first[0].what, "the rule accepts more than p/q, 1.1 times as much");
  // A smaller one is lossless, and only slower.
  for (const double scale : {1.0, 0.9}) {
    const DecisionAudit a = scaled(scale);
    EXPECT_EQ(a.equal, 3) << (a.first.empty() ? "" : a.first[0].what);
    EXPECT_GT(a.refused, 0);
  }
}

// Where a device would draw drafts and try them, the audit has the host do both, and says so. After
// it the device does them again.
TEST_F(AuditTest, DraftsThatADeviceTriesAreVerifiedOnTheHost) {
  const SamplingParams sampling{1.0, 0, 1.0};
  auto device = std::make_unique<tests::CheapDraws>(tests::make_session(model_));
  const tests::CheapDraws& tried = *device;
  session_ = std::move(device);
  for (const char* name : {"sps:draft=layers:1,k=3", "medusa:adapter=@medusa,draft=drawn"}) {
    const auto method = tests::build_method(name, model_);
    const int64_t before = tried.rejection_tests;
    const DecisionAudit a = audit(*method, sampling, 5).audit;
    EXPECT_EQ(a.equal, 5) << name << (a.first.empty() ? "" : a.first[0].what);
    EXPECT_EQ(a.blocked, "") << name;
    EXPECT_TRUE(a.on_host) << name;
    EXPECT_GT(a.refused, 0) << name;
    EXPECT_GT(a.redraws, 0) << name;
    EXPECT_EQ(tried.rejection_tests, before) << name << ": tried on the device";
    decode(*method, sampling, 1);
    EXPECT_GT(tried.rejection_tests, before) << name << ": no longer tried on the device";
  }
  const auto pld = tests::build_method("pld:k=3", model_);
  const DecisionAudit drawn_there = audit(*pld, sampling, 1).audit;
  EXPECT_EQ(drawn_there.equal, 1);
  EXPECT_FALSE(drawn_there.on_host) << "its tokens are the device's draws";
}

// 24 equal tokens, of which 12 have exactly half: whether the set of top-p 0.5 has one more is a
// matter of rounding, at every place of every answer.
TEST_F(AuditTest, CountsWhatTopPLeavesOpen) {
  const auto method = tests::build_method("sps:draft=layers:1,k=3", model_);
  const DecisionAudit a = audit(*method, {1e300, 0, 0.5}, 2).audit;
  EXPECT_EQ(a.equal, 2);
  EXPECT_EQ(a.undecided, a.tokens);
  EXPECT_EQ(a.borders, a.undecided);
  Certificate c;
  c.arm.lossless = "both";
  c.audit = a;
  EXPECT_EQ(outcome_of_sampled(c), Outcome::kInconclusive);
  EXPECT_THAT(why_open(c), HasSubstr("within rounding of another one, mostly where the top-p set"));
}

TEST_F(AuditTest, SaysWhatIsWrong) {
  EXPECT_THAT(faulty("sps:draft=layers:1,k=3", "misreport-draft:50%", 10).first.at(0).what,
              HasSubstr("is not the draw of the distribution reported"));
  EXPECT_THAT(faulty("sps:draft=layers:1,k=3", "redraw-from-target", 40).first.at(0).what,
              HasSubstr("a draw after the refusals"));
  EXPECT_THAT(faulty("pld:k=3", "verify-temperature:80%", 10).first.at(0).what,
              HasSubstr("a draw of plain decoding"));
}

// With one part in a million the answers are too few to see it, and the bound says so.
TEST_F(AuditTest, SaysHowSmallAFaultItFinds) {
  const DecisionAudit a = faulty("sps:draft=layers:1,k=3", "verify-temperature:99.9999%", 5);
  EXPECT_TRUE(a.first.empty());
  EXPECT_EQ(a.places(), a.tokens) << "every token of every answer, each once";
  EXPECT_GT(a.decisions(), a.places());
  // n (1 - 0.05^(1/n)) is 2.97 for the 200 tokens here.
  EXPECT_NEAR(a.smallest_found() * static_cast<double>(a.places()), 3, 0.05);
  EXPECT_FALSE(a.on_host) << "nothing else could verify them here";
  EXPECT_EQ(DecisionAudit{}.smallest_found(), 1);
}

TEST_F(AuditTest, TwoTokensAndATemperatureThatIsGreedy) {
  model_ = tests::small_model(5, 2);
  session_ = tests::make_session(model_);
  beside_ = tests::make_session(model_);
  for (const SamplingParams& sampling :
       {SamplingParams{1.0, 0, 1.0}, SamplingParams{1e-300, 0, 1.0}, SamplingParams{1.0, 1, 1.0},
        SamplingParams{1.0, 0, 0.4}}) {
    const auto method = tests::build_method("sps:draft=layers:1,k=3", model_);
    tests::Turn turn{{1, 0, 1, 1}, 0, 30};
    turn.sampling = sampling;
    turn.seed = 7;
    DecisionAuditor auditor(*method, *beside_, clock_);
    auditor.begin(turn.prompt, sampling, 7);
    session_->reset();
    auditor.end(tests::run(*method, *session_, turn).tokens, "t", "p");
    EXPECT_EQ(auditor.audit().equal, 1)
        << (auditor.audit().first.empty() ? "" : auditor.audit().first.front().what);
  }
}

}  // namespace
}  // namespace evalrun::runners
