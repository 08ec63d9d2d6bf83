// Several drafts drawn alike (verify=gbv): each by itself, rows that they share, and their ends.
#include <gtest/gtest.h>

#include "methods/model_draft/model_drafter.h"
#include "methods/step.h"
#include "tests/methods/support/fake_session.h"

namespace evalrun::tests::several_paths_test {
namespace {

using Tokens = std::vector<int32_t>;

// A drafter of several paths beside a target that is never asked, with a draft model that looks at
// the text before it.
struct PathsDraft {
  PathsDraft(int paths, int k, int target_capacity, double threshold = 0)
      : table(markov_table(5, 4, 2.0f)), target(4, target_capacity, table) {
    auto session = std::make_unique<FakeSession>(4, 400, table);
    draft = session.get();
    methods::ModelDrafter::Options options;
    options.length.k = options.length.most = k;
    options.length.threshold = threshold;
    options.draft_vocab = options.common_vocab = 4;
    options.rule = methods::DraftRule::kManyPaths;
    options.paths = paths;
    drafter = std::make_unique<methods::ModelDrafter>(std::move(session), options);
    tree.reserve(64);
  }
  void start(uint64_t seed, const engine::SamplingParams& sampling = {1.0, 0, 1.0}) {
    methods::GenerationContext context;
    context.target = &target;
    context.prompt = prompt;
    context.first_token = 1;
    context.max_new = 100;
    context.sampling = sampling;
    context.chance = base::KeyedChance(seed);
    drafter->start(context);
    text = prompt;
    text.push_back(1);
  }
  void make(int depth = 50) {
    tree.reset(text.back());
    methods::draft_alone(*drafter, text, depth, tree);
  }
  std::vector<double> dist_after(const Tokens& context) const {
    std::vector<float> logits(4);
    table(context, logits);
    std::vector<double> q;
    engine::WarpScratch scratch;
    engine::warp(logits, {1.0, 0, 1.0}, q, scratch);
    return q;
  }
  Tokens text_to(int node) const {
    Tokens context = text;
    for (const auto end = context.size(); node > 0; node = tree.parent[static_cast<size_t>(node)])
      context.insert(context.begin() + static_cast<std::ptrdiff_t>(end),
                     tree.token[static_cast<size_t>(node)]);
    return context;
  }

  const Tokens prompt = {0, 1, 2};
  LogitTable table;
  FakeSession target;
  FakeSession* draft;
  std::unique_ptr<methods::ModelDrafter> drafter;
  Tokens text;
  methods::TokenTree tree;
};

// Each path is drawn from what the model says after its own tokens, by its own numbers; those that
// begin alike share nodes, and there are no others. A forward for each node that goes on.
TEST(ModelDrafterPaths, AreDrawnByThemselvesAndShareWhatIsEqual) {
  constexpr int kPaths = 3, kDepth = 4;
  int shared = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PathsDraft d(kPaths, kDepth, 400);
    d.start(seed);
    for (int step = 0; step < 4; ++step) {
      const auto position = static_cast<int64_t>(d.text.size() - d.prompt.size());
      const int64_t before = d.draft->forwards;
      d.make();
      std::vector<bool> on_path(static_cast<size_t>(d.tree.size()), false);
      on_path[0] = true;
      int inner = 0;
      for (int path = 0; path < kPaths; ++path)
        for (int node = 0, level = 0; level < kDepth; ++level) {
          const std::vector<double> q = d.dist_after(d.text_to(node));
          const int32_t token =
              engine::draw(q, base::KeyedChance(seed).draft(position, level, path));
          node = d.tree.child(node, token);
          ASSERT_GT(node, 0) << "path " << path << " of seed " << seed << ", step " << step;
          const auto reported = d.drafter->q_of(node);
          ASSERT_EQ(std::vector<double>(reported.begin(), reported.end()), q);
          if (!on_path[static_cast<size_t>(node)]) {
            EXPECT_EQ(d.drafter->draw_of(node).list, level);
            EXPECT_EQ(d.drafter->draw_of(node).draw, path);
          }
          on_path[static_cast<size_t>(node)] = true;
        }
      for (int node = 0; node < d.tree.size(); ++node) {
        EXPECT_TRUE(on_path[static_cast<size_t>(node)]) << node;
        inner += d.tree.level[static_cast<size_t>(node)] < kDepth ? 1 : 0;
      }
      EXPECT_EQ(d.draft->forwards - before, inner);
      shared += kPaths * kDepth - d.tree.drafted();
      // Accepted is what the first path has, which need not be what the session holds.
      std::vector<int> path;
      for (int node = d.tree.next_child(0, 0); node >= 0; node = d.tree.next_child(node, node))
        path.push_back(node);
      path.resize(static_cast<size_t>(step));
      d.drafter->accepted(path, 2);
      for (const int node : path) d.text.push_back(d.tree.token[static_cast<size_t>(node)]);
      d.text.push_back(2);
      const Tokens& held = d.draft->committed();
      ASSERT_LE(held.size(), d.text.size() - 1);
      EXPECT_TRUE(std::equal(held.begin(), held.end(), d.text.begin()));
    }
  }
  EXPECT_GT(shared, 50);
}

// Whether there is room must not depend on what was drawn: the paths are whole, or shorter alike.
TEST(ModelDrafterPaths, AreAsLongAsAllOfThemFit) {
  for (const int capacity : {4, 6, 7, 9, 10, 13, 40}) {
    PathsDraft d(3, 5, capacity);
    d.start(1);
    d.make();
    EXPECT_EQ(d.tree.depth(), std::min(5, (capacity - 3 - 1) / 3)) << capacity;
    for (int node = 0; node < d.tree.size(); ++node) {
      if (d.tree.next_child(node, node) < 0) {
        EXPECT_EQ(d.tree.level[static_cast<size_t>(node)], d.tree.depth());
      }
    }
  }
  PathsDraft greedy(3, 5, 400);
  greedy.start(1, {});
  greedy.make();
  EXPECT_EQ(greedy.tree.drafted(), 5) << "without chance one chain";
  EXPECT_EQ(greedy.tree.depth(), 5);
}

// A path ends behind a token that the model doubts, wherever else the others go.
TEST(ModelDrafterPaths, EndBehindDoubtfulTokens) {
  int ended = 0, whole = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    PathsDraft d(3, 4, 400, 0.3);
    d.start(seed);
    d.make();
    for (int node = 1; node < d.tree.size(); ++node) {
      const auto at = static_cast<size_t>(node);
      const bool goes_on = d.tree.next_child(node, node) >= 0;
      const bool doubted =
          d.dist_after(d.text_to(d.tree.parent[at]))[static_cast<size_t>(d.tree.token[at])] < 0.3;
      EXPECT_EQ(goes_on, !doubted && d.tree.level[at] < 4) << seed << " " << node;
      ended += doubted ? 1 : 0;
      whole += d.tree.level[at] == 4 ? 1 : 0;
    }
  }
  EXPECT_GT(ended, 0);
  EXPECT_GT(whole, 0);
}

}  // namespace
}  // namespace evalrun::tests::several_paths_test
