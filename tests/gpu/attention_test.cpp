// Attention's kernels by themselves: where a key lies changes no bit, nor does what a launch looks
// like.
#include "engine/cuda/kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/rng.h"
#include "engine/cuda/kernels/matrix_ref.h"
#include "engine/model/weight_matrix.h"
#include "tests/gpu/device_memory.h"
#include "tests/sample.h"

namespace evalrun::engine::cuda::testing {
namespace {

// What nobody may look at, as bfloat16: not a number.
constexpr uint16_t kUnseen = 0xffff;

// One row of a request, all of whose heads share one key head, and the keys before it.
struct LoneRow {
  int heads, head_dim, length, first;
  int stride = head_stride_for(head_dim);
  std::vector<uint16_t> q = {}, k = {}, v = {};  // [head], [key], [key], each [stride]
};
LoneRow lone_row(int heads, int head_dim, int length, int first) {
  LoneRow r{heads, head_dim, length, first};
  base::Rng rng(static_cast<uint64_t>(head_dim));
  for (std::vector<uint16_t>* lines : {&r.q, &r.k, &r.v}) {
    lines->assign(static_cast<size_t>(r.stride * (lines == &r.q ? heads : length)), 0);
    for (size_t i = 0; i < lines->size(); ++i)
      if (i % static_cast<size_t>(r.stride) < static_cast<size_t>(head_dim))
        (*lines)[i] = float_to_bfloat16(static_cast<float>(2 * rng.uniform() - 1));
  }
  // Segments of which nothing is seen.
  const auto unseen = static_cast<ptrdiff_t>(r.stride * (first / kSegment * kSegment));
  std::fill(r.k.begin(), r.k.begin() + unseen, kUnseen);
  std::fill(r.v.begin(), r.v.begin() + unseen, kUnseen);
  return r;
}

std::vector<double> reference_of(const LoneRow& r) {
  const auto at = [&](const std::vector<uint16_t>& lines, int i, int d) {
    return static_cast<double>(bfloat16_to_float(lines[static_cast<size_t>(i * r.stride + d)]));
  };
  std::vector<double> out;
  for (int h = 0; h < r.heads; ++h) {
    double sum = 0;
    std::vector<double> x(static_cast<size_t>(r.head_dim));
    for (int j = r.first; j < r.length; ++j) {
      double score = 0;
      for (int d = 0; d < r.head_dim; ++d) score += at(r.q, h, d) * at(r.k, j, d);
      const double p = std::exp(score / std::sqrt(r.head_dim));
      sum += p;
      for (int d = 0; d < r.head_dim; ++d) x[static_cast<size_t>(d)] += p * at(r.v, j, d);
    }
    for (const double y : x) out.push_back(y / sum);
  }
  return out;
}

// Its work list: `length` places, the first item at `at`.
std::vector<AttentionItem> items_of(const LoneRow& r, int cached, int visible, int length, int at) {
  std::vector<AttentionItem> list(static_cast<size_t>(length));
  auto next = list.begin() + at;
  for (int c = r.first / kChunk; c <= (r.length - 1) / kChunk; ++c)
    for (int q = 0; q < r.heads; q += kQueries) {
      AttentionItem& item = *next++;
      const bool own = cached < std::min(r.length, (c + 1) * kChunk);
      item.kind = own ? AttentionItem::kOwn : AttentionItem::kShared;
      item.q0 = q, item.queries = std::min(kQueries, r.heads - q);
      item.chunk = item.slot = c;
      item.limit = cached, item.length = own ? r.length : cached;
      item.first = r.first, item.visible = visible;
    }
  return list;
}

// Its output, bit by bit. The first `cached` keys come from the cache, the others are rows of the
// request in no order. All other places of both hold no number.
std::vector<uint16_t> attended(const LoneRow& r, int cached, int list = 64, int at = 0) {
  constexpr int kRows = 256, kVisible = 5;  // the list's place among those of other rows
  const int capacity = padded_to(r.length, kChunk);
  const auto stride = static_cast<size_t>(r.stride);
  std::vector<uint16_t> k(static_cast<size_t>(capacity) * stride, kUnseen), v = k;
  std::vector<uint16_t> k_rows(kRows * stride, kUnseen), v_rows = k_rows;
  std::vector<int32_t> visible(kVisible, -1);
  for (int j = 0; j < r.length; ++j) {
    const int row = (7 * (j - cached) + 3) % kRows;
    if (j >= cached) visible.push_back(row);
    for (size_t d = 0; d < stride; ++d) {
      const size_t from = static_cast<size_t>(j) * stride + d;
      if (j < cached) {
        k[from] = r.k[from];
        v[d * static_cast<size_t>(capacity) + static_cast<size_t>(j)] = r.v[from];
      } else {
        k_rows[static_cast<size_t>(row) * stride + d] = r.k[from];
        v_rows[static_cast<size_t>(row) * stride + d] = r.v[from];
      }
    }
  }
  StepRow row = {};
  row.first_windowed = r.first, row.cached = cached, row.length = r.length, row.visible = kVisible;

  AttentionArguments a;
  const DeviceBuffer rows = on_device(std::vector<StepRow>{row}), q = on_device(r.q),
                     lists = on_device(visible), cache_k = on_device(k), cache_v = on_device(v),
                     step_k = on_device(k_rows), step_v = on_device(v_rows),
                     items = on_device(items_of(r, cached, kVisible, list, at));
  a.rows = rows.as<StepRow>(), a.visible = lists.as<int32_t>();
  a.items = items.as<AttentionItem>(), a.max_items = list;
  a.windowed = true;
  a.cache = {cache_k.as<void>(), cache_v.as<void>(), capacity};
  a.step = {step_k.as<void>(), step_v.as<void>(), kRows};
  a.n_rows = 1, a.heads = r.heads, a.kv_heads = 1;
  a.head_dim = r.head_dim, a.head_stride = r.stride;
  a.slots = rounded_size(capacity / kChunk, 8);
  a.out_stride = padded_to(r.heads * r.head_dim, kBlock);
  const DeviceBuffer partial(partial_floats(1, r.heads, a.slots, r.stride) * sizeof(float)),
      out(static_cast<size_t>(a.out_stride) * sizeof(uint16_t));
  a.q = q.as<void>(), a.partial = partial.as<float>(), a.out = out.as<void>();
  prepare_attention();
  attend_bf16(a, nullptr);
  return to_host<uint16_t>(out, static_cast<size_t>(r.heads * r.head_dim));
}

void expect_right(const LoneRow& r, const std::vector<uint16_t>& got) {
  const std::vector<double> want = reference_of(r);
  ASSERT_EQ(got.size(), want.size());
  // Means of numbers between -1 and 1 are this small; rounding to bfloat16 is a hundredth of it.
  const double mean = 0.5 / std::sqrt(r.length - r.first);
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(bfloat16_to_float(got[i]), want[i], 0.1 * mean) << i;
}

// Every way of a segment's values, at every size of heads: all in the cache, all rows of the
// request, both; one tile of queries, half of one, two. With segments of which no key is seen.
TEST(Attention, WhereKeysLieChangesNoBit) {
  for (const auto& [heads, head_dim] :
       {std::pair{20, 20}, std::pair{3, 64}, std::pair{1, 128}, std::pair{9, 136}})
    for (const int first : {0, 70}) {
      const LoneRow row = lone_row(heads, head_dim, 150, first);
      const std::vector<uint16_t> want = attended(row, row.length);
      expect_right(row, want);
      for (const int cached :
           tests::sample({0, 1, 31, 32, 33, 64, 100, 127, 128, 129, 149}, head_dim > 64 ? 3 : 6))
        EXPECT_EQ(attended(row, cached), want) << heads << " heads of " << head_dim
                                               << ", keys from " << first << ", cached " << cached;
    }
}

// More chunks than a warp has lanes.
TEST(Attention, ChunksAreMergedInBatchesOfAnySize) {
  const LoneRow row = lone_row(2, 32, 34 * kChunk + 5, 0);
  const std::vector<uint16_t> want = attended(row, row.length, 128);
  expect_right(row, want);
  for (const int batch : {1, 7, 1000}) {
    const int usual = std::exchange(merge_batch(), batch);
    EXPECT_EQ(attended(row, row.length, 128), want) << batch;
    merge_batch() = usual;
  }
}

// A grid's y ends at 65,535.
TEST(Attention, ListsMayBeLongerThanAGridIsHigh) {
  const LoneRow row = lone_row(1, 20, 150, 0);
  EXPECT_EQ(attended(row, 100, 65536, 40000), attended(row, 100));
}

}  // namespace
}  // namespace evalrun::engine::cuda::testing
