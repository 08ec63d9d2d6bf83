// The device's memory and page-locked memory of the host: taken, freed, watched, copied.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/emulator/runtime.h"

namespace emulator {
namespace {

constexpr size_t kGuard = 256;
constexpr unsigned char kGuardByte = 0xA5;

using Blocks = std::map<unsigned char*, size_t>;

// The block that holds this address; end() where none does.
Blocks::const_iterator block_of(const Blocks& blocks, const void* p, size_t guard = 0) {
  auto* at = static_cast<unsigned char*>(const_cast<void*>(p));
  auto it = blocks.upper_bound(at);
  if (it == blocks.begin()) return blocks.end();
  --it;
  return at < it->first + it->second + guard ? it : blocks.end();
}

void check_guards(unsigned char* p, size_t bytes) {
  for (size_t i = 0; i < kGuard; ++i) {
    const bool front = p[-1 - static_cast<ptrdiff_t>(i)] != kGuardByte,
               behind = p[bytes + i] != kGuardByte;
    if (front || behind) {
      std::fprintf(stderr, "emulator: written %zu bytes %s %zu bytes of device memory\n", i + 1,
                   front ? "in front of" : "behind", bytes);
      std::abort();
    }
  }
}

constexpr size_t kMostWatched = size_t{1} << 20;

void check_freed(const unsigned char* p, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (p[i] != kGuardByte) {
      std::fprintf(stderr, "emulator: %zu bytes of device memory written after they were freed\n",
                   bytes);
      std::abort();
    }
}
// Given back in full only when others have come after it.
void retire(unsigned char* p, size_t bytes) {
  std::memset(p, kGuardByte, bytes);
  state().freed.emplace_back(p, bytes);
  state().freed_bytes += bytes;
  while (state().freed_bytes > kMostWatched) {
    const auto [oldest, size] = state().freed.front();
    check_freed(oldest, size);
    std::free(oldest - kGuard);
    state().freed_bytes -= size;
    state().freed.pop_front();
  }
}

void give_back(unsigned char* p) {
  const auto it = state().device.find(p);
  check_guards(it->first, it->second);
  state().used -= it->second;
  retire(it->first, it->second);
  state().device.erase(it);
}

bool is_pinned(const void* p) { return block_of(state().pinned, p) != state().pinned.end(); }

void copy_lines(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                size_t height) {
  for (size_t i = 0; i < height; ++i)
    std::memmove(static_cast<unsigned char*>(to) + i * to_pitch,
                 static_cast<const unsigned char*>(from) + i * from_pitch, width);
}
Range lines(const void* p, size_t pitch, size_t width, size_t height) {
  return {static_cast<const unsigned char*>(p), height == 0 ? 0 : (height - 1) * pitch + width};
}

const char* kind_of(cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return "a copy from the host";
    case cudaMemcpyDeviceToHost:
      return "a copy to the host";
    default:
      return "a copy";
  }
}

}  // namespace

std::string bytes_text(size_t n) { return std::to_string(n) + " bytes"; }

void check_all_guards() {
  for (const auto& [p, bytes] : state().device) check_guards(p, bytes);
  for (const auto& [p, bytes] : state().freed) check_freed(p, bytes);
}

Range accesses::device_block(const void* p) {
  // What lies just past its end belongs to its guard, and to no other.
  const auto it = block_of(state().device, p, kGuard);
  return it == state().device.end() ? Range{} : Range{it->first, it->second};
}

std::vector<Range> pointed_at(const void* arguments, size_t bytes) {
  std::vector<Range> found;
  for (size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    const unsigned char* p = nullptr;
    std::memcpy(&p, static_cast<const unsigned char*>(arguments) + at, sizeof p);
    if (p == nullptr) continue;
    if (block_of(state().device, p) != state().device.end() || is_pinned(p))
      found.push_back({p, 1});
  }
  return found;
}

}  // namespace emulator

