// Requests of several sequences as one forward, and each one's part of the answers: those that it
// gets alone.
#include "methods/merged_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "engine/base/error.h"
#include "engine/rejection.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::merged_request_test {
namespace {

using engine::ForwardRequest;
using engine::ForwardResult;
using engine::Row;
using methods::MergedRequest;
using testing::ElementsAre;

constexpr int kVocab = 24;

std::vector<float> copy(std::span<const float> values) { return {values.begin(), values.end()}; }

// What one sequence asks for: a tree, a block, all kinds of answers.
struct Part {
  std::vector<Row> rows;
  std::vector<double> uniforms;
  std::vector<engine::DistributionDraw> draws;
  ForwardRequest request(const engine::SamplingParams& sampling,
                         engine::DistributionStore* dists) const {
    ForwardRequest r;
    r.rows = rows;
    r.best = 3;
    r.log_sums = true;
    r.sampling = &sampling;
    r.dists = dists;
    r.distribution_draws = draws;
    return r;
  }
};

Part random_part(base::Rng& rng, int first_slot) {
  Part part;
  const auto token = [&] { return static_cast<int32_t>(rng.below(kVocab)); };
  const int nodes = 2 + static_cast<int>(rng.below(6));
  for (int i = 0; i < nodes; ++i) {
    Row row{.token = token()};
    row.parent = i == 0 ? -1 : static_cast<int32_t>(rng.below(static_cast<uint64_t>(i)));
    row.logits = rng.below(2) == 0;
    row.top = rng.below(2) == 0;
    row.best = !row.logits && rng.below(2) == 0;
    row.hidden = rng.below(2) == 0;
    if (!row.logits && !row.best) row.uniform = rng.uniform();
    part.rows.push_back(row);
  }
  for (int b = 0; b < 2; ++b)  // two blocks of two below the root
    for (int i = 0; i < 2; ++i)
      part.rows.push_back({.token = token(), .parent = 0, .block = b, .hidden = true});
  // Two tokens drawn from each of two distributions.
  part.uniforms = {rng.uniform(), rng.uniform(), rng.uniform(), rng.uniform()};
  for (size_t d = 0; d < 2; ++d) {
    Row row{.token = token(), .parent = 0, .logits = false};
    row.uniform = part.uniforms[2 * d];
    part.draws.push_back({static_cast<int32_t>(part.rows.size()), first_slot + static_cast<int>(d),
                          std::span<const double>(part.uniforms).subspan(2 * d, 2)});
    part.rows.push_back(row);
  }
  return part;
}

void expect_same(const ForwardResult& got, const ForwardResult& want, const Part& part) {
  for (size_t i = 0; i < part.rows.size(); ++i) {
    const Row& row = part.rows[i];
    const int r = static_cast<int>(i);
    EXPECT_EQ(got.top[i], want.top[i]);
    EXPECT_EQ(got.drawn[i], want.drawn[i]);
    EXPECT_EQ(got.weight[i], want.weight[i]);
    if (row.logits) {
      EXPECT_EQ(copy(got.logits_row(r)), copy(want.logits_row(r)));
    }
    if (row.hidden) {
      EXPECT_EQ(copy(got.hidden_row(r)), copy(want.hidden_row(r)));
    }
    if (!row.best) continue;
    const engine::RowScores a = got.scores(r), b = want.scores(r);
    EXPECT_EQ(a.log_sum, b.log_sum);
    ASSERT_EQ(a.best.size(), 3u);
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(a.best[k].token, b.best[k].token);
      EXPECT_EQ(a.best[k].logit, b.best[k].logit);
    }
  }
  EXPECT_EQ(Tokens(got.drawn_tokens.begin(), got.drawn_tokens.end()),
            Tokens(want.drawn_tokens.begin(), want.drawn_tokens.end()));
}

