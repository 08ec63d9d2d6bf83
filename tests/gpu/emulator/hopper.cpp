#include "tests/gpu/emulator/hopper.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "tests/gpu/emulator/accesses.h"
#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/emulator/scheduler.h"
#include "tests/gpu/tensor_cores.h"

namespace emulator {
namespace {

constexpr int kGroup = 128;                 // threads of a warpgroup
constexpr int kDepth = 16;                  // inputs of a wgmma
constexpr uint32_t kUnderWay = 0x7fe0dead;  // sums that are not there yet: not a number

struct Mbarrier {
  unsigned arrivals = 0, pending = 0;
  int64_t bytes = 0;  // expected and not come
  unsigned long phase = 0;
  size_t number = 0;
  int rank = 0;
};
struct BulkCopy {
  unsigned char* to;
  const unsigned char* from;
  size_t bytes;
  uint64_t* barrier;
  int rank;  // whose shared memory
};

// One wgmma of a warpgroup.
struct Product {
  int n = 0;  // sums of a lane
  uint64_t b = 0;
  bool add = false, done = false, waited_for = false;
  int issued = 0;              // lanes that have come to it
  std::vector<uint16_t> seen;  // B when the first one did
  std::array<std::array<uint32_t, 4>, kGroup> a{};
  std::array<float*, kGroup> d{};
};
// Sums of a lane that a wgmma has taken.
struct Flight {
  float* d = nullptr;
  int n = 0;
  std::vector<float> sums;
  size_t last = 0;  // product that writes them last
};
struct Lane {
  size_t issued = 0;           // products so far
  std::vector<size_t> groups;  // committed: products issued until then
  std::vector<Flight> flights;
  bool fenced = false;
  unsigned long awaited = 0;  // phase of the cluster's barrier, from 1; 0: it has not arrived
};
struct Group {
  std::deque<Product> products;
  size_t finished = 0;  // products that are no longer in `products`
  Product& at(size_t number) { return products[number - finished]; }
};

struct Hopper {
  std::map<const uint64_t*, Mbarrier> barriers;
  std::vector<BulkCopy> copies;
  std::vector<Lane> lanes;
  std::map<int, Group> groups;  // by the number of the first thread
  int at_cluster_barrier = 0;
  unsigned long cluster_phase = 0;
  bool used = false;  // since begin()
};
Hopper& hopper_state() {
  static auto* h = new Hopper;
  return *h;
}

Lane& lane_of(int thread) {
  hopper_state().used = true;
  return hopper_state().lanes[static_cast<size_t>(thread)];
}
int rank_of(int thread) { return thread / threads_of_block(); }
// Whose shared memory this is; -1: nobody's.
int owner_of(const void* p, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(p);
  for (int r = 0; r < blocks_together(); ++r)
    if (at >= shared_of(r) && at + bytes <= shared_of(r) + shared_bytes()) return r;
  return -1;
}

Mbarrier& barrier_at(const uint64_t* p) {
  Hopper& h = hopper_state();
  const auto found = h.barriers.find(p);
  if (found == h.barriers.end()) fail("an mbarrier that nobody initialised");
  if (has_ended(found->second.rank)) fail("shared memory of a thread block that has ended");
  return found->second;
}
void complete_if_due(const uint64_t* p, Mbarrier& b) {
  if (b.pending > 0 || b.bytes > 0) return;
  if (b.bytes < 0) fail("more bytes have come to an mbarrier than it was told to expect");
  ++b.phase, b.pending = b.arrivals;
  accesses::completed(p);
}

void arrive(const BulkCopy& c) {
  std::memcpy(c.to, c.from, c.bytes);
  Mbarrier& b = barrier_at(c.barrier);
  accesses::end_bulk_copy(c.to, c.bytes, c.barrier, b.number);
  b.bytes -= static_cast<int64_t>(c.bytes);
  complete_if_due(c.barrier, b);
}

float widened(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &word, sizeof x);
  return x;
}

// A matrix descriptor (PTX ISA, "Matrix Descriptor Format"), K-major: rows of eight inputs.
struct Layout {
  uint64_t start, leading, stride;  // bytes
  unsigned swizzle;                 // 0: none, 1: 128 bytes, 2: 64, 3: 32
  explicit Layout(uint64_t d)
      : start((d & 0x3fff) << 4),
        leading((d >> 16 & 0x3fff) << 4),
        stride((d >> 32 & 0x3fff) << 4),
        swizzle(static_cast<unsigned>(d >> 62)) {
    if ((d >> 49 & 7u) != 0) fail("a matrix descriptor with a base offset");
  }
  // Input k of row r. Without swizzle eight rows of 16 bytes lie together, and `leading` bytes on
  // the next eight inputs of them. With it a row has 128, 64 or 32 bytes, whose pieces of 16 change
  // places by the bits of the address above.
  uint64_t at(int r, int k) const {
    const auto row = static_cast<uint64_t>(r), piece = static_cast<uint64_t>(k / 8),
               in_piece = static_cast<uint64_t>(k % 8) * 2;
    if (swizzle == 0) return start + row / 8 * stride + row % 8 * 16 + piece * leading + in_piece;
    const uint64_t width = uint64_t{256} >> swizzle;
    const uint64_t plain = start + row / 8 * stride + row % 8 * width + piece * 16 + in_piece;
    return plain ^ (plain >> 3 & (width - 16));
  }
};

// B, as [column][16]; `rank`: of the block whose it is.
std::vector<uint16_t> read_b(uint64_t descriptor, int columns, int rank) {
  const Layout layout(descriptor);
  std::vector<uint16_t> b(static_cast<size_t>(columns * kDepth));
  for (int c = 0; c < columns; ++c)
    for (int k = 0; k < kDepth; ++k) {
      const uint64_t at = layout.at(c, k);
      if (at + 2 > shared_bytes()) fail("wgmma reads behind the shared memory of the launch");
      std::memcpy(&b[static_cast<size_t>(c * kDepth + k)], shared_of(rank) + at, 2);
    }
  return b;
}

void check_untouched(const Flight& f) {
  for (int i = 0; i < f.n; ++i)
    if (std::memcmp(f.d + i, &kUnderWay, 4) != 0)
      fail("sums were written while a wgmma that adds to them was under way");
}
Flight* flight_of(Lane& lane, const float* d) {
  for (Flight& f : lane.flights)
    if (f.d == d) return &f;
  return nullptr;
}

void check_shared(const Product& p, int rank) {
  if (read_b(p.b, 2 * p.n, rank) != p.seen)
    fail("shared memory was overwritten before a wgmma that reads it was done");
}

void execute(int first_thread, Product& p) {
  using evalrun::engine::cuda::testing::emulated_tensor_cores;
  using evalrun::engine::cuda::testing::multiply_add;
  p.done = true;
  check_shared(p, rank_of(first_thread));
  const std::vector<uint16_t>& b = p.seen;
  std::vector<float> of_column(b.size());
  std::transform(b.begin(), b.end(), of_column.begin(), widened);
  for (int warp = 0; warp < 4; ++warp) {
    float a[16][kDepth];  // as of mma.m16n8k16
    for (int lane = 0; lane < 32; ++lane)
      for (int r = 0; r < 4; ++r) {
        const uint32_t word = p.a[static_cast<size_t>(warp * 32 + lane)][static_cast<size_t>(r)];
        float* to = a[lane / 4 + 8 * (r % 2)] + 2 * (lane % 4) + 8 * (r / 2);
        to[0] = widened(static_cast<uint16_t>(word)),
        to[1] = widened(static_cast<uint16_t>(word >> 16));
      }
    for (int lane = 0; lane < 32; ++lane) {
      const int thread = warp * 32 + lane;
      Lane& l = lane_of(first_thread + thread);
      Flight& f = *flight_of(l, p.d[static_cast<size_t>(thread)]);
      for (int i = 0; i < p.n; ++i) {
        const int row = lane / 4 + 8 * (i % 4 / 2), column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
        float factors[kDepth];
        std::copy_n(of_column.data() + column * kDepth, kDepth, factors);
        float& sum = f.sums[static_cast<size_t>(i)];
        sum = multiply_add(emulated_tensor_cores(), a[row], factors, p.add ? sum : 0.0f);
      }
    }
  }
}
// Products number 0 to `end` - 1, all lanes of which have come.
void execute_until(Group& group, int first_thread, size_t end) {
  for (size_t i = group.finished; i < end; ++i)
    if (!group.at(i).done) execute(first_thread, group.at(i));
}

int first_of_group(int thread) {
  const int begin = rank_of(thread) * threads_of_block();
  return begin + (thread - begin) / kGroup * kGroup;
}

}  // namespace

