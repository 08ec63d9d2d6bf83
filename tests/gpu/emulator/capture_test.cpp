// Captures of streams: what they take, and that each mistake gives the error of the driver and
// spoils the capture (captures.cpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/emulator/on_device.h"

namespace emulator::testing {
namespace {

void times_kernel(int* value, int by, int plus) { *value = *value * by + plus; }

class Captures : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    set_device_memory(size_t{64} << 20);
    clear_fault();
    ASSERT_EQ(cudaEventCreate(&fork_), cudaSuccess);
    ASSERT_EQ(cudaEventCreate(&join_), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(fork_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(join_), cudaSuccess);
  }

  void begin(const OwnStream& s,
             cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) const {
    ASSERT_EQ(cudaStreamBeginCapture(s.handle, mode), cudaSuccess);
  }
  cudaError_t add(cudaStream_t s, int plus = 1) const {
    return launch(times_kernel, 1, 1, 0, s, value_.p, 10, plus);
  }
  // Ends the capture and runs what it gave, if it gave a graph.
  cudaError_t end(const OwnStream& s) const {
    cudaGraph_t graph = nullptr;
    const cudaError_t e = cudaStreamEndCapture(s.handle, &graph);
    EXPECT_EQ(graph != nullptr, e == cudaSuccess);
    if (graph == nullptr) return e;
    cudaGraphExec_t ready = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&ready, graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(ready, s.handle), cudaSuccess);
    s.wait();
    EXPECT_EQ(cudaGraphExecDestroy(ready), cudaSuccess);
    return e;
  }
  // After a mistake: the stream refuses everything, the end gives no graph, and all is well again.
  void expect_spoilt(const OwnStream& s, const std::string& by) const {
    EXPECT_EQ(add(s.handle), cudaErrorStreamCaptureInvalidated) << by;
    EXPECT_EQ(cudaEventRecord(fork_, s.handle), cudaErrorStreamCaptureInvalidated) << by;
    EXPECT_EQ(end(s), cudaErrorStreamCaptureInvalidated) << by;
    EXPECT_EQ(add(s.handle), cudaSuccess) << by;
    EXPECT_EQ(cudaStreamSynchronize(s.handle), cudaSuccess) << by;
  }

  const OnDevice<int> value_{std::vector<int>{0}};
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
};
using CapturesDeathTest = Captures;

struct Mistake {
  const char* name;
  cudaError_t error;
  std::function<cudaError_t()> call;
};

TEST_F(Captures, WhatIsCapturedHasNoStateToAskFor) {
  const OwnStream s;
  float ms = 0;
  const std::vector<Mistake> mistakes = {
      {"wait for it", cudaErrorStreamCaptureUnsupported,
       [&] { return cudaStreamSynchronize(s.handle); }},
      {"ask for its state", cudaErrorStreamCaptureUnsupported,
       [&] { return cudaStreamQuery(s.handle); }},
      {"wait for the device", cudaErrorStreamCaptureUnsupported, cudaDeviceSynchronize},
      {"wait for its event", cudaErrorCapturedEvent, [&] { return cudaEventSynchronize(fork_); }},
      {"time of its event", cudaErrorCapturedEvent,
       [&] { return cudaEventElapsedTime(&ms, fork_, fork_); }},
  };
  for (const Mistake& m : mistakes)
    for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                            cudaStreamCaptureModeRelaxed}) {
      begin(s, mode);
      ASSERT_EQ(add(s.handle), cudaSuccess);
      ASSERT_EQ(cudaEventRecord(fork_, s.handle), cudaSuccess);
      EXPECT_EQ(m.call(), m.error) << m.name;
      expect_spoilt(s, m.name);
    }
}

TEST_F(Captures, KeepTheirThreadFromUnsafeCalls) {
  const OwnStream s, other;
  int pageable = 0;
  void *device = nullptr, *host = nullptr;
  const std::vector<Mistake> mistakes = {
      {"cudaMalloc", cudaErrorStreamCaptureUnsupported, [&] { return cudaMalloc(&device, 16); }},
      {"cudaMallocHost", cudaErrorStreamCaptureUnsupported,
       [&] { return cudaMallocHost(&host, 16); }},
      {"cudaMemcpy", cudaErrorStreamCaptureUnsupported,
       [&] { return cudaMemcpy(&pageable, value_.p, 4, cudaMemcpyDeviceToHost); }},
      {"another stream", cudaErrorStreamCaptureUnsupported,
       [&] { return cudaStreamSynchronize(other.handle); }},
      {"the state of another stream", cudaErrorStreamCaptureUnsupported,
       [&] { return cudaStreamQuery(other.handle); }},
      {"an event", cudaErrorStreamCaptureUnsupported, [&] { return cudaEventSynchronize(join_); }},
      {"cudaFree", cudaErrorStreamCaptureUnsupported, [&] { return cudaFree(device); }},
      {"cudaFreeHost", cudaErrorStreamCaptureUnsupported, [&] { return cudaFreeHost(host); }},
  };
  for (const Mistake& m : mistakes)
    for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
      begin(s, mode);
      EXPECT_EQ(m.call(), m.error) << m.name;
      expect_spoilt(s, m.name);
      // Of another thread only in global mode.
      begin(s, mode);
      const bool global = mode == cudaStreamCaptureModeGlobal;
      std::thread([&] { EXPECT_EQ(m.call(), global ? m.error : cudaSuccess) << m.name; }).join();
      if (global)
        expect_spoilt(s, m.name);
      else
        EXPECT_EQ(end(s), cudaSuccess);
    }
  EXPECT_EQ(cudaMalloc(&device, 16), cudaSuccess);
  EXPECT_EQ(cudaMallocHost(&host, 16), cudaSuccess);
  begin(s, cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
  EXPECT_EQ(end(s), cudaSuccess);
}

