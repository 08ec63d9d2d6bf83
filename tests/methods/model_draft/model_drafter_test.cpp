// SpS: which draft models are taken, what happens at the edges of the draft model, what it costs.
#include "methods/model_draft/model_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/tokenizer/tokenizer.h"
#include "methods/step.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::model_drafter_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

methods::MethodBuildContext context_of(std::shared_ptr<const engine::Model> target,
                                       std::shared_ptr<const engine::Model> draft) {
  methods::MethodBuildContext context;
  context.target = std::move(target);
  context.draft = std::move(draft);
  context.session = session_options();
  return context;
}

std::string build_error(const std::string& spec, const methods::MethodBuildContext& context) {
  const methods::MethodSpec method = methods::parse_method(spec);
  try {
    method.info->build(method.params, context);
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    return e.what();
  }
  return "no error";
}

TEST(SpsBuild, RefusesWhatCannotDraft) {
  const auto target = small_model(1);
  EXPECT_THAT(build_error("sps", context_of(target, nullptr)),
              AllOf(HasSubstr("no draft model was given"), HasSubstr("--draft PATH"),
                    HasSubstr("layers:")));
  EXPECT_THAT(build_error("sps:draft=layers:3", context_of(target, nullptr)),
              HasSubstr("small random model has 2 layers"));
  EXPECT_THAT(build_error("sps", context_of(target, small_model(2, 25))),
              AllOf(HasSubstr("another vocabulary"), HasSubstr("random:1"), HasSubstr("random:2"),
                    HasSubstr("24 ids"), HasSubstr("25 ids")));
}

// A vocabulary known by its hash alone.
class NamedVocabulary final : public engine::Tokenizer {
 public:
  explicit NamedVocabulary(std::string hash) : hash_(std::move(hash)) {}
  Tokens encode(std::string_view, const engine::EncodeOptions&) const override { return {}; }
  std::string token_bytes(int32_t, bool) const override { return {}; }
  std::string decode(std::span<const int32_t>, bool) const override { return {}; }
  int vocab_size() const override { return 24; }
  bool is_special(int32_t) const override { return false; }
  std::optional<int32_t> bos_id() const override { return {}; }
  std::optional<int32_t> id_of(std::string_view) const override { return {}; }
  const std::vector<int32_t>& stop_ids() const override { return stop_ids_; }
  const std::string& vocabulary_hash() const override { return hash_; }

 private:
  std::string hash_;
  std::vector<int32_t> stop_ids_;
};

std::shared_ptr<const engine::Model> with_vocabulary(const engine::Model& model,
                                                     const std::string& hash) {
  engine::ModelParts parts;
  parts.config = model.config();
  parts.path = model.path();
  parts.embedding = std::make_shared<const engine::WeightMatrix>(model.embedding());
  parts.head = std::make_shared<const engine::WeightMatrix>(model.head());
  for (int i = 0; i < model.config().n_layers; ++i)
    parts.layers.push_back(std::make_shared<const engine::LayerWeights>(model.layer(i)));
  parts.final_norm = model.final_norm();
  parts.tokenizer = std::make_shared<const NamedVocabulary>(hash);
  return engine::Model::create(std::move(parts));
}

TEST(SpsBuild, TokenizersDecideOverWidths) {
  const auto target = with_vocabulary(*small_model(1, 24), "aaaa");
  EXPECT_EQ(build_error("sps", context_of(target, with_vocabulary(*small_model(2, 30), "aaaa"))),
            "no error");
  EXPECT_THAT(build_error("sps", context_of(target, with_vocabulary(*small_model(2, 24), "bbbb"))),
              AllOf(HasSubstr("vocabulary aaaa"), HasSubstr("vocabulary bbbb")));
}

