// Counts of kernels whose traffic can be told by looking at them.
#include "tests/gpu/emulator/traffic.h"

#include <gtest/gtest.h>

#include "tests/gpu/emulator/include/emulator.h"

namespace emulator::testing {
namespace {

void copies(float* to, const float* from, int stride) {
  const auto i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  to[i] = from[i * stride];
}
void copies_four(uint4* to, const uint4* from) { to[threadIdx.x] = from[threadIdx.x]; }
void reads_one(float* to, const float* from) { to[threadIdx.x] = *from; }
// Twice the same line: two requests, which may not be taken for one.
void reads_twice(float* to, const float* from) {
  float sum = 0;
#pragma GCC unroll 1
  for (int k = 0; k < 2; ++k) sum += from[static_cast<int>(threadIdx.x) + 32 * k];
  to[threadIdx.x] = sum;
}
void shares(float* to, int stride) {
  auto* s = reinterpret_cast<float*>(evalrun_shared_memory());
  const auto i = static_cast<int>(threadIdx.x);
  s[i * stride] = 1;
  __syncthreads();
  to[i] = s[0];
}
void shares_four(float* to) {
  auto* s = reinterpret_cast<float4*>(evalrun_shared_memory());
  s[threadIdx.x] = make_float4(1, 2, 3, 4);
  __syncthreads();
  to[threadIdx.x] = 0;
}

void shares_two(float* to, int stride) {
  auto* s = reinterpret_cast<float2*>(evalrun_shared_memory());
  s[static_cast<int>(threadIdx.x) * stride] = float2{1, 2};
  __syncthreads();
  to[threadIdx.x] = 0;
}
void copies_apart(float* to, const float* from, int stride) {
  auto* s = reinterpret_cast<uint4*>(evalrun_shared_memory());
  copy_async(s + static_cast<int>(threadIdx.x) * stride, from + 4 * threadIdx.x, 16, 16);
  commit_copies();
  wait_copies(0);
  __syncthreads();
  to[threadIdx.x] = 0;
}
void halves_apart(uint16_t* to, const uint16_t* from, int stride) {
  to[threadIdx.x] = from[static_cast<int>(threadIdx.x) * stride];
}

// Sums of the first half of `parts` are written and read again; the other half was there before.
void reads_again(float* parts, float* to) {
  const auto i = static_cast<int>(threadIdx.x);
  parts[i] = 1;
  __syncthreads();
  to[i] = parts[32 + i] + parts[31 - i];
}
// The whole of `from` to shared memory, in one piece or two, on the 16th byte or the 32nd.
void bulk_copies(const unsigned char* from, unsigned bytes, int pieces) {
  auto* barrier = reinterpret_cast<uint64_t*>(evalrun_shared_memory());
  const auto each = bytes / static_cast<unsigned>(pieces);
  if (threadIdx.x == 0) mbarrier_init(barrier, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive(barrier, bytes);
    for (int i = 0; i < pieces; ++i)
      bulk_copy(evalrun_shared_memory() + 128 + static_cast<unsigned>(i) * each,
                from + static_cast<unsigned>(i) * each, each, barrier);
  }
  mbarrier_wait(barrier, 0);
}
// Each lane eight bytes, `stride` of them apart, to the block of the cluster that `rank` says.
void stores_to(int rank, int stride) {
  const float value[2] = {1, 2};
  auto* at =
      reinterpret_cast<float2*>(evalrun_shared_memory()) + static_cast<int>(threadIdx.x) * stride;
  cluster_store(of_cluster(at, rank), value, sizeof value);
  cluster_arrive();
  cluster_wait();
}
void stores_in_turns() {
  const float value[2] = {1, 2};
  auto* at = reinterpret_cast<float2*>(evalrun_shared_memory()) + threadIdx.x / 2;
  cluster_store(of_cluster(at, static_cast<int>(threadIdx.x % 2)), value, sizeof value);
  cluster_arrive();
  cluster_wait();
}

class Traffic : public ::testing::Test {
 protected:
  template <typename... P, typename... A>
  traffic::Counts of(unsigned blocks, unsigned threads, void (*kernel)(P...), A... arguments) {
    return of_clusters(1, blocks, threads, kernel, arguments...);
  }
  template <typename... P, typename... A>
  traffic::Counts of_clusters(unsigned cluster, unsigned blocks, unsigned threads,
                              void (*kernel)(P...), A... arguments) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {cluster, 1, 1};
    cudaLaunchConfig_t config;
    config.attrs = &attribute, config.numAttrs = cluster > 1 ? 1 : 0;
    config.gridDim = dim3(blocks), config.blockDim = dim3(threads);
    config.dynamicSmemBytes = 16384;
    traffic::start();
    EXPECT_EQ(cudaLaunchKernelEx(&config, kernel, arguments...), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return traffic::stop();
  }
  void SetUp() override {
    for (float** p : {&to_, &from_}) {
      ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(p), 16384), cudaSuccess);
      ASSERT_EQ(cudaMemset(*p, 0, 16384), cudaSuccess);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  void TearDown() override {
    for (float* p : {to_, from_}) EXPECT_EQ(cudaFree(p), cudaSuccess);
  }
  float *to_ = nullptr, *from_ = nullptr;
};

TEST_F(Traffic, NeighboursShareSectors) {
  const traffic::Counts c = of(2, 64, copies, to_, from_, 1);
  EXPECT_EQ(c.requests, 2u * 2 * 2);  // blocks, warps, a load and a store
  EXPECT_EQ(c.asked, 2u * 128 * 4);
  EXPECT_EQ(c.sectors, 2u * 16);
  EXPECT_EQ(c.sectors_least, c.sectors);
  EXPECT_EQ(c.read, 512u);
  EXPECT_EQ(c.written, 512u);
}

TEST_F(Traffic, StridesAskForMoreThanTheyNeed) {
  const traffic::Counts c = of(1, 32, copies, to_, from_, 8);
  EXPECT_EQ(c.sectors, 32u + 4);
  EXPECT_EQ(c.sectors_least, 4u + 4);
  EXPECT_EQ(c.read, 32u * 32);
}

TEST_F(Traffic, SixteenBytesAreOneRequest) {
  const traffic::Counts c =
      of(1, 32, copies_four, reinterpret_cast<uint4*>(to_), reinterpret_cast<const uint4*>(from_));
  EXPECT_EQ(c.requests, 2u);
  EXPECT_EQ(c.sectors, 2u * 16);
  EXPECT_EQ(c.sectors_least, c.sectors);
}

TEST_F(Traffic, BytesAreNeededNotWords) {
  auto* to = reinterpret_cast<uint16_t*>(to_);
  const auto* from = reinterpret_cast<const uint16_t*>(from_);
  const traffic::Counts c = of(1, 32, halves_apart, to, from, 16);  // a sector each
  EXPECT_EQ(c.sectors, 32u + 2);
  EXPECT_EQ(c.sectors_least, 2u + 2);
}

TEST_F(Traffic, OneForAllIsOneSector) {
  const traffic::Counts c = of(1, 32, reads_one, to_, from_);
  EXPECT_EQ(c.sectors, 1u + 4);
  EXPECT_EQ(c.sectors_least, c.sectors);
  EXPECT_EQ(c.read, 32u);
}

TEST_F(Traffic, RoundsOfALoopAreRequestsOfTheirOwn) {
  const traffic::Counts c = of(1, 32, reads_twice, to_, from_);
  EXPECT_EQ(c.requests, 3u);
  EXPECT_EQ(c.sectors, 2u * 4 + 4);
}

TEST_F(Traffic, WordsOfOneBankTakeTurns) {
  // The store; then one word for all.
  EXPECT_EQ(of(1, 32, shares, to_, 1).wavefronts, 1u + 1);
  EXPECT_EQ(of(1, 32, shares, to_, 2).wavefronts, 2u + 1);
  EXPECT_EQ(of(1, 32, shares, to_, 32).wavefronts, 32u + 1);
  EXPECT_EQ(of(1, 32, shares, to_, 33).wavefronts, 1u + 1);
  EXPECT_EQ(of(1, 32, shares, to_, 32).wavefronts_least, 1u + 1);
  EXPECT_EQ(of(1, 32, shares_four, to_).wavefronts, 4u);    // a quarter of the warp at a time
  EXPECT_EQ(of(1, 32, shares_two, to_, 1).wavefronts, 2u);  // half of it
  EXPECT_EQ(of(1, 32, shares_two, to_, 2).wavefronts, 4u);
  EXPECT_EQ(of(1, 32, copies_apart, to_, from_, 1).wavefronts, 4u);
  EXPECT_EQ(of(1, 32, copies_apart, to_, from_, 2).wavefronts, 8u);
}

TEST_F(Traffic, WhatALaunchWroteItReadsAgain) {
  traffic::new_step();
  const traffic::Counts c = of(1, 32, reads_again, from_, to_);
  EXPECT_EQ(c.read, 256u);
  EXPECT_EQ(c.again, 128u);
  EXPECT_EQ(c.lasting, 0u);  // a kernel has written there
}

TEST_F(Traffic, WhatNoKernelOfTheStepHasWrittenLasts) {
  traffic::new_step();
  EXPECT_EQ(of(1, 32, copies, to_, from_, 1).lasting, 128u);
  EXPECT_EQ(of(1, 32, copies, from_, to_, 1).lasting, 0u);
  EXPECT_EQ(of(1, 32, copies, to_, from_, 1).lasting, 0u);
  traffic::new_step();
  EXPECT_EQ(of(1, 32, copies, to_, from_, 1).lasting, 128u);
}

TEST_F(Traffic, BulkCopiesAreCountedWholeAndByTheirSectors) {
  const auto* from = reinterpret_cast<const unsigned char*>(from_);
  for (const int pieces : {1, 4}) {
    const traffic::Counts c = of(1, 32, bulk_copies, from, 2048, pieces);
    EXPECT_EQ(c.requests, static_cast<uint64_t>(pieces));
    EXPECT_EQ(c.bulk, 2048u);
    EXPECT_EQ(c.asked, 2048u);
    EXPECT_EQ(c.sectors, 64u);
    EXPECT_EQ(c.sectors_least, 64u);
    EXPECT_EQ(c.read, 2048u);
    EXPECT_EQ(c.shared, 2048u);
    EXPECT_EQ(c.wavefronts, 16u);
  }
  const traffic::Counts apart = of(1, 32, bulk_copies, from + 16, 2048, 1);  // half a sector more
  EXPECT_EQ(apart.sectors, 65u);
  EXPECT_EQ(apart.sectors_least, 64u);
  EXPECT_EQ(apart.read, 65u * 32);
}

TEST_F(Traffic, StoresToOtherBlocksTakeTheirBanks) {
  // Two blocks of a warp each: one stores to itself, the other one to it.
  const traffic::Counts c = of_clusters(2, 2, 32, stores_to, 0, 1);
  EXPECT_EQ(c.cluster, 256u);
  EXPECT_EQ(c.shared, 512u);
  EXPECT_EQ(c.wavefronts, 2u + 2);
  EXPECT_EQ(c.wavefronts_least, c.wavefronts);
  EXPECT_EQ(c.sectors, 0u);
  const traffic::Counts apart = of_clusters(2, 2, 32, stores_to, 1, 2);
  EXPECT_EQ(apart.cluster, 256u);
  EXPECT_EQ(apart.wavefronts, 4u + 4);
  EXPECT_EQ(apart.wavefronts_least, 2u + 2);
  // Lanes that store to two blocks do not take turns for it: 16 lanes of a half-warp, eight to
  // each.
  const traffic::Counts both = of_clusters(2, 2, 32, stores_in_turns);
  EXPECT_EQ(both.cluster, 256u);
  EXPECT_EQ(both.wavefronts, both.wavefronts_least);
}

}  // namespace
}  // namespace emulator::testing
