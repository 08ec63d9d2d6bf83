// Clusters, mbarriers, bulk copies and wgmma of the emulator: what they compute, and that each
// mistake they were made to find is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "engine/base/rng.h"
#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/emulator/on_device.h"
#include "tests/gpu/tensor_cores.h"

namespace emulator::testing {
namespace {

using evalrun::engine::cuda::testing::emulated_tensor_cores;
using evalrun::engine::cuda::testing::multiply_add;

constexpr int kCluster = 4, kBlockThreads = 128;
constexpr uint64_t kSeeds = 6;

template <typename... P, typename... A>
cudaError_t run(int blocks, int cluster, void (*kernel)(P...), A&&... arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config;
  config.gridDim = dim3(static_cast<uint32_t>(blocks)), config.blockDim = dim3(kBlockThreads);
  config.dynamicSmemBytes = size_t{32} << 10;
  config.attrs = &attribute, config.numAttrs = 1;
  const cudaError_t e = cudaLaunchKernelEx(&config, kernel, std::forward<A>(arguments)...);
  return e == cudaSuccess ? cudaDeviceSynchronize() : e;
}

class Hopper : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    set_schedule_seed(1);
    set_device_memory(size_t{64} << 20);
    clear_fault();
  }
  void TearDown() override { set_schedule_seed(1); }
};
using HopperDeathTest = Hopper;

uint64_t* barriers() { return reinterpret_cast<uint64_t*>(shared_memory()); }
unsigned char* room() { return shared_memory() + 1024; }
void begin(int n_barriers, unsigned arrivals) {
  if (threadIdx.x == 0)
    for (int i = 0; i < n_barriers; ++i) mbarrier_init(barriers() + i, arrivals);
  cluster_arrive();
  cluster_wait();
}
void end() {
  cluster_arrive();
  cluster_wait();
}

// --- clusters ------------------------------------------------------------------------------------

// Thread t of block r gives 1000 r + t to its like in the next block.
void pass_on(uint32_t* out, bool wait) {
  auto* place = reinterpret_cast<uint32_t*>(room()) + threadIdx.x;
  const int rank = cluster_rank(), next = (rank + 1) % cluster_size();
  const uint32_t value = static_cast<uint32_t>(1000 * rank) + threadIdx.x;
  cluster_store(of_cluster(place, next), &value, sizeof value);
  cluster_arrive();
  if (wait) cluster_wait();
  out[blockIdx.x * kBlockThreads + threadIdx.x] = *place;
  if (!wait) cluster_wait();
}
TEST_F(Hopper, BlocksOfAClusterSeeEachOthersSharedMemory) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    set_schedule_seed(seed);
    const OnDevice<uint32_t> out(2 * kCluster * kBlockThreads);
    ASSERT_EQ(run(2 * kCluster, kCluster, pass_on, out.p, true), cudaSuccess);
    for (uint32_t b = 0; b < 2 * kCluster; ++b)
      for (uint32_t t = 0; t < kBlockThreads; ++t)
        ASSERT_EQ(out.p[b * kBlockThreads + t], (b + kCluster - 1) % kCluster * 1000 + t) << b;
  }
}
TEST_F(Hopper, WithoutTheClustersBarrierValuesAreMissing) {
  const OnDevice<uint32_t> out(kCluster * kBlockThreads);
  ASSERT_EQ(run(kCluster, kCluster, pass_on, out.p, false), cudaSuccess);
  EXPECT_THAT(out.values(), ::testing::Contains(0xffffffffu));
}
TEST_F(Hopper, ClustersTheHardwareRefusesAreRefused) {
  const OnDevice<uint32_t> out(9 * kBlockThreads);
  EXPECT_EQ(run(kCluster + 1, kCluster, pass_on, out.p, true), cudaErrorInvalidClusterSize);
  EXPECT_EQ(run(9, 9, pass_on, out.p, true), cudaErrorInvalidClusterSize);
}