// A draft model may have ids that the target has not, and the other way round: only what both have
// is drafted, and the tokens stay those of plain decoding.
TEST(SpsBuild, OfTwoWidthsTheNarrowerIsDrafted) {
  const Turn turn{{1, 2, 3}, 0, 48};
  for (const auto& [target_width, draft_width] : {std::pair{24, 30}, std::pair{30, 24}}) {
    const auto target = with_vocabulary(*small_model(1, target_width), "aaaa");
    const auto draft = with_vocabulary(*small_model(1, draft_width), "aaaa");
    const methods::MethodSpec spec = methods::parse_method("sps:k=3");
    const auto method = spec.info->build(spec.params, context_of(target, draft));
    const auto session = make_session(target);
    Turn sampled = turn;
    sampled.sampling = {4.0, 0, 1.0};  // flat enough that a draft would draw the ids beyond
    int drafted = 0;
    for (const auto& s : run(*method, *session, sampled).steps) drafted += s.drafted;
    EXPECT_GT(drafted, 0);
    EXPECT_EQ(run(*method, *session, turn).tokens,
              run(*build_method("ar", target), *session, turn).tokens);
  }
}

TEST(SpsBuild, CountsOnlyWhatTheDraftAdds) {
  const auto target = small_model(1), draft = small_model(2);
  EXPECT_EQ(build_method("sps:draft=layers:1", target)->extra_parameter_bytes(), 0u);
  const methods::MethodSpec spec = methods::parse_method("sps");
  const auto method = spec.info->build(spec.params, context_of(target, draft));
  EXPECT_EQ(method->extra_parameter_bytes(), draft->weight_bytes());
  EXPECT_GT(method->extra_kv_bytes(), 0u);
  EXPECT_EQ(build_method("ar", target)->extra_kv_bytes(), 0u);
}

// Share of the drafted tokens that are accepted, and that the tokens are plain decoding's.
double accepted_by(const std::string& spec, const std::shared_ptr<const engine::Model>& target) {
  const auto method = build_method(spec, target);
  const auto session = make_session(target);
  const Turn turn{{1, 2, 3}, 0, 200};
  const auto record = run(*method, *session, turn);
  EXPECT_EQ(record.tokens, run(*build_method("ar", target), *session, turn).tokens) << spec;
  int drafted = 0, accepted = 0;
  for (const auto& s : record.steps) drafted += s.drafted, accepted += s.accepted;
  EXPECT_GT(drafted, 0) << spec;
  return static_cast<double>(accepted) / drafted;
}

// Made-up weights of 32 inputs in 4 bits are far from what they were, as no trained model's are.
TEST(SpsSelf, TheTargetInFewerBitsDraftsAlmostAsItSpeaks) {
  const auto target = small_model(1);
  EXPECT_GT(accepted_by("sps:draft=self,draft_dtype=int8", target), 0.8);
  for (const char* bytes : {"int8", "fp8"})
    EXPECT_GT(accepted_by(std::string("sps:draft=self,draft_dtype=int8,draft_kv=") + bytes, target),
              0.8)
        << bytes;
  const double four_bit_cache =
      accepted_by("sps:draft=self,draft_dtype=int8,draft_kv=int4", target);
  EXPECT_GT(four_bit_cache, 0.6);
  EXPECT_LT(four_bit_cache, 1) << "it is rounded";
  const double really_rounded = accepted_by("sps:draft=self", target);
  EXPECT_GT(really_rounded, 0.4);
  EXPECT_LT(really_rounded, 0.7);
  // Weights of 4 bits that the target computes with in float32: what reports call flattered.
  const auto four_bits = engine::convert_model(*small_model(1, 24, engine::WeightFormat::kQ4),
                                               engine::WeightFormat::kF32);
  EXPECT_GT(accepted_by("sps:draft=self", four_bits), 0.9);
}

TEST(SpsSelf, ArmsShareOneCopyAndCountIt) {
  const auto target = small_model(1);
  const auto method = build_method("sps:draft=self", target);
  const auto narrow_cache = build_method("sps:draft=self,draft_kv=int8", target);
  ASSERT_EQ(target->copies().size(), 1u);
  const auto copy = target->copies().at(engine::WeightFormat::kQ4);
  EXPECT_LT(copy->weight_bytes(), target->weight_bytes());
  EXPECT_EQ(method->extra_parameter_bytes(), copy->weight_bytes());
  methods::KeptMemory kept;
  method->add_kept(kept);
  EXPECT_TRUE(kept.complete);
  ASSERT_EQ(kept.sessions.size(), 1u);
  EXPECT_EQ(&kept.sessions[0]->model(), copy.get());
  EXPECT_EQ(kept.sessions[0]->options().kv_dtype, "f32") << "as the target's";
  EXPECT_LT(narrow_cache->extra_kv_bytes(), method->extra_kv_bytes());
  const auto narrowest = build_method("sps:draft=self,draft_kv=int4", target);
  EXPECT_LT(narrowest->extra_kv_bytes(), narrow_cache->extra_kv_bytes());
  EXPECT_EQ(narrowest->extra_parameter_bytes(), method->extra_parameter_bytes());
}

