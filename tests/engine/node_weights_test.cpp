// Weights for threads on several NUMA nodes, at made-up places: the bits of a plain session, copies
// that are shared and counted, and what happens where there is no room.
#include "engine/cpu/node_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "tests/engine/made_up_places.h"
#include "tests/engine/random_models.h"
#include "tests/scoped_variable.h"

namespace evalrun::engine::testing {
namespace {

using cpu::NodeWeights;
using cpu::Places;
using cpu::ThreadPool;
using ::testing::HasSubstr;
using tests::ScopedVariable;

std::shared_ptr<const Model> untied_model() {
  ModelConfig config = small_config();
  config.tied_head = false;
  return make_random_model(config, 5, WeightFormat::kInt8);
}

size_t bytes_of_matrices(const Model& model) {
  size_t bytes = model.head().size();
  for (int l = 0; l < model.config().n_layers; ++l)
    for (const WeightMatrix* w : model.layer(l).matrices()) bytes += w->size();
  return bytes;
}

bool same_weights(const WeightMatrix& a, const WeightMatrix& b) {
  return a.storage() == b.storage() && a.out() == b.out() && a.in() == b.in() &&
         std::memcmp(a.bytes().data(), b.bytes().data(), a.size()) == 0;
}

// A step of several rows, one of a single row, and a product with the head: all ways to weights.
std::vector<float> results_of(Session& s) {
  const int vocab = s.model().config().vocab_size;
  s.prefill(random_tokens(20, vocab, 3));
  auto tree = random_tree(9, vocab, 5);
  for (size_t i = 5; i < 9; ++i) tree[i].top = true, tree[i].logits = false;
  std::vector<float> all;
  const auto take = [&](std::span<const float> x) { all.insert(all.end(), x.begin(), x.end()); };
  for (const size_t rows : {size_t{9}, size_t{1}}) {
    const ForwardResult r = s.forward({.rows = {tree.data(), rows}});
    for (int i = 0; i < static_cast<int>(rows); ++i) {
      if (tree[static_cast<size_t>(i)].logits) take(r.logits_row(i));
      take(r.hidden_row(i));
      if (tree[static_cast<size_t>(i)].top)
        all.push_back(static_cast<float>(r.top[static_cast<size_t>(i)]));
    }
  }
  const std::vector<float> hidden = random_floats(3 * s.model().config().d_model, 9);
  const MatrixView y = s.head({hidden.data(), 3, s.model().config().d_model});
  for (int i = 0; i < y.rows; ++i) take(y.row(i));
  return all;
}

TEST(NodeWeights, BitsAreThoseOfAPlainSession) {
  for (const WeightFormatSpec& spec : rounded_formats())
    for (const NamedModel& m : some_models(Path{"", spec.format})) {
      const std::vector<float> want = results_of(*open(m.model, Path{"", spec.format}, 2, 128));
      for (const std::string& how : std::vector<std::string>{"copy", "interleave", "off"}) {
        const ScopedVariable numa("EVALRUN_NUMA", how);
        for (int threads = 1; threads <= (how == "copy" ? 8 : 2); ++threads) {
          const Places places = two_nodes(threads);
          auto session = open_at(places, m.model);
          ASSERT_TRUE(same_bits(results_of(*session), want))
              << spec.name << ", " << m.name << ", " << how << ", " << threads << " threads";
          const WeightPlacement placement = session->weight_placement();
          EXPECT_EQ(placement.nodes, threads == 1 ? 1 : 2);
          EXPECT_EQ(placement.how, threads == 1 ? "one node" : how);
        }
      }
      const Places scattered = made_up_places({2, 0, 1, 0, 2});
      const ScopedVariable numa("EVALRUN_NUMA", "copy");
      ASSERT_TRUE(same_bits(results_of(*open_at(scattered, m.model)), want)) << spec.name;
    }
}

TEST(NodeWeights, ThreadsReadTheCopyOfTheirNode) {
  for (const bool tied : {true, false}) {
    const auto model = tied ? make_random_model(small_config(), 1) : untied_model();
    const Places places = made_up_places({3, 1, 3, 0});
    ThreadPool pool(4, &places);
    const ScopedVariable numa("EVALRUN_NUMA", "copy");
    const NodeWeights weights(model, pool);
    EXPECT_EQ(&weights.of(0), model.get()) << "the first thread's node has the model's own";
    EXPECT_EQ(&weights.of(2), model.get());
    std::set<const std::byte*> heads;
    for (const int thread : {0, 1, 3}) {
      const Model& there = weights.of(thread);
      heads.insert(there.head().panel(0));
      EXPECT_TRUE(same_weights(there.head(), model->head()));
      EXPECT_EQ(&there.embedding() == &there.head(), tied);
      EXPECT_EQ(&weights.near(model->head(), thread), &there.head());
      const WeightMatrix& beside = model->layer(0).q;
      EXPECT_EQ(&weights.near(beside, thread), &beside);
      for (int l = 0; l < model->config().n_layers; ++l) {
        const auto copies = there.layer(l).matrices(), own = model->layer(l).matrices();
        for (size_t i = 0; i < own.size(); ++i) {
          EXPECT_TRUE(same_weights(*copies[i], *own[i])) << l << ", " << i;
          EXPECT_EQ(copies[i]->panel(0) == own[i]->panel(0), thread == 0);
        }
        EXPECT_EQ(there.layer(l).ffn_norm, model->layer(l).ffn_norm);
      }
    }
    EXPECT_EQ(heads.size(), 3u);
    if (!tied) {
      EXPECT_EQ(&weights.of(1).embedding(), &model->embedding()) << "a step reads a few rows";
    }
  }
}

// A copy that is changed changes the outputs of its node's threads and of no others.
TEST(NodeWeights, ASessionComputesWithTheCopies) {
  const auto model = untied_model();
  const ScopedVariable numa("EVALRUN_NUMA", "copy");
  const Places places = two_nodes(2);
  auto session = open_at(places, model);
  const auto logits = [&] {
    const Row row{.token = 7};
    return copy(session->forward({.rows = {&row, 1}}).logits_row(0));
  };
  const std::vector<float> before = logits();
  ThreadPool pool(2, &places);
  const NodeWeights weights(model, pool);
  const WeightMatrix& head = weights.of(1).head();
  const_cast<WeightMatrix&>(head).clear_panel(head.panels() - 1);  // of the second thread's share
  const_cast<WeightMatrix&>(head).clear_panel(0);                  // of nobody's on this node
  const std::vector<float> after = logits();
  const size_t last = before.size() - 1;
  EXPECT_NE(before[last], 0);
  EXPECT_EQ(after[last], 0);
  EXPECT_EQ(after[0], before[0]);
}

TEST(NodeWeights, CopiesBelongToTheModelAndItsParts) {
  const ScopedVariable numa("EVALRUN_NUMA", "copy");
  const Places places = two_nodes(2);
  auto model = untied_model();
  const auto draft = model->first_layers(1);
  std::weak_ptr<const Model> copied;
  const std::byte *layer, *head;
  {
    ThreadPool pool(2, &places);
    const NodeWeights first(draft, pool), whole(model, pool), again(model, pool);
    EXPECT_EQ(first.placement().copy_bytes, bytes_of_matrices(*draft));
    EXPECT_EQ(whole.placement().copy_bytes, bytes_of_matrices(*model));
    EXPECT_EQ(&whole.of(1), &again.of(1));
    // What the draft model has already is not copied again.
    layer = first.of(1).layer(0).q.panel(0), head = first.of(1).head().panel(0);
    EXPECT_EQ(whole.of(1).layer(0).q.panel(0), layer);
    EXPECT_EQ(whole.of(1).head().panel(0), head);
    copied = model->on_nodes().at(1);
  }
  // Sessions have gone, and the next finds the copies.
  EXPECT_FALSE(copied.expired());
  {
    const Places more = two_nodes(4);
    ThreadPool pool(4, &more);
    const NodeWeights later(model, pool);
    EXPECT_EQ(later.of(3).layer(0).q.panel(0), layer);
  }
  model.reset();
  EXPECT_TRUE(copied.expired());
  ThreadPool pool(2, &places);
  EXPECT_EQ(NodeWeights(draft, pool).of(1).head().panel(0), head);
}

TEST(NodeWeights, ALayerUsedTwiceIsCopiedOnce) {
  ModelParts parts = untied_model()->parts();
  parts.layers[1] = parts.layers[0];
  const auto model = Model::create(std::move(parts));
  const ScopedVariable numa("EVALRUN_NUMA", "copy");
  const Places places = two_nodes(2);
  ThreadPool pool(2, &places);
  const NodeWeights weights(model, pool);
  EXPECT_EQ(&weights.of(1).layer(0), &weights.of(1).layer(1));
  EXPECT_EQ(weights.placement().copy_bytes, bytes_of_matrices(*model->first_layers(1)));
}

TEST(NodeWeights, SessionsInSeveralThreadsShareCopies) {
  const auto model = untied_model();
  const ScopedVariable numa("EVALRUN_NUMA", "copy");
  const Places places = two_nodes(3);
  const std::vector<float> want = results_of(*open(model, "", 1, 128));
  std::atomic<int> right{0};
  std::vector<std::thread> users;
  for (int i = 0; i < 4; ++i)
    users.emplace_back(
        [&] { right += same_bits(results_of(*open_at(places, model)), want) ? 1 : 0; });
  for (std::thread& t : users) t.join();
  EXPECT_EQ(right.load(), 4);
  EXPECT_EQ(model->on_nodes().size(), 1u);
}

// ---- Room ---------------------------------------------------------------------------------------

TEST(NodeWeights, AutoCopiesIntoHalfOfWhatIsFree) {
  const ScopedVariable numa("EVALRUN_NUMA", "auto");
  const auto bytes = static_cast<int64_t>(bytes_of_matrices(*untied_model()));
  for (const bool fits : {true, false}) {
    const auto model = untied_model();
    const Places places = two_nodes(2, 2 * bytes - (fits ? 0 : 1));
    auto session = open_at(places, model);
    EXPECT_EQ(session->weight_placement().how, fits ? "copy" : "interleave");
    EXPECT_EQ(session->weight_placement().copy_bytes, fits ? static_cast<size_t>(bytes) : 0);
    EXPECT_EQ(model->on_nodes().size(), fits ? 1u : 0u);
    EXPECT_EQ(model->weight_bytes(), untied_model()->weight_bytes()) << "without the copies";
  }
}

TEST(NodeWeights, CopiesThatWereDemandedAndDoNotFitAreAnError) {
  const auto model = untied_model();
  const auto bytes = static_cast<int64_t>(bytes_of_matrices(*model));
  const ScopedVariable numa("EVALRUN_NUMA", "copy");
  const Places places = two_nodes(2, bytes - 1);
  try {
    open_at(places, model);
    FAIL() << "there is no room";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kData);
    EXPECT_THAT(e.what(), HasSubstr("EVALRUN_NUMA=copy: a copy of the weights for NUMA node 1"));
    EXPECT_THAT(e.what(), HasSubstr("EVALRUN_NUMA=interleave"));
  }
  EXPECT_TRUE(model->on_nodes().empty());
  EXPECT_NO_THROW(open_at(two_nodes(2, bytes), model));
  // What is there takes no room any more.
  EXPECT_EQ(open_at(places, model)->weight_placement().how, "copy");
}

TEST(NodeWeights, AnUnknownChoiceIsRefusedOnAnyMachine) {
  const ScopedVariable numa("EVALRUN_NUMA", "both");
  try {
    open(untied_model(), "", 2, 128);
    FAIL() << "no such choice";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), HasSubstr("EVALRUN_NUMA is 'both'"));
    EXPECT_THAT(e.what(), HasSubstr("auto, copy, interleave or off"));
  }
}

TEST(NodeWeights, OneNodeHasNothingBesideTheModel) {
  const auto model = untied_model();
  const ScopedVariable numa("EVALRUN_NUMA", "copy");
  ThreadPool pool(2);
  if (pool.places().nodes().size() > 1) GTEST_SKIP() << "this machine has several nodes";
  const NodeWeights weights(model, pool);
  EXPECT_EQ(&weights.of(0), model.get());
  EXPECT_EQ(&weights.of(1), model.get());
  EXPECT_EQ(weights.placement().how, "one node");
  EXPECT_EQ(weights.placement().copy_bytes, 0u);
}

}  // namespace
}  // namespace evalrun::engine::testing
