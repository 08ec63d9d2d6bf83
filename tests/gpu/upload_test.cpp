// Uploads by way of two page-locked buffers. On the emulated device a copy from such a buffer reads
// it when the stream runs, so that a buffer filled too early shows.
#include "engine/cuda/runtime/upload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/base/rng.h"
#include "engine/cuda/runtime/queue.h"
#include "tests/gpu/device_memory.h"
#ifdef EVALRUN_CUDA_EMULATED
#include "tests/gpu/emulator/include/emulator.h"
#endif

namespace evalrun::engine::cuda::testing {
namespace {

std::vector<uint8_t> random_bytes(size_t n, uint64_t seed) {
  base::Rng rng(seed);
  std::vector<uint8_t> bytes(n);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng.below(256));
  return bytes;
}

// Of all sizes around a piece, one behind the other and waited for once.
void expect_all_bytes(Upload& upload, size_t piece) {
  const Queue queue(false);
  std::vector<DeviceBuffer> on;
  std::vector<std::vector<uint8_t>> want;
  for (const size_t n : {size_t{1}, piece - 1, piece, piece + 1, 2 * piece, 7 * piece + 13}) {
    want.push_back(random_bytes(n, n));
    on.emplace_back(n);
    std::vector<uint8_t> from = want.back();
    upload.copy(on.back().as<void>(), from.data(), n, queue.stream());
    std::fill(from.begin(), from.end(), uint8_t{0});  // it has been read
  }
  EVALRUN_CUDA(cudaStreamSynchronize(queue.stream()));
  upload.waited();
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(to_host<uint8_t>(on[i], want[i].size()), want[i]) << i;
}

TEST(Uploads, BringEveryByte) {
  for (const size_t piece : {size_t{64}, size_t{1000}}) {
    Upload upload(piece);
    expect_all_bytes(upload, piece);
    expect_all_bytes(upload, piece);
  }
}

#ifdef EVALRUN_CUDA_EMULATED
TEST(Uploads, GoStraightWithoutPageLockedMemory) {
  // The first buffer, or the second: between them are the first one's event, copy and record.
  for (const int refused : {0, 4}) {
    const Queue queue(false);
    Upload upload(512);
    const std::vector<uint8_t> want = random_bytes(4000, 5);
    const DeviceBuffer on(want.size());
    emulator::fail_after(refused, cudaErrorMemoryAllocation, false);
    upload.copy(on.as<void>(), want.data(), want.size(), queue.stream());
    emulator::clear_fault();
    EVALRUN_CUDA(cudaStreamSynchronize(queue.stream()));
    EXPECT_EQ(to_host<uint8_t>(on, want.size()), want);
  }
}

// While one buffer is copied from, the other is filled: the host waits only for a buffer that it
// needs again.
TEST(Uploads, WaitForABufferWhenItsTurnComesAgain) {
  const Queue queue(false);
  Upload upload(512);
  const std::vector<uint8_t> from = random_bytes(4 * 512, 6);
  const DeviceBuffer on(from.size());
  const long before = emulator::waits();
  upload.copy(on.as<void>(), from.data(), 2 * 512, queue.stream());
  EXPECT_EQ(emulator::waits(), before);
  upload.copy(on.as<void>(), from.data(), 512, queue.stream());
  EXPECT_EQ(emulator::waits(), before + 1);
  EVALRUN_CUDA(cudaStreamSynchronize(queue.stream()));
  upload.waited();
}
#endif

}  // namespace
}  // namespace evalrun::engine::cuda::testing