TEST(SpsBuild, EveryDraftMayHaveANarrowCache) {
  const auto target = small_model(1), draft = small_model(2);
  for (const std::string spec : {"sps:draft_kv=int4", "sps:draft=layers:1,draft_kv=int4",
                                 "sps:draft_kv=fp8", "sps:draft=layers:1,draft_kv=fp8"}) {
    const std::string kv = spec.substr(spec.rfind('=') + 1);
    const methods::MethodSpec parsed = methods::parse_method(spec);
    const auto method = parsed.info->build(parsed.params, context_of(target, draft));
    methods::KeptMemory kept;
    method->add_kept(kept);
    ASSERT_EQ(kept.sessions.size(), 1u) << spec;
    EXPECT_EQ(kept.sessions[0]->options().kv_dtype, kv) << spec;
    const auto session = make_session(target);
    EXPECT_EQ(session->options().kv_dtype, "f32") << "the target's is its own";
    const Turn turn{{1, 2, 3}, 0, 60};
    EXPECT_EQ(run(*method, *session, turn).tokens,
              run(*build_method("ar", target), *session, turn).tokens)
        << spec;
  }
}

TEST(SpsSelf, RefusesADraftThatIsNotNarrower) {
  const auto int8 = small_model(1, 24, engine::WeightFormat::kInt8);
  const auto q4 = small_model(1, 24, engine::WeightFormat::kQ4);
  EXPECT_THAT(build_error("sps:draft=self,draft_dtype=int8", context_of(int8, nullptr)),
              AllOf(HasSubstr("draft_dtype=int8 is not narrower than the target's int8 (8 bits)"),
                    HasSubstr("draft_dtype=q4"), HasSubstr("--dtype bf16")));
  EXPECT_EQ(build_error("sps:draft=self", context_of(int8, nullptr)), "no error");
  for (const char* wider : {"sps:draft=self", "sps:draft=self,draft_dtype=int8"})
    EXPECT_THAT(build_error(wider, context_of(q4, nullptr)),
                AllOf(HasSubstr("is not narrower than the target's q4 (4 bits)"),
                      HasSubstr("nothing has fewer bits than 4")));
  EXPECT_TRUE(q4->copies().empty()) << "refused before a copy is made";
}

TEST(SpsSelf, AGpuHasNoCacheOfFourBits) {
  methods::MethodBuildContext context = context_of(small_model(1), nullptr);
  context.session.device = "cuda:0";
  for (const char* spec : {"sps:draft=self,draft_kv=int4", "sps:draft=layers:1,draft_kv=int4"})
    EXPECT_THAT(build_error(spec, context),
                AllOf(HasSubstr("draft_kv=int4 is not for device 'cuda:0'"),
                      HasSubstr("draft_kv=int8, or"), HasSubstr("cpu")));
}

// Target and draft as fixed distributions, independent of the context.
struct Pair {
  Pair(std::vector<double> target_dist, std::vector<double> draft_dist, int gamma,
       int draft_capacity = 4000, methods::DraftRule rule = methods::DraftRule::kAuto,
       double entropy = 0)
      : p(std::move(target_dist)),
        q(std::move(draft_dist)),
        target(static_cast<int>(p.size()), 4000, table(p)) {
    auto session =
        std::make_unique<FakeSession>(static_cast<int>(q.size()), draft_capacity, table(q));
    draft = session.get();
    methods::ModelDrafter::Options options;
    options.length.k = gamma;
    options.length.entropy = entropy;
    options.rule = rule;
    options.draft_vocab = static_cast<int>(q.size());
    options.common_vocab = static_cast<int>(std::min(p.size(), q.size()));
    method = methods::make_speculative_method(
        std::make_unique<methods::ModelDrafter>(std::move(session), options));
  }
  static LogitTable table(const std::vector<double>& dist) {
    return [dist](std::span<const int32_t>, std::span<float> logits) {
      for (size_t i = 0; i < dist.size(); ++i) logits[i] = static_cast<float>(std::log(dist[i]));
    };
  }
  // Probability that a drafted token is accepted, by definition.
  double alpha() const {
    double sum = 0;
    for (size_t i = 0; i < std::min(p.size(), q.size()); ++i) sum += std::min(p[i], q[i]);
    return sum;
  }
  std::vector<double> p, q;
  FakeSession target;
  FakeSession* draft;
  std::unique_ptr<methods::DecodingMethod> method;
};