enum class Fault {
  kNone,
  kLeave,        // a block ends, another writes to it
  kNoRank,       // a rank that is not there
  kTwice,        // arrives twice
  kNobody,       // waits for an mbarrier at which nobody arrives
  kCrowd,        // more arrive than expected
  kUnknown,      // an mbarrier that was not initialised
  kAnew,         // initialised twice
  kOdd,          // a copy of 20 bytes
  kUnaligned,    // to an odd place
  kOverlap,      // two copies to one place
  kForgotten,    // a copy that nobody waits for
  kTooMuch,      // more bytes than were expected
  kNoFence,      // a wgmma without a fence
  kNoWait,       // nobody waits for it
  kEarly,        // its sums are read before
  kTouched,      // its sums are written before
  kOverwritten,  // its factors in shared memory are written before
  kRefilled,     // the same by a bulk copy
  kAlone,        // one warp does another one
  kFew,          // one warp does not come
};

void cluster_faults(Fault fault) {
  begin(1, 1);
  const uint32_t value = 7;
  if (fault == Fault::kLeave) {
    if (cluster_rank() == 1) {
      mbarrier_wait(barriers(), 0);
      for (int i = 0; i < 20; ++i) __syncthreads();  // the others have gone by then
      cluster_store(of_cluster(room() + 4 * threadIdx.x, 0), &value, 4);
    } else if (threadIdx.x == 0 && cluster_rank() == 0) {
      mbarrier_arrive(static_cast<uint64_t*>(of_cluster(barriers(), 1)));
    }
    return;
  }
  if (fault == Fault::kNoRank) (void)of_cluster(room(), cluster_size());
  if (fault == Fault::kTwice) cluster_arrive(), cluster_arrive();
  if (threadIdx.x == 0) {
    if (fault == Fault::kNobody) mbarrier_wait(barriers(), 0);
    if (fault == Fault::kCrowd) {
      mbarrier_init(barriers() + 4, 2);
      mbarrier_arrive(barriers() + 4, 16);
      mbarrier_arrive(barriers() + 4), mbarrier_arrive(barriers() + 4);
    }
    if (fault == Fault::kUnknown) mbarrier_arrive(barriers() + 1);
    if (fault == Fault::kAnew) mbarrier_init(barriers(), 1);
  }
  end();
}
TEST_F(HopperDeathTest, FaultsOfClustersAndMbarriersAbort) {
  ASSERT_EQ(run(kCluster, kCluster, cluster_faults, Fault::kNone), cudaSuccess);
  const auto with = [](Fault fault) { (void)run(kCluster, kCluster, cluster_faults, fault); };
  EXPECT_DEATH(with(Fault::kLeave), "shared memory of a thread block that has ended");
  EXPECT_DEATH(with(Fault::kNoRank), "a rank that the cluster does not have");
  EXPECT_DEATH(with(Fault::kTwice), "arrives at the cluster's barrier twice");
  EXPECT_DEATH(with(Fault::kNobody), "an mbarrier whose phase never ends|barrier that others");
  EXPECT_DEATH(with(Fault::kCrowd), "more threads arrive at an mbarrier than it expects");
  EXPECT_DEATH(with(Fault::kUnknown), "an mbarrier that nobody initialised");
  EXPECT_DEATH(with(Fault::kAnew), "an mbarrier that is initialised twice");
}

// --- mbarriers and bulk copies -------------------------------------------------------------------

// A ring of two stages: one warp copies, three wait, add up and give back.
constexpr int kPiece = 256, kPieces = 9;  // bytes; pieces
void ring(const uint32_t* from, uint32_t* sums) {
  uint64_t *full = barriers(), *empty = full + 2;
  if (threadIdx.x == 0)
    for (int s = 0; s < 2; ++s) mbarrier_init(full + s, 1), mbarrier_init(empty + s, 96);
  __syncthreads();
  uint32_t sum = 0;
  for (int i = 0; i < kPieces; ++i) {
    const int s = i % 2;
    const auto round = static_cast<unsigned>(i / 2);
    unsigned char* stage = room() + s * kPiece;
    if (threadIdx.x < 96) {
      mbarrier_wait(full + s, round % 2);
      sum += reinterpret_cast<const uint32_t*>(stage)[threadIdx.x % (kPiece / 4)];
      mbarrier_arrive(empty + s);
    } else if (threadIdx.x == 96) {
      mbarrier_wait(empty + s, (round + 1) % 2);  // the first time it is over from the start
      mbarrier_arrive(full + s, kPiece);
      const uint32_t* piece = from + i * kPiece / 4;
      bulk_copy(stage, piece, kPiece / 2, full + s);
      bulk_copy(stage + kPiece / 2, piece + kPiece / 8, kPiece / 2, full + s);
    }
  }
  if (threadIdx.x < 96) sums[threadIdx.x] = sum;
}
TEST_F(Hopper, ARingOfBulkCopiesDeliversEveryPieceInItsPhase) {
  std::vector<uint32_t> data(kPieces * kPiece / 4);
  std::iota(data.begin(), data.end(), 5u);
  const OnDevice<uint32_t> from(data), sums(96);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    set_schedule_seed(seed);
    ASSERT_EQ(run(1, 1, ring, from.p, sums.p), cudaSuccess);
    for (size_t t = 0; t < 96; ++t) {
      uint32_t want = 0;
      for (size_t i = 0; i < kPieces; ++i) want += data[i * kPiece / 4 + t % (kPiece / 4)];
      ASSERT_EQ(sums.p[t], want) << "seed " << seed << ", thread " << t;
    }
  }
}

