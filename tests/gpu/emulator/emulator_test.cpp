// The emulator itself: what it promises to the tests that run on it (emulator.h), and that it shows
// the mistakes it was made to find.
#include "tests/gpu/emulator/include/emulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <vector>

#include "engine/base/rng.h"
#include "engine/cuda/kernels/grid_barrier.h"
#include "tests/gpu/emulator/mma_kernel.h"
#include "tests/gpu/emulator/on_device.h"

namespace emulator::testing {
namespace {

constexpr size_t kMemory = size_t{64} << 20;

class Emulator : public ::testing::Test {
 protected:
  void SetUp() override {
    // A test that aborts on purpose runs anew in a process of its own.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    set_schedule_seed(1);
    set_device_memory(kMemory);
    clear_fault();
  }
  void TearDown() override {
    clear_fault();
    set_device_memory(kMemory);
    set_schedule_seed(1);
    EXPECT_EQ(live_device_bytes(), 0u);
  }
};
using EmulatorDeathTest = Emulator;

// --- threads -------------------------------------------------------------------------------------

void where_kernel(int* at) {
  const uint32_t thread =
      threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);  // of its block
  const uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  ++at[block * blockDim.x * blockDim.y * blockDim.z + thread];
}
TEST_F(Emulator, EveryThreadOfEveryBlockRunsOnce) {
  for (const uint64_t seed : {0, 1, 2}) {
    set_schedule_seed(seed);
    const OnDevice<int> at(std::vector<int>(2 * 3 * 2 * 5 * 3 * 2));
    ASSERT_EQ(launch(where_kernel, dim3(2, 3, 2), dim3(5, 3, 2), 0, nullptr, at.p), cudaSuccess);
    EXPECT_THAT(at.values(), ::testing::Each(1)) << "seed " << seed;
  }
}

void neighbour_kernel(int* out, bool barrier) {
  auto* shared = reinterpret_cast<int*>(shared_memory());
  const int t = static_cast<int>(threadIdx.x);
  shared[t] = t;
  if (barrier) __syncthreads();
  out[t] = shared[t > 0 ? t - 1 : 0];
}
std::vector<int> neighbours(uint64_t seed, bool barrier) {
  set_schedule_seed(seed);
  const OnDevice<int> out(96);
  EXPECT_EQ(launch(neighbour_kernel, 1, 96, 96 * sizeof(int), nullptr, out.p, barrier),
            cudaSuccess);
  return out.values();
}
TEST_F(Emulator, ABarrierIsWaitedForInEveryOrder) {
  std::vector<int> expected(96);
  std::iota(expected.begin() + 1, expected.end(), 0);
  for (uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(neighbours(seed, true), expected);
}
TEST_F(Emulator, AMissingBarrierShowsInAShuffledOrderOnly) {
  const std::vector<int> expected = neighbours(0, true);
  EXPECT_EQ(neighbours(0, false), expected) << "natural order hides it";
  for (uint64_t seed = 1; seed < 5; ++seed) EXPECT_NE(neighbours(seed, false), expected) << seed;
}

void ticket_kernel(int* next, int* order) {
  order[(*next)++] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}
std::vector<int> order_under(uint64_t seed) {
  set_schedule_seed(seed);
  const OnDevice<int> next(std::vector<int>{0}), order(4 * 64);
  EXPECT_EQ(launch(ticket_kernel, 4, 64, 0, nullptr, next.p, order.p), cudaSuccess);
  return order.values();
}
TEST_F(Emulator, TheSeedIsTheOrderOfThreadsAndBlocks) {
  std::vector<int> natural(4 * 64);
  std::iota(natural.begin(), natural.end(), 0);
  EXPECT_EQ(order_under(0), natural);
  const std::vector<int> one = order_under(1), two = order_under(2);
  EXPECT_NE(one, natural);
  EXPECT_NE(one, two);
  EXPECT_EQ(one, order_under(1)) << "a failing seed can be run again";
  EXPECT_TRUE(std::is_permutation(one.begin(), one.end(), natural.begin()));
  // Blocks change places, too: the first 64 tickets are one block's, and not always the first's.
  bool another_first = false;
  for (uint64_t seed = 1; seed < 10; ++seed)
    another_first = another_first || order_under(seed)[0] >= 64;
  EXPECT_TRUE(another_first);
}

void shared_kernel(uint32_t* out) {
  const auto* shared = reinterpret_cast<const uint32_t*>(shared_memory());
  out[threadIdx.x] = shared[threadIdx.x];
}
TEST_F(Emulator, FreshMemoryIsNotANumber) {
  const OnDevice<uint32_t> device(8), out(8);
  EXPECT_THAT(device.values(), ::testing::Each(0xffffffffu));
  ASSERT_EQ(launch(shared_kernel, 1, 8, 32, nullptr, out.p), cudaSuccess);
  EXPECT_THAT(out.values(), ::testing::Each(0xffffffffu));
}

// --- what lanes do together ----------------------------------------------------------------------

void shuffle_kernel(int* broadcast, int* exchanged, int* down, double* wide, unsigned* odd) {
  const int t = static_cast<int>(threadIdx.x);
  broadcast[t] = __shfl_sync(0xffffffffu, t, 5);
  exchanged[t] = __shfl_xor_sync(0xffffffffu, t, 16);
  down[t] = __shfl_down_sync(0xffffffffu, t, 3);
  wide[t] = __shfl_sync(0xffffffffu, t + 0.25, 31);
  odd[t] = __ballot_sync(0xffffffffu, t % 2);
  __syncwarp();
}
TEST_F(Emulator, ShufflesStayWithinTheWarp) {
  for (const uint64_t seed : {0, 1, 7}) {
    set_schedule_seed(seed);
    const OnDevice<int> broadcast(64), exchanged(64), down(64);
    const OnDevice<double> wide(64);
    const OnDevice<unsigned> odd(64);
    ASSERT_EQ(
        launch(shuffle_kernel, 1, 64, 0, nullptr, broadcast.p, exchanged.p, down.p, wide.p, odd.p),
        cudaSuccess);
    for (int t = 0; t < 64; ++t) {
      const auto i = static_cast<size_t>(t);
      const int warp = t / 32 * 32, lane = t % 32;
      EXPECT_EQ(broadcast.values()[i], warp + 5);
      EXPECT_EQ(exchanged.values()[i], warp + (lane + 16) % 32);
      EXPECT_EQ(down.values()[i], lane < 29 ? t + 3 : t) << "the last lanes keep their own";
      EXPECT_EQ(wide.values()[i], warp + 31.25);
      EXPECT_EQ(odd.values()[i], 0xaaaaaaaau);
    }
  }
}

TEST_F(Emulator, MmaIsTheProductOfThePtxManualsFragments) {
  evalrun::base::Rng rng(3);
  // Whole numbers: sums are exact in any order.
  const auto number = [&] { return static_cast<float>(rng.below(17)) - 8.0f; };
  MmaData m;
  for (auto& row : m.a)
    for (float& x : row) x = number();
  for (auto& row : m.b)
    for (float& x : row) x = number();
  for (auto& row : m.c)
    for (float& x : row) x = 100 * number();
  const OnDevice<MmaData> data(std::vector<MmaData>{m});
  const OnDevice<float> d(16 * 8);
  ASSERT_EQ(launch(mma_kernel, 1, 32, 0, nullptr, data.p, d.p), cudaSuccess);
  const std::vector<float> got = d.values();
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 8; ++c) {
      float sum = m.c[r][c];
      for (int k = 0; k < 16; ++k) sum += m.a[r][k] * m.b[k][c];
      EXPECT_EQ(got[static_cast<size_t>(r * 8 + c)], sum) << r << ", " << c;
    }
}

// Word for word from the PTX ISA, movmatrix: the matrix by row, its transposed by row.
void movmatrix_kernel(const uint16_t* from, uint16_t* to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = lane >> 2, column = lane % 4 * 2;
  const uint32_t word = from[row * 8 + column] | static_cast<uint32_t>(from[row * 8 + column + 1])
                                                     << 16;
  const uint32_t got = movmatrix_m8n8_trans_b16(word);
  to[row * 8 + column] = static_cast<uint16_t>(got);
  to[row * 8 + column + 1] = static_cast<uint16_t>(got >> 16);
}
TEST_F(Emulator, MovmatrixTransposes) {
  std::vector<uint16_t> matrix(64);
  std::iota(matrix.begin(), matrix.end(), uint16_t{0xff00});  // both bytes count
  for (const uint64_t seed : {0, 1, 7}) {
    set_schedule_seed(seed);
    const OnDevice<uint16_t> from(matrix), to(64);
    ASSERT_EQ(launch(movmatrix_kernel, 1, 32, 0, nullptr, from.p, to.p), cudaSuccess);
    const std::vector<uint16_t> got = to.values();
    for (size_t r = 0; r < 8; ++r)
      for (size_t c = 0; c < 8; ++c) EXPECT_EQ(got[r * 8 + c], matrix[c * 8 + r]);
  }
}

// --- streams -------------------------------------------------------------------------------------

void add_kernel(int* value, int by) { *value += by; }

TEST_F(Emulator, ACopyIntoPinnedMemoryIsThereAfterTheWait) {
  const OwnStream stream;
  const OnDevice<int> value(std::vector<int>{7});
  const Pinned to(0);
  ASSERT_EQ(cudaMemcpyAsync(to.p, value.p, 4, cudaMemcpyDeviceToHost, stream.handle), cudaSuccess);
  EXPECT_EQ(*to.p, 0);
  stream.wait();
  EXPECT_EQ(*to.p, 7);
}

TEST_F(Emulator, PinnedMemoryIsReadWhenTheCopyRunsPageableAtTheCall) {
  const OwnStream stream;
  const OnDevice<int> a(1), b(1);
  const Pinned pinned(1);
  int pageable = 1;
  ASSERT_EQ(cudaMemcpyAsync(a.p, pinned.p, 4, cudaMemcpyHostToDevice, stream.handle), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(b.p, &pageable, 4, cudaMemcpyHostToDevice, stream.handle), cudaSuccess);
  *pinned.p = 2, pageable = 2;
  stream.wait();
  EXPECT_EQ(a.values()[0], 2);
  EXPECT_EQ(b.values()[0], 1);
}

TEST_F(Emulator, StreamsAreQueuesOfTheirOwn) {
  const OwnStream one, two;
  const OnDevice<int> value(std::vector<int>{0});
  const Pinned seen(-1);
  ASSERT_EQ(launch(add_kernel, 1, 1, 0, one.handle, value.p, 5), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(seen.p, value.p, 4, cudaMemcpyDeviceToHost, two.handle), cudaSuccess);
  two.wait();
  EXPECT_EQ(*seen.p, 0) << "the other stream has not run";
  one.wait();
  EXPECT_EQ(value.values()[0], 5);
}

TEST_F(Emulator, WhatIsQueuedRunsInOrderWithTheArgumentsOfTheCall) {
  const OwnStream stream;
  const OnDevice<int> value(std::vector<int>{0});
  const long before = kernel_launches();
  int by = 3;
  ASSERT_EQ(launch(add_kernel, 1, 1, 0, stream.handle, value.p, by), cudaSuccess);
  by = 100;
  ASSERT_EQ(cudaMemsetAsync(value.p, 1, 1, stream.handle), cudaSuccess);  // after the kernel: 1
  ASSERT_EQ(launch(add_kernel, 1, 1, 0, stream.handle, value.p, 4), cudaSuccess);
  stream.wait();
  EXPECT_EQ(value.values()[0], 5);
  EXPECT_EQ(kernel_launches() - before, 2);
}

// --- graphs --------------------------------------------------------------------------------------

TEST_F(Emulator, AGraphRunsWhenLaunchedAndReadsPinnedMemoryThen) {
  const OwnStream stream;
  const OnDevice<int> value(std::vector<int>{0});
  const Pinned from(10), to(-1);
  const long kernels = kernel_launches(), graphs = graph_launches();
  ASSERT_EQ(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(value.p, from.p, 4, cudaMemcpyHostToDevice, stream.handle),
            cudaSuccess);
  ASSERT_EQ(launch(add_kernel, 1, 1, 0, stream.handle, value.p, 1), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(to.p, value.p, 4, cudaMemcpyDeviceToHost, stream.handle), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream.handle, &graph), cudaSuccess);
  stream.wait();
  EXPECT_EQ(*to.p, -1) << "captured, not run";
  cudaGraphExec_t ready = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&ready, graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  for (const int n : {20, 30}) {
    *from.p = n;
    ASSERT_EQ(cudaGraphLaunch(ready, stream.handle), cudaSuccess);
    EXPECT_NE(*to.p, n + 1);
    stream.wait();
    EXPECT_EQ(*to.p, n + 1);
  }
  EXPECT_EQ(kernel_launches(), kernels);
  EXPECT_EQ(graph_launches() - graphs, 2);
  ASSERT_EQ(cudaGraphExecDestroy(ready), cudaSuccess);
}

