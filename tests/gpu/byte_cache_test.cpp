// Keys and values in bytes, int8 and fp8: what the device writes is what the CPU's quantiser says,
// code by code and scale by scale, in the cache, among a request's rows, and after a commit; and
// what it makes of a code is what the CPU makes of it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/base/rng.h"
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/kernels/row_ops.h"
#include "tests/gpu/device_memory.h"

namespace evalrun::engine::cuda::testing {
namespace {

using ByteImage = std::vector<unsigned char>;
using HeadFloats = std::vector<float>;

constexpr int kByteRows = 9, kByteKvHeads = 2, kByteHeads = 4, kByteSequences = 2;

// Heads of numbers as they come, and such as have their own rules.
HeadFloats odd_heads(int n, int head_dim) {
  base::Rng rng(static_cast<uint64_t>(head_dim));
  HeadFloats x;
  for (int h = 0; h < n; ++h) {
    const auto at = x.size();
    const auto size = static_cast<float>(std::pow(10.0, 8 * rng.uniform() - 6));
    for (int d = 0; d < head_dim; ++d)
      x.push_back(size * static_cast<float>(2 * rng.uniform() - 1));
    const auto place = at + static_cast<size_t>(rng.below(static_cast<uint64_t>(head_dim)));
    if (h % 9 == 1) x[place] = std::nanf("");
    if (h % 9 == 2) x[place] = -std::numeric_limits<float>::infinity();
    if (h % 9 == 3) x[place] = 3.4e38f;
    if (h % 9 == 4)
      for (int d = 0; d < head_dim; ++d) x[at + static_cast<size_t>(d)] = d % 2 == 0 ? 0.0f : -0.0f;
    if (h % 9 == 5)  // too small for 127 / largest
      for (int d = 0; d < head_dim; ++d) x[at + static_cast<size_t>(d)] *= 1e-33f / size;
    if (h % 9 == 6)  // halves between two codes
      for (int d = 0; d < head_dim; ++d)
        x[at + static_cast<size_t>(d)] = d == 0 ? -127.0f : static_cast<float>(d % 200) / 2 - 50;
    if (h % 9 == 7) x[place] = 1e-45f;
    if (h % 9 == 8)  // the same of fp8, below its smallest normal number and above
      for (int d = 0; d < head_dim; ++d) {
        const auto value = [&](int code) { return cpu::fp8_value(static_cast<cpu::Fp8>(code)); };
        const float middle = (value(d * 7 % 126) + value(d * 7 % 126 + 1)) / 2;
        x[at + static_cast<size_t>(d)] = d == 0 ? 448.0f : d % 2 == 0 ? -middle : middle;
      }
  }
  return x;
}

// A head's codes, as the device has them, and scale.
struct RoundedHead {
  ByteImage codes;
  float scale;
};
RoundedHead of_cpu(const float* x, int head_dim, KvType type) {
  const auto n = static_cast<size_t>(head_dim);
  RoundedHead h{ByteImage(n), 0};
  if (type == KvType::kFp8) {
    std::vector<cpu::Fp8> codes(n);
    h.scale = cpu::round_to_fp8(x, n, codes.data(), 1);
    for (size_t d = 0; d < n; ++d) h.codes[d] = static_cast<unsigned char>(codes[d]);
    return h;
  }
  std::vector<int8_t> codes(n);
  h.scale = cpu::round_to_bytes(x, n, codes.data(), 1);
  for (size_t d = 0; d < n; ++d) h.codes[d] = static_cast<unsigned char>(codes[d] + 128);
  return h;
}
// The same of an image of the device: head number `head` of so many positions
// (engine/cuda/kernels/key_values.h).
RoundedHead of_device(const ByteImage& all, int head, int capacity, int position, int stride,
                      int head_dim, bool by_dimension) {
  const auto begin = all.begin() + static_cast<ptrdiff_t>(head) * capacity * (stride + 4);
  RoundedHead h{{}, 0};
  for (int d = 0; d < head_dim; ++d)
    h.codes.push_back(begin[by_dimension ? d * capacity + position : position * stride + d]);
  std::memcpy(&h.scale, &begin[capacity * stride + 4 * position], 4);
  return h;
}
::testing::AssertionResult same_head(const RoundedHead& got, const RoundedHead& want) {
  if (std::memcmp(&got.scale, &want.scale, 4) != 0)
    return ::testing::AssertionFailure() << "scale " << got.scale << ", not " << want.scale;
  for (size_t d = 0; d < want.codes.size(); ++d)
    if (got.codes[d] != want.codes[d])
      return ::testing::AssertionFailure()
             << "code " << d << " is " << int{got.codes[d]} << ", not " << int{want.codes[d]};
  return ::testing::AssertionSuccess();
}

// Rows of a forward, their rotation, and one layer of the caches of two sequences.
struct ByteCase {
  int head_dim;
  bool bf16;
  KvType type;
  int stride = bf16 ? head_stride_for(head_dim) : head_dim, capacity = 256;
  int width = (kByteHeads + 2 * kByteKvHeads) * head_dim;
  HeadFloats y =
      odd_heads(kByteRows * (kByteHeads + 2 * kByteKvHeads), head_dim);  // [row][q, k, v]
  HeadFloats cos = {}, sin = {};