// What is there before it is waited for, and of later copies when the first has come.
void look_early(const uint32_t* from, uint32_t* early, uint32_t* later) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i < 4; ++i) {
    mbarrier_init(barriers() + i, 1);
    mbarrier_arrive(barriers() + i, 16);
    bulk_copy(room() + 16 * i, from + 4 * i, 16, barriers() + i);
  }
  const auto* there = reinterpret_cast<const uint32_t*>(room());
  for (int i = 0; i < 4; ++i) early[i] = there[4 * i];
  for (int i = 0; i < 4; ++i) {
    mbarrier_wait(barriers() + i, 0);
    later[i] = there[4 * i];
    if (i == 0)
      for (int j = 1; j < 4; ++j) early[3 + j] = there[4 * j];
  }
}
TEST_F(Hopper, BulkCopiesComeLateAndInAnyOrder) {
  std::vector<uint32_t> data(16);
  std::iota(data.begin(), data.end(), 100u);
  const OnDevice<uint32_t> from(data), early(7), later(4);
  int before = 0, after = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    set_schedule_seed(seed);
    ASSERT_EQ(run(1, 1, look_early, from.p, early.p, later.p), cudaSuccess);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(early.p[i], 0xffffffffu) << "poison until then";
      EXPECT_EQ(later.p[i], data[4 * i]);
    }
    for (size_t i = 4; i < 7; ++i) (early.p[i] == 0xffffffffu ? after : before) += 1;
  }
  EXPECT_GT(before, 10) << "later copies came first";
  EXPECT_GT(after, 10);
}

void copy_faults(const unsigned char* from, Fault fault) {
  if (threadIdx.x != 0) return;
  mbarrier_init(barriers(), 1);
  mbarrier_arrive(barriers(), 32);
  bulk_copy(room(), from, 16, barriers());
  if (fault == Fault::kOdd) bulk_copy(room() + 16, from + 16, 20, barriers());
  if (fault == Fault::kUnaligned) bulk_copy(room() + 24, from + 16, 16, barriers());
  if (fault == Fault::kOverlap) bulk_copy(room(), from + 16, 16, barriers());
  bulk_copy(room() + 16, from + 16, fault == Fault::kTooMuch ? 32 : 16, barriers());
  if (fault != Fault::kForgotten) mbarrier_wait(barriers(), 0);
}
TEST_F(HopperDeathTest, FaultsOfBulkCopiesAbort) {
  set_schedule_seed(0);
  const OnDevice<unsigned char> from(64);
  ASSERT_EQ(run(1, 1, copy_faults, from.p, Fault::kNone), cudaSuccess);
  const auto with = [&](Fault fault) { (void)run(1, 1, copy_faults, from.p, fault); };
  EXPECT_DEATH(with(Fault::kOdd), "a bulk copy of a size or at an address that hardware refuses");
  EXPECT_DEATH(with(Fault::kUnaligned), "a bulk copy of a size or at an address");
  EXPECT_DEATH(with(Fault::kOverlap), "a bulk copy to where another is under way");
  EXPECT_DEATH(with(Fault::kForgotten),
               "shared memory of a thread block that has ended|waited for");
  EXPECT_DEATH(with(Fault::kTooMuch), "more bytes have come to an mbarrier");
}

// --- wgmma ---------------------------------------------------------------------------------------

// A [2][64][16], B [2][columns][16] as bits of bfloat16, C [64][columns].
struct Factors {
  uint16_t a[2][64][16], b[2][64][16];
  float c[64][64];
};
enum class Swizzle : uint64_t { kNone = 0, k128 = 1, k64 = 2, k32 = 3 };