// --- mistakes ------------------------------------------------------------------------------------

void write_kernel(int* p, int at) { p[at] = 1; }

TEST_F(EmulatorDeathTest, WritesBesideDeviceMemoryAbort) {
  for (const int at : {-1, 4}) {
    EXPECT_DEATH(
        {
          const OnDevice<int> four(4);
          (void)launch(write_kernel, 1, 1, 0, nullptr, four.p, at);
          (void)cudaDeviceSynchronize();
        },
        at < 0 ? "in front of 16 bytes of device memory" : "behind 16 bytes of device memory");
  }
}

TEST_F(EmulatorDeathTest, WritesToFreedMemoryAbort) {
  EXPECT_DEATH(
      {
        void* p = nullptr;
        (void)cudaMalloc(&p, 16);
        (void)cudaFree(p);
        (void)launch(write_kernel, 1, 1, 0, nullptr, static_cast<int*>(p), 1);
        (void)cudaDeviceSynchronize();
      },
      "16 bytes of device memory written after they were freed");
}

void write_shared_kernel(int at) { reinterpret_cast<int*>(shared_memory())[at] = 1; }

TEST_F(EmulatorDeathTest, WritesBehindSharedMemoryAbort) {
  ASSERT_EQ(launch(write_shared_kernel, 1, 1, 16, nullptr, 3), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_DEATH(
      {
        (void)launch(write_shared_kernel, 1, 1, 16, nullptr, 4);
        (void)cudaDeviceSynchronize();
      },
      "written behind the shared memory of the launch");
}

// Thread t copies word t of `from`, waits for all groups but the last `pending`, and hands on what
// its neighbour then finds.
void copy_kernel(const uint32_t* from, uint32_t* to, int pending) {
  auto* shared = reinterpret_cast<uint32_t*>(shared_memory());
  const int t = static_cast<int>(threadIdx.x), n = static_cast<int>(blockDim.x);
  copy_async(shared + t, from + t, 4, 4);
  commit_copies();
  copy_async(shared + n + t, from + t, 4, 0);
  commit_copies();
  wait_copies(pending);
  __syncthreads();
  to[t] = shared[(t + 1) % n];
  to[n + t] = shared[n + (t + 1) % n];
  wait_copies(0);
}
TEST_F(Emulator, CopiesAreThereWhenTheyWereWaitedFor) {
  constexpr int kThreads = 64;
  const OnDevice<uint32_t> from(kThreads), to(2 * kThreads);
  for (int i = 0; i < kThreads; ++i) from.p[i] = 100u + static_cast<uint32_t>(i);
  int late = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    set_schedule_seed(seed);
    for (const int pending : {0, 1}) {
      ASSERT_EQ(launch(copy_kernel, 1, kThreads, 8 * kThreads, nullptr, from.p, to.p, pending),
                cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      for (int i = 0; i < kThreads; ++i) {
        EXPECT_EQ(to.p[i], 100u + static_cast<uint32_t>((i + 1) % kThreads));
        if (pending == 0) {
          EXPECT_EQ(to.p[kThreads + i], 0u) << "zeros, when nothing is given";
        }
        late += to.p[kThreads + i] != 0;
      }
    }
  }
  EXPECT_GT(late, kThreads) << "copies nobody waited for were there in time";
  EXPECT_LT(late, 4 * kThreads);
}

void unaligned_copy_kernel(const unsigned char* from) {
  copy_async(shared_memory(), from + 4, 16, 16);
}
void forgotten_copy_kernel(const unsigned char* from) {
  copy_async(shared_memory(), from, 16, 16);
  commit_copies();
}
TEST_F(EmulatorDeathTest, CopiesThatHardwareRefusesOrNobodyWaitsForAbort) {
  const OnDevice<unsigned char> from(32);
  const auto run = [&](void (*kernel)(const unsigned char*)) {
    (void)launch(kernel, 1, 1, 16, nullptr, from.p);
    (void)cudaDeviceSynchronize();
  };
  EXPECT_DEATH(run(unaligned_copy_kernel), "an address that hardware refuses");
  EXPECT_DEATH(run(forgotten_copy_kernel), "copies that nobody waited for");
}

void divided_kernel() {
  if (threadIdx.x < 16)
    (void)__shfl_sync(0xffffffffu, 1, 0);
  else
    (void)__ballot_sync(0xffffffffu, 1);
}
TEST_F(EmulatorDeathTest, LanesAtDifferentCollectivesAbort) {
  EXPECT_DEATH(
      {
        (void)launch(divided_kernel, 1, 32, 0, nullptr);
        (void)cudaDeviceSynchronize();
      },
      "block \\(0, 0, 0\\), thread .*lanes of one warp are at different collectives");
}

void absent_lane_kernel() {
  if (threadIdx.x != 3) __syncwarp();
}
TEST_F(EmulatorDeathTest, ALaneThatDoesNotComeAborts) {
  EXPECT_DEATH(
      {
        (void)launch(absent_lane_kernel, 1, 32, 0, nullptr);
        (void)cudaDeviceSynchronize();
      },
      "lanes wait for lanes of their warp that do not come");
}

void half_barrier_kernel() {
  if (threadIdx.x < 32) __syncthreads();
}
TEST_F(EmulatorDeathTest, ABarrierThatOthersNeverReachAborts) {
  EXPECT_DEATH(
      {
        (void)launch(half_barrier_kernel, 1, 64, 0, nullptr);
        (void)cudaDeviceSynchronize();
      },
      "threads wait at a barrier that others have left or never reach");
}

// --- blocks that all run at once -----------------------------------------------------------------

cudaError_t launch_together(void (*kernel)(unsigned*, int*, int), unsigned blocks, size_t shared,
                            unsigned* count, int* at, int absent) {
  cudaLaunchAttribute together{cudaLaunchAttributeCooperative, {1}};
  cudaLaunchConfig_t config;
  config.gridDim = dim3(blocks), config.blockDim = dim3(64);
  config.dynamicSmemBytes = shared;
  config.attrs = &together, config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, count, at, absent);
}
// Each block adds what all have left before; block `absent` leaves before the second barrier.
void meeting_kernel(unsigned* count, int* at, int absent) {
  evalrun::engine::cuda::GridBarrier barrier(count);
  const auto b = static_cast<int>(blockIdx.x), n = static_cast<int>(gridDim.x);
  if (threadIdx.x == 0) at[b] = 1;
  for (int turn = 0; turn < 3; ++turn) {
    barrier.arrive();
    barrier.wait();
    if (b == absent) return;
    int sum = 0;
    for (int i = 0; i < n; ++i) sum += at[i];
    barrier.arrive();
    barrier.wait();
    if (threadIdx.x == 0) at[b] = sum;
  }
}

