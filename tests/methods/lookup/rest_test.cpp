// What REST drafts, against a trie counted by brute force.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/base/error.h"
#include "methods/corpus/suffix_corpus.h"
#include "methods/step.h"
#include "tests/methods/support/corpora.h"
#include "tests/methods/support/fake_session.h"

namespace evalrun::tests::rest_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Settings {
  int min_span = 2, max_span = 16, length = 10, nodes = 64, occurrences = 10000;
  Tokens stop_ids = {};
  int max_new = 40;
};

std::string spec_of(const Settings& s, const std::string& path) {
  return fmt::format("rest:datastore={},min_span={},max_span={},length={},nodes={},occurrences={}",
                     path, s.min_span, s.max_span, s.length, s.nodes, s.occurrences);
}

// Paths of the nodes of the first draft, in the order of the tree. `prompt` ends with the root.
std::vector<Tokens> draft_of(const Settings& s, const std::string& path, const Tokens& prompt,
                             int vocab) {
  // A row sees the prompt and its own path, so that the rows tell the tree. The first root is what
  // the session says last; the last token of `prompt` stands for it.
  std::vector<Tokens> rows;
  const size_t behind = prompt.size();
  FakeSession session(vocab, 2000, [&](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    rows.emplace_back(context.begin() + static_cast<std::ptrdiff_t>(behind), context.end());
  });
  const auto model = small_model(1, vocab);
  const auto method = build_method(spec_of(s, path), model);
  base::SteadyClock clock;
  const auto before = std::span<const int32_t>(prompt).first(prompt.size() - 1);
  session.prefill(before, 0);
  methods::GenerationContext context;
  context.target = &session;
  context.prompt = before;
  context.first_token = prompt.back();
  context.max_new = s.max_new;
  context.stop_ids = s.stop_ids;
  method->start(context);
  methods::PhaseTimer timer(clock);
  methods::run_alone(*method, session, timer);
  EXPECT_TRUE(rows.at(0).empty()) << "the root's own row";
  rows.erase(rows.begin());
  return rows;
}

// All occurrences of the longest suffix of `prompt` that occurs, by scanning.
std::vector<Tokens> brute_force(const Settings& s, const Documents& documents,
                                const Tokens& prompt) {
  for (int span = std::min(s.max_span, static_cast<int>(prompt.size())); span >= s.min_span;
       --span) {
    const Tokens query(prompt.end() - span, prompt.end());
    std::map<Tokens, int> counts;
    bool hit = false;
    for (const Tokens& d : documents) {
      for (size_t i = 0; i + query.size() <= d.size(); ++i) {
        if (!std::equal(query.begin(), query.end(), d.begin() + static_cast<std::ptrdiff_t>(i)))
          continue;
        hit = true;
        Tokens path;
        for (size_t at = i + query.size();
             at < d.size() && path.size() < static_cast<size_t>(std::min(s.length, s.max_new - 2));
             ++at) {
          if (std::count(s.stop_ids.begin(), s.stop_ids.end(), d[at]) > 0) break;
          path.push_back(d[at]);
          ++counts[path];
        }
      }
    }
    if (!hit) continue;
    std::vector<std::pair<Tokens, int>> nodes(counts.begin(), counts.end());
    std::sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) {
      if (a.second != b.second) return a.second > b.second;
      return a.first.size() != b.first.size() ? a.first.size() < b.first.size() : a.first < b.first;
    });
    std::vector<Tokens> paths;
    for (const auto& [path, count] : nodes) paths.push_back(path);
    if (paths.size() > static_cast<size_t>(s.nodes)) paths.resize(static_cast<size_t>(s.nodes));
    return paths;
  }
  return {};
}

class Rest : public testing::Test {
 protected:
  std::string build(const Documents& documents, int vocab) {
    const std::string path = folder_.file("d.suffixes");
    methods::build_suffix_corpus(path, corpus_text(documents, {"", vocab}));
    return path;
  }
  TempFolder folder_;
};

TEST_F(Rest, EqualsTheTrieCountedByBruteForce) {
  size_t nodes = 0, cut = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    const int vocab = 2 + static_cast<int>(rng.below(6));
    const Documents documents = random_documents(rng, vocab);
    Settings s;
    s.min_span = 1 + static_cast<int>(rng.below(3));
    s.max_span = s.min_span + static_cast<int>(rng.below(8));
    s.length = 1 + static_cast<int>(rng.below(12));
    s.nodes = 1 + static_cast<int>(rng.below(80));
    s.max_new = 3 + static_cast<int>(rng.below(20));
    if (rng.below(3) == 0) s.stop_ids = random_tokens(rng, 1, vocab);
    const std::string path = build(documents, vocab);
    for (int query = 0; query < 4; ++query) {
      Tokens prompt = random_tokens(rng, 2 + static_cast<int>(rng.below(10)), vocab);
      if (!documents.empty() && query % 2 == 0) {  // a phrase that occurs
        const Tokens& d = documents[rng.below(documents.size())];
        if (d.size() > 12) {
          const auto at = d.begin() + static_cast<std::ptrdiff_t>(rng.below(d.size() - 10));
          prompt.insert(prompt.end(), at, at + 6);
        }
      }
      const std::vector<Tokens> expected = brute_force(s, documents, prompt);
      ASSERT_EQ(draft_of(s, path, prompt, vocab), expected);
      nodes += expected.size();
      cut += expected.size() == static_cast<size_t>(s.nodes);
    }
  }
  EXPECT_GT(nodes, 5000u);
  EXPECT_GT(cut, 50u);
}

