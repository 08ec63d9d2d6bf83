// PaSS: the two forwards of its Algorithm 1, the choice between one forward a draft and two, and
// weights that are not its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "methods/draft_choice.h"
#include "methods/masks/mask_plan.h"
#include "tests/methods/support/known_masks.h"

namespace evalrun::tests::pass_test {
namespace {

using known_masks::kIds;
using known_masks::knowing;
using known_masks::linear_costs;
using known_masks::mask_adapter;
using known_masks::watch;
using known_masks::Watched;
using known_masks::written;
using methods::DraftCalls;
using methods::MaskPlan;

std::string two_calls(int look_ahead) {
  return fmt::format("pass:adapter={},dtype=f32,calls=two,look_ahead={}",
                     mask_adapter("pass", 4, true), look_ahead);
}

// The first forward of a pair has the root and the look-ahead rows, the second one the root and the
// drafts. A chain that is all right gives 2 + L tokens a pair.
TEST(Pass, DraftsInOneForwardAndVerifiesInTheNext) {
  for (const int look_ahead : {1, 3, 4}) {
    SCOPED_TRACE(look_ahead);
    const int pairs = 5;
    const Watched seen =
        watch(two_calls(look_ahead), knowing(true, 0), 1 + pairs * (2 + look_ahead));
    for (size_t i = 0; i < seen.turn.tokens.size(); ++i)
      ASSERT_EQ(seen.turn.tokens[i], (6 + static_cast<int>(i)) % kIds);
    ASSERT_EQ(seen.turn.steps.size(), static_cast<size_t>(2 * pairs));
    for (size_t i = 0; i < seen.turn.steps.size(); ++i) {
      SCOPED_TRACE(i);
      const bool verifies = i % 2 == 1;
      const results::StepRecord& step = seen.turn.steps[i];
      EXPECT_EQ(step.drafted, verifies ? look_ahead : 0);
      EXPECT_EQ(step.accepted, verifies ? look_ahead : 0);
      EXPECT_EQ(step.target_forwards, 1);
      const std::vector<engine::Row>& rows = seen.steps[i].rows;
      ASSERT_EQ(rows.size(), static_cast<size_t>(1 + look_ahead));
      for (int j = 0; j <= look_ahead; ++j) {
        const engine::Row& row = rows[static_cast<size_t>(j)];
        EXPECT_EQ(row.parent, j - 1) << "each row sees those before it";
        EXPECT_EQ(row.embedding, verifies || j == 0 ? -1 : j - 1);
        EXPECT_FALSE(row.prefix || row.low_rank);
      }
    }
  }
}

// The paper's guarantee: the first forward's own token is never a draft, so that two forwards give
// at least two tokens.
TEST(Pass, NeverGivesLessThanATokenAForward) {
  const Watched seen = watch(two_calls(4), knowing(true, 1), 21);
  for (size_t i = 0; i < seen.turn.tokens.size(); ++i)
    ASSERT_EQ(seen.turn.tokens[i], (6 + static_cast<int>(i)) % kIds);
  ASSERT_EQ(seen.turn.steps.size(), 20u);
  for (size_t i = 0; i < seen.turn.steps.size(); ++i) {
    if (i < 15) {  // then fewer tokens are wanted
      EXPECT_EQ(seen.turn.steps[i].drafted, i % 2 == 1 ? 4 : 0) << i;
    }
    EXPECT_EQ(seen.turn.steps[i].accepted, 0) << i;
  }
}

// A chain that is right up to its second token: 1 of the drafting forward, 2 accepted, 1 bonus.
TEST(Pass, KeepsTheTokensBeforeTheFirstWrongOne) {
  const Watched seen = watch(
      two_calls(4),
      [](std::span<const int32_t> context, int place, int, std::span<float> state) {
        const int wrong = place == 3 ? 5 : 0;
        state[static_cast<size_t>((context.back() + place + 1 + wrong) % kIds)] = 1;
      },
      1 + 4 * 4);
  ASSERT_EQ(seen.turn.steps.size(), 8u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(seen.turn.steps[i].accepted, i % 2 == 1 ? 2 : 0) << i;
}

struct Planned {
  double per_row, mask_cost;
  DraftCalls calls;
  int look_ahead;
};

// Tokens a plain step's time by hand: chances of a chain whose token d is right with gain[d - 1].
// Groups stand after the stops that are likeliest; a stop without one costs a forward of the root
// and the masks, and gives a token.
double tokens_per_time(const std::vector<double>& gain, int nodes, int groups, double mask_cost,
                       const methods::RowPrice& price) {
  double accepted = 0;
  std::vector<double> stop;
  for (int d = 0; d <= nodes; ++d) {
    const double reached = d == 0 ? 1 : gain[static_cast<size_t>(d) - 1];
    stop.push_back(reached - (d == nodes ? 0 : gain[static_cast<size_t>(d)]));
    if (d > 0) accepted += reached;
  }
  std::sort(stop.rbegin(), stop.rend());
  double missed = 1;
  for (int g = 0; g < groups; ++g) missed -= stop[static_cast<size_t>(g)];
  missed = std::max(missed, 0.0);
  const double verify = price(1 + nodes + groups * nodes) + (groups > 0 ? mask_cost : 0);
  return (1 + accepted + missed) / (verify + missed * (price(1 + nodes) + mask_cost));
}

class PassPlan : public testing::Test {
 protected:
  MaskPlan plan(const Planned& c) {
    const engine::RowCostTable costs = linear_costs(c.per_row);
    context_.row_cost = &costs;
    return methods::choose_chain_plan("pass", c.look_ahead, c.calls, *adapter_, context_, 4,
                                      c.mask_cost);
  }
  void store(const std::string& tree) {
    AdapterFile file = random_adapter("pass", *small_model(1, kIds), 3);
    if (!tree.empty()) file.metadata["tree"] = tree;
    adapter_ = methods::Adapter::open(written("pass-plan", file));
  }
  std::shared_ptr<const methods::Adapter> adapter_;
  methods::MethodBuildContext context_;
};

TEST_F(PassPlan, IsTheBestByHandOfAllLengthsAndNumbersOfGroups) {
  const std::vector<double> gain = {0.5, 0.35, 0.1, 0.08};
  store(R"({"paths": ["0", "00", "1", "000", "0000"], "gain": [0.5, 0.35, 0.2, 0.1, 0.08]})");
  std::map<std::pair<size_t, size_t>, int> kinds;
  for (const double per_row : {1e-9, 0.01, 0.03, 0.06, 0.1, 0.3})
    for (const double mask_cost : {0.0, 0.1, 0.3})
      for (const int look_ahead : {0, 2, 4})
        for (const DraftCalls calls : {DraftCalls::kAuto, DraftCalls::kOne, DraftCalls::kTwo}) {
          const Planned c{per_row, mask_cost, calls, look_ahead};
          const MaskPlan got = plan(c);
          const engine::RowCostTable costs = linear_costs(per_row);
          const methods::RowPrice price(&costs);
          double best = 0;
          for (int n = look_ahead == 0 ? 1 : look_ahead; n <= (look_ahead == 0 ? 4 : look_ahead);
               ++n)
            for (int g = calls == DraftCalls::kOne ? n + 1 : 0;
                 g <= (calls == DraftCalls::kTwo ? 0 : n + 1); ++g)
              best = std::max(best, tokens_per_time(gain, n, g, mask_cost, price));
          const int n = got.tree.size(), g = static_cast<int>(got.groups.size());
          EXPECT_NEAR(tokens_per_time(gain, n, g, mask_cost, price), best, 1e-9)
              << per_row << " " << mask_cost << " " << look_ahead << ": " << n << ", " << g;
          EXPECT_EQ(got.tree.depth(), n) << "a chain";
          EXPECT_EQ(got.masks, n);
          if (calls == DraftCalls::kAuto) ++kinds[{got.tree.size(), got.groups.size()}];
        }
  EXPECT_GT(kinds.size(), 3u) << "costs that make no difference";
  EXPECT_GT((kinds[{4, 5}]), 0) << "free rows: all of them";
  bool none = false, some = false;
  for (const auto& [kind, count] : kinds) {
    none |= count > 0 && kind.second == 0;
    some |= count > 0 && kind.second > 0 && kind.second <= kind.first;
  }
  EXPECT_TRUE(none && some) << "two calls, and groups after some of the nodes";
}

TEST_F(PassPlan, IsThePapersWhereNothingIsKnownOfTheChain) {
  for (const char* tree : {"", R"({"paths": ["0", "1", "00"], "gain": [0.5, 0.2, 0.1]})"}) {
    store(tree);
    const MaskPlan both = plan({0.1, 0, DraftCalls::kAuto, 0});
    EXPECT_EQ(both.tree.size(), 4);
    EXPECT_TRUE(both.groups.empty());
    EXPECT_EQ(plan({0.1, 0, DraftCalls::kOne, 0}).groups.size(), 5u);
    EXPECT_EQ(plan({0.1, 0, DraftCalls::kTwo, 3}).tree.size(), 3);
  }
}

// Every kind of plan decodes the same tokens.
TEST(Pass, GivesPlainDecodingsTokensWhateverRowsCost) {
  const auto model = small_model(3, kIds);
  AdapterFile file = random_adapter("pass", *model, 5);
  file.metadata["tree"] =
      R"({"paths": ["0", "00", "000", "0000"], "gain": [0.5, 0.35, 0.1, 0.08]})";
  const auto spec = methods::parse_method("pass:adapter=" + written("pass-costs", file));
  base::Rng rng(4);
  std::set<int> rows;
  for (const double per_row : {1e-9, 0.02, 0.05, 0.08, 0.3}) {
    const engine::RowCostTable costs = linear_costs(per_row);
    methods::MethodBuildContext context;
    context.target = model;
    context.session = session_options();
    context.row_cost = &costs;
    const auto method = spec.info->build(spec.params, context);
    rows.insert(method->largest_step().rows);
    for (int i = 0; i < 3; ++i) {
      const Turn turn{random_tokens(rng, 8, kIds), 0, 40};
      const auto session = make_session(model), plain = make_session(model);
      EXPECT_EQ(run(*method, *session, turn).tokens,
                run(*build_method("ar", model), *plain, turn).tokens);
    }
  }
  EXPECT_GE(rows.size(), 3u) << "one plan for all costs";
}

TEST(Pass, RefusesWeightsThatAreNotItsOwn) {
  const auto model = small_model(1, kIds);
  const auto build = [&](const std::string& spec) { return build_method(spec, model); };
  const auto build_file = [&](const std::string& name, const AdapterFile& file) {
    return build("pass:adapter=" + written("pass-" + name, file));
  };
  const AdapterFile right = random_adapter("pass", *model, 1);
  EXPECT_NE(build_file("right", right), nullptr);
  EXPECT_MESSAGE(build("pass:adapter=@pass,look_ahead=5"), "trained with 4 embeddings");
  EXPECT_MESSAGE(build("pass:adapter=@pass,look_ahead=5"), "--masks 5");
  EXPECT_MESSAGE(build("pass:adapter=@bita"), "holds weights for bita");
  EXPECT_MESSAGE(build("bita:adapter=@pass"), "holds weights for pass");
  for (const char* kind : {"bita", "gated_lora"}) {
    AdapterFile renamed = random_adapter(kind, *model, 1);
    renamed.metadata["method"] = "pass";
    EXPECT_MESSAGE(build_file(kind, renamed), "embeddings alone");
  }
  AdapterFile published = right;
  published.matrix("prefix", 2, 8);
  EXPECT_MESSAGE(build_file("published", published), "tensor prefix");
  AdapterFile count = right;
  count.metadata["config"] = R"({"masks": 3})";
  EXPECT_MESSAGE(build_file("count", count), "4 embeddings, config.masks is 3");
  AdapterFile missing = right;
  missing.tensors.erase("mask_embed");
  EXPECT_MESSAGE(build_file("missing", missing), "tensor mask_embed");
  AdapterFile narrow = right;
  narrow.matrix("mask_embed", 4, kIds - 1);
  EXPECT_MESSAGE(build_file("narrow", narrow), "is [4, 31], expected [4, 32]");
  AdapterFile infinite = right;
  infinite.tensors.at("mask_embed").values[kIds + 3] = std::numeric_limits<float>::infinity();
  EXPECT_MESSAGE(build_file("infinite", infinite), "row 1 is not finite");
  AdapterFile surplus = right;
  surplus.matrix("mask_embeds", 1, kIds);
  EXPECT_MESSAGE(build_file("surplus", surplus), "mask_embeds");
  AdapterFile other = right;
  other.metadata["target_hash"] = std::string(64, 'a');
  EXPECT_MESSAGE(build_file("other", other), "trained for another model");
  const std::string many = mask_adapter("pass", 40, true);
  EXPECT_MESSAGE(build("pass:calls=one,adapter=" + many), "1681 rows a step");
  EXPECT_NE(build("pass:calls=two,adapter=" + many), nullptr);
}

}  // namespace
}  // namespace evalrun::tests::pass_test