namespace hopper {

void begin(int threads) {
  Hopper& h = hopper_state();
  if (!h.used && h.lanes.size() == static_cast<size_t>(threads)) return;  // most kernels
  h.barriers.clear(), h.copies.clear(), h.groups.clear();
  h.lanes.assign(static_cast<size_t>(threads), {});
  h.at_cluster_barrier = 0, h.cluster_phase = 0;
  h.used = false;
}

void end_of_thread(int thread) {
  const Lane& lane = hopper_state().lanes[static_cast<size_t>(thread)];  // used or not
  if (!lane.flights.empty()) fail("a thread ends while a wgmma of it is under way");
}

void end() {
  if (!hopper_state().copies.empty()) fail("bulk copies that nobody waited for");
}

bool some_copies_arrive(bool all_wait) {
  std::vector<BulkCopy>& copies = hopper_state().copies;
  if (copies.empty() || (!all_wait && !shuffled())) return false;
  if (!shuffled()) {  // the oldest
    const BulkCopy copy = copies.front();
    copies.erase(copies.begin());
    arrive(copy);
    return true;
  }
  // Any number of them, in any order.
  const size_t n = all_wait                 ? 1 + next_random() % copies.size()
                   : next_random() % 4 == 0 ? next_random() % copies.size()
                                            : 0;
  for (size_t i = 0; i < n; ++i) {
    std::swap(copies[next_random() % copies.size()], copies.back());
    const BulkCopy copy = copies.back();
    copies.pop_back();
    arrive(copy);
  }
  return n > 0;
}

}  // namespace hopper

