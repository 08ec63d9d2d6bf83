// What a forward tells the GPU: every key a row sees is in exactly one of its chunks.
#include "engine/cuda/kernels/step_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/engine/random_models.h"

namespace evalrun::engine::cuda::testing {
namespace {

using engine::testing::random_tree;
using engine::testing::small_config;

// (row, head of the group, slot) -> kinds; walks the lists as the kernels do.
std::map<std::tuple<int, int, int>, int> pieces(const StepRecord& r,
                                                std::span<const AttentionItem> items, int group) {
  std::map<std::tuple<int, int, int>, int> seen;
  for (const AttentionItem& item : items)
    for (int i = 0; i < item.queries; ++i) {
      const int q = item.q0 + i, row = item.row + q / group;
      EXPECT_LT(row, r.header().rows);
      const bool inserted = seen.insert({{row, q % group, item.slot}, item.kind}).second;
      EXPECT_TRUE(inserted) << "row " << row << " meets slot " << item.slot << " twice";
      EXPECT_LT(item.slot, r.shape().slots);
    }
  return seen;
}

// What an item says of keys is what its rows say.
void check_keys(const StepRecord& r, const StepOptions& o, bool windowed) {
  for (const AttentionItem& item : windowed ? r.items_windowed() : r.items()) {
    ASSERT_GT(item.queries, 0);
    if (item.kind == AttentionItem::kPrefix) {
      ASSERT_EQ(item.first, 0);
      ASSERT_EQ(item.limit, o.prefix_length);
      ASSERT_EQ(item.length, o.prefix_length);
      continue;
    }
    const int rows = (item.q0 + item.queries - 1) / o.group + 1;
    for (int i = item.q0 / o.group; i < rows; ++i) {
      const StepRow& row = r.rows()[static_cast<size_t>(item.row + i)];
      const int first = windowed ? row.first_windowed : row.first;
      ASSERT_EQ(item.sequence, row.sequence);
      ASSERT_LE(item.first, first);
      ASSERT_GE(item.length, std::min(row.length, (item.chunk + 1) * kChunk));
      if (item.kind == AttentionItem::kShared) continue;
      ASSERT_EQ(item.first, first);
      ASSERT_EQ(item.limit, row.cached);
      ASSERT_EQ(item.length, row.length);
      ASSERT_EQ(item.visible, row.visible);
    }
    if (item.kind == AttentionItem::kShared) {
      ASSERT_EQ(item.length, item.limit);
    }
  }
}

void check_covered(const StepRecord& r, const StepOptions& o, bool windowed) {
  check_keys(r, o, windowed);
  const auto seen = pieces(r, windowed ? r.items_windowed() : r.items(), o.group);
  const int prefix_chunks = (o.prefix_length + kChunk - 1) / kChunk;
  for (int i = 0; i < r.header().rows; ++i) {
    const StepRow& row = r.rows()[static_cast<size_t>(i)];
    const int first = windowed ? row.first_windowed : row.first;
    for (int h = 0; h < o.group; ++h) {
      for (int c = first / kChunk; c <= (row.length - 1) / kChunk; ++c) {
        const auto it = seen.find({i, h, prefix_chunks + c});
        ASSERT_NE(it, seen.end()) << "row " << i << " chunk " << c;
        // A chunk shared with other rows holds nothing but what is in the cache.
        if (it->second == AttentionItem::kShared) {
          ASSERT_LE(std::min(row.length, (c + 1) * kChunk), row.cached);
        }
      }
      for (int c = 0; c < (row.prefix ? prefix_chunks : 0); ++c)
        ASSERT_TRUE(seen.contains({i, h, c})) << "row " << i << " prefix chunk " << c;
    }
  }
}

TEST(StepRecord, TreesSeeEveryKeyOnceAtAnyContext) {
  ModelConfig config = small_config();
  for (const int group : {1, 2, 4, 5, 32})
    for (const int context : {0, 1, 100, 127, 128, 129, 1000})
      for (const int n : {1, 2, 13, 64, 300}) {
        auto tree = random_tree(n, config.vocab_size, static_cast<uint64_t>(n), n % 3);
        for (int i = 0; i < n; i += 3) tree[static_cast<size_t>(i)].prefix = true;
        PrefixBank bank;
        bank.length = 130;
        const int lengths[] = {context};
        ForwardPlan plan;
        plan.build({.rows = tree, .prefix = &bank}, lengths, 4096, config);
        for (const int window : {0, 16, 200}) {
          const StepOptions o{.group = group, .sliding_window = window, .prefix_length = 130};
          StepRecord record;
          record.build(plan, {.rows = tree}, o);
          check_covered(record, o, false);
          if (window > 0) check_covered(record, o, true);
        }
      }
}

TEST(StepRecord, PrefillRowsFindEverythingInTheCache) {
  const std::vector<int32_t> tokens(200, 1);
  ForwardPlan plan;
  const PrefillPart part{tokens, 0, 90};
  plan.build_prefill({&part, 1}, false, true);
  const StepOptions o{.group = 3, .sliding_window = 50};
  StepRecord record;
  record.build(plan, {}, o);
  EXPECT_TRUE(record.shape().direct);
  for (const AttentionItem& item : record.items()) EXPECT_EQ(item.kind, AttentionItem::kShared);
  check_covered(record, o, false);
  check_covered(record, o, true);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(record.rows()[static_cast<size_t>(i)].length, 90 + i + 1);
}

TEST(StepRecord, SequencesShareNoTile) {
  ModelConfig config = small_config();
  std::vector<Row> rows(40);
  for (int i = 0; i < 40; ++i) rows[static_cast<size_t>(i)] = {.token = i, .sequence = i / 7 % 2};
  const int lengths[] = {300, 500};
  ForwardPlan plan;
  plan.build({.rows = rows}, lengths, 4096, config);
  const StepOptions o{.group = 2};
  StepRecord record;
  record.build(plan, {.rows = rows}, o);
  check_covered(record, o, false);
  for (const AttentionItem& item : record.items()) {
    std::set<int> sequences;
    for (int q = item.q0; q < item.q0 + item.queries; ++q)
      sequences.insert(record.rows()[static_cast<size_t>(item.row + q / 2)].sequence);
    EXPECT_EQ(sequences.size(), 1u);
  }
}

// A graph serves every step of one shape: one more token must not make another.
TEST(StepRecord, ShapesChangeSeldomAsTheContextGrows) {
  ModelConfig config = small_config();
  const Row row{.token = 1};
  std::set<std::tuple<int, int, int>> shapes;
  for (int context = 0; context < 4000; ++context) {
    const int lengths[] = {context};
    ForwardPlan plan;
    plan.build({.rows = {&row, 1}}, lengths, 4096, config);
    StepRecord record;
    record.build(plan, {.rows = {&row, 1}}, {.group = 3});
    shapes.insert({record.shape().items, record.shape().slots, record.shape().visible});
  }
  EXPECT_LE(shapes.size(), 4u);
}

TEST(StepRecord, TheBlockHoldsWhatTheLayoutSays) {
  ModelConfig config = small_config();
  const auto tree = random_tree(9, config.vocab_size, 1, 2);
  const int lengths[] = {140};
  ForwardPlan plan;
  plan.build({.rows = tree}, lengths, 512, config);
  StepRecord record;
  record.build(plan, {.rows = tree}, {.group = 2});
  const StepLayout l = layout_of(record.shape());
  std::vector<unsigned char> block(l.bytes + 16, 0xAB);
  record.write(plan, block.data());
  const auto* header = reinterpret_cast<const StepHeader*>(block.data() + l.header);
  EXPECT_EQ(header->rows, 9);
  EXPECT_EQ(header->n_items, static_cast<int>(record.items().size()));
  // Kernels know the list's end by items without queries.
  const auto* items = reinterpret_cast<const AttentionItem*>(block.data() + l.items);
  ASSERT_GT(record.shape().items, header->n_items);
  for (int i = 0; i < record.shape().items; ++i)
    EXPECT_EQ(items[i].queries > 0, i < header->n_items) << i;
  const auto* visible = reinterpret_cast<const int32_t*>(block.data() + l.visible);
  for (int i = 0; i < 9; ++i) {
    const StepRow& r = record.rows()[static_cast<size_t>(i)];
    const auto want = plan.visible(plan.rows()[static_cast<size_t>(i)]);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), visible + r.visible));
  }
  for (size_t i = l.bytes; i < block.size(); ++i)
    EXPECT_EQ(block[i], 0xAB) << "written past the end";
}

}  // namespace
}  // namespace evalrun::engine::cuda::testing
