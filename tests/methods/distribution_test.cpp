// Lossless sampling on the whole path - prefill, drafts, a real (small, random) model,
// verification, commit: the distribution of generated texts is compared with that of plain
// decoding, which is computed, not sampled. Wrong rules must fail the same test.
#include <gtest/gtest.h>

#include <cmath>

#include "methods/speculative_method.h"
#include "tests/methods/support/cheap_draws.h"
#include "tests/methods/support/harness.h"
#include "tests/methods/support/statistics.h"
#include "tests/sample.h"

namespace evalrun::tests {
namespace {

constexpr int kVocab = 5;
constexpr int kTokens = 4;  // one from the prefill, then a step that may draft two
constexpr int kGenerations = 12000;
const Tokens kPrompt = {0, 1, 2, 3, 4, 0,
                        1, 3, 2, 0, 4, 1};  // every token has a follower to look up

const engine::SamplingParams kCells[] = {
    {1.0, 0, 1.0}, {1.0, 3, 1.0}, {1.0, 0, 0.8}, {0.7, 4, 0.9}};

// One of the first two and one of the last for an arm in a usual run, others for other arms and in
// other runs. Draws of a cell stay as many, and so does what a cell finds; 37 arms meet each cell
// some 18 times a run.
std::vector<size_t> cells_for(const std::string& arm) {
  if (test_everything()) return {0, 1, 2, 3};
  return {choose(2, 1, sample_seed(), arm)[0], 2 + choose(2, 1, sample_seed(), arm + ", cut")[0]};
}
// Drafts that must be accepted, and rejected, in these cells together: some arms do little of one
// of them in half of the cells, and their adapters are random.
int64_t enough(const std::vector<size_t>& cells) {
  return kGenerations / (cells.size() == std::size(kCells) ? 2 : 5);
}

size_t cell_of(const Tokens& text) {
  size_t cell = 0;
  for (int32_t token : text) cell = cell * kVocab + static_cast<size_t>(token);
  return cell;
}

// Probability of every text of kTokens tokens under plain decoding.
std::vector<double> exact_dist(engine::Session& session, const engine::SamplingParams& sampling) {
  std::vector<double> dist(static_cast<size_t>(std::pow(kVocab, kTokens)));
  engine::WarpScratch scratch;
  const std::function<void(Tokens&, double)> visit = [&](Tokens& text, double probability) {
    if (text.size() == kTokens) {
      dist[cell_of(text)] = probability;
      return;
    }
    Tokens context = kPrompt;
    context.insert(context.end(), text.begin(), text.end());
    session.reset();
    session.prefill(std::span<const int32_t>(context).first(context.size() - 1));
    engine::Row row;
    row.token = context.back();
    engine::ForwardRequest request;
    request.rows = {&row, 1};
    std::vector<double> p;
    engine::warp(session.forward(request).logits_row(0), sampling, p, scratch);
    for (int32_t token = 0; token < kVocab; ++token) {
      text.push_back(token);
      visit(text, probability * p[static_cast<size_t>(token)]);
      text.pop_back();
    }
  };
  Tokens text;
  visit(text, 1.0);
  return dist;
}

struct Outcome {
  double p_value;
  int64_t accepted, rejected;
};

Outcome sample(methods::DecodingMethod& method, engine::Session& session,
               const engine::SamplingParams& sampling, uint64_t seed) {
  const std::vector<double> dist = exact_dist(session, sampling);
  std::vector<int64_t> counts(dist.size());
  Outcome outcome{};
  Turn turn{kPrompt, 0, kTokens};
  turn.sampling = sampling;
  for (int i = 0; i < kGenerations; ++i) {
    turn.seed = base::combine_seeds({seed, static_cast<uint64_t>(i)});
    const auto record = run(method, session, turn);
    turn.keep = static_cast<int>(kPrompt.size()) - 1;  // the same prompt again
    ++counts[cell_of(record.tokens)];
    for (const auto& s : record.steps) {
      outcome.accepted += s.accepted;
      outcome.rejected += s.accepted < s.drafted_depth;
    }
  }
  outcome.p_value = chi_square_p(counts, dist);
  return outcome;
}

// Level of the whole family of tests, shared by all cells (Bonferroni). Seeds are fixed, so that a
// right program does not fail now and then.
constexpr double kLevel = 0.001;
const char* const kArms[] = {
    "ar",
    "pld:k=2",
    "pld:k=2,ngram=1,match=recent",
    "pld:k=2,match=frequent,candidates=3",
    "pld:k=2,adaptive=true,match=recent,candidates=2",
    "sps:draft=layers:1,k=1",
    "sps:draft=layers:1,k=2",
    "sps:draft=layers:1,k=2,draft_temperature=1.6",
    "sps:draft=layers:1,k=2,verify=block",
    "sps:draft=layers:1,k=2,verify=gbv,paths=3",
    "sps:k=2,vocab=intersect",
    "medusa:adapter=@medusa,tree=0+1+00,draft=traversal",
    "eagle:adapter=@eagle,tree=0+1+00+01,draft=traversal",
    "sps:draft=layers:1,k=2,confidence=0.3",
    "sps:draft=layers:1,entropy=0.3,k=2",
    "self_spec:attention=1,mlp=none,k=2,threshold=0.2",
    "self_spec:attention=none,mlp=0,k=2,threshold=0,verify=argmax",
    "lookahead:window=2,ngram=3,guesses=3,pool_from_prompt=true",
    "lookahead:window=2,ngram=3,guesses=3,pool_from_prompt=true,full_match_bonus=true",
    "self_draft:branches=2,length=3,gram=2",
    "self_draft:context=false,corpus=@ngrams",
    "rest:datastore=@suffixes,min_span=1,nodes=3,length=2",
    "medusa:adapter=@medusa,tree=0+1+00,draft=best",
    "medusa:adapter=@medusa,tree=0+1+00,draft=drawn",
    "eagle:adapter=@eagle,tree=0+1+00+01,draft=drawn",
    "eagle:adapter=@eagle,tree=0+1+00+01,draft=best",
    "eagle2:adapter=@eagle,k=2,levels=2,total=4",
    "eagle3:adapter=@eagle3,k=2,levels=2,total=4",
    "falcon:adapter=@falcon,tree=0+1+00+01,draft=drawn",
    "falcon:adapter=@falcon,tree=0+1+00+01,draft=best",
    "sps:draft=trained,adapter=@draft,k=2",
    "bita:adapter=@bita,tree=0+00,draft=best",
    "bita:adapter=@bita,tree=0+1+2+00,draft=drawn",
    "gated_lora:adapter=@gated_lora,tree=0+1+2+00,draft=drawn",
    "pass:adapter=@pass,calls=two,look_ahead=2",
    "pass:adapter=@pass,calls=one,look_ahead=2",
    "pass:adapter=@pass,calls=two,draft=best,look_ahead=2",
    "space:adapter=@space,tree=0+1+2+00",
    "space:adapter=@space,k=1",
    "space:adapter=@space,tree=2+0+20",  // ranks with gaps, out of order: stored trees have them
    "medusa:adapter=@medusa,tree=1+0+10,draft=drawn",
    "eagle:adapter=@eagle,tree=2+0+20,draft=drawn",
    "space:adapter=@space,k=1,draft=best",
    "space:adapter=@space,tree=0+1+2+00,accept_scale=0.7",
    "drawn trees",
    "random trees of 5"};
// Those of them that draw their drafts and keep to the rules of rejection.
const char* const kDrawingArms[] = {"sps:draft=layers:1,k=1",
                                    "sps:draft=layers:1,k=2",
                                    "sps:draft=layers:1,k=2,draft_temperature=1.6",
                                    "sps:draft=layers:1,k=2,confidence=0.3",
                                    "self_spec:attention=1,mlp=none,k=2,threshold=0.2",
                                    "sps:draft=trained,adapter=@draft,k=2",
                                    "medusa:adapter=@medusa,tree=0+1+00,draft=drawn",
                                    "eagle:adapter=@eagle,tree=0+1+00+01,draft=drawn",
                                    "falcon:adapter=@falcon,tree=0+1+00+01,draft=drawn",
                                    "bita:adapter=@bita,tree=0+1+2+00,draft=drawn",
                                    "gated_lora:adapter=@gated_lora,tree=0+1+2+00,draft=drawn",
                                    "pass:adapter=@pass,calls=two,look_ahead=2",
                                    "pass:adapter=@pass,calls=one,look_ahead=2",
                                    "space:adapter=@space,tree=0+1+2+00",
                                    "space:adapter=@space,tree=2+0+20"};
constexpr double kCellLevel =
    kLevel / static_cast<double>((std::size(kArms) + std::size(kDrawingArms)) * std::size(kCells));

// Two children of the root, drawn one after the other without replacement from a distribution of
// its own.
class DrawnTreeDrafter final : public methods::Drafter {
 public:
  // Mistakes of published programs: the children are put in order of their probability; or q is
  // reported as it was before the temperature they were drawn at.
  enum class Mistake { kNone, kSortedChildren, kForgottenTemperature };
  explicit DrawnTreeDrafter(Mistake mistake) : mistake_(mistake) {
    if (mistake == Mistake::kForgottenTemperature)
      for (double& p : dist_) p *= p;  // temperature 1/2; q_ stays
  }
  void start(const methods::GenerationContext& context) override {
    chance_ = context.chance;
    prompt_ = context.prompt.size();
  }
  void draft(std::span<const int32_t> sequence, int, methods::TokenTree& tree) override {
    const auto position = static_cast<int64_t>(sequence.size() - prompt_);
    std::vector<double> dist = dist_;
    int32_t tokens[2];
    int draw = 0;
    for (int32_t& token : tokens) {
      token = engine::draw(dist, chance_.draft(position, 0, draw++));
      dist[static_cast<size_t>(token)] = 0;
    }
    if (mistake_ == Mistake::kSortedChildren &&
        dist_[static_cast<size_t>(tokens[0])] < dist_[static_cast<size_t>(tokens[1])])
      std::swap(tokens[0], tokens[1]);
    for (const int32_t token : tokens) tree.add(token, 0);
  }
  std::span<const double> q_of(int) const override { return q_; }
  methods::DraftDraw draw_of(int node) const override { return {0, node - 1}; }