int cluster_rank() { return rank_of(g_thread); }
int cluster_size() { return blocks_together(); }
void* of_cluster(void* shared, int rank) {
  const int mine = cluster_rank();
  if (rank < 0 || rank >= blocks_together()) fail("a rank that the cluster does not have");
  if (owner_of(shared, 1) != mine)
    fail("what is to be found in another block is not shared memory");
  return shared_of(rank) + (static_cast<unsigned char*>(shared) - shared_of(mine));
}
void cluster_store(void* to, const void* value, size_t bytes) {
  const accesses::Outside emulating;
  const int rank = owner_of(to, bytes);
  if (rank < 0) fail("a store to what is no shared memory of the cluster");
  if (has_ended(rank)) fail("shared memory of a thread block that has ended");
  accesses::cluster_write(to, bytes, rank, __builtin_return_address(0));
  std::memcpy(to, value, bytes);
}
void cluster_arrive() {
  const accesses::Outside emulating;
  Hopper& h = hopper_state();
  unsigned long& waits = lane_of(g_thread).awaited;
  if (waits != 0) fail("a thread that arrives at the cluster's barrier twice");
  waits = h.cluster_phase + 1;
  accesses::release(g_thread, &h);
  if (++h.at_cluster_barrier < threads_of_block() * blocks_together()) return;
  h.at_cluster_barrier = 0;
  ++h.cluster_phase;
  accesses::completed(&h);
}
void cluster_wait() {
  const accesses::Outside emulating;
  Hopper& h = hopper_state();
  unsigned long& waits = lane_of(g_thread).awaited;
  if (waits == 0) fail("a thread that waits at the cluster's barrier and has not arrived");
  wait_until([&h, &waits] { return h.cluster_phase >= waits; },
             "threads wait at the cluster's barrier that others have left or never reach");
  waits = 0;
  accesses::acquire(g_thread, &h);
}

void mbarrier_init(uint64_t* barrier, unsigned arrivals) {
  const accesses::Outside emulating;
  Hopper& h = hopper_state();
  if (owner_of(barrier, 8) != cluster_rank() || reinterpret_cast<uintptr_t>(barrier) % 8 != 0)
    fail("an mbarrier that is not eight bytes of shared memory");
  if (arrivals == 0) fail("an mbarrier that expects nobody");
  if (h.barriers.contains(barrier)) fail("an mbarrier that is initialised twice");
  h.used = true;
  Mbarrier& b = h.barriers[barrier];
  b.arrivals = b.pending = arrivals;
  b.number = h.barriers.size() - 1;
  b.rank = cluster_rank();
}
void mbarrier_arrive(uint64_t* barrier, unsigned expected_bytes) {
  const accesses::Outside emulating;
  Mbarrier& b = barrier_at(barrier);
  if (b.pending == 0) fail("more threads arrive at an mbarrier than it expects");
  accesses::release(g_thread, barrier);
  b.bytes += expected_bytes;
  --b.pending;
  complete_if_due(barrier, b);
}
void mbarrier_wait(uint64_t* barrier, unsigned parity) {
  const accesses::Outside emulating;
  const Mbarrier& b = barrier_at(barrier);
  wait_until([&b, parity] { return b.phase % 2 != parity; },
             "threads wait for an mbarrier whose phase never ends");
  accesses::acquire(g_thread, barrier);
}

void bulk_copy(void* shared, const void* global, unsigned bytes, uint64_t* barrier) {
  const accesses::Outside emulating;
  Hopper& h = hopper_state();
  const int rank = owner_of(shared, bytes);
  if (rank != cluster_rank()) fail("a bulk copy to what is not the block's shared memory");
  const auto at = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  if (bytes == 0 || bytes % 16 != 0 || at(shared) % 16 != 0 || at(global) % 16 != 0)
    fail("a bulk copy of a size or at an address that hardware refuses");
  (void)barrier_at(barrier);
  for (const BulkCopy& c : h.copies)
    if (c.to < static_cast<unsigned char*>(shared) + bytes && shared < c.to + c.bytes)
      fail("a bulk copy to where another is under way");
  accesses::begin_bulk_copy(shared, global, bytes, __builtin_return_address(0));
  std::memset(shared, 0xFF, bytes);  // whoever looks too early finds no numbers
  h.copies.push_back({static_cast<unsigned char*>(shared),
                      static_cast<const unsigned char*>(global), bytes, barrier, rank});
}
void fence_proxy_async() {
  const accesses::Outside emulating;
  accesses::fence_proxy(g_thread);
}

