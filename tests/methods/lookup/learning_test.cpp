// Look-ups that learn from the target's logits: their structures against brute force, what they
// draft on texts known by heart, and the law of drawn drafts. That every one of them has plain
// decoding's tokens is in lossless_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/base/error.h"
#include "methods/faults.h"
#include "methods/lookup/candidate_matrix.h"
#include "methods/lookup/grown_tree.h"
#include "methods/lookup/logit_grams.h"
#include "methods/lookup/ngram_index.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/harness.h"
#include "tests/methods/support/statistics.h"

namespace evalrun::tests::learning_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kIds = 10;

// --- structures ----------------------------------------------------------------------------------

TEST(CandidateMatrix, KeepsTheLastRowOfEachToken) {
  methods::CandidateMatrix matrix(4, 2);
  EXPECT_EQ(matrix.at(3, 0), -1);
  const std::vector<engine::TokenLogit> three = {{2, 3.f}, {0, 2.f}, {1, 1.f}}, one = {{1, 9.f}};
  matrix.set(3, three);
  EXPECT_EQ(matrix.at(3, 0), 2);
  EXPECT_EQ(matrix.at(3, 1), 0);
  EXPECT_EQ(matrix.at(3, 2), -1) << "k places";
  EXPECT_EQ(matrix.at(2, 0), -1) << "of another token";
  matrix.set(3, one);
  EXPECT_EQ(matrix.at(3, 0), 1);
  EXPECT_EQ(matrix.at(3, 1), -1) << "nothing is left of the row before";
  matrix.clear();
  EXPECT_EQ(matrix.at(3, 0), -1);
}

// Means over all that was said, by maps.
TEST(LogitGrams, KeepTheMeanOfWhatWasSaid) {
  using Said = std::vector<methods::LogitGrams::Candidate>;
  base::Rng rng(5);
  constexpr int kLongest = 3, kVocab = 4;
  methods::LogitGrams grams(kLongest, kVocab);  // k of the whole vocabulary: nothing is forgotten
  for (int generation = 0; generation < 2; ++generation) {
    grams.start(300);
    std::map<Tokens, std::pair<int, std::map<int32_t, double>>> all;
    for (int i = 0; i < 300; ++i) {
      const Tokens context = random_tokens(rng, 1 + static_cast<int>(rng.below(5)), kVocab);
      Said said;
      for (int32_t token = 0; token < kVocab; ++token)
        if (rng.below(2) == 0) said.push_back({token, static_cast<float>(rng.uniform())});
      grams.add(context, said);
      for (size_t n = 1; n <= std::min<size_t>(context.size(), kLongest); ++n) {
        auto& [seen, sums] =
            all[Tokens(context.end() - static_cast<std::ptrdiff_t>(n), context.end())];
        ++seen;
        for (const auto& c : said) sums[c.token] += static_cast<double>(c.probability);
      }
      const Tokens asked = random_tokens(rng, 4, kVocab);
      Tokens key;
      for (size_t n = kLongest; n > 0 && key.empty(); --n) {
        const Tokens tail(asked.end() - static_cast<std::ptrdiff_t>(n), asked.end());
        if (all.count(tail) > 0) key = tail;
      }
      const auto found = grams.find(asked);
      if (key.empty()) {
        EXPECT_TRUE(found.empty());
        continue;
      }
      const auto& [seen, sums] = all[key];
      ASSERT_EQ(found.size(), sums.size());
      for (size_t c = 0; c < found.size(); ++c) {
        EXPECT_NEAR(found[c].probability, sums.at(found[c].token) / seen, 1e-4);
        if (c > 0) {
          EXPECT_GE(found[c - 1].probability, found[c].probability);
        }
      }
    }
  }
}