  int position(int row) const { return 17 * row + 3; }
  int sequence(int row) const { return row % kByteSequences; }
  int head_of_cache(int row, int head) const { return sequence(row) * kByteKvHeads + head; }
  size_t cache_bytes() const {
    return static_cast<size_t>(kByteSequences * kByteKvHeads * capacity * (stride + 4));
  }
  RoundedHead key(int row, int head) const {
    const float* from = &y[static_cast<size_t>(row * width + (kByteHeads + head) * head_dim)];
    HeadFloats k(from, from + head_dim);
    const auto angles = static_cast<size_t>(position(row) * head_dim / 2);
    cpu::rope(k.data(), &cos[angles], &sin[angles], head_dim / 2);
    return of_cpu(k.data(), head_dim, type);
  }
  RoundedHead value(int row, int head) const {
    return of_cpu(
        &y[static_cast<size_t>(row * width + (kByteHeads + kByteKvHeads + head) * head_dim)],
        head_dim, type);
  }
};
ByteCase byte_case(int head_dim, bool bf16, KvType type) {
  ByteCase c{head_dim, bf16, type};
  for (int p = 0; p < c.capacity; ++p)
    for (int d = 0; d < head_dim / 2; ++d) {
      c.cos.push_back(std::cos(static_cast<float>(p + d)));
      c.sin.push_back(std::sin(static_cast<float>(p + d)));
    }
  return c;
}

struct WrittenBytes {
  ByteImage cache_k, cache_v, rows_k, rows_v;
};
constexpr int kByteKept = 3, kByteRowCapacity = 64;

WrittenBytes written_bytes(const ByteCase& c, bool direct, bool commit) {
  std::vector<StepRow> rows(kByteRows);
  std::vector<CommitRow> commits;
  for (int i = 0; i < kByteRows; ++i) {
    rows[static_cast<size_t>(i)].position = c.position(i);
    rows[static_cast<size_t>(i)].sequence = c.sequence(i);
    commits.push_back({kByteKept + i, c.sequence(i), c.position(i)});
  }
  const StepHeader header = {kByteRows, kByteKept, direct, 0, 0};
  const DeviceBuffer y = on_device(c.y), cos = on_device(c.cos), sin = on_device(c.sin),
                     row_list = on_device(rows), headers = on_device(std::vector{header}),
                     list = on_device(commits);
  const DeviceBuffer q(static_cast<size_t>(kByteRows * kByteHeads * c.stride) * sizeof(float)),
      cache_k(c.cache_bytes()), cache_v(c.cache_bytes()),
      rows_k(static_cast<size_t>(kByteKvHeads * kByteRowCapacity * (c.stride + 4))),
      rows_v(rows_k.bytes());
  RotateJob job;
  job.header = headers.as<StepHeader>(), job.rows = row_list.as<StepRow>();
  job.y = y.as<float>(), job.ldy = c.width;
  job.k_at = kByteHeads * c.head_dim, job.v_at = job.k_at + kByteKvHeads * c.head_dim;
  job.cos = cos.as<float>(), job.sin = sin.as<float>();
  job.heads = kByteHeads, job.kv_heads = kByteKvHeads;
  job.head_dim = c.head_dim, job.head_stride = c.stride, job.q = q.as<void>();
  job.cache = {cache_k.as<void>(), cache_v.as<void>(), c.capacity};
  job.step = {rows_k.as<void>(), rows_v.as<void>(), kByteRowCapacity};
  job.direct = direct, job.bf16 = c.bf16, job.type = c.type;
  rotate_rows(job, kByteRows, nullptr);
  if (commit) {
    CommitJob moved;
    moved.rows = list.as<CommitRow>(), moved.n_sequences = kByteSequences;
    moved.step = job.step, moved.cache = job.cache;
    moved.kv_heads = kByteKvHeads, moved.head_dim = c.head_dim, moved.head_stride = c.stride;
    moved.type = c.type;
    commit_rows(moved, kByteRows, 1, nullptr);
  }
  const auto back = [](const DeviceBuffer& b) { return to_host<unsigned char>(b, b.bytes()); };
  return {back(cache_k), back(cache_v), back(rows_k), back(rows_v)};
}

void expect_in_cache(const ByteCase& c, const WrittenBytes& w) {
  for (int i = 0; i < kByteRows; ++i)
    for (int h = 0; h < kByteKvHeads; ++h) {
      const int head = c.head_of_cache(i, h);
      EXPECT_TRUE(same_head(
          of_device(w.cache_k, head, c.capacity, c.position(i), c.stride, c.head_dim, false),
          c.key(i, h)))
          << "key of row " << i << ", head " << h;
      EXPECT_TRUE(same_head(
          of_device(w.cache_v, head, c.capacity, c.position(i), c.stride, c.head_dim, true),
          c.value(i, h)))
          << "value of row " << i << ", head " << h;
    }
}
void expect_in_rows(const ByteCase& c, const WrittenBytes& w) {
  for (int i = 0; i < kByteRows; ++i)
    for (int h = 0; h < kByteKvHeads; ++h) {
      EXPECT_TRUE(same_head(
          of_device(w.rows_k, h, kByteRowCapacity, kByteKept + i, c.stride, c.head_dim, false),
          c.key(i, h)))
          << "key of row " << i << ", head " << h;
      EXPECT_TRUE(same_head(
          of_device(w.rows_v, h, kByteRowCapacity, kByteKept + i, c.stride, c.head_dim, false),
          c.value(i, h)))
          << "value of row " << i << ", head " << h;
    }
}
size_t bytes_set(const ByteImage& bytes) {
  size_t n = 0;
  for (const unsigned char b : bytes) n += b != 0;
  return n;
}

struct ByteShape {
  int head_dim;
  bool bf16;
};
class ByteCache : public ::testing::TestWithParam<std::tuple<ByteShape, KvType>> {
 protected:
  const ByteCase c_ = byte_case(std::get<0>(GetParam()).head_dim, std::get<0>(GetParam()).bf16,
                                std::get<1>(GetParam()));
};

TEST_P(ByteCache, PromptsAreWrittenAsTheCpuRoundsThem) {
  const WrittenBytes w = written_bytes(c_, true, false);
  expect_in_cache(c_, w);
  EXPECT_EQ(bytes_set(w.rows_k) + bytes_set(w.rows_v), 0u);
}

TEST_P(ByteCache, RowsAreWrittenAsTheCpuRoundsThem) {
  const WrittenBytes w = written_bytes(c_, false, false);
  expect_in_rows(c_, w);
  EXPECT_EQ(bytes_set(w.cache_k) + bytes_set(w.cache_v), 0u);
}

TEST_P(ByteCache, CommitsMoveCodesAndScales) {
  const WrittenBytes w = written_bytes(c_, false, true);
  expect_in_rows(c_, w);
  expect_in_cache(c_, w);
  // And nothing else.
  const WrittenBytes direct = written_bytes(c_, true, false);
  EXPECT_EQ(w.cache_k, direct.cache_k);
  EXPECT_EQ(w.cache_v, direct.cache_v);
}

INSTANTIATE_TEST_SUITE_P(
    Heads, ByteCache,
    ::testing::Combine(::testing::Values(ByteShape{16, true}, ByteShape{24, true},
                                         ByteShape{64, true}, ByteShape{128, true},
                                         ByteShape{256, true}, ByteShape{24, false},
                                         ByteShape{136, false}),
                       ::testing::Values(KvType::kInt8, KvType::kFp8)),
    [](const auto& test) {
      const ByteShape& shape = std::get<0>(test.param);
      return std::to_string(shape.head_dim) + (shape.bf16 ? "" : "_f32") +
             (std::get<1>(test.param) == KvType::kFp8 ? "_fp8" : "");
    });

// What the tests above compare is not equal by itself.
TEST(ByteCacheCheck, SeesAnotherCodeAndAnotherScale) {
  const RoundedHead want = of_cpu(odd_heads(1, 24).data(), 24, KvType::kInt8);
  EXPECT_TRUE(same_head(want, want));
  RoundedHead other = want;
  other.codes[23] ^= 1;
  EXPECT_FALSE(same_head(other, want));
  other = want;
  other.scale = std::nextafter(other.scale, 1.0f);
  EXPECT_FALSE(same_head(other, want));
  other.scale = -want.scale;
  EXPECT_FALSE(same_head(other, want));
}

// All codes at each of a word's places: as numbers and as pairs of bfloat16, which are exact.
TEST(ByteCacheCodes, AreTheNumbersOfTheCpu) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float fp8 = cpu::fp8_value(static_cast<cpu::Fp8>(code));
    const auto int8 = static_cast<float>(static_cast<int>(code) - 128);
    EXPECT_EQ(number_of(static_cast<cpu::Fp8>(code)), fp8);
    EXPECT_EQ(number_of(static_cast<Int8Code>(code)), int8);
    EXPECT_EQ(byte_number(KvType::kFp8, static_cast<unsigned char>(code)), fp8);
    EXPECT_EQ(byte_number(KvType::kInt8, static_cast<unsigned char>(code)), int8);
    for (int at = 0; at < 4; ++at) {
      const uint32_t word = (0x5aa5c33cu & ~(0xffu << (8 * at))) | code << (8 * at);
      const auto number = [&](uint32_t pair) {
        return at % 2 == 0 ? low_bf16(pair) : high_bf16(pair);
      };
      EXPECT_EQ(std::bit_cast<uint32_t>(number(fp8_pair(word, at / 2))),
                std::bit_cast<uint32_t>(fp8))
          << code << " at " << at;
      EXPECT_EQ(number(int8_pair(word, at / 2)), int8) << code << " at " << at;
    }
  }
}

}  // namespace
}  // namespace evalrun::engine::cuda::testing
