// What is freed or destroyed while queued work may use it (runtime.h): each of these mistakes ends
// the process, and says which work it is. Waits between streams, which decide what is queued.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/emulator/on_device.h"

namespace emulator::testing {
namespace {

void grow_kernel(int* value, int by) { *value += by; }

// As the engine's kernels are given theirs.
struct Job {
  char rows = 0;
  struct {
    int n = 0;
    const float* values = nullptr;
  } in;
  float* out = nullptr;
};
void job_kernel(Job job) { *job.out = *job.in.values; }

template <typename T>
T* on_device(size_t n) {
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, n * sizeof(T)), cudaSuccess);
  return static_cast<T*>(p);
}
cudaStream_t new_stream() {
  cudaStream_t s = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  return s;
}
cudaEvent_t new_event() {
  cudaEvent_t e = nullptr;
  EXPECT_EQ(cudaEventCreate(&e), cudaSuccess);
  return e;
}
// The launch of grow_kernel, as a graph.
cudaGraphExec_t graph_of(int* value, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(launch(grow_kernel, 1, 1, 0, stream, value, 1), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphInstantiate(&ready, graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  return ready;
}

class InUse : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    set_device_memory(size_t{64} << 20);
    clear_fault();
  }
  void TearDown() override {
    clear_fault();
    EXPECT_EQ(live_device_bytes(), 0u);
  }
};
using InUseDeathTest = InUse;

TEST_F(InUseDeathTest, MemoryFreedUnderAKernelAborts) {
  EXPECT_DEATH(
      {
        const cudaStream_t stream = new_stream();
        int* value = on_device<int>(4);
        int* other = on_device<int>(1);
        (void)launch(grow_kernel, 1, 1, 0, stream, other, 1);
        (void)launch(grow_kernel, 1, 1, 0, stream, value + 3, 1);  // an address within
        (void)cudaFree(value);
      },
      "cudaFree of 16 bytes of device memory, and queued work may use it: kernel .*grow_kernel.*, "
      "2 of 2 on stream 1");
  // In a structure, on the default stream.
  EXPECT_DEATH(
      {
        Job job;
        float* values = on_device<float>(2);
        job.in.values = values;
        job.out = on_device<float>(1);
        (void)launch(job_kernel, 1, 1, 0, nullptr, job);
        (void)cudaFree(values);
      },
      "cudaFree of 8 bytes .*job_kernel.*, 1 of 1 on the default stream");
}

TEST_F(InUseDeathTest, MemoryFreedUnderACopyAborts) {
  const auto after = [](const std::function<void(int*, int*, int*, cudaStream_t)>& mistake) {
    const cudaStream_t stream = new_stream();
    int *a = on_device<int>(8), *b = on_device<int>(8), *host = nullptr;
    (void)cudaMallocHost(reinterpret_cast<void**>(&host), 32);
    mistake(a, b, host, stream);
  };
  EXPECT_DEATH(after([](int* a, int* b, int*, cudaStream_t s) {
                 (void)cudaMemcpyAsync(a, b, 32, cudaMemcpyDeviceToDevice, s);
                 (void)cudaFree(b);
               }),
               "cudaFree of 32 bytes of device memory.*: a copy, 1 of 1 on stream 1");
  EXPECT_DEATH(after([](int* a, int* b, int*, cudaStream_t s) {
                 // The last line alone reaches into `a`.
                 (void)cudaMemcpy2DAsync(a, 16, b, 16, 4, 2, cudaMemcpyDeviceToDevice, s);
                 (void)cudaFree(a);
               }),
               "cudaFree of 32 bytes of device memory.*: a copy, 1 of 1 on stream 1");
  EXPECT_DEATH(after([](int* a, int*, int* host, cudaStream_t s) {
                 (void)cudaMemcpyAsync(a, host, 32, cudaMemcpyHostToDevice, s);
                 (void)cudaFreeHost(host);
               }),
               "cudaFreeHost of 32 bytes of page-locked memory.*: a copy from the host, 1 of 1");
  EXPECT_DEATH(after([](int* a, int*, int* host, cudaStream_t s) {
                 (void)cudaMemcpyAsync(host, a, 32, cudaMemcpyDeviceToHost, s);
                 (void)cudaFreeHost(host);
               }),
               "cudaFreeHost of 32 bytes of page-locked memory.*: a copy to the host, 1 of 1");
  EXPECT_DEATH(after([](int* a, int*, int*, cudaStream_t) {
                 (void)cudaMemset(a, 0, 32);
                 (void)cudaFree(a);
               }),
               "cudaFree of 32 bytes of device memory.*: filling memory, 1 of 1 on the default");
  EXPECT_DEATH(after([](int* a, int*, int*, cudaStream_t) {
                 const std::array<int, 8> pageable = {};  // which is read at once
                 (void)cudaMemcpy(a, pageable.data(), 32, cudaMemcpyHostToDevice);
                 (void)cudaFree(a);
               }),
               "cudaFree of 32 bytes of device memory.*: a copy from the host, 1 of 1 on the def");
}

