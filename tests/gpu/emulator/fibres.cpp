#include "tests/gpu/emulator/fibres.h"

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/gpu/emulator/accesses.h"
#include "tests/gpu/emulator/hopper.h"
#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/emulator/scheduler.h"
#include "tests/gpu/emulator/traffic_counting.h"
#include "tests/gpu/tensor_cores.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulator {

int g_thread = 0;

namespace {

namespace ctx = boost::context::detail;

constexpr size_t kStack = size_t{128} << 10;
constexpr size_t kSharedGuard = 64;
constexpr size_t kSharedAlignment = 1024;  // what swizzled layouts count on
constexpr size_t kMostFibres = 16 * 1024;  // that take turns

enum class At { kReady, kBarrier, kCollective, kCondition, kDone };

struct Copy {
  unsigned char* to;
  const unsigned char* from;
  int bytes, given;
  bool there = false;
};

struct Fibre {
  uint3 place{};
  At at = At::kDone;
  std::function<bool()> holds;  // kCondition: what it waits for, in words too
  const char* waits_for = "";
  std::vector<Copy> copies;    // not there yet
  bool waited = false;         // for the kernel before
  std::vector<size_t> groups;  // sizes of the committed groups; later copies are in none yet
  ctx::fcontext_t context = nullptr;
  std::unique_ptr<unsigned char[]> stack;
  void* fake_stack = nullptr;  // of the address sanitizer
};

// What the lanes of a warp have brought to the collective they are at.
struct Warp {
  Collective what{};
  int arrived = 0, size = 0;
  uint64_t word[32], result[32];
  int from[32];
  float* d[32];
  const uint32_t *a[32], *b[32];
};

// A thread block of those that run together: one, or a cluster.
struct Block {
  uint3 index{};
  unsigned char* shared = nullptr;
  int waiting = 0, done = 0;  // of its threads
};

struct Machine {
  std::vector<Fibre> fibres;
  std::vector<Warp> warps;
  std::vector<int> order;
  std::vector<Block> blocks;
  std::vector<unsigned char> memory;    // all that is shared
  size_t shared_bytes = 0, stride = 0;  // of a block; from one to the next
  const std::function<void()>* kernel = nullptr;
  ctx::fcontext_t scheduler = nullptr;
  int n = 0, per_block = 0;  // threads
  bool overlaps = false;     // the grid that runs
  bool resident = false;     // all its blocks are there
  uint64_t seed = 0, random = 0;
  void* scheduler_fake = nullptr;
  const void* scheduler_stack = nullptr;
  size_t scheduler_size = 0;
  Machine() { reseed(seed_of_environment()); }
  void reseed(uint64_t s) { seed = s, random = s * 0x9E3779B97F4A7C15u | 1; }
};
Machine& machine() {
  static Machine m;
  return m;
}

Block& block_of(int thread) {
  Machine& m = machine();
  return m.blocks[static_cast<size_t>(thread / m.per_block)];
}

Fibre& running() { return machine().fibres[static_cast<size_t>(g_thread)]; }

void finish_switch(void* fake) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
  (void)fake;
#endif
}

void leave() {  // to the scheduler
  Machine& m = machine();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&running().fake_stack, m.scheduler_stack, m.scheduler_size);
#endif
  m.scheduler = ctx::jump_fcontext(m.scheduler, nullptr).fctx;
  finish_switch(running().fake_stack);
}

void fibre_main(ctx::transfer_t from) {
  Machine& m = machine();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &m.scheduler_stack, &m.scheduler_size);
#endif
  m.scheduler = from.fctx;
  for (;;) {
    (*m.kernel)();
    accesses::end_of_kernel();
    if (m.overlaps && !running().waited)
      fail("a thread ends that did not wait for the kernel before");
    hopper::end_of_thread(g_thread);
    running().at = At::kDone;
    ++block_of(g_thread).done;
    leave();
  }
}