TEST_F(Rest, SmallerTreesAreBeginningsOfLargerOnes) {
  base::Rng rng(2);
  const std::string path = build({random_tokens(rng, 600, 4)}, 4);
  Settings s;
  s.min_span = 1;
  const Tokens prompt = {1, 2, 3};
  const std::vector<Tokens> large = draft_of(s, path, prompt, 4);
  ASSERT_EQ(large.size(), 64u);
  for (const int nodes : {1, 2, 17, 63}) {
    s.nodes = nodes;
    const std::vector<Tokens> small = draft_of(s, path, prompt, 4);
    EXPECT_EQ(small, std::vector<Tokens>(large.begin(), large.begin() + nodes));
  }
}

TEST_F(Rest, CountsOccurrencesAtEvenDistances) {
  // 100 occurrences of 1 2: forty go on with 3, twenty with 4, ten each with 5, 6, 7, 8.
  Documents documents;
  for (int i = 0; i < 100; ++i)
    documents.push_back({1, 2, i < 40 ? 3 : i < 60 ? 4 : 5 + (i - 60) / 10});
  const std::string path = build(documents, 9);
  Settings s;
  const auto drafted = [&](int occurrences) {
    s.occurrences = occurrences;
    Tokens tokens;
    for (const Tokens& node : draft_of(s, path, {0, 1, 2}, 9)) tokens.push_back(node.back());
    return tokens;
  };
  EXPECT_THAT(drafted(100), ElementsAre(3, 4, 5, 6, 7, 8));
  EXPECT_THAT(drafted(10), ElementsAre(3, 4, 5, 6, 7, 8)) << "a share of 1/10 is always seen";
  EXPECT_THAT(drafted(5), ElementsAre(3, 4, 6, 8)) << "those at 10, 30, 50, 70, 90";
  EXPECT_THAT(drafted(1), ElementsAre(4)) << "the one in the middle";
}

TEST_F(Rest, DraftsNothingWithoutAHitAndNothingBehindADocument) {
  const std::string path = build({{1, 2, 3}, {4, 5}}, 9);
  Settings s;
  EXPECT_THAT(draft_of(s, path, {7, 2, 1}, 9), IsEmpty());
  EXPECT_THAT(draft_of(s, path, {2, 3}, 9), IsEmpty()) << "found, but at the end";
  EXPECT_THAT(draft_of(s, path, {3, 4}, 9), IsEmpty()) << "not across documents";
  EXPECT_THAT(draft_of(s, path, {1, 2}, 9), ElementsAre(Tokens{3}));
  s.min_span = 3;
  EXPECT_THAT(draft_of(s, path, {1, 2}, 9), IsEmpty()) << "shorter than the shortest span";
}

TEST_F(Rest, TakesTheLongestSpan) {
  const std::string path = build({{1, 2, 3}, {1, 2, 3}, {7, 1, 2, 4}, {8, 7, 1, 2, 5}}, 9);
  Settings s;
  EXPECT_THAT(draft_of(s, path, {6, 1, 2}, 9), ElementsAre(Tokens{3}, Tokens{4}, Tokens{5}));
  EXPECT_THAT(draft_of(s, path, {7, 1, 2}, 9), ElementsAre(Tokens{4}, Tokens{5}));
  EXPECT_THAT(draft_of(s, path, {8, 7, 1, 2}, 9), ElementsAre(Tokens{5}));
  s.max_span = 3;
  EXPECT_THAT(draft_of(s, path, {8, 7, 1, 2}, 9), ElementsAre(Tokens{4}, Tokens{5}));
}

TEST_F(Rest, RefusesSpansTheWrongWayRound) {
  EXPECT_THROW(methods::parse_method("rest:min_span=5,max_span=4"), base::Error);
}

TEST_F(Rest, TheContentIsPartOfTheArmsKey) {
  const methods::MethodSpec spec =
      methods::parse_method("rest:datastore=" + folder_.file("d.suffixes"));
  methods::MethodBuildContext context;
  context.target = small_model(1, 24);
  EXPECT_THROW(spec.info->files(spec.params, context), base::Error) << "not built yet";
  const auto hash = [&](const Documents& documents) {
    build(documents, 24);
    return spec.info->files(spec.params, context).at("datastore");
  };
  const std::string first = hash({{1, 2, 3}});
  EXPECT_EQ(first.size(), 64u);
  EXPECT_EQ(hash({{1, 2, 3}}), first) << "built anew from the same text it is the same";
  EXPECT_NE(hash({{1, 2, 4}}), first);
  EXPECT_NE(hash({{1, 2}, {3}}), first);
}

}  // namespace
}  // namespace evalrun::tests::rest_test
