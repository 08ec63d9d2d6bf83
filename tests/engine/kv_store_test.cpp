// Positions written by kernels, and copied between stores, in whole blocks of keys and beside them.
#include "engine/cpu/kv_store.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/random_models.h"

namespace evalrun::engine::testing {
namespace {

constexpr int kStoreHeads = 2, kStoreDim = 24, kStorePositions = 90;
constexpr size_t kStoreWidth = kStoreHeads * kStoreDim;

template <typename T>
cpu::KvStore<T> filled_store(uint64_t seed) {
  cpu::KvStore<T> store;
  store.configure(kStoreHeads, kStoreDim);
  store.reserve(kStorePositions);
  for (int p = 0; p < kStorePositions; ++p) {
    const auto of = static_cast<uint64_t>(2 * p);
    store.write(p, random_floats(kStoreWidth, seed + of).data(),
                random_floats(kStoreWidth, seed + of + 1).data());
  }
  return store;
}

template <typename T>
std::vector<float> position_of(const cpu::KvStore<T>& store, int position) {
  std::vector<float> both(2 * kStoreWidth);
  store.read(position, both.data(), both.data() + kStoreWidth);
  return both;
}

template <typename T>
class KvStores : public ::testing::Test {};
using StoredTypes = ::testing::Types<float, uint16_t, int8_t, cpu::Fp8, uint8_t>;
TYPED_TEST_SUITE(KvStores, StoredTypes);

TYPED_TEST(KvStores, CopiesTheseAndNoOtherPositions) {
  const auto from = filled_store<TypeParam>(1), before = filled_store<TypeParam>(1000);
  for (const int source : {0, 5, 16, 32})
    for (const int position : {0, 5, 16, 37})
      for (const int n : {0, 1, 11, 15, 16, 27, 33, 48}) {
        auto to = before;
        to.copy_positions(from, source, position, n);
        for (int p = 0; p < kStorePositions; ++p) {
          const bool copied = p >= position && p < position + n;
          ASSERT_TRUE(same_bits(position_of(to, p), copied
                                                        ? position_of(from, p - position + source)
                                                        : position_of(before, p)))
              << n << " from " << source << " to " << position << ": position " << p;
        }
      }
}

// In any runs within a block; what is beside a run stays.
TYPED_TEST(KvStores, WritesByTheKernelsWhatItWritesAlone) {
  const auto want = filled_store<TypeParam>(1), before = filled_store<TypeParam>(1000);
  for (const cpu::Kernels& kernels : cpu::available_kernels())
    for (const int longest : {1, 3, 5, 16}) {
      auto got = before;
      for (int p = 0; p < kStorePositions;) {
        const int n = std::min({longest, cpu::kLanes - p % cpu::kLanes, kStorePositions - p});
        std::vector<float> k, v;
        for (int i = p; i < p + n; ++i) {
          const auto of = static_cast<uint64_t>(2 * i);
          const std::vector<float> key = random_floats(kStoreWidth, 1 + of),
                                   value = random_floats(kStoreWidth, 2 + of);
          k.insert(k.end(), key.begin(), key.end());
          v.insert(v.end(), value.begin(), value.end());
        }
        for (int head = 0; head < kStoreHeads; ++head)
          got.write_keys(kernels, head, p, n, k.data() + head * kStoreDim, kStoreWidth);
        for (int i = 0; i < n; ++i)
          got.write_values(kernels, p + i, v.data() + static_cast<size_t>(i) * kStoreWidth);
        p += n;
        for (int i = 0; i < kStorePositions; ++i)
          ASSERT_TRUE(same_bits(position_of(got, i), position_of(i < p ? want : before, i)))
              << kernels.name << ": position " << i << " after " << p;
      }
    }
}

TYPED_TEST(KvStores, GrowsAndKeepsWhatItHolds) {
  const auto before = filled_store<TypeParam>(1);
  auto store = before;
  store.grow(kStorePositions + 50);
  EXPECT_GT(store.bytes(), before.bytes());
  for (int p = 0; p < kStorePositions; ++p)
    EXPECT_TRUE(same_bits(position_of(store, p), position_of(before, p))) << p;
}

}  // namespace
}  // namespace evalrun::engine::testing