double mean_emitted(const results::TurnRecord& turn, int gamma, double& sum_of_squares, int& n) {
  double sum = 0;
  n = 0;
  sum_of_squares = 0;
  for (const auto& s : turn.steps) {
    if (s.drafted < gamma) continue;  // cut by the limit
    sum += s.emitted;
    sum_of_squares += static_cast<double>(s.emitted) * s.emitted;
    ++n;
  }
  return sum / n;
}

TEST(SpsAcceptance, TauFollowsFromTheDistributions) {
  for (int gamma : {1, 3, 6}) {
    Pair pair({0.5, 0.2, 0.2, 0.1}, {0.3, 0.4, 0.2, 0.1}, gamma);
    ASSERT_NEAR(pair.alpha(), 0.8, 1e-12);
    Turn turn{{0}, 0, 3900};
    turn.sampling = {1.0, 0, 1.0};
    turn.seed = 3;
    const auto record = run(*pair.method, pair.target, turn);
    double squares = 0;
    int n = 0;
    const double tau = mean_emitted(record, gamma, squares, n);
    const double alpha = pair.alpha();
    const double predicted = (1 - std::pow(alpha, gamma + 1)) / (1 - alpha);
    // Steps are independent here; four standard errors, the seed is fixed.
    const double error = std::sqrt((squares / n - tau * tau) / n);
    EXPECT_NEAR(tau, predicted, 4 * error) << "gamma " << gamma << ", " << n << " steps";
    // An alpha wrong by 0.05 moves tau by 0.05, 0.27 and 0.48.
    EXPECT_LT(4 * error, 0.3) << "too few steps to say anything";
  }
}

TEST(SpsAcceptance, AcceptanceActsOnTheWarpedDistributions) {
  // With top_k=1 both distributions are points on the same token: everything is accepted.
  Pair same({0.4, 0.3, 0.3}, {0.9, 0.05, 0.05}, 4);
  Turn turn{{0}, 0, 51};
  turn.sampling = {1.0, 1, 1.0};
  for (const auto& s : run(*same.method, same.target, turn).steps) EXPECT_EQ(s.accepted, 4);
  // On different tokens: nothing is.
  Pair other({0.4, 0.3, 0.3}, {0.05, 0.9, 0.05}, 4);
  for (const auto& s : run(*other.method, other.target, turn).steps) EXPECT_EQ(s.accepted, 0);
}

