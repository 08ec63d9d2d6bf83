// PIA's trie against plain maps, the order in which it drafts, and what the method makes of it.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "engine/base/error.h"
#include "methods/corpus/suffix_corpus.h"
#include "methods/lookup/prefix_trie.h"
#include "tests/bench/made_up_text.h"
#include "tests/methods/support/corpora.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/first_draft.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::pia_test {
namespace {

using methods::PrefixTrie;
using methods::TokenTree;
using testing::ElementsAre;
using Source = methods::PrefixTrie::Source;

struct Counts {
  float prompt = 0, answer = 0, passing = 0;
  float answers() const { return answer + passing; }
};

// The same trie as a map from paths, keys included, that says all rules again.
struct PlainTrie {
  std::map<Tokens, Counts> counts;
  std::map<int32_t, bool> changed;  // key -> since it was last pruned
  std::map<Tokens, int> born;       // path -> its number, in the order of insertion
  int births = 0;

  void insert(int32_t key, const Tokens& branch, Source source) {
    if (source == Source::kAnswer && !branch.empty()) changed[key] = true;
    Tokens path = {key};
    for (const int32_t token : branch) {
      path.push_back(token);
      if (!counts.contains(path)) born[path] = births++;
      Counts& seen = counts[path];
      (source == Source::kPrompt   ? seen.prompt
       : source == Source::kAnswer ? seen.answer
                                   : seen.passing) += 1;
    }
  }
  int nodes(int32_t key) const {
    return static_cast<int>(std::count_if(counts.begin(), counts.end(),
                                          [key](const auto& n) { return n.first[0] == key; }));
  }
  void end_answer(const PrefixTrie::Limits& limits) {
    for (auto& [path, n] : counts) n.prompt = n.passing = 0;
    std::erase_if(counts, [](const auto& n) { return n.second.answer == 0; });
    const auto n_changed =
        std::count_if(changed.begin(), changed.end(), [](const auto& key) { return key.second; });
    if (n_changed < limits.changed) return;
    std::map<int32_t, int> size;
    for (const auto& [key, is_changed] : changed) size[key] = nodes(key);
    for (auto it = counts.begin(); it != counts.end();) {
      const int32_t key = it->first[0];
      const bool pruned = changed[key] && size[key] > limits.capacity;
      if (pruned && it->second.answer <= 1) {
        it = counts.erase(it);
        continue;
      }
      if (pruned) it->second.answer /= 2;
      ++it;
    }
    for (auto& [key, is_changed] : changed) is_changed = false;
  }

