// Attention's kernels by themselves: where a key lies changes no bit, nor does what a launch looks
// like.
#include "engine/cuda/kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "engine/base/rng.h"
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/kernels/matrix_ref.h"
#include "engine/model/weight_matrix.h"
#include "tests/gpu/device_memory.h"
#include "tests/sample.h"

namespace evalrun::engine::cuda::testing {
namespace {

// What nobody may look at: in bfloat16, and as a scale, not a number.
constexpr unsigned char kUnseen = 0xff;
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

// Keys or values, [key][head_dim], as they are stored.
struct Lines {
  std::vector<float> values;
  std::vector<unsigned char> codes;  // of bytes, and their scales
  std::vector<float> scales;
};
// One row of a request, all of whose heads share one key head, and the keys before it.
struct LoneRow {
  KvType type;
  int heads, head_dim, length, first;
  int stride = head_stride_for(head_dim);
  std::vector<uint16_t> q = {};  // [head][stride]
  Lines k = {}, v = {};
};
Lines random_lines(base::Rng& rng, KvType type, int head_dim, int length) {
  Lines lines;
  const auto hd = static_cast<size_t>(head_dim);
  for (int key = 0; key < length; ++key) {
    std::vector<float> x(hd);
    // Scales that differ from key to key.
    const double size = 0.5 + rng.uniform();
    for (float& value : x) value = static_cast<float>(size * (2 * rng.uniform() - 1));
    if (!in_bytes(type)) {
      for (const float value : x)
        lines.values.push_back(bfloat16_to_float(float_to_bfloat16(value)));
      continue;
    }
    // As one head of one position: codes, then its scale.
    std::vector<unsigned char> head(kv_line_bytes(type, head_dim));
    put_head(head.data(), {type, 0, 1, 0, head_dim, head_dim, false}, x.data());
    lines.codes.insert(lines.codes.end(), head.begin(), head.begin() + head_dim);
    lines.scales.emplace_back();
    std::memcpy(&lines.scales.back(), &head[hd], sizeof(float));
    for (size_t d = 0; d < hd; ++d)
      lines.values.push_back(byte_number(type, head[d]) * lines.scales.back());
  }
  return lines;
}
LoneRow lone_row(KvType type, int heads, int head_dim, int length, int first) {
  LoneRow r{type, heads, head_dim, length, first};
  base::Rng rng(static_cast<uint64_t>(head_dim));
  r.q.assign(static_cast<size_t>(r.stride * heads), 0);
  for (size_t i = 0; i < r.q.size(); ++i)
    if (i % static_cast<size_t>(r.stride) < static_cast<size_t>(head_dim))
      r.q[i] = float_to_bfloat16(static_cast<float>(2 * rng.uniform() - 1));
  for (Lines* lines : {&r.k, &r.v}) {
    *lines = random_lines(rng, type, head_dim, length);
    // Segments of which nothing is seen; of bytes, all that is not seen.
    const int unseen = in_bytes(type) ? first : first / kSegment * kSegment;
    std::fill_n(lines->values.begin(), unseen * head_dim, kNoNumber);
    if (in_bytes(type)) std::fill_n(lines->scales.begin(), unseen, kNoNumber);
  }
  return r;
}

std::vector<double> reference_of(const LoneRow& r) {
  const auto at = [&](const Lines& lines, int i, int d) {
    return static_cast<double>(lines.values[static_cast<size_t>(i * r.head_dim + d)]);
  };
  std::vector<double> out;
  for (int h = 0; h < r.heads; ++h) {
    double sum = 0;
    std::vector<double> x(static_cast<size_t>(r.head_dim));
    for (int j = r.first; j < r.length; ++j) {
      double score = 0;
      for (int d = 0; d < r.head_dim; ++d)
        score +=
            static_cast<double>(bfloat16_to_float(r.q[static_cast<size_t>(h * r.stride + d)])) *
            at(r.k, j, d);
      const double p = std::exp(score / std::sqrt(r.head_dim));
      sum += p;
      for (int d = 0; d < r.head_dim; ++d) x[static_cast<size_t>(d)] += p * at(r.v, j, d);
    }
    for (const double y : x) out.push_back(y / sum);
  }
  return out;
}

// Keys or values of one head as the device has them. Places without a key hold what nobody may look
// at.
class HeadImage {
 public:
  HeadImage(const LoneRow& r, int capacity, bool by_dimension)
      : row_(r),
        capacity_(static_cast<size_t>(capacity)),
        by_dimension_(by_dimension),
        bytes_(capacity_ * kv_line_bytes(r.type, r.stride), kUnseen) {}
  void put(int place, const Lines& lines, int key) {
    const auto hd = static_cast<size_t>(row_.head_dim), stride = static_cast<size_t>(row_.stride);
    const auto p = static_cast<size_t>(place), from = static_cast<size_t>(key) * hd;
    const auto store = [&](size_t at, const auto& value) {
      std::memcpy(&bytes_[at * sizeof value], &value, sizeof value);
    };
    for (size_t d = 0; d < stride; ++d) {
      const size_t at = by_dimension_ ? d * capacity_ + p : p * stride + d;
      if (row_.type == KvType::kBf16)
        store(at, d < hd ? float_to_bfloat16(lines.values[from + d]) : uint16_t{0});
      else if (d < hd)
        store(at, lines.codes[from + d]);
    }
    if (in_bytes(row_.type))
      store(capacity_ * stride / sizeof(float) + p, lines.scales[static_cast<size_t>(key)]);
  }
  DeviceBuffer on_device() const { return testing::on_device(bytes_); }