// Steps of one drafted token by each rule, as docs/measurement.md derives them ("Four rules").
TEST(FourRules, AcceptAsOftenAsDerived) {
  const std::vector<double> p = {0.35, 0.25, 0.15, 0.10, 0.10, 0.05},
                            q = {0.20, 0.40, 0.10, 0.15, 0.05, 0.10};
  constexpr int kSteps = 20'000;
  const auto accepted = [&](methods::DraftRule rule, engine::Sampler sampler) {
    Pair pair(p, q, 1, 4000, rule);
    int steps = 0, hits = 0;
    for (uint64_t seed = 1; seed < 200 && steps < kSteps; ++seed) {
      Turn turn{{0}, 0, 512};
      turn.sampling = {1.0, 0, 1.0, sampler};
      turn.seed = seed;
      for (const auto& s : run(*pair.method, pair.target, turn).steps) {
        if (s.drafted == 0 || steps == kSteps) continue;  // no room for a draft at the limit
        ++steps;
        hits += s.accepted;
      }
    }
    return static_cast<double>(hits) / kSteps;
  };
  // Steps are independent: four standard deviations.
  const auto expect = [](double share, double derived) {
    EXPECT_NEAR(share, derived, 4 * std::sqrt(derived * (1 - derived) / kSteps));
  };
  using methods::DraftRule;
  const auto inverse = engine::Sampler::kInverse;
  // The smaller of p and q: 0.20 + 0.25 + 0.10 + 0.10 + 0.05 + 0.05, so that D = 0.25.
  expect(accepted(DraftRule::kRejection, inverse), 0.75);
  // Products: 0.070 + 0.100 + 0.015 + 0.015 + 0.005 + 0.005.
  expect(accepted(DraftRule::kMatch, inverse), 0.21);
  // p of the second token, the likeliest of q.
  expect(accepted(DraftRule::kArgmax, inverse), 0.25);
  // Token i is the first by p and by q where every j needs at least max(p_j / p_i, q_j / q_i) times
  // as long as i: 1 / sum_j of these, summed over i. The bound is (1 - D) / (1 + D).
  double both = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    double later = 0;
    for (size_t j = 0; j < p.size(); ++j) later += std::max(p[j] / p[i], q[j] / q[i]);
    both += 1 / later;
  }
  ASSERT_NEAR(both, 0.737507, 1e-6);
  const double by_noise = accepted(DraftRule::kGumbel, engine::Sampler::kGumbel);
  expect(by_noise, both);
  EXPECT_GT(by_noise, 0.75 / 1.25);
}

// The entropy of {0.7, 0.2, 0.1} is 0.802 nats: sqrt(0.15 x 0.802) = 0.347. It is
// that at temperature 1 whatever is sampled: greedy runs and all rules stop alike.
TEST(ModelDrafter, StopsBehindATokenOfLargeEntropy) {
  const auto drafted = [](double entropy, double temperature, methods::DraftRule rule) {
    Pair pair({0.7, 0.2, 0.1}, {0.7, 0.2, 0.1}, 4, 4000, rule, entropy);
    Turn turn{{0}, 0, 41};
    turn.sampling.temperature = temperature;
    int most = 0;
    for (const auto& s : run(*pair.method, pair.target, turn).steps)
      most = std::max(most, s.drafted);
    return most;
  };
  using methods::DraftRule;
  for (const double temperature : {0.0, 0.5, 1.0})
    for (const DraftRule rule : {DraftRule::kAuto, DraftRule::kMatch, DraftRule::kArgmax}) {
      EXPECT_EQ(drafted(0.34, temperature, rule), 1) << temperature;
      EXPECT_EQ(drafted(0.35, temperature, rule), 4) << temperature;
      EXPECT_EQ(drafted(0, temperature, rule), 4) << temperature;
    }
}