 private:
  Mistake mistake_;
  base::KeyedChance chance_;
  size_t prompt_ = 0;
  std::vector<double> q_ = {0.4, 0.25, 0.2, 0.1, 0.05}, dist_ = q_;
};

std::unique_ptr<methods::DecodingMethod> drawn_trees(DrawnTreeDrafter::Mistake mistake) {
  return methods::make_speculative_method(std::make_unique<DrawnTreeDrafter>(mistake));
}

std::unique_ptr<methods::DecodingMethod> arm_by_name(
    const std::string& name, const std::shared_ptr<const engine::Model>& model) {
  if (name == "drawn trees") return drawn_trees(DrawnTreeDrafter::Mistake::kNone);
  for (const Arm& arm : all_arms())
    if (arm.name == name) return build_arm(arm, model);
  return build_method(name, model);
}

class Distribution : public testing::TestWithParam<const char*> {};

TEST_P(Distribution, IsThatOfPlainDecoding) {
  const auto model = small_model(11, kVocab);
  const auto session = make_session(model, 64);
  const auto method = arm_by_name(GetParam(), model);
  int64_t accepted = 0, rejected = 0;
  const std::vector<size_t> cells = cells_for(GetParam());
  for (const size_t cell : cells) {
    const Outcome outcome = sample(*method, *session, kCells[cell], 1000 + cell);
    EXPECT_GT(outcome.p_value, kCellLevel) << GetParam() << ", cell " << cell;
    accepted += outcome.accepted;
    rejected += outcome.rejected;
  }
  if (std::string(GetParam()) == "ar") return;
  EXPECT_GT(accepted, enough(cells)) << "a test in which nothing is accepted shows nothing";
  EXPECT_GT(rejected, enough(cells)) << "nor one in which nothing is rejected";
}

// The same where draws are cheap, as on a GPU: drafts are drawn with the forward that computes
// their distribution, and tried with the target's.
class KeptDistributions : public testing::TestWithParam<const char*> {};

TEST_P(KeptDistributions, GiveThatOfPlainDecoding) {
  const auto model = small_model(11, kVocab);
  CheapDraws session(make_session(model, 64));
  const auto method = arm_by_name(GetParam(), model);
  int64_t accepted = 0, rejected = 0;
  const std::vector<size_t> cells = cells_for(GetParam());
  for (const size_t cell : cells) {
    const Outcome outcome = sample(*method, session, kCells[cell], 2000 + cell);
    EXPECT_GT(outcome.p_value, kCellLevel) << GetParam() << ", cell " << cell;
    accepted += outcome.accepted;
    rejected += outcome.rejected;
  }
  EXPECT_GT(session.rejection_tests, 2 * enough(cells));
  EXPECT_GT(accepted, enough(cells));
  EXPECT_GT(rejected, enough(cells));
}

INSTANTIATE_TEST_SUITE_P(Arms, KeptDistributions, testing::ValuesIn(kDrawingArms),
                         [](const auto& arm) { return test_name(arm.param); });

INSTANTIATE_TEST_SUITE_P(Arms, Distribution, testing::ValuesIn(kArms),
                         [](const auto& arm) { return test_name(arm.param); });

// A mistake found in published code: after a rejection the token is drawn anew from the target's
// distribution instead of from the residual (rejection sampling), or instead of keeping the token
// that did not match (sample and match).
class RedrawAfterRejection {
 public:
  void operator()(const methods::SpeculativeMethod::Verdict& verdict) {
    const int last = verdict.path.back();
    bool rejected = false;
    for (int i = 1; i < verdict.tree.size(); ++i)
      rejected |= verdict.tree.parent[static_cast<size_t>(i)] == last;
    if (!rejected) return;
    engine::warp(verdict.target.logits(last), verdict.context.sampling, p_, scratch_);
    verdict.bonus = engine::draw(p_, verdict.context.chance.accept(verdict.position, 99));
  }