  // Children of a path in the order in which they came, with all that is needed to choose.
  struct Node {
    Tokens path;
    Counts count;
    double weight;
  };
  std::vector<Node> children(const Tokens& path) const {
    std::vector<Node> nodes;
    for (const auto& [other, count] : counts)
      if (other.size() == path.size() + 1 && std::equal(path.begin(), path.end(), other.begin()))
        nodes.push_back({other, count,
                         (1 - 1e-4) * static_cast<double>(count.prompt) +
                             1e-4 * static_cast<double>(count.answers())});
    std::sort(nodes.begin(), nodes.end(),
              [this](const Node& a, const Node& b) { return born.at(a.path) < born.at(b.path); });
    return nodes;
  }
  void all_below(const Tokens& path, std::vector<Node>& nodes) const {
    for (const Node& node : children(path)) {
      nodes.push_back(node);
      all_below(node.path, nodes);
    }
  }
  TokenTree draft(const Tokens& query, int rows, int depth) const {
    TokenTree tree;
    tree.reset(query.back());
    std::vector<Node> below;
    all_below(query, below);
    float least_answer = 0;
    double least_weight = 0;
    if (static_cast<int>(below.size()) > rows) {
      std::stable_sort(below.begin(), below.end(), [](const Node& a, const Node& b) {
        return a.count.answers() > b.count.answers();
      });
      const auto half = below.begin() + rows / 2;
      least_answer = (half - 1)->count.answers();
      // Depth first again.
      std::vector<Node> in_order;
      all_below(query, in_order);
      std::vector<Tokens> taken;
      for (auto it = below.begin(); it != half; ++it) taken.push_back(it->path);
      std::erase_if(in_order, [&](const Node& n) {
        return std::find(taken.begin(), taken.end(), n.path) != taken.end();
      });
      std::stable_sort(in_order.begin(), in_order.end(),
                       [](const Node& a, const Node& b) { return a.weight > b.weight; });
      least_weight = in_order[static_cast<size_t>(rows - rows / 2) - 1].weight;
    }
    take(query, 0, depth, rows, least_answer, least_weight, tree);
    return tree;
  }
  void take(const Tokens& path, int parent, int depth, int rows, float answer, double weight,
            TokenTree& tree) const {
    if (depth == 0) return;
    std::vector<Node> nodes = children(path);
    std::stable_sort(nodes.begin(), nodes.end(),
                     [](const Node& a, const Node& b) { return a.weight > b.weight; });
    for (const Node& node : nodes) {
      if (tree.size() >= rows) return;
      if (node.count.answers() < answer && node.weight < weight) continue;
      take(node.path, tree.add(node.path.back(), parent), depth - 1, rows, answer, weight, tree);
    }
  }
};

TEST(PrefixTrie, CountsForgetsPrunesAndDraftsAsThePlainOne) {
  base::Rng rng(8);
  int pruned = 0, chosen = 0;
  for (int round = 0; round < 30; ++round) {
    const PrefixTrie::Limits limits{4 + static_cast<int>(rng.below(30)),
                                    1 + static_cast<int>(rng.below(4))};
    const int vocab = 3 + static_cast<int>(rng.below(3));
    PrefixTrie trie(vocab, limits);
    PlainTrie plain;
    for (int answer = 0; answer < 12; ++answer) {
      for (int i = 0; i < 30; ++i) {
        const auto key = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)));
        const Tokens branch = random_tokens(rng, static_cast<int>(rng.below(5)), vocab);
        const Source source = rng.below(3) == 0   ? Source::kPrompt
                              : rng.below(3) == 0 ? Source::kPassingAnswer
                                                  : Source::kAnswer;
        trie.insert(key, branch, source);
        plain.insert(key, branch, source);
      }
      for (int32_t key = 0; key < vocab; ++key)
        for (const Tokens& query : {Tokens{key}, Tokens{key, 0}, Tokens{key, 1, 2}}) {
          const int rows = 2 + static_cast<int>(rng.below(40));
          const int depth = 1 + static_cast<int>(rng.below(4));
          TokenTree tree;
          tree.reset(query.back());
          const bool found = trie.draft(query, rows, depth, tree);
          const TokenTree want = plain.draft(query, rows, depth);
          ASSERT_EQ(tree.token, want.token) << "round " << round;
          ASSERT_EQ(tree.parent, want.parent) << "round " << round;
          ASSERT_EQ(found, want.size() > 1) << "round " << round;
          chosen += tree.size() < plain.nodes(key) && tree.size() == rows;
        }
      const size_t before = trie.nodes();
      trie.end_answer();
      plain.end_answer(limits);
      pruned += trie.nodes() < before;
      for (int32_t key = 0; key < vocab; ++key) ASSERT_EQ(trie.nodes(key), plain.nodes(key));
      for (const auto& [path, count] : plain.counts) {
        ASSERT_EQ(trie.count(path, Source::kPrompt), 0);
        ASSERT_EQ(trie.count(path, Source::kPassingAnswer), 0);
        ASSERT_EQ(trie.count(path, Source::kAnswer), count.answer);
      }
    }
  }
  EXPECT_GT(pruned, 100);
  EXPECT_GT(chosen, 100) << "trees that are cut";
}