TEST(LogitGrams, ForgetWhatHasNoPlace) {
  methods::LogitGrams grams(1, 2);
  grams.start(3);
  const Tokens context = {7};
  const std::vector<methods::LogitGrams::Candidate> said = {{1, 0.5f}, {2, 0.3f}, {3, 0.1f}};
  grams.add(context, said);
  ASSERT_EQ(grams.find(context).size(), 2u);
  const std::vector<methods::LogitGrams::Candidate> other = {{3, 0.9f}, {4, 0.f}};
  grams.add(context, other);
  const auto found = grams.find(context);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].token, 3);
  EXPECT_FLOAT_EQ(found[0].probability, 0.45f);
  EXPECT_EQ(found[1].token, 1);
  EXPECT_FLOAT_EQ(found[1].probability, 0.25f);
}

TEST(NgramIndex, LooksBehindAGuess) {
  base::Rng rng(9);
  for (int round = 0; round < 200; ++round) {
    const int min_n = 1 + static_cast<int>(rng.below(2)), max_n = min_n + 2;
    methods::NgramIndex index(min_n, max_n, methods::NgramIndex::Match::kRecent);
    const Tokens text = random_tokens(rng, 60, 4);
    index.start(60);
    for (size_t length = 0; length <= text.size(); length += 1 + rng.below(4)) {
      const auto sequence = std::span<const int32_t>(text).first(length);
      index.find(sequence);
      for (int32_t guess = 0; guess < 4; ++guess) {
        Tokens with(sequence.begin(), sequence.end());
        with.push_back(guess);
        int expected = -1;
        for (int n = max_n; n >= min_n && expected < 0; --n)
          for (int start = static_cast<int>(length) - n - 1; start >= 0 && expected < 0; --start)
            if (std::equal(with.end() - n, with.end(), text.begin() + start)) expected = start + n;
        ASSERT_EQ(index.find_with(sequence, guess), expected) << "round " << round;
      }
    }
  }
}

// --- trees ---------------------------------------------------------------------------------------

TEST(GrownTree, HasTheLikeliestNodes) {
  methods::GrownTree tree({3, 4, 30}, {});
  const methods::RankTree& plan = tree.grow();
  ASSERT_EQ(plan.size(), 30);
  std::vector<double> joint = {1};
  std::vector<int> children(31);
  double least = 1;
  for (size_t i = 0; i < 30; ++i) {
    const auto parent = static_cast<size_t>(plan.parent[i]);
    ASSERT_LE(parent, i) << "parents stand first";
    ASSERT_EQ(plan.rank[i], children[parent]++) << "siblings by rank, without gaps";
    joint.push_back(joint[parent] * tree.chance(plan.level[i], plan.rank[i]));
    least = std::min(least, joint.back());
  }
  // At first chances fall with the rank, so that no place that is open is likelier than a node.
  for (size_t node = 0; node <= 30; ++node) {
    const int level = node == 0 ? 1 : plan.level[node - 1] + 1;
    if (level > 3 || children[node] == 4) continue;
    EXPECT_LE(joint[node] * tree.chance(level, children[node]), least + 1e-12);
  }
}

TEST(GrownTree, FollowsWhatIsAccepted) {
  methods::GrownTree tree({4, 4, 6}, {});
  methods::TokenTree draft;
  for (int step = 0; step < 200; ++step) {  // always the second of the root, and nothing below
    draft.reset(0);
    for (int32_t token = 1; token <= 3; ++token) draft.add(token, 0);
    draft.add(4, 2);
    const std::vector<int> path = {2};
    tree.note(draft, path);
  }
  EXPECT_LT(tree.chance(1, 0), 0.02);
  EXPECT_GT(tree.chance(1, 1), 0.9);
  EXPECT_LT(tree.chance(2, 0), 0.02);
  tree.start();
  EXPECT_DOUBLE_EQ(tree.chance(1, 0), 0.4) << "nothing is left of the answer before";
}