TEST_F(Captures, OfBlockingStreamsTakeTheDefaultStreamAway) {
  OwnStream s;
  ASSERT_EQ(cudaStreamDestroy(s.handle), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&s.handle, cudaStreamDefault), cudaSuccess);
  int pageable = 0;
  const std::vector<Mistake> mistakes = {
      {"launch", cudaErrorStreamCaptureImplicit, [&] { return add(nullptr); }},
      {"wait", cudaErrorStreamCaptureImplicit, [] { return cudaStreamSynchronize(nullptr); }},
      {"state", cudaErrorStreamCaptureImplicit, [] { return cudaStreamQuery(nullptr); }},
      {"record", cudaErrorStreamCaptureImplicit, [&] { return cudaEventRecord(join_, nullptr); }},
      {"cudaMemset", cudaErrorStreamCaptureImplicit, [&] { return cudaMemset(value_.p, 0, 4); }},
      {"cudaMemcpy", cudaErrorStreamCaptureImplicit,
       [&] { return cudaMemcpy(value_.p, &pageable, 4, cudaMemcpyHostToDevice); }},
  };
  for (const Mistake& m : mistakes) {
    begin(s, cudaStreamCaptureModeRelaxed);
    EXPECT_EQ(m.call(), m.error) << m.name;
    expect_spoilt(s, m.name);
  }
  const OwnStream non_blocking;
  begin(non_blocking);
  EXPECT_EQ(add(nullptr), cudaSuccess);
  EXPECT_EQ(end(non_blocking), cudaSuccess);
}

TEST_F(Captures, TakeNoPageableMemoryAndFreeNothing) {
  const OwnStream s;
  int pageable = 0;
  const std::vector<Mistake> mistakes = {
      {"to the device", cudaErrorStreamCaptureUnsupported,
       [&] { return cudaMemcpyAsync(value_.p, &pageable, 4, cudaMemcpyHostToDevice, s.handle); }},
      {"to the host", cudaErrorStreamCaptureUnsupported,
       [&] { return cudaMemcpyAsync(&pageable, value_.p, 4, cudaMemcpyDeviceToHost, s.handle); }},
      {"cudaFreeAsync", cudaErrorInvalidValue, [&] { return cudaFreeAsync(value_.p, s.handle); }},
  };
  for (const Mistake& m : mistakes) {
    begin(s);
    EXPECT_EQ(m.call(), m.error) << m.name;
    expect_spoilt(s, m.name);
  }
}

TEST_F(Captures, TakeForksThatAreJoined) {
  const OwnStream s, side;
  begin(s);
  ASSERT_EQ(add(s.handle, 1), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(fork_, s.handle), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(side.handle, fork_), cudaSuccess);
  ASSERT_EQ(add(side.handle, 2), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(join_, side.handle), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(s.handle, join_), cudaSuccess);
  ASSERT_EQ(add(s.handle, 3), cudaSuccess);
  EXPECT_EQ(value_.p[0], 0) << "captured, not run";
  EXPECT_EQ(end(s), cudaSuccess);
  EXPECT_EQ(value_.values()[0], 123);
  // The other stream is as it was before.
  EXPECT_EQ(add(side.handle, 4), cudaSuccess);
  side.wait();
  EXPECT_EQ(value_.values()[0], 1234);
}