TokenTree drafted(PrefixTrie& trie, const Tokens& query, int rows, int depth) {
  TokenTree tree;
  tree.reset(query.back());
  trie.draft(query, rows, depth, tree);
  return tree;
}

// Many siblings, a few of them frequent, and enough rows for whole sets of equal counts to be cut.
TEST(PrefixTrie, ChoosesAmongManySiblingsAsThePlainOne) {
  base::Rng rng(11);
  int cut = 0, by_answers = 0;
  for (int round = 0; round < 12; ++round) {
    const PrefixTrie::Limits limits{60 + static_cast<int>(rng.below(100)), 1};
    constexpr int kVocab = 80;
    PrefixTrie trie(kVocab, limits);
    PlainTrie plain;
    const auto token = [&] {
      const double u = rng.uniform();
      return static_cast<int32_t>(u * u * kVocab);
    };
    for (int answer = 0; answer < 3; ++answer) {
      for (int i = 0; i < 150; ++i) {
        const auto key = static_cast<int32_t>(rng.below(2));
        Tokens branch;
        for (uint64_t n = rng.below(4); n > 0; --n) branch.push_back(token());
        const Source source = std::array{Source::kPrompt, Source::kAnswer,
                                         Source::kPassingAnswer}[(i / 50 + round) % 3];
        trie.insert(key, branch, source);
        plain.insert(key, branch, source);
        if (i % 10 != 0) continue;
        for (const Tokens& query : {Tokens{0}, Tokens{1}, Tokens{0, token()}}) {
          const int rows = 2 + static_cast<int>(rng.below(100));
          TokenTree tree;
          tree.reset(query.back());
          trie.draft(query, rows, 3, tree);
          const TokenTree want = plain.draft(query, rows, 3);
          ASSERT_EQ(tree.token, want.token) << "round " << round << ", " << rows << " rows";
          ASSERT_EQ(tree.parent, want.parent);
          cut += tree.size() < plain.nodes(query[0]) && tree.size() > rows / 2;
          by_answers += plain.children(query).size() > 30;
        }
      }
      trie.end_answer();
      plain.end_answer(limits);
    }
  }
  EXPECT_GT(cut, 200);
  EXPECT_GT(by_answers, 100) << "keys with many siblings";
}

// Long lives number their nodes anew.
TEST(PrefixTrie, DraftsTheSameAfterItsNodesAreNumberedAnew) {
  base::Rng rng(12);
  PrefixTrie trie(10, {512, 1024, 1 << 20, 100}), never(10, {});
  for (int answer = 0; answer < 40; ++answer) {
    for (int i = 0; i < 40; ++i) {
      const auto key = static_cast<int32_t>(rng.below(3));
      const Tokens branch = random_tokens(rng, 3, 10);
      for (PrefixTrie* t : {&trie, &never})
        t->insert(key, branch, i % 2 == 0 ? Source::kPrompt : Source::kAnswer);
    }
    for (int32_t key = 0; key < 3; ++key) {
      const TokenTree a = drafted(trie, {key}, 40, 3), b = drafted(never, {key}, 40, 3);
      ASSERT_EQ(a.token, b.token) << answer;
      ASSERT_EQ(a.parent, b.parent) << answer;
    }
    trie.end_answer();
    never.end_answer();
  }
}