TEST_F(InUseDeathTest, MemoryFreedUnderAProductByCublasAborts) {
  for (const int freed : {0, 1, 2, 3}) {
    EXPECT_DEATH(
        {
          const cudaStream_t stream = new_stream();
          std::vector<float*> m(4);
          for (float*& p : m) p = on_device<float>(64);
          void* handle = nullptr;
          const float one = 1;
          const float zero = 0;
          (void)cublas_create(&handle);
          (void)cublas_set_stream(handle, stream);
          (void)cublas_set_workspace(handle, m[3], 256);
          (void)cublas_gemm(handle, 1, 0, 4, 4, 4, &one, m[0], 14, 4, m[1], 14, 4, &zero, m[2], 0,
                            4, 68, -1);
          (void)cudaFree(m[static_cast<size_t>(freed)]);
        },
        "cudaFree of 256 bytes .*: a product by cuBLAS, 1 of 1 on stream 1")
        << freed;
  }
}

TEST_F(InUseDeathTest, StreamOrderedFreesKeepToTheirStream) {
  EXPECT_DEATH(
      {
        const cudaStream_t one = new_stream();
        const cudaStream_t two = new_stream();
        int* value = on_device<int>(1);
        (void)launch(grow_kernel, 1, 1, 0, two, value, 1);
        (void)cudaFreeAsync(value, one);
      },
      "cudaFreeAsync of 4 bytes of device memory.*grow_kernel.*, 1 of 1 on stream 2");
  EXPECT_DEATH(
      {
        const cudaStream_t stream = new_stream();
        int* value = on_device<int>(1);
        (void)cudaFreeAsync(value, stream);
        (void)launch(grow_kernel, 1, 1, 0, stream, value, 1);
      },
      "kernel .*grow_kernel.* uses 4 bytes that cudaFreeAsync has given back");
}
TEST_F(InUse, StreamOrderedFreesLetEarlierWorkBe) {
  const OwnStream stream;
  int* value = on_device<int>(1);
  const Pinned seen(-1);
  ASSERT_EQ(cudaMemsetAsync(value, 0, 4, stream.handle), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(seen.p, value, 4, cudaMemcpyDeviceToHost, stream.handle), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(value, stream.handle), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(value, stream.handle), cudaErrorInvalidValue) << "given back twice";
  EXPECT_EQ(cudaFree(value), cudaErrorInvalidValue);
  EXPECT_EQ(live_device_bytes(), 4u);
  stream.wait();
  EXPECT_EQ(*seen.p, 0);
  EXPECT_EQ(live_device_bytes(), 0u);
}

TEST_F(InUseDeathTest, AStreamDestroyedWithWorkOnItAborts) {
  EXPECT_DEATH(
      {
        const cudaStream_t stream = new_stream();
        (void)launch(grow_kernel, 1, 1, 0, stream, on_device<int>(1), 1);
        (void)cudaStreamDestroy(stream);
      },
      "cudaStreamDestroy of stream 1, and queued work may use it: kernel .*grow_kernel.*, 1 of 1");
}

TEST_F(InUseDeathTest, AnEventDestroyedBeforeItsRecordOrAWaitRanAborts) {
  EXPECT_DEATH(
      {
        const cudaEvent_t event = new_event();
        (void)cudaEventRecord(event, new_stream());
        (void)cudaEventDestroy(event);
      },
      "cudaEventDestroy of event 1, .*: the record of event 1, 1 of 1 on stream 1");
  EXPECT_DEATH(
      {
        const cudaStream_t one = new_stream();
        const cudaStream_t two = new_stream();
        const cudaEvent_t event = new_event();
        (void)cudaEventRecord(event, one);
        (void)cudaStreamWaitEvent(two, event);
        (void)cudaStreamSynchronize(one);
        (void)cudaEventDestroy(event);
      },
      "cudaEventDestroy of event 1, .*: the wait for event 1, 1 of 1 on stream 2");
}