TEST(GrownTree, IsAsLargeAsPays) {
  engine::RowCostTable dear;
  for (const int n : {1, 2, 64}) {
    engine::RowCost cost;
    cost.rows = n, cost.ms = 1 + 10. * (n - 1);
    dear.rows.push_back(cost);
  }
  EXPECT_EQ(methods::GrownTree({4, 4, 40}, methods::RowPrice(&dear)).grow().size(), 1)
      << "never none: an answer would not go on learning";
  const int unknown = methods::GrownTree({4, 4, 40}, methods::RowPrice(nullptr)).grow().size();
  EXPECT_GT(unknown, 1);
  EXPECT_LT(unknown, 40);
}

// --- drafts --------------------------------------------------------------------------------------

// One forward as a method asked for it: its rows as (token, parent).
struct Asked {
  std::vector<std::pair<int32_t, int>> rows;
};

std::vector<Asked> asked_by(const std::string& spec, const Turn& turn, const LogitTable& table) {
  FakeSession session(kIds, 400, table);
  std::vector<Asked> steps;
  session.watch = [&](const engine::ForwardRequest& request) {
    Asked step;
    for (const engine::Row& row : request.rows) step.rows.emplace_back(row.token, row.parent);
    steps.push_back(step);
  };
  const auto method = build_method(spec, small_model(1, kIds));
  run(*method, session, turn);
  steps.erase(steps.begin());  // the prompt's last row
  return steps;
}

// After t come t + 1, then t + 2, then t + 3.
LogitTable three_next() {
  return [](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    for (int i = 1; i <= 3; ++i)
      logits[static_cast<size_t>((context.back() + i) % kIds)] = static_cast<float>(5 - i);
  };
}

Turn turn_of(Tokens prompt, int max_new = 6) {
  Turn turn{std::move(prompt)};
  turn.max_new = max_new;
  return turn;
}

// The text counts from 1 and begins again after ten tokens. Only then is there a row of the newest
// token: 1 -> 2 3, and of its first candidate 2 -> 3 4.
TEST(Recycling, DraftsWhatTheTargetSaidAfterEachToken) {
  const auto steps = asked_by("recycling:k=2,tree=0+1+00+01", turn_of({0}, 14), three_next());
  ASSERT_GE(steps.size(), 11u);
  for (size_t i = 0; i < 10; ++i)
    EXPECT_THAT(steps[i].rows, ElementsAre(std::pair(static_cast<int32_t>((1 + i) % kIds), -1)))
        << "step " << i << ": a token that was never computed";
  using P = std::pair<int32_t, int>;
  EXPECT_THAT(steps[10].rows, ElementsAre(P{1, -1}, P{2, 0}, P{3, 0}, P{3, 1}, P{4, 1}));
}

// Rows of rejected drafts count, too: 3 was computed behind 1, where the target says otherwise.
TEST(Recycling, LearnsFromRejectedDrafts) {
  const LogitTable table = [](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    const int32_t last = context.back();
    const int32_t next = last == 1 ? 2 : last == 2 ? 1 : 7;  // 1 2 1 2 ...; 3 -> 7
    logits[static_cast<size_t>(next)] = 2;
    logits[last == 1 ? 3 : 4] = 1;
  };
  const auto steps = asked_by("recycling:k=2,tree=0+1+10", turn_of({2}, 40), table);
  bool behind_three = false;
  for (const Asked& step : steps)
    for (const auto& [token, parent] : step.rows)
      behind_three |=
          parent >= 0 && token == 7 && step.rows[static_cast<size_t>(parent)].first == 3;
  EXPECT_TRUE(behind_three);
}

TEST(Recycling, IsColdUnlessItIsWarm) {
  for (const bool warm : {false, true}) {
    FakeSession session(kIds, 400, three_next());
    const auto method = build_method(fmt::format("recycling:state={}", warm ? "warm" : "cold"),
                                     small_model(1, kIds));
    const Turn turn = turn_of({0}, 30);
    const auto first = run(*method, session, turn);
    session.reset();
    const auto second = run(*method, session, turn);
    EXPECT_EQ(first.tokens, second.tokens);
    if (warm)
      EXPECT_LT(second.steps.size(), first.steps.size());
    else
      EXPECT_EQ(second.steps.size(), first.steps.size());
  }
}