TEST(ModelDrafter, FeedsEachTokenOnceAndTheLastDraftOnlyWhenAccepted) {
  Pair pair({0.9, 0.1}, {0.9, 0.1}, 3);  // greedy: all accepted
  run(*pair.method, pair.target, {{1, 1}, 0, 13});
  // Three forwards per step of four tokens, none for the first token.
  EXPECT_EQ(pair.draft->forwards, 9);
  EXPECT_EQ(pair.draft->committed(), (Tokens{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  Pair wrong({0.9, 0.1}, {0.1, 0.9}, 3);  // greedy: none accepted
  run(*wrong.method, wrong.target, {{1, 1}, 0, 4});
  EXPECT_EQ(wrong.draft->committed(), (Tokens{1, 1, 0, 0}));
}

TEST(ModelDrafter, WidthsMayDifferByPadding) {
  // The wider model's last ids are padding the other lacks; the target keeps all of its own
  // distribution.
  for (bool wide_target : {false, true}) {
    const std::vector<double> wide = {0.3, 0.3, 0.2, 0.1, 0.1}, narrow = {0.5, 0.25, 0.25};
    Pair pair(wide_target ? wide : narrow, wide_target ? narrow : wide, 3);
    Turn turn{{0}, 0, 2000};
    turn.sampling = {1.0, 0, 1.0};
    const auto record = run(*pair.method, pair.target, turn);
    EXPECT_EQ(record.tokens.size(), 2000u);
    const auto widest = *std::max_element(record.tokens.begin(), record.tokens.end());
    EXPECT_EQ(widest, wide_target ? 4 : 2);
  }
}

// Greedy drafts need no logits, unless some of the draft model's ids have to be cut.
TEST(ModelDrafter, AsksForTopTokensWhereTheyAreEnough) {
  for (bool wide_draft : {false, true}) {
    std::vector<double> draft_dist = {0.2, 0.3};
    if (wide_draft) draft_dist.push_back(0.5);  // its own top token is none of the target's
    Pair pair({0.4, 0.6}, draft_dist, 3);
    const auto record = run(*pair.method, pair.target, {{1, 1}, 0, 13});
    EXPECT_EQ(pair.target.logit_rows, 0);
    EXPECT_EQ(pair.draft->logit_rows, wide_draft ? 9 : 0);
    EXPECT_EQ(pair.draft->top_rows, wide_draft ? 0 : 9);
    for (const auto& s : record.steps) EXPECT_EQ(s.accepted, s.drafted);
  }
}

TEST(ModelDrafter, StopsDraftingAtTokensItDoesNotKnow) {
  Pair pair({0.1, 0.2, 0.7}, {0.6, 0.4}, 3);  // the target's greedy token is unknown to the draft
  const auto record = run(*pair.method, pair.target, {{0}, 0, 10});
  EXPECT_EQ(record.tokens, Tokens(10, 2));
  for (const auto& s : record.steps) EXPECT_EQ(s.drafted, 0);
  // The next generation starts afresh: a prompt it knows is drafted for again.
  Pair good({0.7, 0.3, 1e-9}, {0.7, 0.3}, 3);
  EXPECT_EQ(run(*good.method, good.target, {{2, 0}, 0, 10}).steps.front().drafted, 0);
  EXPECT_EQ(run(*good.method, good.target, {{1, 0}, 0, 10}).steps.front().drafted, 3);
}

TEST(ModelDrafter, GoesOnWithoutDraftsWhenItsContextIsFull) {
  Pair pair({0.9, 0.1}, {0.9, 0.1}, 4, 12);
  const auto record = run(*pair.method, pair.target, {{1, 1, 1}, 0, 40});
  EXPECT_EQ(record.tokens, Tokens(40, 0));
  EXPECT_EQ(record.steps.front().accepted, 4);
  EXPECT_EQ(record.steps.back().drafted, 0);
  Pair tiny({0.9, 0.1}, {0.9, 0.1}, 4, 2);  // not even the prompt fits
  EXPECT_EQ(run(*tiny.method, tiny.target, {{1, 1, 1}, 0, 10}).tokens, Tokens(10, 0));
}

// A step without a draft teaches nothing: the length that followed the acceptance stays.
TEST(ModelDrafter, StepsWithoutADraftChangeNothing) {
  const auto table = Pair::table({0.7, 0.3});
  FakeSession target(2, 400, table);
  methods::ModelDrafter::Options options;
  options.length = {.schedule = methods::DraftLengthRule::Schedule::kTransient, .k = 3, .most = 9};
  options.draft_vocab = options.common_vocab = 2;
  methods::ModelDrafter drafter(std::make_unique<FakeSession>(2, 400, table), options);
  const Tokens prompt = {0, 1, 0};
  methods::GenerationContext context;
  context.target = &target;
  context.prompt = prompt;
  context.first_token = 0;
  context.max_new = 100;
  drafter.start(context);
  Tokens text = prompt;
  text.push_back(0);
  const auto drafted = [&] {
    methods::TokenTree tree;
    tree.reserve(64);
    tree.reset(text.back());
    methods::draft_alone(drafter, text, 50, tree);
    return tree.drafted();
  };
  EXPECT_EQ(drafted(), 3);
  drafter.accepted({}, 1);  // nothing kept: one token less
  text.push_back(1);
  for (int i = 0; i < 5; ++i) {  // plain steps
    drafter.accepted({}, 0);
    text.push_back(0);
  }
  EXPECT_EQ(drafted(), 2);
}

}  // namespace
}  // namespace evalrun::tests::model_drafter_test