void resume(int number) {
  Machine& m = machine();
  Fibre& f = m.fibres[static_cast<size_t>(number)];
  g_thread = number;
  threadIdx = f.place;
  const Block& block = block_of(number);
  blockIdx = block.index;
  accesses::enter(number, {f.stack.get(), kStack}, {block.shared, m.shared_bytes});
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&m.scheduler_fake, f.stack.get(), kStack);
#endif
  f.context = ctx::jump_fcontext(f.context, nullptr).fctx;
  finish_switch(m.scheduler_fake);
}

void shuffle_order(std::vector<int>& order) {
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[next_random() % i]);
}
// Warps in random order, lanes of each in random order.
void shuffle_threads() {
  Machine& m = machine();
  std::vector<int> warps(m.warps.size());
  std::iota(warps.begin(), warps.end(), 0);
  shuffle_order(warps);
  m.order.clear();
  for (const int w : warps) {
    std::vector<int> lanes(static_cast<size_t>(m.warps[static_cast<size_t>(w)].size));
    std::iota(lanes.begin(), lanes.end(), 32 * w);
    shuffle_order(lanes);
    m.order.insert(m.order.end(), lanes.begin(), lanes.end());
  }
}

float widened(uint32_t pair, int half) {
  const uint32_t bits = half != 0 ? pair & 0xffff0000u : pair << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

namespace tensor_cores = evalrun::engine::cuda::testing;

// Fragments as the PTX manual has them: register r of lane 4 g + t holds, lower half first,
//   A: row g + 8 (r % 2), inputs 2 t + 8 (r / 2) and one more;
//   B: inputs 2 t + 8 r and one more, column g;  D: row g + 8 (r / 2), column 2 t + r % 2.
void multiply(Warp& w) {
  float a[16][16], b[8][16], d[16][8];  // B by column
  const auto each_output = [&](const auto& visit) {
    for (int lane = 0; lane < 32; ++lane)
      for (int r = 0; r < 4; ++r)
        visit(w.d[lane][r], d[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2]);
  };
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r)
      for (int e = 0; e < 2; ++e)
        a[g + 8 * (r % 2)][2 * t + 8 * (r / 2) + e] = widened(w.a[lane][r], e);
    for (int r = 0; r < 2; ++r)
      for (int e = 0; e < 2; ++e) b[g][2 * t + 8 * r + e] = widened(w.b[lane][r], e);
  }
  each_output([](const float& of_lane, float& x) { x = of_lane; });
  tensor_cores::multiply(tensor_cores::emulated_tensor_cores(), a, b, d);
  each_output([](float& of_lane, const float& x) { of_lane = x; });
}

// Of an 8 x 8 matrix lane 4 g + t brings row g, columns 2 t and 2 t + 1, lower half first, and gets
// the same of the transposed one.
void transpose(Warp& w) {
  uint64_t m[8][8];
  for (int lane = 0; lane < 32; ++lane)
    for (int e = 0; e < 2; ++e) m[lane / 4][lane % 4 * 2 + e] = w.word[lane] >> (16 * e) & 0xffffu;
  for (int lane = 0; lane < 32; ++lane) {
    const int row = lane / 4, column = lane % 4 * 2;
    w.result[lane] = m[column][row] | m[column + 1][row] << 16;
  }
}

void complete(Warp& w) {
  uint64_t ballot = 0;
  switch (w.what) {
    case Collective::kSync:
      break;
    case Collective::kShuffle:
      for (int l = 0; l < w.size; ++l) {
        if (w.from[l] < 0 || w.from[l] >= w.size) fail("shuffle from a lane that is not there");
        w.result[l] = w.word[w.from[l]];
      }
      break;
    case Collective::kBallot:
      for (int l = 0; l < w.size; ++l) ballot |= w.word[l] << l;
      std::fill(w.result, w.result + 32, ballot);
      break;
    case Collective::kMma:
      if (w.size != 32) fail("mma in a warp that is not full");
      multiply(w);
      break;
    case Collective::kTranspose:
      if (w.size != 32) fail("movmatrix in a warp that is not full");
      transpose(w);
      break;
  }
}

