// Lookahead and Self-Draft: what rides along in the forward, against the published layouts rebuilt
// here from their descriptions, and what comes of it on texts known by heart.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "methods/lookup/gram_pool.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::side_rows_test {
namespace {

constexpr int kVocab = 50;

// One target forward as a method asked for it.
struct SeenStep {
  std::vector<engine::Row> rows;
  int length = 0;                  // committed tokens below it
  Tokens visible(int row) const {  // rows it sees, itself last
    Tokens list;
    for (int i = row; i >= 0; i = rows[static_cast<size_t>(i)].parent) list.push_back(i);
    std::reverse(list.begin(), list.end());
    return list;
  }
};

struct Seen {
  std::vector<SeenStep> steps;
  results::TurnRecord turn;
  Tokens text;  // prompt and answer
};

Seen watch(const std::string& spec, const Turn& turn, const LogitTable& table, int vocab = kVocab,
           int capacity = 4000) {
  FakeSession session(vocab, capacity, table);
  Seen seen;
  session.watch = [&](const engine::ForwardRequest& request) {
    seen.steps.push_back({{request.rows.begin(), request.rows.end()}, session.length(0)});
  };
  const auto method = build_method(spec, small_model(1, vocab));
  seen.turn = run(*method, session, turn);
  seen.steps.erase(seen.steps.begin());  // the prompt's last row
  seen.text = turn.prompt;
  seen.text.insert(seen.text.end(), seen.turn.tokens.begin(), seen.turn.tokens.end());
  return seen;
}

// The next token is the one after the last: drafts of the model itself are always right.
LogitTable counting(int vocab) {
  return [vocab](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[static_cast<size_t>((context.back() + 1) % vocab)] = 1;
  };
}

int32_t greedy(const LogitTable& table, const Tokens& context) {
  std::vector<float> logits(kVocab);
  table(context, logits);
  return engine::argmax(logits);
}

// Lookahead (Fu et al. 2024, arXiv 2402.02057) with explicit rows, positions and visible tokens
// instead of parents.
class ReferenceWindow {
 public:
  ReferenceWindow(int w, int n, Tokens pads) : w_(w), n_(n) {
    rows_.push_back(std::move(pads));
    rows_.front().insert(rows_.front().begin(), -1);  // the root's place
  }
  // Tokens of the step in query order, the root left out; and what each sees, by (row, column).
  std::vector<std::pair<int, int>> order() const {
    std::vector<std::pair<int, int>> list;
    for (size_t r = 0; r < rows_.size(); ++r)
      for (size_t c = r == 0 ? 1 : 0; c < rows_[r].size(); ++c)
        list.push_back({static_cast<int>(r), static_cast<int>(c)});
    return list;
  }
  int32_t token(int r, int c) const {
    return rows_[static_cast<size_t>(r)][static_cast<size_t>(c)];
  }
  Tokens context(const Tokens& text, int r, int c) const {
    Tokens seen = text;  // the root is its last token
    for (int i = 1; i <= c; ++i) seen.push_back(token(0, i));
    for (int i = 1; i <= r; ++i) seen.push_back(token(i, c));
    return seen;
  }
  void advance(const LogitTable& table, const Tokens& text) {
    const int newest = static_cast<int>(rows_.size()) - 1;
    Tokens next;
    for (size_t c = 0; c < rows_.back().size(); ++c)
      next.push_back(greedy(table, context(text, newest, static_cast<int>(c))));
    if (static_cast<int>(rows_.size()) < n_ - 1) {
      // Column 0 of every row goes; what stood in column 1 of row 0 is the next root's place.
      for (Tokens& row : rows_) row.erase(row.begin());
      next.erase(next.begin());
      rows_.push_back(next);
    } else {
      rows_.erase(rows_.begin());
      rows_.push_back(next);
    }
  }
  int width() const { return static_cast<int>(rows_.back().size()); }
  int wanted() const { return w_; }

 private:
  int w_, n_;
  std::vector<Tokens> rows_;  // row 0 with the root's place first
};

class LookaheadLayout : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(LookaheadLayout, IsThePublishedWindow) {
  const auto [w, n] = GetParam();
  const LogitTable table = markov_table(3, 2, 4);
  base::Rng rng(5);
  Turn turn{random_tokens(rng, 12, kVocab)};
  turn.max_new = 30;
  const Seen seen =
      watch(fmt::format("lookahead:window={},ngram={},guesses=3,full_match_bonus={}", w, n, n == 2),
            turn, table);
  ASSERT_GT(seen.steps.size(), 10u);

