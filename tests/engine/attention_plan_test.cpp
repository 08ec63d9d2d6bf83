// How attention is divided into blocks and units, and what rows see of each other.
#include "engine/cpu/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tests/engine/attention_cases.h"

namespace evalrun::engine::testing {
namespace {

using cpu::AttentionPlan;
using cpu::kChunk;

TEST(AttentionPlans, UnitsAreEveryBlockHeadAndChunkOnce) {
  for (const int n : {1, 7, 8, 9, 30, 64, 256})
    for (const int threads : {1, 2, 16})
      for (const int context : {0, 100, 700}) {
        ForwardPlan forward;
        const std::vector<int32_t> tokens(static_cast<size_t>(n), 1);
        const PrefillPart part{tokens, 0, context};
        forward.build_prefill({&part, 1}, false, false);
        AttentionPlan plan;
        plan.build(forward, 3, 2, threads);
        int next = 0;
        for (const AttentionPlan::Block& b : plan.blocks()) {
          EXPECT_EQ(b.first, next);
          EXPECT_LE((b.end - b.first) * 3, AttentionPlan::kBlockQueries);
          EXPECT_EQ(b.shared, b.first + 1) << "a chain's rows share what the first one sees";
          next = b.end;
        }
        EXPECT_EQ(next, n);
        std::map<std::tuple<int, int, int>, int> times;
        for (int u = 0; u < plan.units(); ++u) {
          const AttentionPlan::Unit unit = plan.unit(u);
          EXPECT_LE(unit.end - unit.first, AttentionPlan::kMostBlocks);
          for (int b = unit.first; b < unit.end; ++b) ++times[{b, unit.kv_head, unit.chunk}];
        }
        const int chunks = plan.split() ? plan.n_chunks() : 1;
        EXPECT_EQ(times.size(), plan.blocks().size() * 2 * static_cast<size_t>(chunks));
        for (const auto& [what, count] : times) {
          EXPECT_EQ(count, 1);
          EXPECT_EQ(std::get<2>(what) == -1, !plan.split());
        }
      }
}

// Blocks of two sequences are never in one unit.
TEST(AttentionPlans, UnitsAreOfOneSequence) {
  ForwardPlan forward;
  attention_cases(300)[4].build(forward, kAttentionRows, PrefixBank());
  AttentionPlan plan;
  plan.build(forward, 3, 2, 1);
  for (int u = 0; u < plan.units(); ++u) {
    const AttentionPlan::Unit unit = plan.unit(u);
    for (int b = unit.first; b < unit.end; ++b)
      EXPECT_EQ(plan.blocks()[static_cast<size_t>(b)].sequence,
                plan.blocks()[static_cast<size_t>(unit.first)].sequence);
  }
}

TEST(AttentionPlans, RunsAreWhatEachQuerySees) {
  for (const int context : {0, 5, 100, 127, 128})
    for (const AttentionCase& c : attention_cases(context)) {
      ForwardPlan forward;
      c.build(forward, c.new_rows(), PrefixBank());
      AttentionPlan plan;
      plan.build(forward, 3, 2, 2);
      // [row]: what was told of it, by logical position.
      std::vector<std::map<int, int>> told(static_cast<size_t>(c.new_rows()));
      for (const AttentionPlan::Block& b : plan.blocks()) {
        int end = 0;
        for (int i = b.first; i < b.end; ++i) {
          const PlanRow& r = forward.rows()[static_cast<size_t>(i)];
          end = std::max(end, r.context + r.visible_count);
        }
        const int from = forward.rows()[static_cast<size_t>(b.first)].context;
        for (int base = from / kChunk * kChunk; base < end; base += kChunk) {
          const AttentionPlan::RowRange range = plan.rows_seen(b, base / kChunk);
          plan.for_rows_seen(
              b, base, base, [&](int query, int queries, int position, int row, int n) {
                EXPECT_GE(row, range.oldest);
                EXPECT_LE(row + n - 1, range.newest);
                EXPECT_EQ(query % 3 + queries % 3, 0) << "whole rows";
                for (int i = query / 3; i < (query + queries) / 3; ++i)
                  for (int j = 0; j < n; ++j) {
                    auto& seen = told[static_cast<size_t>(b.first + i)];
                    EXPECT_TRUE(seen.empty() || seen.rbegin()->first == position + j - 1);
                    seen[position + j] = row + j;
                  }
              });
        }
      }
      for (int i = 0; i < c.new_rows(); ++i) {
        const PlanRow& r = forward.rows()[static_cast<size_t>(i)];
        std::map<int, int> want;
        for (int j = 0; j < r.visible_count; ++j)
          want[r.context + j] = forward.visible(r)[static_cast<size_t>(j)];
        EXPECT_EQ(told[static_cast<size_t>(i)], want) << c.name << ", row " << i;
      }
    }
}

}  // namespace
}  // namespace evalrun::engine::testing