void copy_now(Copy& c) {
  if (c.there) return;
  std::memset(c.to, 0, static_cast<size_t>(c.bytes));
  std::memcpy(c.to, c.from, static_cast<size_t>(c.given));
  c.there = true;
}

}  // namespace

void set_schedule_seed(uint64_t seed) { machine().reseed(seed); }

unsigned char* shared_memory() { return block_of(g_thread).shared; }

void sync_threads() {
  const accesses::Outside emulating;
  Block& block = block_of(g_thread);
  running().at = At::kBarrier;
  ++block.waiting;
  accesses::release(g_thread, &block);
  leave();
  accesses::after_barrier(g_thread);
  accesses::acquire(g_thread, &block);
}

uint64_t meet(Collective what, uint64_t word, int from_lane) {
  const accesses::Outside emulating;
  Machine& m = machine();
  const int number = g_thread, lane = number % 32;
  Warp& w = m.warps[static_cast<size_t>(number / 32)];
  if (w.arrived == 0)
    w.what = what;
  else if (w.what != what)
    fail("lanes of one warp are at different collectives");
  w.word[lane] = word, w.from[lane] = from_lane;
  if (what == Collective::kSync) accesses::release(number, &w);
  if (++w.arrived < w.size) {
    running().at = At::kCollective;
    leave();
  } else {
    complete(w);
    if (what == Collective::kSync) accesses::completed(&w);
    if (traffic::counting()) traffic::lanes_meet(number / 32);
    w.arrived = 0;
    for (int l = 0; l < w.size; ++l) {
      Fibre& f = m.fibres[static_cast<size_t>(number - lane + l)];
      if (l != lane) f.at = At::kReady;
    }
  }
  if (what == Collective::kSync) {
    accesses::after_warp_sync(number);
    accesses::acquire(number, &w);
  }
  return w.result[lane];
}

void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Machine& m = machine();
  const int number = g_thread, lane = number % 32;
  Warp& w = m.warps[static_cast<size_t>(number / 32)];
  w.d[lane] = d, w.a[lane] = a, w.b[lane] = b;
  meet(Collective::kMma, 0, 0);
}

void wait_for_previous() {
  const accesses::Outside emulating;
  running().waited = true;
  accesses::after_wait(g_thread);
}

void fence() {
  const accesses::Outside emulating;
  accesses::fence(g_thread);
}

// Threads are fibres of one thread: nothing comes in between.
uint64_t atomic_add(void* at, uint64_t value, size_t bytes) {
  const accesses::Outside emulating;
  accesses::atomic(g_thread, at, bytes, __builtin_return_address(0));
  uint64_t before = 0;
  std::memcpy(&before, at, bytes);  // little-endian
  value += before;
  std::memcpy(at, &value, bytes);
  return before;
}

void wait_for_change(const unsigned* at, unsigned mask, unsigned before) {
  const accesses::Outside emulating;
  if (!machine().resident)
    fail("a thread block waits for others of its grid, which need not run at the same time");
  wait_until([=] { return ((*at ^ before) & mask) != 0; },
             "a thread block waits for others of its grid that do not come");
  accesses::observe(g_thread, at, __builtin_return_address(0));
}

void copy_async(void* shared, const void* global, int bytes, int given) {
  const accesses::Outside emulating;
  Machine& m = machine();
  auto* to = static_cast<unsigned char*>(shared);
  const unsigned char* shared_begin = shared_memory();
  if (to < shared_begin || to + bytes > shared_begin + m.shared_bytes)
    fail("asynchronous copy to what is not shared memory");
  const auto aligned = [&](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) == 0;
  };
  if ((bytes != 4 && bytes != 8 && bytes != 16) || !aligned(to) || !aligned(global))
    fail("asynchronous copy of a size or at an address that hardware refuses");
  accesses::begin_copy(shared, global, static_cast<size_t>(bytes), static_cast<size_t>(given),
                       __builtin_return_address(0));
  running().copies.push_back({to, static_cast<const unsigned char*>(global), bytes, given});
  if (m.seed != 0 && next_random() % 2 == 0) copy_now(running().copies.back());
}