// One sight in the prompt outweighs many in answers; of two in the prompt the more frequent leads.
TEST(PrefixTrie, DraftsWhatThePromptSaysFirst) {
  PrefixTrie trie(10, {});
  for (int i = 0; i < 50; ++i) trie.insert(1, Tokens{2, 3}, Source::kAnswer);
  trie.insert(1, Tokens{4, 5}, Source::kPrompt);
  trie.insert(1, Tokens{6, 7}, Source::kPrompt);
  trie.insert(1, Tokens{6, 8}, Source::kPrompt);
  const TokenTree all = drafted(trie, {1}, 64, 8);
  EXPECT_THAT(all.token, ElementsAre(1, 6, 7, 8, 4, 5, 2, 3));
  EXPECT_THAT(all.parent, ElementsAre(-1, 0, 1, 1, 0, 4, 0, 6));
  EXPECT_THAT(drafted(trie, {1}, 64, 1).token, ElementsAre(1, 6, 4, 2));
  EXPECT_THAT(drafted(trie, {1, 6}, 64, 8).token, ElementsAre(6, 7, 8));
  // Seven nodes for four rows: 2 and 3 pass by their answers, the others by their weight, and the
  // heaviest branch uses the rows up.
  EXPECT_THAT(drafted(trie, {1}, 4, 8).token, ElementsAre(1, 6, 7, 8));
  trie.end_answer();
  EXPECT_THAT(drafted(trie, {1}, 64, 8).token, ElementsAre(1, 2, 3)) << "the prompt is forgotten";
  EXPECT_EQ(trie.nodes(1), 2);
}

TEST(PrefixTrie, LeavesTheTreeAloneWhereNothingFollowed) {
  PrefixTrie trie(10, {});
  trie.insert(1, Tokens{2}, Source::kPrompt);
  TokenTree tree;
  tree.reset(3);
  tree.add(4, 0);
  for (const Tokens& query : {Tokens{5}, Tokens{1, 7}, Tokens{1, 2}}) {
    EXPECT_FALSE(trie.draft(query, 8, 8, tree));
    EXPECT_EQ(tree.size(), 2);
  }
  trie.insert(7, Tokens{}, Source::kPrompt);
  EXPECT_EQ(trie.nodes(), 2u) << "an empty branch makes no key";
}

// What passes counts as an answer until the next one begins, and leaves the trie as it was.
TEST(PrefixTrie, ForgetsAnswersThatPass) {
  PrefixTrie trie(10, {});
  trie.insert(1, Tokens{2, 3}, Source::kAnswer);
  const size_t before = trie.nodes();
  for (int i = 0; i < 2; ++i) trie.insert(1, Tokens{4, 5}, Source::kPassingAnswer);
  trie.insert(6, Tokens{7}, Source::kPassingAnswer);
  EXPECT_THAT(drafted(trie, {1}, 64, 8).token, ElementsAre(1, 4, 5, 2, 3));
  EXPECT_THAT(drafted(trie, {6}, 64, 8).token, ElementsAre(6, 7));
  trie.end_answer();
  EXPECT_THAT(drafted(trie, {1}, 64, 8).token, ElementsAre(1, 2, 3));
  EXPECT_THAT(drafted(trie, {6}, 64, 8).token, ElementsAre(6));
  EXPECT_EQ(trie.count(Tokens{1, 2}, Source::kAnswer), 1);
  EXPECT_EQ(trie.nodes(), before + 1) << "the key of 6 stays";
}

// However long it lives, a trie holds what was seen twice of late and one answer's branches.
TEST(PrefixTrie, StaysSmall) {
  constexpr int kKeys = 20, kLength = 5, kBranches = 400;
  PrefixTrie trie(1000, {64, 1});
  base::Rng rng(3);
  size_t largest = 0;
  for (int answer = 0; answer < 300; ++answer) {
    for (int i = 0; i < kBranches; ++i)
      trie.insert(static_cast<int32_t>(rng.below(kKeys)), random_tokens(rng, kLength, 1000),
                  Source::kAnswer);
    trie.end_answer();
    largest = std::max(largest, trie.nodes());
    size_t sum = 0;
    for (int32_t key = 0; key < kKeys; ++key) sum += static_cast<size_t>(trie.nodes(key));
    EXPECT_EQ(trie.nodes(), sum + kKeys);
  }
  EXPECT_LE(largest, static_cast<size_t>(kKeys * (64 + 1)));
  trie.clear();
  EXPECT_EQ(trie.nodes(), 0u);
}