  const auto side = [&](const SeenStep& step) {  // rows after the tree: only they are never tested
    const size_t step_index = static_cast<size_t>(&step - seen.steps.data());
    return static_cast<int>(step.rows.size()) - seen.turn.steps[step_index].drafted - 1;
  };
  const SeenStep& first = seen.steps.front();
  Tokens pads;
  for (size_t i = 1; i < first.rows.size(); ++i) {
    pads.push_back(first.rows[i].token);
    EXPECT_TRUE(std::count(turn.prompt.begin(), turn.prompt.end(), pads.back()))
        << "from the prompt";
  }
  ASSERT_EQ(static_cast<int>(pads.size()), w + n - 3);
  ReferenceWindow reference(w, n, pads);
  for (size_t s = 0; s < seen.steps.size(); ++s) {
    const SeenStep& step = seen.steps[s];
    const int tree = static_cast<int>(step.rows.size()) - side(step);
    const auto order = reference.order();
    if (side(step) == 0) break;  // the end: no room for a window
    ASSERT_EQ(side(step), static_cast<int>(order.size())) << "step " << s;
    const Tokens text(seen.text.begin(), seen.text.begin() + step.length + 1);
    for (size_t i = 0; i < order.size(); ++i) {
      const auto [r, c] = order[i];
      const int row = tree + static_cast<int>(i);
      ASSERT_EQ(step.rows[static_cast<size_t>(row)].token, reference.token(r, c))
          << "step " << s << " row " << r << " column " << c;
      // What it sees, as tokens: the committed text and its ancestors.
      Tokens sees = text;
      sees.pop_back();
      for (const int ancestor : step.visible(row))
        sees.push_back(step.rows[static_cast<size_t>(ancestor)].token);
      ASSERT_EQ(sees, reference.context(text, r, c));
      EXPECT_EQ(static_cast<int>(sees.size()) - 1, step.length + r + c) << "position";
    }
    // Steady state: W columns in every row, the root among them.
    if (static_cast<int>(s) >= n - 2) {
      EXPECT_EQ(side(step), w * (n - 1) - 1);
    }
    reference.advance(table, text);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LookaheadLayout,
                         testing::Values(std::pair{5, 4}, std::pair{7, 5}, std::pair{3, 3},
                                         std::pair{4, 2}, std::pair{1, 4}));

// The visibility of the lookahead branch for W=5, N=4, row by row of the window.
TEST(LookaheadLayoutMatrix, W5N4) {
  const std::vector<std::string> published = {
      "11.............", "111............", "1111...........", "11111..........", "1....1.........",
      "11....1........", "111....1.......", "1111....1......", "11111....1.....", "1....1....1....",
      "11....1....1...", "111....1....1..", "1111....1....1.", "11111....1....1"};
  Turn turn{{1, 2, 3, 4, 5, 6, 7, 8}};
  turn.max_new = 12;
  const Seen seen = watch("lookahead:window=5,ngram=4,guesses=2", turn, markov_table(9, 3, 4));
  const size_t s = 4;  // past the warm-up of two steps
  const SeenStep& step = seen.steps[s];
  const int tree = seen.turn.steps[s].drafted + 1;
  ASSERT_EQ(step.rows.size(), static_cast<size_t>(tree) + published.size());
  for (size_t i = 0; i < published.size(); ++i) {
    std::string row(15, '.');
    for (const int seen_row : step.visible(tree + static_cast<int>(i)))
      row[static_cast<size_t>(seen_row == 0 ? 0 : seen_row - tree + 1)] = '1';
    EXPECT_EQ(row, published[i]) << "window row " << i;
  }
}

TEST(Lookahead, AMatchedGramGivesNMinusOneTokensAsReleasedAndNWithTheBonus) {
  Turn turn{{0, 1, 2, 3, 4}};
  turn.max_new = 200;
  for (const bool bonus : {false, true}) {
    const Seen seen =
        watch(fmt::format("lookahead:full_match_bonus={}", bonus), turn, counting(kVocab));
    int most = 0;
    for (const auto& step : seen.turn.steps) most = std::max(most, step.emitted);
    EXPECT_EQ(most, bonus ? 5 : 4);
  }
}

TEST(Lookahead, TheWindowIsNotReadWhereItIsNotNewest) {
  Turn turn{{1, 2, 3, 4, 5, 6, 7, 8}};
  turn.max_new = 20;
  const Seen seen = watch("lookahead:window=5,ngram=4,guesses=2", turn, markov_table(9, 3, 4));
  const SeenStep& step = seen.steps[5];
  int read = 0;
  for (const engine::Row& row : step.rows) read += row.top;
  EXPECT_EQ(read, seen.turn.steps[5].drafted + 1 + 5) << "tree and the newest row of the window";
}

// Five columns, the root's among them. Counting is never in the pool: the columns count as the text
// does, from tokens of the prompt. So every step drafts nothing and emits one token, and the room
// falls from 20 rows by one a step: the window goes on until the root and it fill the room.
TEST(Lookahead, TheWindowStaysWhileItHasRoom) {
  Turn turn{{1, 2, 3, 4, 5, 6, 7, 8}};
  turn.max_new = 20;
  const Seen seen = watch("lookahead:window=5,ngram=2,full_match_bonus=true", turn,
                          counting(kVocab), kVocab, 8 + 20);
  std::vector<size_t> rows;
  for (const SeenStep& step : seen.steps) rows.push_back(step.rows.size());
  std::vector<size_t> expected(16, 5);
  expected.insert(expected.end(), 3, 1);
  EXPECT_EQ(rows, expected);
}

// Self-Draft: 29 to 34 draft rows in steady state for N = L = 6; a staircase before.
TEST(SelfDraftLayout, ReleasedGeometry) {
  Turn turn{{1, 2, 3, 4, 5, 6, 7, 8, 9}};
  turn.max_new = 40;
  const Seen seen = watch("self_draft", turn, markov_table(4, 2, 4));
  const auto branches = [&](size_t s) {  // lengths of the chains after the tree
    const SeenStep& step = seen.steps[s];
    std::vector<int> lengths;
    for (int i = seen.turn.steps[s].drafted + 1; i < static_cast<int>(step.rows.size()); ++i) {
      const int parent = step.rows[static_cast<size_t>(i)].parent;
      EXPECT_TRUE(parent == 0 || parent == i - 1);
      if (parent == 0) lengths.push_back(0);
      ++lengths.back();
    }
    return lengths;
  };
  EXPECT_EQ(branches(0).size(), 9u) << "N + L - 3 columns of pads";
  EXPECT_EQ(branches(1).size(), 9u) << "the first loses its pad";
  EXPECT_EQ(branches(1).front(), 1);
  EXPECT_EQ(branches(2).size(), 8u);
  EXPECT_EQ(branches(3).size(), 7u);
  for (size_t s = 4; s < 20; ++s) {
    const auto lengths = branches(s);
    ASSERT_EQ(lengths.size(), 6u) << s;
    EXPECT_EQ(lengths.front(), 4) << "column 0 continues the text";
    int rows = 0;
    for (const int length : lengths) rows += length;
    EXPECT_GE(rows, 29);
    EXPECT_LE(rows, 34);
  }
}

TEST(SelfDraftLayout, PaperGeometryGrowsToLAndSlides) {
  Turn turn{{1, 2, 3, 4, 5, 6, 7, 8, 9}};
  turn.max_new = 40;
  const LogitTable table = markov_table(4, 2, 4);
  const Seen seen =
      watch("self_draft:geometry=paper,branches=3,length=5,pad=2,harvest_text=false", turn, table);
  std::vector<Tokens> reference;
  for (size_t s = 0; s < 20; ++s) {
    const SeenStep& step = seen.steps[s];
    std::vector<Tokens> chains;
    for (size_t i = static_cast<size_t>(seen.turn.steps[s].drafted) + 1; i < step.rows.size();
         ++i) {
      if (step.rows[i].parent == 0) chains.emplace_back();
      chains.back().push_back(step.rows[i].token);
    }
    ASSERT_EQ(chains.size(), 3u);
    if (s > 0) {
      EXPECT_EQ(chains, reference) << s;
    }
    const Tokens text(seen.text.begin(), seen.text.begin() + step.length + 1);
    for (Tokens& chain : chains) {
      Tokens context = text;
      context.insert(context.end(), chain.begin(), chain.end());
      chain.push_back(greedy(table, context));
      if (chain.size() > 5) chain.erase(chain.begin());
    }
    reference = chains;
  }
}

// On a text that counts, every branch is right from its first draft on: once the key of the newest
// token is in the cache, each step takes a whole gram.
TEST(SelfDraft, TakesWholeGramsOfATextTheBranchesKnow) {
  Turn turn{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};
  turn.max_new = 400;
  for (const bool bonus : {true, false})
    for (const char* geometry : {"code", "paper"}) {
      const Seen seen = watch(fmt::format("self_draft:harvest_text=false,full_match_bonus={},"
                                          "geometry={},init=vocabulary",
                                          bonus, geometry),
                              turn, counting(kVocab));
      int most = 0;
      for (const auto& step : seen.turn.steps) most = std::max(most, step.emitted);
      EXPECT_EQ(most, bonus ? 5 : 4);
      EXPECT_LT(seen.turn.steps.size(), 150u) << geometry;
    }
}

// The longest window of a branch: L tokens as in Algorithm 1, one less as released.
TEST(SelfDraft, TakesGramsAsLongAsABranch) {
  Turn turn{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};
  turn.max_new = 400;
  const auto most_tokens = [&](const char* shape) {
    const Seen seen =
        watch(fmt::format("self_draft:harvest_text=false,init=vocabulary,gram=4,{}", shape), turn,
              counting(kVocab));
    int most = 0;
    for (const auto& step : seen.turn.steps) most = std::max(most, step.emitted);
    return most;
  };
  EXPECT_EQ(most_tokens("geometry=paper,length=4"), 5);
  EXPECT_EQ(most_tokens("geometry=paper,length=2"), 3);
  EXPECT_EQ(most_tokens("geometry=code,length=4"), 4);
}

TEST(SelfDraft, WithoutContextThereAreNoBranches) {
  Turn turn{{1, 2, 3, 4, 5}};
  turn.max_new = 30;
  const Seen seen = watch("self_draft:context=false", turn, markov_table(4, 2, 4));
  for (const SeenStep& step : seen.steps) EXPECT_EQ(step.rows.size(), 1u);
}

TEST(SelfDraft, ACacheThatPersistsKnowsTheLastPrompt) {
  FakeSession session(kVocab, 4000, counting(kVocab));
  for (const bool persist : {false, true}) {
    const auto method = build_method(fmt::format("self_draft:branches=0,persist={}", persist),
                                     small_model(1, kVocab));
    Turn turn{{0, 1, 2, 3, 4, 5}};
    turn.max_new = 40;
    const size_t first = run(*method, session, turn).steps.size();
    session.reset();
    const size_t second = run(*method, session, turn).steps.size();
    if (persist)
      EXPECT_LT(second, first / 2);
    else
      EXPECT_EQ(second, first);
  }
}

// Against a plain list per key.
TEST(GramPool, KeepsTheLatestGramsOfAKey) {
  base::Rng rng(2);
  for (int round = 0; round < 20; ++round) {
    const int length = 1 + static_cast<int>(rng.below(4)),
              capacity = 1 + static_cast<int>(rng.below(5));
    methods::GramPool pool(8, length, capacity);
    std::map<int32_t, std::vector<Tokens>> lists;
    for (int i = 0; i < 500; ++i) {
      if (rng.below(200) == 0) {
        pool.clear();
        lists.clear();
      }
      const auto key = static_cast<int32_t>(rng.below(8));
      const Tokens gram = random_tokens(rng, length, 3);
      pool.insert(key, gram);
      auto& list = lists[key];
      std::erase(list, gram);
      list.push_back(gram);
      if (static_cast<int>(list.size()) > capacity) list.erase(list.begin());
      for (int32_t k = 0; k < 8; ++k) {
        ASSERT_EQ(pool.count(k), static_cast<int>(lists[k].size()));
        for (int g = 0; g < pool.count(k); ++g) {
          const auto got = pool.gram(k, g);
          ASSERT_EQ(Tokens(got.begin(), got.end()), lists[k][static_cast<size_t>(g)]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace evalrun::tests::side_rows_test
