// SPACE, BiTA, gated adapters and PaSS: the rows of a step against the papers' definitions, drafts
// that know the text by heart, and what must be refused.
#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <set>

#include "engine/base/error.h"
#include "engine/model/low_rank.h"
#include "methods/masks/mask_plan.h"
#include "methods/masks/tuned_target.h"
#include "tests/methods/support/adapters.h"
#include "tests/methods/support/corpora.h"
#include "tests/methods/support/harness.h"
#include "tests/methods/support/known_masks.h"

namespace evalrun::tests::mask_rows_test {
namespace {

using known_masks::kIds;
using known_masks::knowing;
using known_masks::linear_costs;
using known_masks::mask_adapter;
using known_masks::watch;
using known_masks::Watched;
using known_masks::written;

struct MaskOracle {
  const char* name;
  const char* method;
  const char* parameters;
  int masks;
  bool distinct;
  int depth, rows;  // of a step that has drafts
};

void PrintTo(const MaskOracle& o, std::ostream* out) { *out << o.name; }
class MaskAlignment : public testing::TestWithParam<MaskOracle> {};

TEST_P(MaskAlignment, EveryDraftIsAcceptedWholeAndNoneWhenItIsOneOff) {
  const MaskOracle& o = GetParam();
  for (const int off : {0, 1, kIds - 1}) {
    const std::string path = mask_adapter(o.method, o.masks, o.distinct);
    const std::string spec =
        fmt::format("{}:adapter={},dtype=f32,{}", o.method, path, o.parameters);
    const int max_new = 2 + 6 * (o.depth + 1);
    EXPECT_EQ(build_method(spec, small_model(1, kIds))->largest_step().rows, o.rows);
    const Watched seen = watch(spec, knowing(o.distinct, off), max_new);
    for (size_t i = 0; i < seen.turn.tokens.size(); ++i)
      ASSERT_EQ(seen.turn.tokens[i], (6 + static_cast<int>(i)) % kIds);
    ASSERT_FALSE(seen.turn.steps.empty());
    EXPECT_EQ(seen.turn.steps[0].drafted, 0) << "no mask has been seen yet";
    for (size_t i = 1; i < seen.turn.steps.size(); ++i) {
      const results::StepRecord& step = seen.turn.steps[i];
      if (off != 0) {
        // Second choices are ties; the first of a chain is wrong.
        if (step.drafted == step.drafted_depth) {
          EXPECT_EQ(step.accepted, 0) << off;
        }
        continue;
      }
      EXPECT_EQ(step.accepted, step.drafted_depth);
      if (i + 2 < seen.turn.steps.size()) {
        EXPECT_EQ(step.drafted_depth, o.depth);
        EXPECT_EQ(step.rows, o.rows);
      }
    }
    if (off == 0) {
      EXPECT_EQ(seen.turn.steps.size(), 7u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Methods, MaskAlignment,
    testing::Values(MaskOracle{"space_1", "space", "k=1", 1, true, 1, 4},
                    MaskOracle{"space_2", "space", "k=2", 2, false, 2, 9},
                    MaskOracle{"space_5", "space", "k=5", 5, false, 5, 36},
                    MaskOracle{"space_5_of_8", "space", "k=5", 8, true, 5, 36},
                    MaskOracle{"space_8", "space", "k=8,draft=best", 8, false, 8, 81},
                    MaskOracle{"bita_efficient", "bita", "tree=efficient:5", 3, true, 3, 64},
                    MaskOracle{"bita_triangle", "bita", "tree=upper-triangle:5", 3, true, 3, 52},
                    MaskOracle{"bita_full", "bita", "tree=full:2", 3, true, 3, 60},
                    MaskOracle{"bita_chain", "bita", "tree=full:1", 3, true, 3, 16},
                    MaskOracle{"bita_4", "bita", "tree=efficient:5", 4, true, 4, 105},
                    MaskOracle{"pass_4", "pass", "calls=one", 4, true, 4, 25},
                    MaskOracle{"pass_2_of_4", "pass", "calls=one,look_ahead=2", 4, true, 2, 9}),
    [](const auto& oracle) { return std::string(oracle.param.name); });

// With one group, masks before the stop are void, and a whole match leaves none: the paper's
// figure has drafts of 3 and of none in turn.
TEST(Straightforward, DraftsWithWhatIsLeftOfOneGroup) {
  const std::string path = mask_adapter("bita", 3, true);
  const Watched seen = watch(fmt::format("bita:adapter={},dtype=f32,tree=straightforward", path),
                             knowing(true, 0), 26);
  ASSERT_GE(seen.turn.steps.size(), 6u);
  for (size_t i = 0; i + 2 < 6; ++i) {
    EXPECT_EQ(seen.turn.steps[i].drafted, i % 2 == 0 ? 0 : 3) << i;
    EXPECT_EQ(seen.turn.steps[i].accepted, i % 2 == 0 ? 0 : 3) << i;
  }
  // Stopping after one of three: the third mask alone is of use.
  int call = 0;
  const Watched partly = watch(
      fmt::format("bita:adapter={},dtype=f32,tree=straightforward", path),
      [&call](std::span<const int32_t> context, int place, int, std::span<float> state) {
        const int wrong = place == 2 ? 5 : 0;  // the second mask is always wrong
        state[static_cast<size_t>((context.back() + place + 1 + wrong) % kIds)] = 1;
        ++call;
      },
      26);
  EXPECT_EQ(partly.turn.steps[1].drafted, 3);
  EXPECT_EQ(partly.turn.steps[1].accepted, 1);
  EXPECT_EQ(partly.turn.steps[2].drafted, 2) << "masks 2 and 3 go on after the accepted token";
}

// SPACE, rows in the paper's order: node g at g (k + 1), its masks after it.
struct Visibility {
  std::map<int, std::set<int>> sees;  // by the paper's row number, itself included
  int n = 0;
};

Visibility corrected(int k) {
  Visibility v;
  v.n = (k + 1) * (k + 1);
  for (int g = 0; g <= k; ++g)
    for (int j = 0; j <= k; ++j) {
      const int row = g * (k + 1) + j;
      for (int node = 0; node <= g; ++node) v.sees[row].insert(node * (k + 1));
      for (int mask = 1; mask <= j; ++mask) v.sees[row].insert(g * (k + 1) + mask);
    }
  return v;
}

// Equation 6 as printed: earlier rows that are no masks, and masks fewer than k rows away.
Visibility equation_6(int k) {
  Visibility v;
  v.n = (k + 1) * (k + 1);
  const auto is_mask = [k](int row) { return row % (k + 1) != 0; };
  for (int i = 0; i < v.n; ++i)
    for (int j = 0; j <= i; ++j)
      if (!is_mask(j) || (is_mask(i) && i - j < k)) v.sees[i].insert(j);
  return v;
}

TEST(SpaceMask, IsTheCorrectedDefinitionAndNotEquation6) {
  const std::map<int, int> wrong_pairs = {{1, 0},  {2, 0},  {3, 3},   {4, 12},
                                          {5, 30}, {6, 60}, {7, 105}, {8, 168}};
  for (int k = 1; k <= 8; ++k) {
    const std::string path = mask_adapter("space", k, false);
    const Watched seen = watch(fmt::format("space:adapter={},dtype=f32,k={}", path, k),
                               knowing(false, 0), 3 * (k + 1) + 2);
    ASSERT_GE(seen.steps.size(), 3u);
    const std::vector<engine::Row>& rows = seen.steps[1].rows;
    ASSERT_EQ(rows.size(), static_cast<size_t>((k + 1) * (k + 1)));
    // Ours stand nodes first: the paper's number of each row, from what the row is.
    std::vector<int> paper(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto parent = static_cast<size_t>(std::max(rows[i].parent, 0));
      if (rows[i].parent < 0)
        paper[i] = 0;
      else
        paper[i] = paper[parent] + (rows[i].embedding < 0 ? k + 1 : 1);
      EXPECT_EQ(rows[i].position, -1) << "the context and what it sees: C + depth";
    }
    Visibility ours;
    for (size_t i = 0; i < rows.size(); ++i)
      for (int up = static_cast<int>(i); up >= 0; up = rows[static_cast<size_t>(up)].parent)
        ours.sees[paper[i]].insert(paper[static_cast<size_t>(up)]);
    EXPECT_EQ(ours.sees, corrected(k).sees) << "k = " << k;
    int wrong = 0;
    const Visibility printed = equation_6(k), right = corrected(k);
    for (const auto& [row, seen_rows] : printed.sees)
      for (const int other : seen_rows) wrong += !right.sees.at(row).contains(other);
    EXPECT_EQ(wrong, wrong_pairs.at(k)) << "k = " << k;
  }
}

TEST(BitaTree, HasTheRowsOfThePaper) {
  const auto rows = [](const std::string& tree, int n) {
    methods::MaskPlan plan;
    plan.tree = *methods::bita_tree("test", tree, n);
    plan.masks = n;
    plan.groups.resize(static_cast<size_t>(plan.tree.size()) + 1);
    return plan.rows();
  };
  EXPECT_EQ(rows("efficient:1", 3), 16);
  EXPECT_EQ(rows("efficient:2", 3), 28);
  EXPECT_EQ(rows("efficient:3", 3), 40);
  EXPECT_EQ(rows("efficient:4", 3), 52);
  EXPECT_EQ(rows("efficient:5", 3), 64);
  EXPECT_EQ(rows("efficient:5", 4), 105);
  EXPECT_EQ(rows("upper-triangle:3", 3), 28);
  EXPECT_EQ(rows("upper-triangle:4", 3), 40);
  EXPECT_EQ(rows("upper-triangle:5", 3), 52);
  EXPECT_EQ(rows("upper-triangle:5", 4), 75);
  EXPECT_EQ(rows("full:1", 3), 16);
  EXPECT_EQ(rows("full:2", 3), 60);
  EXPECT_EQ(rows("full:3", 3), 160);
  EXPECT_EQ(rows("full:4", 3), 340);
  EXPECT_EQ(rows("full:5", 3), 624);
  EXPECT_EQ(rows("full:5", 4), 3905);
}

methods::MaskOptions plan_options(const std::string& spec) {
  return methods::mask_plan_parameters().of(methods::parse_method(spec).params);
}

// Free rows: everything. Expensive ones: a short chain with few groups, and one more step for the
// rest.
TEST(MaskPlan, FollowsWhatRowsCost) {
  AdapterFile file = random_adapter("bita", *small_model(1, kIds), 3);
  file.metadata["tree"] =
      R"({"paths": ["0", "00", "1", "2", "01"], "gain": [0.5, 0.2, 0.1, 0.05, 0.04]})";
  const auto adapter = methods::Adapter::open(written("plan", file));
  methods::MethodBuildContext context;
  context.target = small_model(1, kIds);
  const auto plan_at = [&](double per_row, const std::string& spec) {
    const engine::RowCostTable costs = linear_costs(per_row);
    context.row_cost = &costs;
    return methods::choose_mask_plan("bita", plan_options(spec), adapter.get(), context, 3, 0.0,
                                     "chain:1");
  };
  const methods::MaskPlan free = plan_at(1e-9, "bita");
  EXPECT_EQ(free.tree.size(), 5);
  EXPECT_EQ(free.groups.size(), 6u);
  const methods::MaskPlan dear = plan_at(0.15, "bita");
  EXPECT_LT(dear.tree.size(), 3);
  EXPECT_LT(dear.groups.size(), 3u);
  EXPECT_EQ(dear.groups[0], 0) << "the likeliest stop first";
  EXPECT_EQ(dear.masks, dear.tree.depth());
  const methods::MaskPlan all = plan_at(0.15, "bita:groups=all,tree=stored:3");
  EXPECT_EQ(all.rows(), 1 + 3 + 2 * 4);
  const methods::MaskPlan two = plan_at(1e-9, "bita:groups=2,tree=stored:3");
  EXPECT_EQ(two.groups, (std::vector<int>{0, 1})) << "stops: .4 at the root, .3 at '0'";
  const methods::MaskPlan short_masks = plan_at(1e-9, "bita:masks=1");
  EXPECT_EQ(short_masks.tree.depth(), 1);
}

TEST(MaskMethods, RefuseWhatDoesNotFit) {
  const auto model = small_model(1, kIds);
  const auto build = [&](const std::string& spec) { return build_method(spec, model); };
  const std::string five = mask_adapter("space", 5, false);
  EXPECT_MESSAGE(build("space:adapter=" + five + ",k=6"), "trained with 5 masks");
  EXPECT_MESSAGE(build("bita:adapter=@bita,masks=4"), "trained with 3");
  EXPECT_MESSAGE(build("bita:adapter=@bita,tree=chain:4"), "4 levels");
  EXPECT_MESSAGE(build("bita:adapter=@bita,tree=full:40"), "more than 1023 nodes");
  EXPECT_MESSAGE(build("bita:adapter=@bita,tree=efficient"), "lacks its number");
  EXPECT_MESSAGE(build("bita:adapter=@bita,tree=full:8,groups=all"), "rows a step");
  EXPECT_MESSAGE(build("bita:adapter=@bita,groups=some"), "groups=some");
  EXPECT_MESSAGE(build("bita:adapter=" + five), "holds weights for space");
  EXPECT_MESSAGE(build("space:adapter=" + five + ",k=2,tree=chain:2"), "two ways");
  EXPECT_MESSAGE(build("space:adapter=" + five + ",draft=best,sampling=as_published"), "drawn");
  EXPECT_MESSAGE(build("space:adapter=" + five + ",draft=best,accept_scale=0.5"), "drawn");
  AdapterFile heads = random_adapter("bita", *model, 1);
  for (auto& [name, tensor] : heads.tensors)
    if (name.starts_with("banks.")) {
      tensor.shape[1] = 24;
      tensor.values.resize(5 * 24);
    }
  EXPECT_MESSAGE(build("bita:adapter=" + written("heads", heads)), "2 key/value heads and 4 query");
  AdapterFile count = random_adapter("bita", *model, 1);
  count.metadata["config"] = R"({"masks": 2})";
  EXPECT_MESSAGE(build("bita:adapter=" + written("count", count)), "3 embeddings");
  AdapterFile missing = random_adapter("gated_lora", *model, 1);
  missing.tensors.erase("lora.1.up.b");
  EXPECT_MESSAGE(build("gated_lora:adapter=" + written("missing", missing)), "lora.1.up.b");
}

// linfeng93/BiTA: one matrix [P, layer, key or value, head, head_dim].
TEST(MaskMethods, PublishedBitaWeightsDraftAsOursDo) {
  const auto model = small_model(1, kIds);
  const engine::ModelConfig& c = model->config();
  const AdapterFile ours = random_adapter("bita_heads", *model, 5);
  const int width = c.n_heads * c.head_dim, length = 5;
  AdapterFile published;
  published.tensors["model.mask_tokens.weight"] = ours.tensors.at("mask_embed");
  std::vector<float> all;
  for (int p = 0; p < length; ++p)
    for (int l = 0; l < c.n_layers; ++l)
      for (const char* part : {"k", "v"}) {
        const auto& values = ours.tensors.at(fmt::format("banks.{}.{}", l, part)).values;
        all.insert(all.end(), values.begin() + p * width, values.begin() + (p + 1) * width);
      }
  published.matrix("model.prefix_encoder.embedding.weight", length, 2 * c.n_layers * width, all);
  AdapterFile same = ours;
  same.ids.clear();  // published weights draft all tokens
  Turn turn{{1, 2, 3, 4}, 0, 40};
  std::vector<results::TurnRecord> records;
  for (const std::string& path : {written("own", same), written("published", published)}) {
    const auto session = make_session(model);
    records.push_back(
        run(*build_method("bita:tree=efficient:2,adapter=" + path, model), *session, turn));
  }
  ASSERT_EQ(records[0].steps.size(), records[1].steps.size());
  for (size_t i = 0; i < records[0].steps.size(); ++i)
    EXPECT_EQ(records[0].steps[i].accepted, records[1].steps[i].accepted);
}

methods::MethodBuildContext context_of(const std::shared_ptr<const engine::Model>& model) {
  methods::MethodBuildContext context;
  context.target = model;
  context.session = session_options();
  return context;
}

TEST(TunedTarget, IsMergedOnceAndDecodedByItsMethods) {
  const auto model = small_model(1, kIds);
  const std::string path = random_adapter_path("space_tuned", *model);
  const auto context = context_of(model);
  const auto plain = methods::parse_method("ar_tuned:adapter=" + path);
  const auto space = methods::parse_method("space:adapter=" + path);
  const auto tuned = methods::decoded_model(plain, context);
  EXPECT_EQ(tuned, methods::decoded_model(space, context)) << "one copy of the weights";
  EXPECT_EQ(tuned, methods::decoded_model(methods::parse_method(space.info->plain(space.params)),
                                          context));
  EXPECT_NE(tuned, model);
  EXPECT_NE(tuned->config().name, model->config().name);
  EXPECT_NE(tuned->hash(), model->hash());
  EXPECT_EQ(methods::decoded_model(methods::parse_method("ar"), context), model);
  // Tuned, and every method of it says the same; the original says something else.
  base::Rng rng(3);
  int differing = 0;
  for (int i = 0; i < 8; ++i) {
    Turn turn{random_tokens(rng, 6, kIds), 0, 40};
    const auto session = make_session(tuned), original = make_session(model);
    const auto want = run(*plain.info->build(plain.params, context), *session, turn);
    for (const char* more : {"", ",tree=efficient:3", ",k=2,draft=best"}) {
      const auto spec = methods::parse_method("space:adapter=" + path + more);
      EXPECT_EQ(run(*spec.info->build(spec.params, context), *session, turn).tokens, want.tokens);
    }
    differing += run(*build_method("ar", model), *original, turn).tokens != want.tokens;
  }
  EXPECT_GT(differing, 4);
}

TEST(TunedTarget, AMaskInTheVocabularyIsNeverProduced) {
  const auto model = small_model(1, kIds);
  const auto context = context_of(model);
  const int mask = kIds - 3;
  const auto spec = methods::parse_method(fmt::format("space:mask_id={},k=2", mask));
  const auto cut = methods::decoded_model(spec, context);
  EXPECT_EQ(cut->config().n_logits(), mask);
  const auto plain = methods::parse_method(spec.info->plain(spec.params));
  EXPECT_EQ(methods::decoded_model(plain, context), cut);
  base::Rng rng(5);
  bool original_says_it = false;
  for (int i = 0; i < 20; ++i) {
    Turn turn{random_tokens(rng, 5, mask), 0, 30};
    const auto session = make_session(cut), whole = make_session(model);
    const auto got = run(*spec.info->build(spec.params, context), *session, turn);
    EXPECT_EQ(got.tokens, run(*plain.info->build(plain.params, context), *session, turn).tokens);
    for (const int32_t token : got.tokens) EXPECT_LT(token, mask);
    for (const int32_t token : run(*build_method("ar", model), *whole, turn).tokens)
      original_says_it |= token >= mask;
  }
  EXPECT_TRUE(original_says_it) << "the test would show nothing";
  const auto outside = methods::parse_method(fmt::format("space:mask_id={}", kIds));
  EXPECT_MESSAGE(methods::decoded_model(outside, context), "has 32 ids");
}

}  // namespace
}  // namespace evalrun::tests::mask_rows_test