// However many keys there are, and however often their branches were seen. What was seen most often
// is still there.
TEST(PrefixTrie, StopsGrowing) {
  constexpr int kKeys = 400, kLength = 5, kBranches = 200, kNodes = 3000;
  const methods::PrefixTrie::Limits limits{1000, 1024, kNodes};
  PrefixTrie trie(kKeys, limits), unbounded(kKeys, {1000, 1024});
  base::Rng rng(4);
  const Tokens often = {1, 2, 3};
  size_t drops = 0;
  for (int answer = 0; answer < 100; ++answer) {
    for (int i = 0; i < kBranches; ++i) {
      const auto key = static_cast<int32_t>(rng.below(kKeys));
      const Tokens branch = random_tokens(rng, kLength, kKeys);
      for (PrefixTrie* t : {&trie, &unbounded}) t->insert(key, branch, Source::kAnswer);
    }
    for (int i = 0; i < 8; ++i) trie.insert(0, often, Source::kAnswer);
    const size_t before = trie.nodes();
    trie.end_answer();
    unbounded.end_answer();
    drops += trie.nodes() < before;
    ASSERT_LE(trie.nodes(), static_cast<size_t>(kNodes + kKeys));
    size_t sum = 0;
    for (int32_t key = 0; key < kKeys; ++key) sum += static_cast<size_t>(trie.nodes(key));
    ASSERT_LE(trie.nodes() - sum, static_cast<size_t>(kKeys)) << "below no key";
    ASSERT_GT(trie.count(Tokens{0, 1, 2, 3}, Source::kAnswer), 0) << answer;
  }
  EXPECT_GT(drops, 10u);
  EXPECT_GT(unbounded.nodes(), static_cast<size_t>(10 * kNodes)) << "nothing to bound";
  // Where all were seen too often to go at once.
  PrefixTrie even(10, {1000, 1024, 4});
  for (int i = 0; i < 1000; ++i)
    for (int32_t key = 0; key < 10; ++key) even.insert(key, Tokens{key}, Source::kAnswer);
  even.end_answer();
  EXPECT_LE(even.nodes(), 10u + 2u);
}

// Nodes that a draft looks at, by tokens of the text that was read before.
double looked_at(size_t tokens, Source source) {
  constexpr size_t kBranch = 12;
  const Tokens text = made_up_text(tokens + 2000, 7);
  PrefixTrie trie(kMadeUpVocab, {});
  trie.reserve(text.size() * (kBranch + 1));
  size_t looked = 0, drafts = 0;
  for (size_t i = 0; i + kBranch < text.size(); ++i) {
    trie.insert(text[i], std::span(text).subspan(i + 1, kBranch),
                i < tokens ? source : Source::kPassingAnswer);
    if (i < tokens) continue;
    TokenTree tree;
    tree.reset(text[i]);
    if (!trie.draft(std::span(text).subspan(i, 1), 64, 12, tree)) continue;
    looked += trie.looked_at();
    ++drafts;
  }
  EXPECT_GT(drafts, 1000u);
  return static_cast<double>(looked) / static_cast<double>(drafts);
}