 private:
  std::vector<double> p_;
  engine::WarpScratch scratch_;
};

TEST(DistributionControl, RedrawingAfterARejectionIsSeen) {
  const auto model = small_model(11, kVocab);
  const auto session = make_session(model, 64);
  for (const char* arm :
       {"pld:k=2", "sps:draft=layers:1,k=2", "random trees of 5", "drawn trees",
        "self_spec:attention=1,mlp=none,k=2,threshold=0.2", "self_draft:branches=2,length=3,gram=2",
        "medusa:adapter=@medusa,tree=0+1+00,draft=best",
        "eagle:adapter=@eagle,tree=0+1+00+01,draft=drawn",
        "pass:adapter=@pass,calls=two,look_ahead=2"}) {
    const auto method = arm_by_name(arm, model);
    auto* speculative = dynamic_cast<methods::SpeculativeMethod*>(method.get());
    ASSERT_NE(speculative, nullptr);
    speculative->set_verdict_hook(RedrawAfterRejection{});
    // Random heads seldom draft what a small top-p leaves, so that little is rejected there.
    const bool random_heads = std::string_view(arm).find('@') != std::string_view::npos;
    for (const size_t cell : cells_for(arm)) {
      if (random_heads && cell > 1) continue;
      EXPECT_LT(sample(*method, *session, kCells[cell], 1000 + cell).p_value, kCellLevel)
          << arm << ", cell " << cell;
    }
  }
}

// SPACE as published draws the bonus after a rejection from the target's whole distribution; and
// drafts that pass too easily come out too often.
TEST(DistributionControl, PublishedSpaceAndLargeAcceptScalesAreSeen) {
  const auto model = small_model(11, kVocab);
  const auto session = make_session(model, 64);
  for (const char* arm : {"space:adapter=@space,k=1,sampling=as_published",
                          "space:adapter=@space,k=1,accept_scale=3"}) {
    const auto method = arm_by_name(arm, model);
    EXPECT_LT(sample(*method, *session, kCells[0], 1000).p_value, kCellLevel) << arm;
  }
}

// Multi-candidate rejection needs the children in the order they were drawn in, and the
// distribution they were drawn from.
TEST(DistributionControl, ABiasedTreeOrderAndAForgottenDraftTemperatureAreSeen) {
  const auto model = small_model(11, kVocab);
  const auto session = make_session(model, 64);
  using Mistake = DrawnTreeDrafter::Mistake;
  for (const Mistake mistake : {Mistake::kSortedChildren, Mistake::kForgottenTemperature}) {
    const auto method = drawn_trees(mistake);
    double least = 1;
    for (size_t cell = 0; cell < std::size(kCells); ++cell)
      least = std::min(least, sample(*method, *session, kCells[cell], 1000 + cell).p_value);
    EXPECT_LT(least, kCellLevel) << (mistake == Mistake::kSortedChildren ? "order" : "temperature");
  }
}

// A verifier that forgets a warper samples from another distribution; the test must have the power
// to see it.
TEST(DistributionControl, ForgottenWarpersAreSeen) {
  const auto model = small_model(11, kVocab);
  const auto session = make_session(model, 64);
  const auto ar = build_method("ar", model);
  const std::vector<double> dist = exact_dist(*session, {0.9, 0, 1.0});
  std::vector<int64_t> counts(dist.size());
  Turn turn{kPrompt, 0, kTokens};
  turn.sampling = {1.0, 0, 1.0};
  for (int i = 0; i < kGenerations; ++i) {
    turn.seed = static_cast<uint64_t>(i);
    ++counts[cell_of(run(*ar, *session, turn).tokens)];
  }
  EXPECT_LT(chi_square_p(counts, dist), kCellLevel);
}

}  // namespace
}  // namespace evalrun::tests