TEST_F(InUseDeathTest, AGraphDestroyedBeforeItRanAborts) {
  EXPECT_DEATH(
      {
        const cudaStream_t stream = new_stream();
        const cudaGraphExec_t graph = graph_of(on_device<int>(1), stream);
        (void)cudaGraphLaunch(graph, stream);
        (void)cudaGraphExecDestroy(graph);
      },
      "cudaGraphExecDestroy of graph 1, .*: kernel .*grow_kernel.* .of graph 1., 1 of 1 on stream");
  EXPECT_DEATH(
      {
        const cudaStream_t stream = new_stream();
        int* value = on_device<int>(1);
        (void)cudaGraphLaunch(graph_of(value, stream), stream);
        (void)cudaFree(value);
      },
      "cudaFree of 4 bytes .*grow_kernel.* .of graph 1., 1 of 1 on stream 1");
}

// Nor does a free wait for the device: what relies on that shows.
TEST_F(InUse, WhatNobodyUsesMayGoAndNothingRuns) {
  const cudaStream_t stream = new_stream();
  const OnDevice<int> value(std::vector<int>{3});
  const Pinned seen(-1);
  const cudaGraphExec_t idle = graph_of(value.p, stream);
  int *before = on_device<int>(16), *behind = on_device<int>(16);
  // An address just past the end of `before` is not in it.
  ASSERT_EQ(launch(grow_kernel, 1, 1, 0, stream, value.p, 1), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(seen.p, value.p, 4, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_EQ(cudaFree(before), cudaSuccess);
  EXPECT_EQ(cudaFree(behind), cudaSuccess);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(idle), cudaSuccess);
  const cudaEvent_t event = new_event();
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(*seen.p, -1);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(*seen.p, 4);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(InUse, ADeviceThatFailedUsesNothing) {
  const cudaStream_t stream = new_stream();
  const OnDevice<int> value(std::vector<int>{3});
  const cudaEvent_t event = new_event();
  ASSERT_EQ(launch(grow_kernel, 1, 1, 0, stream, value.p, 1), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  fail_after(0, cudaErrorIllegalAddress, true);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventDestroy(event), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorIllegalAddress);
  clear_fault();
  EXPECT_EQ(value.values()[0], 3);
}

// --- waits between streams -----------------------------------------------------------------------

TEST_F(InUse, AStreamWaitsForWhatAnEventWasRecordedAfter) {
  const OwnStream one, two;
  const OnDevice<int> value(std::vector<int>{0});
  const Pinned seen(-1);
  const cudaEvent_t event = new_event();
  ASSERT_EQ(launch(grow_kernel, 1, 1, 0, one.handle, value.p, 5), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, one.handle), cudaSuccess);
  ASSERT_EQ(launch(grow_kernel, 1, 1, 0, one.handle, value.p, 100), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(two.handle, event), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(seen.p, value.p, 4, cudaMemcpyDeviceToHost, two.handle), cudaSuccess);
  two.wait();
  EXPECT_EQ(*seen.p, 5) << "what came before the record, and no more";
  one.wait();
  EXPECT_EQ(value.values()[0], 105);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(InUse, AnEventIsWaitedForAndTimedWhenItsRecordRan) {
  const OwnStream stream;
  const OnDevice<int> value(std::vector<int>{0});
  const Pinned seen(-1);
  const cudaEvent_t begin = new_event(), end = new_event();
  float ms = -1;
  EXPECT_EQ(cudaEventSynchronize(begin), cudaSuccess) << "never recorded";
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaEventRecord(begin, stream.handle), cudaSuccess);
  ASSERT_EQ(launch(grow_kernel, 1, 1, 0, stream.handle, value.p, 5), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, stream.handle), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(seen.p, value.p, 4, cudaMemcpyDeviceToHost, stream.handle),
            cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(begin), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
  EXPECT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaSuccess);
  EXPECT_GE(ms, 0);
  EXPECT_EQ(*seen.p, -1) << "what comes after the record has not run";
  stream.wait();
  EXPECT_EQ(*seen.p, 5);
  EXPECT_EQ(cudaEventDestroy(begin), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(end), cudaSuccess);
}

}  // namespace
}  // namespace emulator::testing