void commit_copies() {
  const accesses::Outside emulating;
  Fibre& f = running();
  size_t before = 0;
  for (const size_t group : f.groups) before += group;
  f.groups.push_back(f.copies.size() - before);
}

void wait_copies(int but_last_groups) {
  const accesses::Outside emulating;
  Fibre& f = running();
  while (f.groups.size() > static_cast<size_t>(but_last_groups)) {
    const auto end = f.copies.begin() + static_cast<ptrdiff_t>(f.groups.front());
    for (auto c = f.copies.begin(); c != end; ++c) {
      copy_now(*c);
      accesses::end_copy(g_thread, c->to, static_cast<size_t>(c->bytes),
                         __builtin_return_address(0));
    }
    f.copies.erase(f.copies.begin(), end);
    f.groups.erase(f.groups.begin());
  }
}

namespace {

void all_meet() {
  if (traffic::counting())
    for (size_t w = 0; w < machine().warps.size(); ++w) traffic::lanes_meet(static_cast<int>(w));
}

// Where a block's shared memory lies; poison, guards behind it.
void lay_out_shared(Block& block, size_t number) {
  Machine& m = machine();
  const auto begin = reinterpret_cast<uintptr_t>(m.memory.data());
  const size_t skip = (kSharedAlignment - begin % kSharedAlignment) % kSharedAlignment;
  block.shared = m.memory.data() + skip + number * m.stride;
  std::memset(block.shared, 0xFF, m.shared_bytes);
  std::memset(block.shared + m.shared_bytes, 0xA5, m.stride - m.shared_bytes);
}

// A thread block, or a cluster of them: all their threads, in turns.
void run_blocks() {
  Machine& m = machine();
  for (size_t b = 0; b < m.blocks.size(); ++b) {
    lay_out_shared(m.blocks[b], b);
    m.blocks[b].waiting = m.blocks[b].done = 0;
  }
  accesses::begin_block({m.blocks[0].shared, (m.blocks.size() - 1) * m.stride + m.shared_bytes});
  hopper::begin(m.n);
  for (int i = 0; i < m.n; ++i) {
    Fibre& f = m.fibres[static_cast<size_t>(i)];
    f.at = At::kReady;
    f.copies.clear(), f.groups.clear();
    f.waited = false;
    const auto u = static_cast<uint32_t>(i % m.per_block);
    f.place = {u % blockDim.x, u / blockDim.x % blockDim.y, u / blockDim.x / blockDim.y};
  }
  for (Warp& w : m.warps) w.arrived = 0;
  const auto all_done = [&] {
    return std::all_of(m.blocks.begin(), m.blocks.end(),
                       [&](const Block& b) { return b.done == m.per_block; });
  };
  while (!all_done()) {
    if (m.seed != 0) shuffle_threads();
    bool moved = hopper::some_copies_arrive(false);
    for (const int i : m.order) {
      Fibre& f = m.fibres[static_cast<size_t>(i)];
      if (f.at != At::kReady && !(f.at == At::kCondition && f.holds())) continue;
      f.at = At::kReady;
      resume(i);
      moved = true;
    }
    if (moved) continue;
    for (Block& block : m.blocks) {
      if (block.waiting != m.per_block) continue;
      block.waiting = 0, moved = true;
      accesses::completed(&block);
      for (int i = 0; i < m.per_block; ++i)
        m.fibres[static_cast<size_t>(&block - m.blocks.data()) * static_cast<size_t>(m.per_block) +
                 static_cast<size_t>(i)]
            .at = At::kReady;
    }
    if (moved) all_meet();
    if (moved || hopper::some_copies_arrive(true)) continue;
    for (int i = 0; i < m.n; ++i) {
      g_thread = i, blockIdx = block_of(i).index;
      const Fibre& f = m.fibres[static_cast<size_t>(i)];
      if (f.at == At::kCondition) fail(f.waits_for);
      if (f.at == At::kBarrier)
        fail("threads wait at a barrier that others have left or never reach");
    }
    fail("lanes wait for lanes of their warp that do not come");
  }
  all_meet();
  hopper::end();
  for (int i = 0; i < m.n; ++i)
    if (!m.fibres[static_cast<size_t>(i)].copies.empty())
      fail("asynchronous copies that nobody waited for");
  for (const Block& block : m.blocks)
    for (size_t i = m.shared_bytes; i < m.stride; ++i)
      if (block.shared[i] != 0xA5) fail("written behind the shared memory of the launch");
}

}  // namespace