uint64_t shared_offset(const void* shared) {
  if (owner_of(shared, 1) != cluster_rank()) fail("a descriptor of what is not shared memory");
  return static_cast<uint64_t>(static_cast<const unsigned char*>(shared) - shared_memory());
}

void wgmma_fence() { lane_of(g_thread).fenced = true; }

void wgmma_bf16(float* d, int n, const uint32_t (&a)[4], uint64_t b, bool add) {
  const accesses::Outside emulating;
  Hopper& h = hopper_state();
  const int first = first_of_group(g_thread), in_group = g_thread - first;
  if (first + kGroup > (cluster_rank() + 1) * threads_of_block())
    fail("wgmma in a warpgroup that is not full");
  if (n % 4 != 0 || n < 4 || n > 128) fail("wgmma of a width that hardware does not have");
  Lane& lane = lane_of(g_thread);
  if (!lane.fenced) fail("wgmma without wgmma.fence since registers were written");
  Group& group = h.groups[first];
  const size_t number = lane.issued++;
  if (number == group.finished + group.products.size()) {
    Product& p = group.products.emplace_back();
    p.n = n, p.b = b, p.add = add;
    p.seen = read_b(b, 2 * n, cluster_rank());
    const Layout layout(b);
    const int rows = layout.swizzle == 0 ? 8 : 1;  // that lie together
    for (int c = 0; c < 2 * n; c += rows)
      for (int k = 0; k < kDepth; k += 8)
        accesses::async_read(shared_memory() + layout.at(c, k), static_cast<size_t>(16 * rows),
                             __builtin_return_address(0));
  }
  Product& p = group.at(number);
  if (p.n != n || p.b != b || p.add != add) fail("threads of a warpgroup are at different wgmma");
  Flight* f = flight_of(lane, d);
  if (f == nullptr) {
    f = &lane.flights.emplace_back();
    f->d = d, f->n = n;
    f->sums.assign(d, d + n);
    for (int i = 0; i < n; ++i) std::memcpy(d + i, &kUnderWay, 4);
  } else {
    if (f->n != n) fail("sums of one wgmma are a part of another's");
    check_untouched(*f);
  }
  f->last = number;
  std::copy_n(a, 4, p.a[static_cast<size_t>(in_group)].begin());
  p.d[static_cast<size_t>(in_group)] = d;
  if (++p.issued == kGroup && shuffled() && next_random() % 2 == 0)
    execute_until(group, first, number + 1);
}
void wgmma_commit() {
  Lane& lane = lane_of(g_thread);
  lane.groups.push_back(lane.issued);
  lane.fenced = false;
}
void wgmma_wait(int but_last_groups) {
  const accesses::Outside emulating;
  Hopper& h = hopper_state();
  const int first = first_of_group(g_thread);
  Lane& lane = lane_of(g_thread);
  lane.fenced = false;
  size_t end = 0;
  while (lane.groups.size() > static_cast<size_t>(but_last_groups)) {
    end = lane.groups.front();
    lane.groups.erase(lane.groups.begin());
  }
  if (end == 0) return;
  Group& group = h.groups[first];
  wait_until([&group, end] { return group.finished >= end || group.at(end - 1).issued == kGroup; },
             "threads of a warpgroup do not come to a wgmma");
  execute_until(group, first, end);
  // Until the first thread has waited, nobody may write there, whenever it was read.
  for (size_t i = group.finished; i < end; ++i)
    if (Product& p = group.at(i); !std::exchange(p.waited_for, true))
      check_shared(p, cluster_rank());
  for (size_t i = 0; i < lane.flights.size();) {
    Flight& f = lane.flights[i];
    if (f.last >= end) {
      ++i;
      continue;
    }
    check_untouched(f);
    std::copy(f.sums.begin(), f.sums.end(), f.d);
    lane.flights.erase(lane.flights.begin() + static_cast<ptrdiff_t>(i));
  }
  // What all lanes have been given is forgotten.
  size_t needed = end;
  for (int t = first; t < first + kGroup; ++t) {
    const Lane& other = h.lanes[static_cast<size_t>(t)];
    for (const Flight& f : other.flights) needed = std::min(needed, f.last);
    needed = std::min(needed, other.issued);
  }
  while (group.finished < needed) group.products.pop_front(), ++group.finished;
}

}  // namespace emulator