TEST(MergedRequest, PartsGetTheAnswersThatTheyGetAlone) {
  const auto model = small_model(4, kVocab);
  const engine::SamplingParams sampling{0.9, 0, 1};
  base::Rng rng(2);
  for (int round = 0; round < 20; ++round) {
    constexpr int kParts = 4;
    const auto session = make_session(model, 128, kParts);
    const auto dists = session->make_distributions(2 * kParts, kVocab, {});
    std::vector<Part> parts;
    std::vector<Tokens> prompts;
    for (int s = 0; s < kParts; ++s) {
      parts.push_back(random_part(rng, 2 * s));
      prompts.push_back(random_tokens(rng, static_cast<int>(rng.below(20)), kVocab));
      session->prefill(prompts.back(), s);
    }
    MergedRequest merged;
    const int order[] = {2, 0, 3, 1};  // a part's sequence is not its place
    for (const int s : order)
      merged.add(parts[static_cast<size_t>(s)].request(sampling, dists.get()), s);
    ASSERT_EQ(merged.parts(), 4u);
    const ForwardResult all = session->forward(merged.request());
    for (size_t i = 0; i < kParts; ++i) {
      const auto s = static_cast<size_t>(order[i]);
      const MergedRequest::Place& place = merged.place(i);
      const ForwardResult got =
          engine::slice(all, place.first, place.rows, place.first_drawn_token, place.drawn_tokens);
      const auto alone = make_session(model, 128);
      const auto own = alone->make_distributions(2 * kParts, kVocab, {});
      alone->prefill(prompts[s]);
      expect_same(got, alone->forward(parts[s].request(sampling, own.get())), parts[s]);
    }
  }
}

// Drafts of two sequences that are tried with the target's forward.
TEST(MergedRequest, MovesRejectionTests) {
  const auto model = small_model(4, kVocab);
  const engine::SamplingParams sampling{1.0, 0, 1};
  const auto session = make_session(model, 64, 2);
  const auto dists = session->make_distributions(2, kVocab, {});
  for (int s = 0; s < 2; ++s) session->prefill(Tokens{1, 2, 3}, s);
  const std::vector<double> uniforms = {0.3, 0.8};
  MergedRequest merged;
  std::vector<Row> drafting(2, {.token = 4, .logits = false});
  std::vector<engine::DistributionDraw> draws(2);
  for (size_t s = 0; s < 2; ++s) {
    drafting[s].uniform = uniforms[s];
    draws[s] = {0, static_cast<int32_t>(s), {&uniforms[s], 1}};
    ForwardRequest r;
    r.rows = {&drafting[s], 1};
    r.sampling = &sampling;
    r.dists = dists.get();
    r.distribution_draws = {&draws[s], 1};
    merged.add(r, static_cast<int>(s));
  }
  const ForwardResult drafted = session->forward(merged.request());
  const Tokens drafts(drafted.drawn_tokens.begin(), drafted.drawn_tokens.end());
  ASSERT_EQ(drafts.size(), 2u);
  merged.clear();
  std::vector<std::vector<Row>> rows(2);
  std::vector<engine::RejectionTest> tests(2);
  for (size_t s = 0; s < 2; ++s) {
    rows[s] = {{.token = 5, .logits = false}, {.token = drafts[s], .parent = 0, .logits = false}};
    rows[s][0].uniform = uniforms[1 - s];
    rows[s][1].uniform = 0.5;
    tests[s] = {0, static_cast<int32_t>(s), {&drafts[s], 1}};
    ForwardRequest r;
    r.rows = rows[s];
    r.sampling = &sampling;
    r.dists = dists.get();
    r.rejection_tests = {&tests[s], 1};
    merged.add(r, static_cast<int>(s));
  }
  const ForwardRequest request = merged.request();
  ASSERT_EQ(request.rejection_tests.size(), 2u);
  EXPECT_EQ(request.rejection_tests[1].row, 2);
  const ForwardResult tried = session->forward(request);
  for (int s = 0; s < 2; ++s) {
    const ForwardResult part = engine::slice(tried, 2 * s, 2);
    const int passed = part.passed[0];
    EXPECT_TRUE(passed == -1 || (passed == 0 && part.drawn[0] == drafts[static_cast<size_t>(s)]));
    EXPECT_EQ(part.passed[1], -1) << "not tried";
  }
}