[[noreturn]] void fail(const char* what) {
  const Machine& m = machine();
  std::fprintf(stderr, "emulator: block (%u, %u, %u), thread %d: %s\n", blockIdx.x, blockIdx.y,
               blockIdx.z, m.per_block > 0 ? g_thread % m.per_block : g_thread, what);
  std::abort();
}

uint64_t next_random() {
  uint64_t& x = machine().random;
  x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  return x;
}
bool shuffled() { return machine().seed != 0; }

void wait_until(std::function<bool()> holds, const char* waits_for) {
  if (holds()) return;
  Fibre& f = running();
  f.holds = std::move(holds), f.waits_for = waits_for;
  f.at = At::kCondition;
  leave();
}

int threads_of_block() { return machine().per_block; }
int blocks_together() { return static_cast<int>(machine().blocks.size()); }
unsigned char* shared_of(int rank) { return machine().blocks[static_cast<size_t>(rank)].shared; }
size_t shared_bytes() { return machine().shared_bytes; }
bool has_ended(int rank) {
  return machine().blocks[static_cast<size_t>(rank)].done == machine().per_block;
}

void run_grid(const void* kernel, dim3 grid, dim3 block, Together together, uint32_t cluster,
              size_t shared_bytes, bool overlaps, const std::function<void()>& body) {
  Machine& m = machine();
  m.resident = together == Together::kGrid;
  if (m.resident) cluster = grid.x * grid.y * grid.z;
  m.kernel = &body;
  m.overlaps = overlaps;
  m.per_block = static_cast<int>(block.x * block.y * block.z);
  m.n = m.per_block * static_cast<int>(cluster);
  const auto n = static_cast<size_t>(m.n);
  m.fibres.reserve(kMostFibres);  // they must not move: parked ones know where they are
  if (cluster > 1 && (m.per_block % 32 != 0 || n > kMostFibres))
    fail("thread blocks that run together and are no whole warps, or too many threads");
  while (m.fibres.size() < n) {
    Fibre& f = m.fibres.emplace_back();
    f.stack.reset(new unsigned char[kStack]);
    f.context = ctx::make_fcontext(f.stack.get() + kStack, kStack, fibre_main);
  }
  m.warps.resize((n + 31) / 32);
  for (size_t w = 0; w < m.warps.size(); ++w)
    m.warps[w].size = std::min(32, m.n - static_cast<int>(w) * 32);
  m.order.resize(n);
  std::iota(m.order.begin(), m.order.end(), 0);
  m.blocks.resize(cluster);
  m.shared_bytes = shared_bytes;
  m.stride =
      (shared_bytes + kSharedGuard + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  m.memory.resize(m.stride * cluster + kSharedAlignment);
  std::vector<uint32_t> first(grid.x * grid.y * grid.z / cluster);
  std::iota(first.begin(), first.end(), 0u);
  if (m.seed != 0)
    for (size_t i = first.size(); i > 1; --i) std::swap(first[i - 1], first[next_random() % i]);
  gridDim = grid, blockDim = block;
  accesses::begin_grid(kernel, n, static_cast<size_t>(m.per_block), together, overlaps);
  if (traffic::counting()) traffic::begin_grid(n);
  for (const uint32_t f : first) {
    for (uint32_t i = 0; i < cluster; ++i) {
      const uint32_t b = f * cluster + i;
      m.blocks[i].index = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
    }
    run_blocks();
  }
}

}  // namespace emulator
