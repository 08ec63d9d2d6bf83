// Every access to memory of kernels that are compiled with -fsanitize=thread, checked as they run:
// what compute-sanitizer's memcheck and racecheck look for, and what they do not see (races in
// global memory, between blocks too). GCC puts a call before every load and store,
// `__tsan_read4` and similar functions. This file answers them instead of the thread sanitizer's
// library, which knows neither blocks nor warps. Kernels compiled without it tell nothing and are
// not checked.
//
// An access is wrong
//   - outside what was allocated, of a freed block, of another thread's locals, of the host's
//     memory but for reads of the program's own constants and static variables (threadIdx is one
//     here),
//   - at an address that is no multiple of its size,
//   - to bytes that an asynchronous copy is still under way to,
//   - when another thread's access of the same bytes is not ordered before it, one of the two a
//     write. Threads run in sequence here, so what matters is not who came first but what
//     the source ordered (PTX ISA, "Memory Consistency Model"):
//       . threads of a block by __syncthreads(), lanes of a warp by __syncwarp(). Shuffles, ballots
//         and mma order nothing;
//       . blocks of a grid by a fence, an atomic operation, another one that reads it, a fence; a
//         barrier may stand between a thread's fence and its block's atomic, and after it as well.
//         Where all blocks run at once, a thread that waits for such an atomic has read it, too;
//       . grids by their stream;
//       . threads of a cluster also by its barrier, and by an mbarrier: what was done before an
//         arrival is there after a wait for that phase. So is what a bulk copy brought.
//   - when it is one of a grid that may begin before the grid before it has ended, the thread has
//     not waited for that one yet (wait_for_previous()), and it writes, or reads what such a grid
//     or one after the last that did not overlap has written. Weights, packed by kernels that
//     somebody waited for on the host, may be read.
//     Bytes that load_once() reads (ld.global.nc) may not be written in that grid at all. Which
//     other loads nvcc sends that way is not known here.
// The first one ends the process, with both source lines when addr2line is installed.
//
// Not checked: two streams at once; reads of memory that was never written, which is not-a-number.
// Not known, and so taken for races: order between blocks that passes through __syncwarp(), through
// a third block, by a fence that is not the thread's last before the atomic, or by an mbarrier in a
// launch without clusters; where all blocks run at once, also what a thread itself did after its
// last barrier and before its fence.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emulator {

// Whose threads take turns: a block's, those of a cluster along x, which see each other's
// shared memory, or a whole grid's, of a cooperative launch.
enum class Together { kBlock, kCluster, kGrid };

}  // namespace emulator

namespace emulator::accesses {

struct Range {
  const unsigned char* begin = nullptr;
  size_t bytes = 0;
};

// The emulator's own code, while it lives; a thread's code is checked from kernel_arguments() on.
class Outside {
 public:
  Outside();
  ~Outside();
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

 private:
  bool was_inside_;
};

// An access, by hooks.cpp; `aligned`: the address must be a multiple of the bytes. `code`: where a
// call of the kernel returns to.
enum class Kind { kRead, kWrite, kAtomic };
void hook(const void* p, size_t bytes, Kind kind, bool aligned, const void* code);
void switch_on();  // this program has kernels with hooks

// What surrounds the accesses; fibres.cpp says it.
// `threads`: that take turns, `of_block` of them a block's. Those of a cluster are looked at as one
// block's are, but for what __syncthreads() orders.
void begin_grid(const void* kernel, size_t threads, size_t of_block, Together together,
                bool overlaps);
void all_grids_ended();  // of the stream that runs: the host has waited for it
void begin_block(Range shared);
void enter(int thread, Range stack, Range shared);  // this thread runs; its block's memory
void end_of_kernel();                               // it is done
void after_barrier(int thread);                     // __syncthreads()
void after_warp_sync(int thread);                   // __syncwarp()
void after_wait(int thread);                        // griddepcontrol.wait
void fence(int thread);
void atomic(int thread, void* at, size_t bytes, const void* code);
// A word that others count in, read by a thread that waited for it.
void observe(int thread, const unsigned* at, const void* code);
void begin_copy(void* shared, const void* global, size_t bytes, size_t given, const void* code);
void end_copy(int thread, void* shared, size_t bytes, const void* code);

// Of clusters. Threads arrive at something (barrier, mbarrier, warp); when all have, that phase is
// completed; who has waited for it knows what was done before the arrivals.
void release(int thread, const void* at);
void completed(const void* at);
void acquire(int thread, const void* at);
void begin_bulk_copy(void* shared, const void* global, size_t bytes, const void* code);
// `number`: of the mbarrier among the cluster's, which counts as the thread that writes.
void end_bulk_copy(void* shared, size_t bytes, const void* mbarrier, size_t number);
// st.shared::cluster, to the block of this rank.
void cluster_write(void* p, size_t bytes, int rank, const void* code);
// By the asynchronous proxy for the thread that runs. What anyone wrote must have been handed over
// before (fence.proxy.async).
void async_read(const void* p, size_t bytes, const void* code);
void fence_proxy(int thread);

// Accesses are not looked at but where they are counted, while it lives.
class Unchecked {
 public:
  Unchecked();
  ~Unchecked();
  Unchecked(const Unchecked&) = delete;
  Unchecked& operator=(const Unchecked&) = delete;

 private:
  bool was_checked_;
};
// Functions and lines of the kernels that were launched and looked at so far.
std::vector<std::string> checked_kernels();

// A place of the program's code, from its begin. Function, file and line there, by addr2line; its
// address without that (source_lines.cpp).
uint32_t code_of(const void* pc);
std::string source_line(uint32_t code);
std::string kernel_name(const void* kernel);  // the same of its first line

Range device_block(const void* p);  // of device memory that holds this, or {}; emulator.cpp

}  // namespace emulator::accesses