// Where input k of column n lies, from the canonical layouts of the PTX ISA ("Strides", K-major) in
// units of 16 bytes; swizzled, piece p of a row of w pieces lies at p ^ (row of 128 bytes % w).
size_t place_of(Swizzle how, size_t n, size_t k) {
  if (how == Swizzle::kNone) return (n / 8 * 2 + k / 8) * 128 + n % 8 * 16 + k % 8 * 2;
  const size_t w = how == Swizzle::k128 ? 8 : how == Swizzle::k64 ? 4 : 2;  // pieces of a row
  const size_t at = n / 8 * 8 * w + n % 8 * w + k / 8, line = at / 8;
  return (at / w * w + ((at % w) ^ (line % w))) * 16 + k % 8 * 2;
}
uint64_t descriptor_of(Swizzle how, const void* b) {
  const uint64_t stride = how == Swizzle::kNone  ? 256
                          : how == Swizzle::k128 ? 1024
                          : how == Swizzle::k64  ? 512
                                                 : 256;
  return shared_offset(b) >> 4 | uint64_t{128 >> 4} << 16 | stride >> 4 << 32 |
         static_cast<uint64_t>(how) << 62;
}
constexpr size_t kBytesOfB = 8192;

// D = A0 B0 + A1 B1 (+ C), in registers as the PTX ISA has them; d: [64][columns].
template <int N>
void product(const Factors* f, float* d_out, Swizzle how, bool add, Fault fault) {
  const int t = static_cast<int>(threadIdx.x), warp = t / 32, group = t % 32 / 4, in_group = t % 4;
  for (size_t i = threadIdx.x; i < size_t{2} * 8 * N * 16; i += kBlockThreads) {
    const size_t step = i / (8 * N * 16), n = i / 16 % (8 * N), k = i % 16;
    std::memcpy(room() + step * kBytesOfB + place_of(how, n, k), &f->b[step][n][k], 2);
  }
  if (t == 0 && fault == Fault::kRefilled) mbarrier_init(barriers(), 1);
  fence_proxy_async();
  __syncthreads();
  uint32_t a[2][4];
  for (int s = 0; s < 2; ++s)
    for (int r = 0; r < 4; ++r) {
      const uint16_t* from = &f->a[s][16 * warp + group + 8 * (r % 2)][2 * in_group + 8 * (r / 2)];
      a[s][r] = from[0] | static_cast<uint32_t>(from[1]) << 16;
    }
  float d[4 * N];
  const auto row_of = [&](int i) { return 16 * warp + group + 8 * (i % 4 / 2); };
  const auto column_of = [&](int i) { return 8 * (i / 4) + 2 * in_group + i % 2; };
  for (int i = 0; i < 4 * N; ++i) d[i] = f->c[row_of(i)][column_of(i)];
  if (fault != Fault::kNoFence) wgmma_fence();
  if (fault == Fault::kFew && warp == 3) return;
  wgmma_bf16(d, 4 * N, a[0], descriptor_of(how, room()), add);
  if (fault == Fault::kTouched && t == 77) d[2] = 1;
  wgmma_bf16(d, 4 * N, a[1],
             descriptor_of(how, room() + (fault == Fault::kAlone && warp == 2 ? 0 : kBytesOfB)),
             true);
  wgmma_commit();
  if (fault == Fault::kOverwritten && t == 3) room()[kBytesOfB + 5] ^= 1;
  if (fault == Fault::kRefilled && t == 3) {
    mbarrier_arrive(barriers(), 16);
    bulk_copy(room() + kBytesOfB, f->b, 16, barriers());
  }
  const auto write = [&] {
    for (int i = 0; i < 4 * N; ++i) d_out[row_of(i) * 8 * N + column_of(i)] = d[i];
  };
  if (fault == Fault::kEarly) write();
  if (fault == Fault::kNoWait) return;
  wgmma_wait(0);
  if (fault != Fault::kEarly) write();
}