// A draft of 64 rows has to look at some hundred nodes. All that is below a frequent key would be
// thousands of them.
TEST(PrefixTrie, LooksAtAsMuchHoweverMuchItHasRead) {
  for (const Source source : {Source::kPrompt, Source::kAnswer}) {
    const double few = looked_at(1000, source), many = looked_at(100'000, source);
    EXPECT_LE(many, 4 * few) << "a hundred times the text";
    EXPECT_LE(many, 1000);
    EXPECT_GT(few, 20) << "the counter does not count";
  }
}

TEST(PrefixTrie, RefusesWhatCannotBe) {
  EXPECT_THROW(PrefixTrie(10, {0, 1}), base::InternalError);
  EXPECT_THROW(PrefixTrie(10, {1, 1, 0}), base::InternalError);
  PrefixTrie trie(10, {});
  TokenTree tree;
  tree.reset(1);
  EXPECT_THROW(trie.draft(Tokens{1}, 1, 4, tree), base::InternalError);
  EXPECT_THROW(trie.count(Tokens{}, Source::kPrompt), base::InternalError);
}

TEST(Pia, DraftsWhatFollowedTheLastTokensInThePrompt) {
  const Tokens prompt = {9, 7, 7, 1, 9, 3, 4, 5, 1};  // then the root, 9
  EXPECT_THAT(FirstDraft().of("pia:branch_length=3", prompt), ElementsAre(3, 4, 5));
  EXPECT_THAT(FirstDraft().of("pia:branch_length=3,query=1,decoding_length=4", prompt),
              ElementsAre(7, 7, 1))
      << "9 alone: what came first of what came once";
  EXPECT_THAT(FirstDraft().of("pia", {1, 2, 3}), ElementsAre());
  EXPECT_THAT(FirstDraft().of("pia", {1, 9, 3, 4, 1}), ElementsAre(3, 4, 1));
  EXPECT_THAT(FirstDraft().of("pia", {1, 9, 3, 4, 1}, {4}), ElementsAre(3));
  EXPECT_THAT(FirstDraft().of("pia", {1, 9, 3, 4, 1}, {3}), ElementsAre());
  EXPECT_THAT(FirstDraft().of("pia", {1, 9, 3, 4, 1}, {}, 3), ElementsAre(3));
}

// What comes after a stop token, as in a second turn, is read.
TEST(Pia, ReadsPromptsBeyondStopTokens) {
  EXPECT_THAT(FirstDraft().of("pia", {5, 6, 2, 1, 9, 3, 4, 1}, {2}), ElementsAre(3, 4, 1));
}

// The next token is the one after the last, round and round.
LogitTable round_of(int vocab) {
  return [vocab](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[static_cast<size_t>((context.back() + 1) % vocab)] = 1;
  };
}

TEST(Pia, LearnsTheAnswerWhileItGrows) {
  constexpr int kVocab = 50;
  FakeSession session(kVocab, 4000, round_of(kVocab));
  for (const int length : {1, 4, 12}) {
    const auto method =
        build_method(fmt::format("pia:branch_length={}", length), small_model(1, kVocab));
    Turn turn{{0, 1}};
    turn.max_new = 200;
    session.reset();
    const results::TurnRecord got = run(*method, session, turn);
    int most = 0;
    for (const results::StepRecord& step : got.steps) most = std::max(most, step.emitted);
    EXPECT_EQ(most, length + 1);
    // One round token by token, the others in whole branches.
    EXPECT_LE(got.steps.size(), static_cast<size_t>(kVocab + 2 * length + 150 / (length + 1) + 4));
  }
}

TEST(Pia, ACacheThatPersistsKnowsTheLastAnswer) {
  constexpr int kVocab = 50;
  FakeSession session(kVocab, 4000, round_of(kVocab));
  for (const bool persist : {false, true}) {
    const auto method =
        build_method(fmt::format("pia:persist={}", persist), small_model(1, kVocab));
    Turn turn{{0, 1, 2, 3, 4, 5}};
    turn.max_new = 40;
    session.reset();
    const size_t first = run(*method, session, turn).steps.size();
    session.reset();
    const size_t second = run(*method, session, turn).steps.size();
    EXPECT_EQ(first, 39u) << "nothing repeats";
    if (persist)
      EXPECT_LE(second, 5u) << "39 tokens in branches of 12 and the tokens they bring";
    else
      EXPECT_EQ(second, first);
  }
}

class PiaCorpus : public testing::Test {
 protected:
  // Of these texts, over ids below `vocab`.
  std::string corpus(const Documents& documents, int vocab) {
    const std::string path = folder_.file(fmt::format("{}.suffixes", made_++));
    methods::build_suffix_corpus(path, corpus_text(documents, {"", vocab}));
    return path;
  }
  TempFolder folder_;
  int made_ = 0;
};

TEST_F(PiaCorpus, DraftsFromItsTextsBehindThePrompt) {
  const std::string spec = "pia:corpus=" + corpus({{1, 9, 3, 4, 5}, {7, 7}}, 10);
  EXPECT_THAT(FirstDraft().of("pia", {8, 1}), ElementsAre());
  EXPECT_THAT(FirstDraft().of(spec, {8, 1}), ElementsAre(3, 4, 5)) << "7 is of another text";
  EXPECT_THAT(FirstDraft().of(spec + ",branch_length=2", {8, 1}), ElementsAre(3, 4));
  EXPECT_THAT(FirstDraft().of(spec + ",branch_length=1,decoding_length=2", {1, 9, 8, 1}),
              ElementsAre(8))
      << "the prompt's word weighs more";
}

// Whatever was answered before: the corpus is there again, and nothing else.
TEST_F(PiaCorpus, IsAllThatAnAnswerBeginsWith) {
  constexpr int kVocab = 50;
  Tokens round(kVocab + 20);
  for (size_t i = 0; i < round.size(); ++i) round[i] = static_cast<int32_t>(i % kVocab);
  Tokens other;  // nothing that follows here follows there
  for (int i = kVocab; i-- > 0;) other.push_back(i);
  FakeSession session(kVocab, 4000, round_of(kVocab));
  const auto steps = [&](methods::DecodingMethod& method) {
    Turn turn{{0, 1, 2, 3, 4, 5}};
    turn.max_new = 40;
    session.reset();
    return run(method, session, turn).steps.size();
  };
  const auto warm = build_method("pia:corpus=" + corpus({round}, kVocab), small_model(1, kVocab));
  EXPECT_GT(warm->extra_parameter_bytes(), 0u);
  EXPECT_LE(steps(*warm), 5u) << "39 tokens in branches of 12 and the tokens they bring";
  // Of another kind it is of no use, and what was answered is forgotten.
  const std::string mismatched = "pia:corpus=" + corpus({other}, kVocab);
  const auto foreign = build_method(mismatched, small_model(1, kVocab));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(steps(*foreign), 39u) << "answer " << i;
  // As published it goes on learning.
  const auto learning = build_method(mismatched + ",persist=true", small_model(1, kVocab));
  EXPECT_EQ(steps(*learning), 39u);
  EXPECT_LE(steps(*learning), 5u);
  EXPECT_EQ(build_method("pia", small_model(1, kVocab))->extra_parameter_bytes(), 0u);
}

TEST_F(PiaCorpus, BelongsToTheArmAndIsRefusedByName) {
  const std::string path = corpus({{1, 2, 3}}, 10);
  const methods::MethodSpec spec = methods::parse_method("pia:corpus=" + path);
  methods::MethodBuildContext context;
  context.target = small_model(1, 10);
  EXPECT_THAT(
      spec.info->files(spec.params, context),
      ElementsAre(testing::Pair("corpus", methods::SuffixCorpus(path).info().content_hash)));
  const methods::MethodSpec none = methods::parse_method("pia");
  EXPECT_TRUE(none.info->files(none.params, context).empty());
  for (const auto& [value, vocab, named] : std::vector<std::tuple<std::string, int, std::string>>{
           {folder_.file("no.suffixes"), 10, "--kind suffixes"},
           {path, 12, "another vocabulary"}}) {
    try {
      build_method("pia:corpus=" + value, small_model(1, vocab));
      FAIL() << value;
    } catch (const base::Error& e) {
      EXPECT_THAT(e.what(), testing::StartsWith("pia: "));
      EXPECT_THAT(e.what(), testing::HasSubstr(named));
    }
  }
}

}  // namespace
}  // namespace evalrun::tests::pia_test