TEST_F(Emulator, BlocksOfACooperativeLaunchMeet) {
  const OnDevice<unsigned> count(std::vector<unsigned>(1, 0));
  const OnDevice<int> at(5);
  for (const uint64_t seed : {0, 1, 2, 3}) {
    set_schedule_seed(seed);
    ASSERT_EQ(launch_together(meeting_kernel, 5, 0, count.p, at.p, -1), cudaSuccess);
    EXPECT_EQ(at.values(), std::vector<int>(5, 125));
  }
  // As a graph, too.
  const OwnStream stream;
  cudaLaunchAttribute together{cudaLaunchAttributeCooperative, {1}};
  cudaLaunchConfig_t config;
  config.gridDim = dim3(5), config.blockDim = dim3(64), config.stream = stream.handle;
  config.attrs = &together, config.numAttrs = 1;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaLaunchKernelEx(&config, meeting_kernel, count.p, at.p, -1), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream.handle, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&ready, graph), cudaSuccess);
  for (int time = 0; time < 2; ++time)
    ASSERT_EQ(cudaGraphLaunch(ready, stream.handle), cudaSuccess);
  stream.wait();
  EXPECT_EQ(at.values(), std::vector<int>(5, 125));
  EXPECT_EQ(cudaGraphExecDestroy(ready), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(Emulator, MoreBlocksThanRunAtOnceAreRefused) {
  const OnDevice<unsigned> count(std::vector<unsigned>(1, 0));
  const OnDevice<int> at(4096);
  int fit = 0;
  const size_t shared = size_t{40} << 10;
  ASSERT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, meeting_kernel, 64, shared),
            cudaSuccess);
  EXPECT_EQ(fit, 5) << "of 228 KiB, one more for each block";
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  const auto most = static_cast<unsigned>(fit * properties.multiProcessorCount);
  EXPECT_EQ(launch_together(meeting_kernel, most, shared, count.p, at.p, -1), cudaSuccess);
  EXPECT_EQ(launch_together(meeting_kernel, most + 1, shared, count.p, at.p, -1),
            cudaErrorCooperativeLaunchTooLarge);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(EmulatorDeathTest, ABlockThatOthersWaitForInVainAborts) {
  EXPECT_DEATH(
      {
        const OnDevice<unsigned> count(std::vector<unsigned>(1, 0));
        const OnDevice<int> at(3);
        (void)launch_together(meeting_kernel, 3, 0, count.p, at.p, 1);
        (void)cudaDeviceSynchronize();
      },
      "block \\((0|2), 0, 0\\), thread 0: a thread block waits for others of its grid that do not "
      "come");
  EXPECT_DEATH(
      {
        const OnDevice<unsigned> count(std::vector<unsigned>(1, 0));
        const OnDevice<int> at(3);
        (void)launch(meeting_kernel, 3, 64, 0, nullptr, count.p, at.p, -1);
        (void)cudaDeviceSynchronize();
      },
      "which need not run at the same time");
}