class Products : public Hopper {
 protected:
  // Whole numbers, or of many sizes.
  static Factors factors(bool whole) {
    evalrun::base::Rng rng(5);
    const auto number = [&] {
      const float x = static_cast<float>(rng.below(17)) - 8.0f;
      return whole ? x : std::ldexp(x, static_cast<int>(rng.below(30)) - 15);
    };
    Factors f{};
    const auto bits = [](float x) {
      uint32_t word;
      std::memcpy(&word, &x, sizeof word);
      return static_cast<uint16_t>(word >> 16);
    };
    for (int s = 0; s < 2; ++s)
      for (int i = 0; i < 64; ++i)
        for (int k = 0; k < 16; ++k) f.a[s][i][k] = bits(number()), f.b[s][i][k] = bits(number());
    for (auto& row : f.c)
      for (float& x : row) x = 10 * number();
    return f;
  }
  static float value(uint16_t bits) {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float x;
    std::memcpy(&x, &word, sizeof x);
    return x;
  }
  template <int N>
  static void check(bool whole, Swizzle how, bool add) {
    const Factors f = factors(whole);
    const OnDevice<Factors> in(std::vector<Factors>{f});
    const OnDevice<float> d(size_t{64} * 8 * N);
    for (const uint64_t seed : {0, 1, 2}) {
      set_schedule_seed(seed);
      ASSERT_EQ(run(1, 1, product<N>, in.p, d.p, how, add, Fault::kNone), cudaSuccess);
      for (int m = 0; m < 64; ++m)
        for (int n = 0; n < 8 * N; ++n) {
          float sum = add ? f.c[m][n] : 0.0f;
          for (int s = 0; s < 2; ++s) {
            float a[16], b[16];
            for (int k = 0; k < 16; ++k) a[k] = value(f.a[s][m][k]), b[k] = value(f.b[s][n][k]);
            sum = multiply_add(emulated_tensor_cores(), a, b, sum);
          }
          ASSERT_EQ(d.p[m * 8 * N + n], sum) << 8 * N << " columns: " << m << ", " << n;
        }
    }
  }
};
using ProductsDeathTest = Products;

TEST_F(Products, OfEveryWidthAreThoseOfThePtxManualsLayouts) {
  for (const bool add : {false, true}) {
    check<1>(false, Swizzle::kNone, add);
    check<2>(false, Swizzle::kNone, add);
    check<4>(true, Swizzle::kNone, add);
    check<8>(false, Swizzle::kNone, add);
  }
}
TEST_F(Products, OfSwizzledFactorsAreTheSame) {
  for (const Swizzle how : {Swizzle::k32, Swizzle::k64, Swizzle::k128}) {
    check<1>(true, how, true);
    check<4>(false, how, true);
  }
}

TEST_F(Products, SumsAreNoNumbersBeforeTheyAreWaitedFor) {
  const OnDevice<Factors> in(std::vector<Factors>{factors(true)});
  const OnDevice<float> d(64 * 16);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    set_schedule_seed(seed);
    ASSERT_EQ(run(1, 1, product<2>, in.p, d.p, Swizzle::kNone, true, Fault::kEarly), cudaSuccess);
    for (const float x : d.values()) ASSERT_TRUE(std::isnan(x));
  }
}

TEST_F(ProductsDeathTest, FaultsAbort) {
  const OnDevice<Factors> in(std::vector<Factors>{factors(true)});
  const OnDevice<float> d(64 * 16);
  const auto with = [&](Fault fault, uint64_t seed = 1) {
    set_schedule_seed(seed);
    (void)run(1, 1, product<2>, in.p, d.p, Swizzle::kNone, true, fault);
  };
  EXPECT_DEATH(with(Fault::kNoFence), "wgmma without wgmma.fence");
  EXPECT_DEATH(with(Fault::kNoWait), "a thread ends while a wgmma of it is under way");
  EXPECT_DEATH(with(Fault::kAlone), "threads of a warpgroup are at different wgmma");
  EXPECT_DEATH(with(Fault::kFew), "threads of a warpgroup do not come to a wgmma");
  // Whether it was read at once or is read when it is waited for.
  for (uint64_t seed = 0; seed < 4; ++seed) {
    EXPECT_DEATH(with(Fault::kTouched, seed), "sums were written while a wgmma");
    EXPECT_DEATH(with(Fault::kOverwritten, seed), "overwritten before a wgmma that reads it");
    EXPECT_DEATH(with(Fault::kRefilled, seed), "overwritten before a wgmma that reads it");
  }
}

}  // namespace
}  // namespace emulator::testing