 private:
  const LoneRow& row_;
  size_t capacity_;
  bool by_dimension_;
  std::vector<unsigned char> bytes_;
};

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
  HeadImage k(r, capacity, false), v(r, capacity, true), k_rows(r, kRows, false),
      v_rows(r, kRows, false);
  std::vector<int32_t> visible(kVisible, -1);
  for (int j = 0; j < r.length; ++j) {
    const int row = (7 * (j - cached) + 3) % kRows;
    if (j >= cached) visible.push_back(row);
    (j < cached ? k : k_rows).put(j < cached ? j : row, r.k, j);
    (j < cached ? v : v_rows).put(j < cached ? j : row, r.v, j);
  }
  StepRow row = {};
  row.first_windowed = r.first, row.cached = cached, row.length = r.length, row.visible = kVisible;

  AttentionArguments a;
  const DeviceBuffer rows = on_device(std::vector<StepRow>{row}), q = on_device(r.q),
                     lists = on_device(visible), cache_k = k.on_device(), cache_v = v.on_device(),
                     step_k = k_rows.on_device(), step_v = v_rows.on_device(),
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
  in_bytes(r.type) ? attend_bytes(a, r.type, nullptr) : attend_bf16(a, nullptr);
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
class Attention : public ::testing::TestWithParam<KvType> {};
TEST_P(Attention, WhereKeysLieChangesNoBit) {
  for (const auto& [heads, head_dim] :
       {std::pair{20, 20}, std::pair{3, 64}, std::pair{1, 128}, std::pair{9, 136}})
    for (const int first : {0, 70}) {
      const LoneRow row = lone_row(GetParam(), heads, head_dim, 150, first);
      const std::vector<uint16_t> want = attended(row, row.length);
      expect_right(row, want);
      for (const int cached :
           tests::sample({0, 1, 31, 32, 33, 64, 100, 127, 128, 129, 149}, head_dim > 64 ? 3 : 6))
        EXPECT_EQ(attended(row, cached), want) << heads << " heads of " << head_dim
                                               << ", keys from " << first << ", cached " << cached;
    }
}
INSTANTIATE_TEST_SUITE_P(Cache, Attention,
                         ::testing::Values(KvType::kBf16, KvType::kInt8, KvType::kFp8),
                         [](const auto& type) {
                           return type.param == KvType::kInt8  ? "int8"
                                  : type.param == KvType::kFp8 ? "fp8"
                                                               : "bf16";
                         });

// More chunks than a warp has lanes.
TEST(AttentionLists, ChunksAreMergedInBatchesOfAnySize) {
  const LoneRow row = lone_row(KvType::kBf16, 2, 32, 34 * kChunk + 5, 0);
  const std::vector<uint16_t> want = attended(row, row.length, 128);
  expect_right(row, want);
  for (const int batch : {1, 7, 1000}) {
    const int usual = std::exchange(merge_batch(), batch);
    EXPECT_EQ(attended(row, row.length, 128), want) << batch;
    merge_batch() = usual;
  }
}

// A grid's y ends at 65,535.
TEST(AttentionLists, MayBeLongerThanAGridIsHigh) {
  const LoneRow row = lone_row(KvType::kBf16, 1, 20, 150, 0);
  EXPECT_EQ(attended(row, 100, 65536, 40000), attended(row, 100));
}

}  // namespace
}  // namespace evalrun::engine::cuda::testing