TEST(Recycling, RefusesATreeThatIsWiderThanItsRows) {
  EXPECT_THROW(methods::parse_method("recycling:k=4"), base::Error);
  EXPECT_THROW(methods::parse_method("recycling:tree=00"), base::Error);
  EXPECT_NO_THROW(methods::parse_method("recycling:k=4,tree=auto"));
}

// The target counts upwards. Whatever the first guesses, what it says after a wrong one is wrong,
// but right relative to it; with each step at least one more place is settled, and a block that was
// right to the end is accepted as a whole.
TEST(Jacobi, ReplacesEachGuessByWhatTheTargetSaid) {
  const auto steps = asked_by("jacobi:n=3", turn_of({5, 5, 5}, 30), three_next());
  ASSERT_GE(steps.size(), 2u);
  using P = std::pair<int32_t, int>;
  // The root is 6, guesses are 5 5 5. The target says 7 after 6 and 6 after each 5.
  EXPECT_THAT(steps[0].rows, ElementsAre(P{6, -1}, P{5, 0}, P{5, 1}, P{5, 2}));
  // 7 is the root; the rows behind the wrong guesses give 6 6 6.
  EXPECT_THAT(steps[1].rows, ElementsAre(P{7, -1}, P{6, 0}, P{6, 1}, P{6, 2}));
}

TEST(Jacobi, AFixedBlockGetsShorterUntilItIsSettled) {
  const auto steps = asked_by("jacobi:block=fixed,n=3", turn_of({5, 5, 5}, 30), three_next());
  ASSERT_GE(steps.size(), 4u);
  EXPECT_EQ(steps[0].rows.size(), 4u);
  EXPECT_EQ(steps[1].rows.size(), 3u) << "one place is settled";
  EXPECT_EQ(steps[2].rows.size(), 2u);
  EXPECT_EQ(steps[3].rows.size(), 4u) << "the next block";
}

TEST(Jacobi, AcceptsABlockThatIsRight) {
  const LogitTable constant = [](std::span<const int32_t>, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[4] = 1;
  };
  const auto steps = asked_by("jacobi:n=3", turn_of({1, 2}, 18), constant);
  // One token while the guesses are the prompt's, four when they are 4 4 4. These used up, guesses
  // are the prompt's again: 1 + 4 + 1 + 4 + 1 + 4 + 1, and the last token.
  EXPECT_EQ(steps.size(), 8u);
}

// After 1 2 the target goes on with 3 and nearly took 5. Behind 5 stood 6 7 in the prompt.
TEST(LogitSpec, ExtendsEachGuessByALookup) {
  const LogitTable table = [](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[3] = 3;
    logits[5] = static_cast<float>(context.back() == 0 ? 0 : 2);
    logits[8] = static_cast<float>(context.back() == 0 ? 0 : 1);
  };
  const auto steps = asked_by("logitspec:k=3,length=2", turn_of({5, 6, 7, 0}, 12), table);
  ASSERT_GE(steps.size(), 2u);
  using P = std::pair<int32_t, int>;
  EXPECT_THAT(steps[0].rows, ElementsAre(P{3, -1})) << "nothing is known in the first step";
  // The logits that gave the root say 3, 5, 8: 5 goes on as in the prompt, 8 stood nowhere. The
  // text itself goes on with 3, which stood before the last 3.
  EXPECT_THAT(steps[1].rows,
              ElementsAre(P{3, -1}, P{3, 0}, P{5, 0}, P{6, 2}, P{7, 3}, P{0, 4}, P{8, 0}));
}

