// What kernels ask of memory, counted from the addresses of their accesses: the same on every
// machine, and what a GPU's profiler calls sectors per request and bank conflicts. Kernels compiled
// with the hooks of accesses.h only; while counting, accesses are not checked.
//
// Accesses of a warp's lanes by the same line of code, the same time since lanes last met, are one
// request. That is what hardware does where lanes do not part ways. A structure is one request,
// too, which nvcc may split; atomics count as writes, those on one word as one turn. A bulk copy is
// a request by itself, and takes shared memory a turn for each 128 bytes. A wgmma reads its factor
// once for the warpgroup. A store to another block's shared memory takes that block's banks.
// Arrivals at barriers are not counted.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emulator::traffic {

struct Counts {
  // Global memory.
  uint64_t requests = 0;  // of warps
  uint64_t asked = 0;     // bytes, lane by lane
  // Sectors of 32 bytes, different ones of each request: what is asked of the first-level cache,
  // and of the L2 what that does not hold. Then the same if each request's bytes lay together.
  uint64_t sectors = 0, sectors_least = 0;
  // Bytes of different sectors of the launch: what memory must give and take when caches keep all
  // that is asked for again.
  uint64_t read = 0, written = 0;
  // Parts of `read`: of allocations that no kernel has written since new_step(), which weights,
  // keys and values are; and what the launch itself had written before (partial sums).
  uint64_t lasting = 0, again = 0;
  uint64_t bulk = 0;  // bytes that bulk copies brought to shared memory
  // Shared memory, of the thread's own block or, stores only, of another one of its cluster.
  uint64_t shared = 0;            // bytes, each once a turn
  uint64_t cluster = 0;           // of them, to another block
  uint64_t wavefronts = 0;        // turns of the 32 banks
  uint64_t wavefronts_least = 0;  // the same without two lanes at different words of one bank
  void operator+=(const Counts& more);
};

inline constexpr uint64_t Counts::*kFigures[] = {
    &Counts::requests,        &Counts::asked,   &Counts::sectors,
    &Counts::sectors_least,   &Counts::read,    &Counts::written,
    &Counts::lasting,         &Counts::again,   &Counts::bulk,
    &Counts::shared,          &Counts::cluster, &Counts::wavefronts,
    &Counts::wavefronts_least};

void new_step();                       // what was written before is not of it
void count_as_written(const void* p);  // the allocation, though no kernel of the step has
void start();                          // from the next launch on
Counts stop();                         // what was counted since; nothing is from here on

// Lines of code that ask for more than they need, summed over all that was counted: sectors, and
// turns of the banks. The worst first.
struct Line {
  std::string code;
  uint64_t asked = 0, least = 0;
};
std::vector<Line> lines_of_sectors(size_t most);
std::vector<Line> lines_of_wavefronts(size_t most);

}  // namespace emulator::traffic