TEST_F(Emulator, LaunchesTheHardwareRefusesAreRefused) {
  EXPECT_EQ(launch(half_barrier_kernel, 1, 1025, 0, nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(half_barrier_kernel, 0, 32, 0, nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(half_barrier_kernel, dim3(1, 65536), 32, 0, nullptr),
            cudaErrorInvalidConfiguration);
  const int most = 100 << 10;
  EXPECT_EQ(launch(write_shared_kernel, 1, 1, most, nullptr, 0), cudaErrorInvalidValue)
      << "48 KiB without leave";
  ASSERT_EQ(
      cudaFuncSetAttribute(write_shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
      cudaSuccess);
  EXPECT_EQ(launch(write_shared_kernel, 1, 1, most, nullptr, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// --- memory and faults ---------------------------------------------------------------------------

TEST_F(Emulator, MemoryRunsOutAndComesBack) {
  set_device_memory(1000);
  void *a = nullptr, *b = nullptr;
  size_t free = 0, total = 0;
  ASSERT_EQ(cudaMalloc(&a, 600), cudaSuccess);
  EXPECT_EQ(live_device_bytes(), 600u);
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, 400u);
  EXPECT_EQ(total, 1000u);
  EXPECT_EQ(cudaMalloc(&b, 401), cudaErrorMemoryAllocation);
  ASSERT_EQ(cudaFree(a), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&b, 401), cudaSuccess);
  EXPECT_EQ(cudaFree(b), cudaSuccess);
  EXPECT_EQ(cudaFree(b), cudaErrorInvalidValue) << "given back twice";
}

TEST_F(Emulator, TheNthCallFailsOnceOrForGood) {
  fail_after(2, cudaErrorLaunchFailure, false);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  fail_after(1, cudaErrorIllegalAddress, true);
  void* p = nullptr;
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMalloc(&p, 16), cudaErrorIllegalAddress);
  EXPECT_EQ(launch(write_kernel, 1, 1, 0, nullptr, nullptr, 0), cudaErrorIllegalAddress);
  clear_fault();
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

// Programs are told by their environment; this one looks at a fresh process each time.
TEST_F(EmulatorDeathTest, TheEnvironmentSetsSeedMemoryAndFault) {
  GTEST_FLAG_SET(death_test_style, "fast");  // a fork has not asked yet: nothing ran before
  const auto with = [](const char* name, const char* value, auto check) {
    ASSERT_EQ(setenv(name, value, 1), 0);
    EXPECT_EXIT(
        {
          reset_from_environment();
          std::exit(check() ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "")
        << name;
    EXPECT_EQ(unsetenv(name), 0);
  };
  with("CUDA_EMULATOR_MEMORY", "5000", [] {
    size_t free = 0, total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess && total == 5000;
  });
  with("CUDA_EMULATOR_FAIL", "1:sticky", [] {
    return cudaSetDevice(0) == cudaSuccess && cudaSetDevice(0) == cudaErrorIllegalAddress &&
           cudaSetDevice(0) == cudaErrorIllegalAddress;
  });
  with("CUDA_EMULATOR_FAIL", "0", [] {
    return cudaSetDevice(0) == cudaErrorIllegalAddress && cudaSetDevice(0) == cudaSuccess;
  });
  ASSERT_EQ(setenv("CUDA_EMULATOR_FAIL", "soon", 1), 0);
  EXPECT_DEATH(reset_from_environment(), "CUDA_EMULATOR_FAIL=soon: expected a whole number");
  EXPECT_EQ(unsetenv("CUDA_EMULATOR_FAIL"), 0);
}

}  // namespace
}  // namespace emulator::testing
