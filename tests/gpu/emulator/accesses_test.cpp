// Kernels with one mistake each: it is found, and the same kernel without it is not complained
// about. Compiled with the hooks that accesses.h answers.
#include "tests/gpu/emulator/accesses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "engine/cuda/kernels/grid_barrier.h"
#include "tests/gpu/emulator/include/emulator.h"

namespace emulator::testing {
namespace {

constexpr int kThreads = 64;

enum class Order { kNone, kWarp, kBlock };
void step(Order order) {
  if (order == Order::kWarp) __syncwarp();
  if (order == Order::kBlock) __syncthreads();
}
template <typename T>
T* shared() {
  return reinterpret_cast<T*>(evalrun_shared_memory());
}

// Each thread writes its place and reads that of the thread `ahead` of it.
void neighbours(int* out, int ahead, Order order) {
  const auto i = static_cast<int>(threadIdx.x);
  shared<int>()[i] = i;
  step(order);
  out[i] = shared<int>()[(i + ahead) % kThreads];
}
void neighbours_in_memory(int* out, int* place, Order order) {
  const auto i = static_cast<int>(threadIdx.x);
  place[i] = i;
  step(order);
  out[i] = place[i ^ 1];
}
// Read, then written by another.
void overwritten(int* out, Order order) {
  const auto i = static_cast<int>(threadIdx.x);
  shared<int>()[i] = i;
  __syncthreads();
  out[i] = shared<int>()[(i + 32) % kThreads];
  step(order);
  shared<int>()[i] = 0;
}
// All write the same to one place: a race all the same.
void flag(int* at) { *at = 1; }
// A shuffle brings a value and orders nothing.
void behind_a_shuffle(int* out) {
  const auto i = static_cast<int>(threadIdx.x);
  shared<int>()[i] = i;
  (void)__shfl_sync(~0u, i, 0);
  out[i] = shared<int>()[i ^ 1];
}
// Two bytes of one word are two threads' own; `same` lets both write one of them.
void halves(uint16_t* out, bool same) {
  const auto i = static_cast<int>(threadIdx.x);
  if (i < 2) out[same ? 0 : i] = 1;
}
void counted(unsigned* count, unsigned* out, bool barrier) {
  atomicAdd(count, 1u);
  if (barrier) __syncthreads();
  if (threadIdx.x == 0) *out = *count;
}
// In natural order the last thread reads last: no later atomic shows the race by itself.
void counted_in_turns(unsigned* count, unsigned* out, int times, bool in_shared) {
  unsigned* at = in_shared ? shared<unsigned>() : count;
  if (in_shared) {
    if (threadIdx.x == 0) *at = 0;
    __syncthreads();
  }
  for (int i = 0; i < times; ++i) atomicAdd(at, 1u);
  if (threadIdx.x == kThreads - 1) *out = *at;
}
void another_threads_local(int* out) {
  auto** where = shared<int*>();
  int own = static_cast<int>(threadIdx.x);
  if (threadIdx.x == 0) *where = &own;
  __syncthreads();
  if (threadIdx.x == 1) *out = **where;
  __syncthreads();
  *(out + 1 + threadIdx.x) = own;
}
void blocks_write(int* at) {
  if (threadIdx.x == 0) *at = static_cast<int>(blockIdx.x);
}

// Each block leaves a value of every thread; the last one to count adds them.
struct Parts {
  bool fence_before, fence_behind, own_fence;  // own: the counting thread's alone, after a barrier
};
void add_parts(int* parts, unsigned* count, int* sum, Parts with) {
  const auto i = static_cast<int>(threadIdx.x), b = static_cast<int>(blockIdx.x);
  parts[b * kThreads + i] = 1;
  if (with.fence_before && !with.own_fence) __threadfence();
  __syncthreads();
  auto* last = shared<unsigned>();
  if (i == 0) {
    if (with.fence_before && with.own_fence) __threadfence();
    *last = atomicAdd(count, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (*last == 0) return;
  if (with.fence_behind) __threadfence();
  if (i != 0) return;
  int all = 0;
  for (int j = 0; j < static_cast<int>(gridDim.x) * kThreads; ++j) all += parts[j];
  *sum = all;
}

// Blocks that all run at once: each thread writes its place, then reads that of the next block's
// thread behind a barrier of the grid; a few times over. The barrier is the engine's, or one with
// something left out.
enum class Barrier { kRight, kNone, kNoFenceBefore, kNoFenceBehind, kNoBlock, kNoBlockBehind };
void meet(unsigned* count, Barrier how) {
  if (how == Barrier::kRight) {
    evalrun::engine::cuda::GridBarrier barrier(count);
    barrier.arrive();
    barrier.wait();
    return;
  }
  constexpr unsigned kTurned = 0x80000000u;
  if (how != Barrier::kNoBlock) __syncthreads();
  if (threadIdx.x == 0 && how != Barrier::kNone) {
    if (how != Barrier::kNoFenceBefore) __threadfence();
    const unsigned before = atomicAdd(count, blockIdx.x == 0 ? kTurned - (gridDim.x - 1) : 1u);
    wait_for_change(count, kTurned, before);
    if (how != Barrier::kNoFenceBehind) __threadfence();
  }
  if (how != Barrier::kNoBlockBehind) __syncthreads();
}
void in_turns_of_the_grid(int* places, unsigned* count, Barrier how) {
  const auto i = static_cast<int>(threadIdx.x), b = static_cast<int>(blockIdx.x);
  const auto next = static_cast<int>((blockIdx.x + 1) % gridDim.x);
  for (int turn = 0; turn < 3; ++turn) {
    places[b * kThreads + i] = turn * 1000 + b;
    meet(count, how);
    const int read = places[next * kThreads + (i + 1) % kThreads];
    meet(count, how);
    places[b * kThreads + i] = read;
    meet(count, how);
  }
}

enum class Copied { kRight, kNoWait, kNoBarrier, kTooEarly };
void copied(int* out, const int* from, Copied how) {
  const auto i = static_cast<int>(threadIdx.x);
  if (how == Copied::kTooEarly) {
    out[i] = shared<int>()[i ^ 1];  // then overwritten, without a barrier
  }
  copy_async(shared<int>() + i, from + i, 4, 4);
  commit_copies();
  if (how == Copied::kNoWait) {
    out[i] = shared<int>()[i];
    wait_copies(0);
    return;
  }
  wait_copies(0);
  if (how == Copied::kRight) __syncthreads();
  if (how != Copied::kTooEarly) out[i] = shared<int>()[i ^ 1];
}

void reads_at(const int* at, int* out) {
  if (threadIdx.x == 0) *out = *at;
}
void writes_at(int* at) {
  if (threadIdx.x == 0) *at = 1;
}
void reads_four(const uint4* at, uint32_t* out) {
  if (threadIdx.x == 0) *out = at->y;
}
void reads_only(const uint4* at, int* also, int* out) {
  uint4 read;
  read_only_load(&read, at, sizeof read);
  *out = 1;
  if (also != nullptr) *also = 2;
}

void fills(int* at) {
  wait_for_previous();
  at[threadIdx.x] = 1;
}
enum class Early { kNothing, kReads, kWrites, kNeverWaits };
void before_the_wait(const int* from, int* to, Early what) {
  const auto i = static_cast<int>(threadIdx.x);
  int read = 0;
  if (what == Early::kReads) read = from[i];
  if (what == Early::kWrites) to[i] = 2;
  if (what == Early::kNeverWaits && i == 0) return;
  wait_for_previous();
  to[i] = read + from[i];
}

class Accesses : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&out_), kBytes), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&in_), kBytes), cudaSuccess);
    ASSERT_EQ(cudaMemset(out_, 0, kBytes), cudaSuccess);
    ASSERT_EQ(cudaMemset(in_, 0, kBytes), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFree(out_), cudaSuccess);
    EXPECT_EQ(cudaFree(in_), cudaSuccess);
  }
  template <typename... P, typename... A>
  static void run(unsigned blocks, void (*kernel)(P...), A... arguments) {
    cudaLaunchConfig_t config;
    config.gridDim = dim3(blocks), config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = kThreads * sizeof(int);
    ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, arguments...), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  // `fills`, then `before_the_wait`, each of which may begin while the one before it runs.
  static void run_overlapping(int* filled, const int* from, int* to, Early what,
                              bool waited_on_host = false) {
    cudaLaunchAttribute overlap{cudaLaunchAttributeProgrammaticStreamSerialization, {1}};
    cudaLaunchConfig_t config;
    config.blockDim = dim3(kThreads);
    config.attrs = &overlap, config.numAttrs = 1;
    ASSERT_EQ(cudaLaunchKernelEx(&config, fills, filled), cudaSuccess);
    if (waited_on_host) {
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    ASSERT_EQ(cudaLaunchKernelEx(&config, before_the_wait, from, to, what), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  static std::vector<int> ints(const int* at, int n) {
    std::vector<int> values(static_cast<size_t>(n));
    EXPECT_EQ(cudaMemcpy(values.data(), at, values.size() * sizeof(int), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }
  static constexpr int kInts = 4 * kThreads;
  static constexpr size_t kBytes = kInts * sizeof(int);
  int *out_ = nullptr, *in_ = nullptr;
};

TEST_F(Accesses, ALaunchThatOverlapsTouchesNothingOfOthersBeforeItWaits) {
  int* const filled = in_;
  int* const other = in_ + kThreads;
  run_overlapping(filled, filled, out_, Early::kNothing);
  run_overlapping(filled, other, out_, Early::kReads);  // what no kernel wrote, as weights
  run_overlapping(filled, filled, out_, Early::kReads, true);
  EXPECT_DEATH(run_overlapping(filled, filled, out_, Early::kReads),
               "read before the thread waits");
  EXPECT_DEATH(run_overlapping(filled, other, out_, Early::kWrites),
               "written before the thread waits");
  EXPECT_DEATH(run_overlapping(filled, other, out_, Early::kNeverWaits), "did not wait");
}

TEST_F(Accesses, ThreadsOfABlockAreOrderedByItsBarrier) {
  run(1, neighbours, in_, 0, Order::kNone);
  EXPECT_DEATH(run(1, neighbours, out_, 1, Order::kNone),
               "race: thread .* 4 bytes at byte .* of 256 of shared memory\n.*accesses_test.*\n"
               "thread .* of the same block .*s it, no step between.*\n.*accesses_test");
  EXPECT_DEATH(run(1, neighbours, out_, 1, Order::kWarp), "race");  // lane 31 and the next warp's
  EXPECT_DEATH(run(1, neighbours, out_, 32, Order::kWarp), "race");
  run(1, neighbours, out_, 32, Order::kBlock);
  EXPECT_DEATH(run(1, overwritten, out_, Order::kWarp), "race");
  run(1, overwritten, out_, Order::kBlock);
  EXPECT_DEATH(run(1, flag, out_), "race");
}

TEST_F(Accesses, LanesOfAWarpAreOrderedBySyncwarpAlone) {
  EXPECT_DEATH(run(1, neighbours_in_memory, out_, in_, Order::kNone), "race.*device memory");
  run(1, neighbours_in_memory, out_, in_, Order::kWarp);
  EXPECT_DEATH(run(1, behind_a_shuffle, out_), "race");
}

TEST_F(Accesses, BytesHaveOwnersOfTheirOwn) {
  run(1, halves, reinterpret_cast<uint16_t*>(out_), false);
  EXPECT_DEATH(run(1, halves, reinterpret_cast<uint16_t*>(out_), true), "race");
}

TEST_F(Accesses, AtomicsRaceWithPlainAccessesOnly) {
  auto *count = reinterpret_cast<unsigned*>(out_), *read = reinterpret_cast<unsigned*>(in_);
  run(1, counted, count, read, true);
  EXPECT_EQ(ints(in_, 1), std::vector<int>{kThreads});
  EXPECT_DEATH(run(1, counted, count, read, false), "race");
}

TEST_F(Accesses, ACountIsReadBehindABarrier) {
  auto *count = reinterpret_cast<unsigned*>(out_), *read = reinterpret_cast<unsigned*>(in_);
  // Whatever the order of threads, and however often the reader counted itself.
  for (const uint64_t seed : {0, 1, 2, 3, 4, 5})
    for (const int times : {1, 2, 3})
      for (const bool in_shared : {false, true}) {
        set_schedule_seed(seed);
        EXPECT_DEATH(run(1, counted_in_turns, count, read, times, in_shared), "race")
            << seed << " " << times;
      }
  set_schedule_seed(1);
  auto* odd = reinterpret_cast<unsigned*>(reinterpret_cast<char*>(count) + 2);
  EXPECT_DEATH(run(1, counted, odd, read, true), "misaligned");
}

TEST_F(Accesses, BlocksAreOrderedByFencesAroundAnAtomic) {
  EXPECT_DEATH(run(2, blocks_write, out_), "race(.|\n)*of another block writes");
  const auto parts = [&](Parts with) {
    run(3, add_parts, out_, reinterpret_cast<unsigned*>(in_), in_ + 1, with);
  };
  EXPECT_DEATH(parts({true, false, false}), "race(.|\n)*of another block writes");
  EXPECT_DEATH(parts({false, true, false}), "race(.|\n)*of another block writes");
  for (const bool own : {false, true}) {
    EXPECT_EQ(cudaMemset(in_, 0, 8), cudaSuccess);
    parts({true, true, own});
    int sum = 0;
    EXPECT_EQ(cudaMemcpy(&sum, in_ + 1, sizeof sum, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(sum, 3 * kThreads);
  }
}

TEST_F(Accesses, BlocksThatRunAtOnceAreOrderedByABarrierOfTheGrid) {
  constexpr int kBlocks = 3;
  const auto turns = [&](Barrier how) {
    cudaLaunchAttribute together{cudaLaunchAttributeCooperative, {1}};
    cudaLaunchConfig_t config;
    config.gridDim = dim3(kBlocks), config.blockDim = dim3(kThreads);
    config.attrs = &together, config.numAttrs = 1;
    ASSERT_EQ(cudaLaunchKernelEx(&config, in_turns_of_the_grid, out_,
                                 reinterpret_cast<unsigned*>(in_), how),
              cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
  for (const uint64_t seed : {0, 1, 2, 3}) {
    set_schedule_seed(seed);
    for (int time = 0; time < 2; ++time) {  // the word is left as the next launch finds it
      turns(Barrier::kRight);
      for (int b = 0; b < kBlocks; ++b)
        EXPECT_EQ(ints(out_ + b * kThreads, 1).front(), 2000 + (b + 1) % kBlocks);
    }
  }
  set_schedule_seed(1);
  for (const Barrier how : {Barrier::kNone, Barrier::kNoFenceBefore, Barrier::kNoFenceBehind,
                            Barrier::kNoBlock, Barrier::kNoBlockBehind})
    EXPECT_DEATH(turns(how), "race(.|\n)*of another block (read|write)s") << static_cast<int>(how);
}

// What two blocks of one grid may not do, two grids may.
TEST_F(Accesses, GridsAreOrderedByTheirStream) {
  std::vector<int> swapped(kThreads);
  for (int i = 0; i < kThreads; ++i) swapped[static_cast<size_t>(i)] = i ^ 1;
  run(1, neighbours_in_memory, out_, in_, Order::kWarp);
  EXPECT_EQ(ints(out_, kThreads), swapped);
  run(1, neighbours_in_memory, in_, out_, Order::kWarp);
  EXPECT_EQ(ints(in_, kThreads), swapped);
  run(1, blocks_write, in_);
  EXPECT_EQ(ints(in_, 1), std::vector<int>{0});
  EXPECT_DEATH(run(2, neighbours_in_memory, out_, in_, Order::kWarp), "race");
  EXPECT_DEATH(run(2, blocks_write, in_), "race");
}

TEST_F(Accesses, AsynchronousCopiesAreThereBehindTheirWaitAndABarrier) {
  run(1, copied, out_, in_, Copied::kRight);
  EXPECT_DEATH(run(1, copied, out_, in_, Copied::kNoWait), "asynchronous copy is under way");
  EXPECT_DEATH(run(1, copied, out_, in_, Copied::kNoBarrier), "under way|race");
  EXPECT_DEATH(run(1, copied, out_, in_, Copied::kTooEarly), "under way|race");
}

TEST_F(Accesses, OnlyMemoryOfTheDeviceAtMultiplesOfTheSize) {
  int host = 0;
  run(1, reads_at, in_ + kInts - 1, out_);
  EXPECT_DEATH(run(1, reads_at, in_ + kInts, out_), "past its end: .* byte 1024 of 1024");
  EXPECT_DEATH(run(1, reads_at, &host, out_), "no memory of the device: .* host memory");
  EXPECT_DEATH(run(1, writes_at, &host), "no memory of the device");
  EXPECT_DEATH(run(1, another_threads_local, out_), "no memory of the device");
  int* freed = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&freed), 64), cudaSuccess);
  ASSERT_EQ(cudaFree(freed), cudaSuccess);
  EXPECT_DEATH(run(1, reads_at, freed, out_), "no memory of the device");
  auto* odd = reinterpret_cast<const int*>(reinterpret_cast<const char*>(in_) + 2);
  EXPECT_DEATH(run(1, reads_at, odd, out_), "misaligned");
  EXPECT_DEATH(run(1, reads_four, reinterpret_cast<const uint4*>(in_ + 2),
                   reinterpret_cast<uint32_t*>(out_)),
               "misaligned");
}

TEST_F(Accesses, WhatIsReadByTheReadOnlyPathIsWrittenByNobody) {
  const auto* from = reinterpret_cast<const uint4*>(in_);
  const auto one = [&](int* also) {
    cudaLaunchConfig_t config;
    config.gridDim = dim3(1), config.blockDim = dim3(1);
    ASSERT_EQ(cudaLaunchKernelEx(&config, reads_only, from, also, out_), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
  one(nullptr);
  EXPECT_DEATH(one(in_), "read-only path");
}

// --- clusters ------------------------------------------------------------------------------------

constexpr int kMultiplying = 128;
enum class Cluster { kRight, kNoFull, kNoEmpty, kNoProxyFence, kNoBarrier, kNoMeeting };

// A block alone could do it, too: a stage that thread 0 fills by a bulk copy, again and again, and
// all read; shared memory that a wgmma reads; a word for the next block.
void in_a_cluster(const int* in, int* out, Cluster with) {
  const auto i = static_cast<int>(threadIdx.x);
  auto *full = shared<uint64_t>(), *empty = full + 1, *came = full + 2;
  int* stage = shared<int>() + 64;
  auto* factors = shared<uint16_t>() + 1024;
  int* word = shared<int>() + 1024 + i;
  if (i == 0) {
    mbarrier_init(full, 1), mbarrier_init(empty, kMultiplying);
    mbarrier_init(came, kMultiplying / 32);
  }
  cluster_arrive();
  cluster_wait();
  int sum = 0;
  for (unsigned round = 0; round < 3; ++round) {
    if (i == 0) {
      if (round > 0 && with != Cluster::kNoEmpty) mbarrier_wait(empty, (round - 1) % 2);
      mbarrier_arrive(full, 256);
      bulk_copy(stage, in, 256, full);
    }
    if (with != Cluster::kNoFull || round < 2) mbarrier_wait(full, round % 2);
    sum += stage[i % 64];
    mbarrier_arrive(empty);
  }

  factors[i] = 0;
  if (with != Cluster::kNoProxyFence) fence_proxy_async();
  if (with != Cluster::kNoBarrier) __syncthreads();
  const uint32_t a[4] = {};
  float d[4] = {};
  wgmma_fence();
  wgmma_bf16(d, 4, a, shared_offset(factors) >> 4 | uint64_t{128 >> 4} << 16, true);
  wgmma_commit();
  wgmma_wait(0);

  const int rank = cluster_rank();
  cluster_store(of_cluster(word, 1 - rank), &i, sizeof i);
  __syncwarp();
  if (i % 32 == 0) mbarrier_arrive(static_cast<uint64_t*>(of_cluster(came, 1 - rank)));
  if (with != Cluster::kNoMeeting) mbarrier_wait(came, 0);
  out[static_cast<int>(blockIdx.x) * kMultiplying + i] = sum + *word + static_cast<int>(d[0]);
  cluster_arrive();
  cluster_wait();
}

TEST_F(Accesses, ThreadsOfAClusterAreOrderedByMbarriers) {
  std::vector<int> three(64);
  for (int i = 0; i < 64; ++i) three[static_cast<size_t>(i)] = 10 * i;
  ASSERT_EQ(cudaMemcpy(in_, three.data(), 256, cudaMemcpyHostToDevice), cudaSuccess);
  const auto with = [&](Cluster how, uint64_t seed) {
    set_schedule_seed(seed);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {2, 1, 1};
    cudaLaunchConfig_t config;
    config.gridDim = dim3(2), config.blockDim = dim3(kMultiplying);
    config.dynamicSmemBytes = 8192;
    config.attrs = &attribute, config.numAttrs = 1;
    ASSERT_EQ(cudaLaunchKernelEx(&config, in_a_cluster, in_, out_, how), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
  for (uint64_t seed = 0; seed < 4; ++seed) {
    with(Cluster::kRight, seed);
    const std::vector<int> got = ints(out_, 2 * kMultiplying);
    for (int i = 0; i < 2 * kMultiplying; ++i)
      ASSERT_EQ(got[static_cast<size_t>(i)], 30 * (i % 64) + i % kMultiplying) << i;
  }
  for (uint64_t seed = 1; seed < 4; ++seed) {
    EXPECT_DEATH(with(Cluster::kNoFull, seed), "under way|race");
    // Or a thread misses a phase, which is over before it has looked.
    EXPECT_DEATH(with(Cluster::kNoEmpty, seed), "under way|race|never ends");
    EXPECT_DEATH(with(Cluster::kNoProxyFence, seed), "not handed to the asynchronous proxy");
    EXPECT_DEATH(with(Cluster::kNoBarrier, seed), "race|not handed|overwritten");
    EXPECT_DEATH(with(Cluster::kNoMeeting, seed), "race");
  }
}

}  // namespace
}  // namespace emulator::testing