TEST_F(Captures, WantTheirForksJoined) {
  const OwnStream s, side;
  const auto fork = [&] {
    begin(s);
    ASSERT_EQ(cudaEventRecord(fork_, s.handle), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(side.handle, fork_), cudaSuccess);
  };
  const auto join = [&] {
    ASSERT_EQ(cudaEventRecord(join_, side.handle), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(s.handle, join_), cudaSuccess);
  };
  fork();
  EXPECT_EQ(end(s), cudaErrorStreamCaptureUnjoined) << "though nothing was added";
  fork(), join();
  ASSERT_EQ(add(side.handle), cudaSuccess);  // after it was joined
  EXPECT_EQ(end(s), cudaErrorStreamCaptureUnjoined);
  fork(), join();
  EXPECT_EQ(end(s), cudaSuccess);
  // All is well again.
  EXPECT_EQ(add(side.handle), cudaSuccess);
  side.wait();
}

TEST_F(Captures, AreBegunOnceAndEndedWhereTheyBegan) {
  const OwnStream s, side;
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamBeginCapture(s.handle, static_cast<cudaStreamCaptureMode>(3)),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamEndCapture(s.handle, &graph), cudaErrorIllegalState) << "none was begun";
  EXPECT_EQ(graph, nullptr);
  begin(s);
  EXPECT_EQ(cudaStreamBeginCapture(s.handle, cudaStreamCaptureModeThreadLocal),
            cudaErrorIllegalState);
  EXPECT_EQ(end(s), cudaSuccess) << "a second begin spoils nothing";
  EXPECT_EQ(end(s), cudaErrorIllegalState) << "ended twice";

  begin(s);
  ASSERT_EQ(cudaEventRecord(fork_, s.handle), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(side.handle, fork_), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(side.handle, cudaStreamCaptureModeThreadLocal),
            cudaErrorIllegalState);
  EXPECT_EQ(end(side), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(add(side.handle), cudaErrorStreamCaptureInvalidated);
  expect_spoilt(s, "ended on another stream");

  begin(s);
  std::thread([&] { EXPECT_EQ(end(s), cudaErrorStreamCaptureWrongThread); }).join();
  expect_spoilt(s, "ended by another thread");
  begin(s, cudaStreamCaptureModeRelaxed);
  std::thread([&] { EXPECT_EQ(end(s), cudaSuccess); }).join();
}

TEST_F(Captures, DependOnNothingOutside) {
  const OwnStream s, other;
  begin(s);
  EXPECT_EQ(cudaStreamWaitEvent(s.handle, join_), cudaErrorStreamCaptureIsolation)
      << "never recorded";
  expect_spoilt(s, "an event without a record");
  ASSERT_EQ(cudaEventRecord(join_, other.handle), cudaSuccess);
  other.wait();
  begin(s);
  EXPECT_EQ(cudaStreamWaitEvent(s.handle, join_), cudaErrorStreamCaptureIsolation)
      << "though it has run";
  expect_spoilt(s, "an event from outside");

  begin(s), begin(other);
  ASSERT_EQ(cudaEventRecord(fork_, other.handle), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(s.handle, fork_), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(end(other), cudaErrorStreamCaptureInvalidated) << "both are spoilt";
  expect_spoilt(s, "two captures");

  begin(s);
  ASSERT_EQ(cudaEventRecord(fork_, s.handle), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(nullptr, fork_), cudaErrorStreamCaptureImplicit)
      << "the default stream joins none";
  expect_spoilt(s, "the default stream");
  begin(s);
  ASSERT_EQ(cudaEventRecord(fork_, s.handle), cudaSuccess);
  EXPECT_EQ(end(s), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(other.handle, fork_), cudaErrorCapturedEvent)
      << "of a capture that has ended";
  EXPECT_EQ(cudaEventSynchronize(fork_), cudaErrorCapturedEvent);
  ASSERT_EQ(cudaEventRecord(fork_, s.handle), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(fork_), cudaSuccess) << "recorded anew";
}

// As the engine's captures fail: a call gives an error of its own, and the capture is abandoned.
TEST_F(Captures, AreAbandonedAfterAFault) {
  const OwnStream s;
  begin(s);
  fail_after(0, cudaErrorMemoryAllocation, false);
  EXPECT_EQ(add(s.handle), cudaErrorMemoryAllocation);
  EXPECT_EQ(end(s), cudaSuccess) << "a fault of ours spoils nothing";
  begin(s);
  fail_after(0, cudaErrorIllegalAddress, true);
  EXPECT_EQ(add(s.handle), cudaErrorIllegalAddress);
  EXPECT_EQ(end(s), cudaErrorIllegalAddress);
  clear_fault();
  EXPECT_EQ(end(s), cudaErrorIllegalState) << "it is ended";
}

TEST_F(CapturesDeathTest, AStreamDestroyedWhileItIsCapturedAborts) {
  EXPECT_DEATH(
      {
        cudaStream_t stream = nullptr;
        (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        (void)cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
        (void)cudaStreamDestroy(stream);
      },
      "cudaStreamDestroy of stream 1 while it is captured");
}

}  // namespace
}  // namespace emulator::testing