TEST(MergedRequest, RefusesPartsThatContradictEachOther) {
  const std::vector<Row> rows(3, {.token = 1});
  const auto refuses = [&](const std::function<void(ForwardRequest&, ForwardRequest&)>& differ) {
    ForwardRequest a, b;
    a.rows = b.rows = rows;
    differ(a, b);
    MergedRequest merged;
    merged.add(a, 0);
    try {
      merged.add(b, 1);
    } catch (const base::InternalError&) {
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refuses([](ForwardRequest&, ForwardRequest&) {}));
  engine::PrefixBank prefix, other_prefix;
  EXPECT_FALSE(refuses([&](auto& a, auto& b) { a.prefix = b.prefix = &prefix; }));
  EXPECT_FALSE(refuses([&](auto& a, auto&) { a.prefix = &prefix; })) << "rows say who sees it";
  EXPECT_TRUE(refuses([&](auto& a, auto& b) { a.prefix = &prefix, b.prefix = &other_prefix; }));
  engine::LowRankDelta delta, other_delta;
  EXPECT_TRUE(refuses([&](auto& a, auto& b) { a.low_rank = &delta, b.low_rank = &other_delta; }));
  const engine::SkipSet skip{{true, false}, {}}, same{{true, false}, {}}, other{{false, true}, {}};
  EXPECT_FALSE(refuses([&](auto& a, auto& b) { a.skip = &skip, b.skip = &same; }));
  EXPECT_TRUE(refuses([&](auto& a, auto& b) { a.skip = &skip, b.skip = &other; }));
  EXPECT_TRUE(refuses([&](auto& a, auto&) { a.skip = &skip; })) << "acts on all rows";
  const engine::SamplingParams warm{1, 0, 1}, equal{1, 0, 1}, hot{2, 0, 1};
  EXPECT_FALSE(refuses([&](auto& a, auto& b) { a.sampling = &warm, b.sampling = &equal; }));
  EXPECT_TRUE(refuses([&](auto& a, auto& b) { a.sampling = &warm, b.sampling = &hot; }));
  engine::HostDistributions dists(1, 4, {}), other_dists(1, 4, {});
  EXPECT_TRUE(refuses([&](auto& a, auto& b) { a.dists = &dists, b.dists = &other_dists; }));
  EXPECT_TRUE(refuses([&](auto& a, auto& b) { a.best = 3, b.best = 4; }));
  const std::vector<float> masks(8), other_masks(8);
  EXPECT_TRUE(refuses([&](auto& a, auto& b) {
    a.embeddings = {masks.data(), 2, 4}, b.embeddings = {other_masks.data(), 2, 4};
  }));
  const std::vector<engine::RejectionTest> tests(1);
  EXPECT_TRUE(refuses([&](auto& a, auto& b) {
    a.rejection_tests = b.rejection_tests = tests;
    b.independent = true;
  }));
  const int layers[] = {1};
  EXPECT_TRUE(refuses([&](auto& a, auto&) { a.residual_layers = layers; }));
  EXPECT_TRUE(refuses([&](auto&, auto& b) { b.extend = true; }));
  EXPECT_TRUE(refuses([&](auto&, auto& b) { b.rows = {}; }));
}

TEST(MergedRequest, MovesParentsAndBlocksAndKeepsWithinAForward) {
  const std::vector<Row> rows = {{.token = 1},
                                 {.token = 2, .parent = 0, .block = 0},
                                 {.token = 3, .parent = 0, .block = 0},
                                 {.token = 4, .parent = 2, .block = 1}};
  ForwardRequest part;
  part.rows = rows;
  MergedRequest merged;
  for (const int sequence : {5, 3}) merged.add(part, sequence);
  std::vector<int> parents, blocks, sequences;
  const ForwardRequest whole = merged.request();
  for (const Row& row : whole.rows) {
    parents.push_back(row.parent);
    blocks.push_back(row.block);
    sequences.push_back(row.sequence);
  }
  EXPECT_THAT(parents, ElementsAre(-1, 0, 0, 2, -1, 4, 4, 6));
  EXPECT_THAT(blocks, ElementsAre(-1, 0, 0, 1, -1, 2, 2, 3));
  EXPECT_THAT(sequences, ElementsAre(5, 5, 5, 5, 3, 3, 3, 3));
  const std::vector<Row> many(engine::kMaxRows - 8, {.token = 1}), more(1, {.token = 1});
  ForwardRequest rest;
  rest.rows = many;
  EXPECT_TRUE(merged.fits(rest));
  merged.add(rest, 0);
  rest.rows = more;
  EXPECT_FALSE(merged.fits(rest));
  EXPECT_THROW(merged.add(rest, 1), base::InternalError);
}

TEST(Slice, RefusesWhatIsNotThere) {
  const auto model = small_model(4, kVocab);
  const auto session = make_session(model);
  const std::vector<Row> rows(3, {.token = 1});
  const int layers[] = {1};
  const ForwardResult plain = session->forward({.rows = rows});
  EXPECT_EQ(engine::slice(plain, 1, 2).top.size(), 2u);
  EXPECT_THROW(engine::slice(plain, 2, 2), base::InternalError);
  EXPECT_THROW(engine::slice(plain, -1, 2), base::InternalError);
  EXPECT_THROW(engine::slice(plain, 0, 3, 0, 1), base::InternalError) << "nothing was drawn";
  const ForwardResult streams = session->forward({.rows = rows, .residual_layers = layers});
  EXPECT_THROW(engine::slice(streams, 0, 1), base::InternalError);
}

}  // namespace
}  // namespace evalrun::tests::merged_request_test