using emulator::Range;
using emulator::state;
using emulator::turn;
using emulator::Work;

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  EMULATED_CALL();
  *total = state().memory;
  *free = state().memory > state().used ? state().memory - state().used : 0;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** p, size_t bytes) {
  EMULATED_CALL();
  RETURN_ERROR(emulator::refuse_unsafe());
  if (state().used + bytes > state().memory) return cudaErrorMemoryAllocation;
  using emulator::kGuard;
  auto* base =
      static_cast<unsigned char*>(std::aligned_alloc(256, (bytes + 2 * kGuard + 255) / 256 * 256));
  std::memset(base, emulator::kGuardByte, bytes + 2 * kGuard);
  std::memset(base + kGuard, 0xFF, bytes);
  state().device[base + kGuard] = bytes;
  state().used += bytes;
  *p = base + kGuard;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  EMULATED_CALL();
  RETURN_ERROR(emulator::refuse_unsafe());
  if (p == nullptr) return cudaSuccess;
  const auto it = state().device.find(static_cast<unsigned char*>(p));
  if (it == state().device.end() || state().freeing.count(it->first) != 0)
    return cudaErrorInvalidValue;
  emulator::abort_if_used("cudaFree of " + emulator::bytes_text(it->second) + " of device memory",
                          {it->first, it->second});
  emulator::give_back(it->first);
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  EMULATED_CALL();
  emulator::Stream& s = emulator::stream_of(stream);
  RETURN_ERROR(emulator::admit(s));
  // A graph frees what a graph has taken, and there is no such memory here.
  RETURN_ERROR(emulator::refuse_captured(s, cudaErrorInvalidValue));
  const auto it = state().device.find(static_cast<unsigned char*>(p));
  if (it == state().device.end() || state().freeing.count(it->first) != 0)
    return cudaErrorInvalidValue;
  Work work;
  work.what = "cudaFreeAsync of " + emulator::bytes_text(it->second) + " of device memory";
  emulator::abort_if_used(work.what, {it->first, it->second}, &s);
  work.run = [start = it->first] {
    state().freeing.erase(start);
    emulator::give_back(start);
  };
  RETURN_ERROR(emulator::queue(stream, std::move(work)));
  state().freeing.insert(it->first);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, size_t bytes) {
  EMULATED_CALL();
  RETURN_ERROR(emulator::refuse_unsafe());
  *p = std::malloc(bytes);
  state().pinned[static_cast<unsigned char*>(*p)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* p) {
  EMULATED_CALL();
  RETURN_ERROR(emulator::refuse_unsafe());
  if (p == nullptr) return cudaSuccess;
  const auto it = state().pinned.find(static_cast<unsigned char*>(p));
  if (it == state().pinned.end()) return cudaErrorInvalidValue;
  emulator::abort_if_used(
      "cudaFreeHost of " + emulator::bytes_text(it->second) + " of page-locked memory",
      {it->first, it->second});
  state().pinned.erase(it);
  std::free(p);
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  EMULATED_CALL();
  emulator::Stream& s = emulator::stream_of(stream);
  const Range written = emulator::lines(to, to_pitch, width, height);
  Work work;
  work.what = emulator::kind_of(kind);
  if (kind == cudaMemcpyHostToDevice && !emulator::is_pinned(from)) {
    // Pageable memory is read at the call.
    RETURN_ERROR(emulator::refuse_captured(s, cudaErrorStreamCaptureUnsupported));
    std::vector<unsigned char> copy(width * height);
    emulator::copy_lines(copy.data(), width, from, from_pitch, width, height);
    work.uses = {written};
    work.run = [=, held = std::move(copy)] {
      emulator::copy_lines(to, to_pitch, held.data(), width, width, height);
    };
    return emulator::queue(stream, std::move(work));
  }
  const bool pageable = kind == cudaMemcpyDeviceToHost && !emulator::is_pinned(to);
  if (pageable) RETURN_ERROR(emulator::refuse_captured(s, cudaErrorStreamCaptureUnsupported));
  work.uses = {written, emulator::lines(from, from_pitch, width, height)};
  work.run = [=] { emulator::copy_lines(to, to_pitch, from, from_pitch, width, height); };
  RETURN_ERROR(emulator::queue(stream, std::move(work)));
  if (pageable) emulator::run(s);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  RETURN_ERROR(emulator::refuse_wait(state().legacy));
  const cudaError_t e =
      cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
  // To the device it returns as soon as the source has been read.
  if (e == cudaSuccess && kind != cudaMemcpyHostToDevice) emulator::run(state().legacy);
  return e;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpy2D(to, bytes, from, bytes, bytes, 1, kind);
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  EMULATED_CALL();
  Work work;
  work.what = "filling memory";
  work.uses = {{static_cast<const unsigned char*>(p), bytes}};
  work.run = [=] { std::memset(p, value, bytes); };
  return emulator::queue(stream, std::move(work));
}
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  return cudaMemsetAsync(p, value, bytes, nullptr);  // does not wait, as the real one
}