TEST(LogitSpec, KeepsToItsRowsAndLeavesStopTokensOut) {
  Turn turn = turn_of({5, 6, 7, 0}, 30);
  turn.stop_ids = {8};
  for (const Asked& step : asked_by("logitspec:k=9,nodes=4", turn, three_next())) {
    EXPECT_LE(step.rows.size(), 4u);
    for (size_t i = 1; i < step.rows.size(); ++i) EXPECT_NE(step.rows[i].first, 8);
  }
}

TEST(Stand, DraftsGreedilyWhatItsGramsSay) {
  const auto steps = asked_by("stand:k=2,levels=2,nodes=6", turn_of({0}, 30), three_next());
  ASSERT_GE(steps.size(), 11u);
  EXPECT_EQ(steps[9].rows.size(), 1u) << "no token came again yet";
  // 1 with 2 and 3, which 2 goes on from with 3 and 4, and 3 with 4 and 5.
  Tokens tokens;
  for (const auto& [token, parent] : steps[10].rows) tokens.push_back(token);
  EXPECT_THAT(tokens, testing::UnorderedElementsAre(1, 2, 3, 3, 4, 4, 5));
}

// --- the law of drawn drafts ---------------------------------------------------------------------

constexpr int kLawVocab = 5;

struct Law {
  double p_value = 1;  // the smallest of all tokens', times their number
  int64_t accepted = 0, rejected = 0;
};

// What follows each token in sampled answers, against the table's distribution: of a chain of order
// one, next tokens are independent draws.
Law law_of(methods::DecodingMethod& method, const engine::SamplingParams& sampling) {
  const LogitTable table = markov_table(3, 1, 1.5f);
  FakeSession session(kLawVocab, 400, table);
  std::vector<std::vector<int64_t>> counts(kLawVocab, std::vector<int64_t>(kLawVocab));
  Law law;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Turn turn = turn_of({static_cast<int32_t>(seed % kLawVocab)}, 60);
    turn.sampling = sampling;
    turn.seed = base::mix64(seed);
    session.reset();
    const auto record = run(method, session, turn);
    int32_t before = turn.prompt.back();
    for (const int32_t token : record.tokens) {
      ++counts[static_cast<size_t>(before)][static_cast<size_t>(token)];
      before = token;
    }
    for (const auto& step : record.steps) {
      law.accepted += step.accepted;
      law.rejected += step.accepted < step.drafted_depth;
    }
  }
  engine::WarpScratch scratch;
  std::vector<double> dist;
  std::vector<float> logits(kLawVocab);
  for (int32_t token = 0; token < kLawVocab; ++token) {
    table(std::span<const int32_t>(&token, 1), logits);
    engine::warp(logits, sampling, dist, scratch);
    law.p_value =
        std::min(law.p_value, kLawVocab * chi_square_p(counts[static_cast<size_t>(token)], dist));
  }
  return law;
}

const char* const kStand[] = {"stand:k=3,levels=3,nodes=8", "stand:draft=matched,levels=3,nodes=8",
                              "stand:draft=best,levels=3,nodes=8", "stand:k=2,tree=auto,levels=3"};

TEST(Stand, SampledAnswersHaveTheTargetsLaw) {
  for (const char* spec : kStand)
    for (const engine::SamplingParams& sampling :
         {engine::SamplingParams{1, 0, 1}, engine::SamplingParams{0.7, 4, 0.9}}) {
      const auto method = build_method(spec, small_model(1, kLawVocab));
      const Law law = law_of(*method, sampling);
      EXPECT_GT(law.p_value, 1e-4) << spec << ", T = " << sampling.temperature;
      EXPECT_GT(law.accepted, 2000) << spec;
      EXPECT_GT(law.rejected, 200) << spec;
    }
}

// Negative controls: drafts reported as drawn from another law, and a bonus from the whole
// distribution, are found by the same test.
TEST(Stand, AWrongLawIsSeen) {
  for (const char* fault : {"misreport-draft:20%", "redraw-from-target"}) {
    const auto method = methods::plant_fault(
        build_method("stand:k=3,levels=3,nodes=8", small_model(1, kLawVocab)), fault);
    EXPECT_LT(law_of(*method, {1, 0, 1}).p_value, 1e-4) << fault;
  }
}

// --- what a drafter is told ----------------------------------------------------------------------

// Keeps all it is told; drafts a fixed tree.
class ListeningDrafter final : public methods::Drafter {
 public:
  struct Heard {
    Tokens context;  // of the row
    Tokens best;
    double log_sum = 0;
    int32_t token = -1;
    int64_t position = 0;  // of the answer's token after the row
  };
  void start(const methods::GenerationContext& context) override {
    heard.clear();
    chance = context.chance;
    prompt = context.prompt.size();
  }
  void draft(std::span<const int32_t>, int max_depth, methods::TokenTree& tree) override {
    const int node = tree.add(1, 0);
    tree.add(2, 0);
    if (max_depth > 1) tree.add(3, node);
  }
  methods::TargetWants wants() const override {
    return {.best = 3, .log_sums = true, .tokens = true};
  }
  void learn(std::span<const int32_t> sequence, const methods::TokenTree& tree,
             std::span<const int>, methods::TargetAnswers& answers) override {
    for (int node = 0; node < tree.size(); ++node) {
      Heard h;
      for (int at = node; at > 0; at = tree.parent[static_cast<size_t>(at)])
        h.context.insert(h.context.begin(), tree.token[static_cast<size_t>(at)]);
      h.context.insert(h.context.begin(), sequence.begin(), sequence.end());
      for (const engine::TokenLogit& best : answers.best(node)) h.best.push_back(best.token);
      h.log_sum = answers.log_sum(node);
      h.token = answers.token(node);
      h.position = static_cast<int64_t>(h.context.size() - prompt);
      heard.push_back(std::move(h));
    }
  }
  std::vector<Heard> heard;
  base::KeyedChance chance;
  size_t prompt = 0;
};

// Whether rows have logits (sampling on the host), draws (as on a device) or best tokens alone.
TEST(TargetAnswers, AreWhatTheTargetSaysOfEveryRow) {
  const LogitTable table = markov_table(11, 3, 2.0f);
  for (const bool greedy : {true, false})
    for (const bool cheap : {false, true}) {
      auto own = std::make_unique<ListeningDrafter>();
      ListeningDrafter& drafter = *own;
      const auto method = methods::make_speculative_method(std::move(own));
      FakeSession session(kIds, 400, table);
      session.cheap_draws = cheap;
      Turn turn = turn_of({4, 7}, 20);
      if (!greedy) turn.sampling = {0.9, 0, 1};
      turn.seed = 3;
      run(*method, session, turn);
      ASSERT_GT(drafter.heard.size(), 20u);
      std::vector<float> logits(kIds);
      engine::WarpScratch scratch;
      for (const ListeningDrafter::Heard& h : drafter.heard) {
        table(h.context, logits);
        const auto best = engine::top_k(logits, 3);
        ASSERT_EQ(h.best.size(), 3u);
        for (size_t i = 0; i < 3; ++i) EXPECT_EQ(h.best[i], best[i].token);
        EXPECT_NEAR(h.log_sum, engine::log_sum(logits), 1e-12);
        EXPECT_EQ(h.token, greedy ? best[0].token
                                  : engine::draw(logits, turn.sampling,
                                                 drafter.chance.target(h.position), scratch));
      }
    }
}

TEST(TargetAnswers, OfTheLastTokenNobodyIsTold) {
  auto own = std::make_unique<ListeningDrafter>();
  ListeningDrafter& drafter = *own;
  const auto method = methods::make_speculative_method(std::move(own));
  FakeSession session(kIds, 400, three_next());
  run(*method, session, turn_of({4}, 2));
  EXPECT_THAT(drafter.heard, IsEmpty()) << "a step without a draft";
}

}  // namespace
}  // namespace evalrun::tests::learning_test
