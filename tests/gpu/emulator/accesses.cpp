#include "tests/gpu/emulator/accesses.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/emulator/traffic_counting.h"

// Begin and end of the program's own code and data, by the linker.
extern "C" const char __executable_start, _end;

namespace emulator::accesses {
namespace {

// A thread between two of its steps that order something.
struct Segment {
  uint32_t block = 0;  // of this grid, from 1 in the order they ran
  uint32_t thread = 0;
  uint32_t barriers = 0, warp_syncs = 0, clock = 0;  // that it had passed; clock: all of them
};
struct Access {
  uint32_t segment = 0;    // 0: none
  uint32_t code : 31 = 0;  // where, from the program's begin
  uint32_t is_atomic : 1 = 0;
};
constexpr int kKept = 3;
struct Cell {
  Access write;
  // Since then, of threads that are not ordered; atomics do not race with each other.
  Access reads[kKept], atomics[kKept];
};
// Four bytes; looked at one by one from the first access to fewer.
struct Granule {
  uint32_t when = 0;     // number of the grid (shared memory: of the block) that the rest is of
  uint32_t written = 0;  // the last grid that did
  bool arriving = false, read_only = false;
  Cell all;
  std::unique_ptr<std::array<Cell, 4>> bytes;
};
constexpr size_t kGranule = 4, kPage = 1024;  // granules of a page

// An atomic operation, and what its block had done as far as fences said so before.
struct Release {
  uint32_t block = 0, thread = 0, clock = 0;
  uint32_t before_barrier = 0;   // accesses that had passed fewer barriers
  std::vector<uint32_t> clocks;  // and those of thread i before its clock
};
// What a thread knows of other blocks.
struct Known {
  uint32_t thread = 0, barriers = 0;
  std::vector<Release> of;
};
struct Thread {
  Segment now;
  uint32_t id = 0;  // of `now`, 0 before its first access
  bool fenced = false, waited = false;
  uint32_t fence_barriers = 0, fence_clock = 0;
  uint32_t handed_over = 0;    // to the asynchronous proxy: what came before this clock
  std::vector<uint32_t> seen;  // of a cluster: clocks of its threads and mbarriers that came before
};
// What has arrived somewhere in this phase, and in all that are completed.
struct Meeting {
  std::vector<uint32_t> arriving, done;
};
// Of blocks that run at once: accesses of a block that had passed fewer barriers, known to thread
// `thread` of another, and to the others of that block once they have passed more than `since`.
struct KnownOf {
  uint32_t before_barrier = 0, thread = 0, since = 0;
};
struct Seen {  // an atomic operation and what it could have read
  uint32_t thread, barriers;
  std::vector<Release> releases;
};

struct Checker {
  bool on = false;  // a kernel of this program has the hooks
  bool checked = true;
  uint32_t grid = 0, run = 0, block = 0;  // numbers: grids, blocks in all, blocks of the grid
  bool overlaps = false;                  // the grid
  uint32_t first_running = 1;             // grids that may not have ended when this one begins
  std::unordered_set<const void*> launched;
  std::vector<Segment> segments;
  std::vector<Thread> threads;
  std::vector<Known> known;                                  // to the block
  std::vector<Seen> seen;                                    // by the block
  std::unordered_map<const void*, std::vector<Release>> at;  // atomics of the grid
  std::vector<Granule> shared_cells;
  std::unordered_map<uintptr_t, std::unique_ptr<std::array<Granule, kPage>>> pages;
  Range shared, arguments, last;
  Range all_shared;  // of the cluster, or of all blocks that run at once
  bool cluster = false, resident = false;
  size_t of_block = 0;  // threads
  // Of blocks that run at once: what each has given away at an address, as its fence had it; what a
  // thread has read of that, to be known behind a fence; what is known, [who][of whom], the last
  // two of each.
  std::unordered_map<const void*, std::vector<uint32_t>> given;
  std::unordered_map<uint32_t, std::vector<uint32_t>> read;  // by thread, of all of them
  std::vector<std::array<KnownOf, 2>> known_of;
  std::unordered_map<const void*, Meeting> meetings;
  std::unordered_map<size_t, uint32_t> mbarrier_clocks;
};
Checker& checker() {
  static auto* c = new Checker;  // used while others are destroyed
  return *c;
}
bool looked_at() { return checker().on && (checker().checked || traffic::counting()); }
// Host code may run beside kernels, and shares inline functions with them.
struct Current {
  bool inside = false;
  int thread = 0;
  Range stack;
};
thread_local Current g_current;

bool within(Range r, const void* p, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(p);
  return r.begin != nullptr && at >= r.begin && at + bytes <= r.begin + r.bytes;
}

[[noreturn]] void report(const std::string& what, const void* p, size_t bytes, Kind kind,
                         uint32_t code, const Access* other = nullptr, bool other_writes = false) {
  const Checker& c = checker();
  g_current.inside = false;
  const auto* at = static_cast<const unsigned char*>(p);
  std::string place = "host memory";
  if (within(c.shared, p, 1))
    place = "byte " + std::to_string(at - c.shared.begin) + " of " +
            std::to_string(c.shared.bytes) + " of shared memory";
  else if (const Range r = device_block(p); r.begin != nullptr)
    place = "byte " + std::to_string(at - r.begin) + " of " + std::to_string(r.bytes) +
            " of a block of device memory";
  std::fprintf(stderr, "emulator: %s: thread %d of block (%u, %u, %u) %s %zu bytes at %s\n  %s\n",
               what.c_str(), g_current.thread, blockIdx.x, blockIdx.y, blockIdx.z,
               kind == Kind::kRead ? "reads" : "writes", bytes, place.c_str(),
               source_line(code).c_str());
  if (other != nullptr && other->segment != 0) {
    const Segment& s = c.segments[other->segment];
    std::fprintf(stderr, "thread %u of %s block %s it, no step between orders the two\n  %s\n",
                 s.thread,
                 s.block == c.threads[static_cast<size_t>(g_current.thread)].now.block ? "the same"
                                                                                       : "another",
                 other_writes ? "writes" : "reads", source_line(other->code).c_str());
  }
  std::abort();
}

Thread& current() { return checker().threads[static_cast<size_t>(g_current.thread)]; }

uint32_t segment_of(Thread& t) {
  Checker& c = checker();
  if (t.id == 0) {
    t.id = static_cast<uint32_t>(c.segments.size());
    c.segments.push_back(t.now);
  }
  return t.id;
}
void step(Thread& t) { ++t.now.clock, t.id = 0; }

bool covers(const Release& r, const Segment& s) {
  return r.block == s.block && (s.barriers < r.before_barrier ||
                                (s.thread < r.clocks.size() && s.clock < r.clocks[s.thread]));
}
// Is what this access did there for the thread that runs?
bool ordered(const Access& a, const Thread& t) {
  if (a.segment == 0 || a.segment == t.id) return true;
  const Checker& c = checker();
  const Segment& s = c.segments[a.segment];
  if (c.cluster && s.block == t.now.block)
    return s.thread == t.now.thread || (s.thread < t.seen.size() && s.clock < t.seen[s.thread]);
  if (s.block == t.now.block)
    return s.thread == t.now.thread || s.barriers < t.now.barriers ||
           (s.thread / 32 == t.now.thread / 32 && s.warp_syncs < t.now.warp_syncs);
  if (c.resident) {
    const size_t n = c.threads.size() / c.of_block;
    for (const KnownOf& k : c.known_of[(t.now.block - c.block) * n + (s.block - c.block)])
      if (s.barriers < k.before_barrier && (k.thread == t.now.thread || k.since < t.now.barriers))
        return true;
    return false;
  }
  // An atomic that another one has read also comes before what follows that one.
  for (const Seen& seen : c.seen) {
    if (!a.is_atomic || (seen.thread != t.now.thread && seen.barriers >= t.now.barriers)) continue;
    for (const Release& r : seen.releases)
      if (r.block == s.block && r.thread == s.thread && r.clock == s.clock) return true;
  }
  for (const Known& k : c.known) {
    if (k.thread != t.now.thread && k.barriers >= t.now.barriers) continue;
    for (const Release& r : k.of)
      if (covers(r, s)) return true;
  }
  return false;
}

// Keeps an access among `kept`. What is ordered after it is also ordered after all that are ordered
// before it, so these need not stay. Of others, some of different warps stay.
void keep(Access (&kept)[kKept], const Access& me, const Thread& t) {
  for (Access& a : kept)
    if (ordered(a, t)) {
      a = me;
      return;
    }
  const auto group = [](const Access& a) {
    const Segment& s = checker().segments[a.segment];
    return uint64_t{s.block} << 32 | s.thread / 32;
  };
  static_assert(kKept == 3);
  if (group(kept[0]) == group(kept[1]))
    kept[1] = me;
  else if (group(kept[2]) == group(kept[0]) || group(kept[2]) == group(kept[1]))
    kept[2] = me;
}

void visit(Cell& cell, const void* p, size_t bytes, Kind kind, uint32_t code) {
  Thread& t = current();
  const Access me = {segment_of(t), code, kind == Kind::kAtomic};
  const auto check = [&](const Access& a, bool writes) {
    if (!ordered(a, t)) report("race", p, bytes, kind, code, &a, writes);
  };
  check(cell.write, true);
  if (kind != Kind::kAtomic)
    for (const Access& a : cell.atomics) check(a, true);
  if (kind == Kind::kRead) return keep(cell.reads, me, t);
  for (const Access& r : cell.reads) check(r, false);
  if (kind == Kind::kAtomic) return keep(cell.atomics, me, t);
  cell = {};
  cell.write = me;
}
// By a store or an atomic operation, of this grid or block.
bool is_written(const Cell& cell) {
  return cell.write.segment != 0 || cell.atomics[0].segment != 0;
}

Granule& granule_at(uintptr_t address, bool shared) {
  Checker& c = checker();
  Granule* g = nullptr;
  if (shared) {
    g = &c.shared_cells[(address - reinterpret_cast<uintptr_t>(c.all_shared.begin)) / kGranule];
  } else {
    static uintptr_t last_number = 0;
    static std::array<Granule, kPage>* last = nullptr;
    const uintptr_t number = address / kGranule / kPage;
    if (last == nullptr || number != last_number) {
      auto& page = c.pages[number];
      if (page == nullptr) page = std::make_unique<std::array<Granule, kPage>>();
      last = page.get(), last_number = number;
    }
    g = &(*last)[address / kGranule % kPage];
  }
  const uint32_t when = shared ? c.run : c.grid;
  if (g->when != when) {
    g->when = when;
    g->arriving = g->read_only = false;
    g->all = {};
    g->bytes.reset();
  }
  return *g;
}

// f(granule, first byte in it, bytes in it) for all that hold part of this.
template <typename F>
void for_each_granule(const void* p, size_t bytes, bool shared, F f) {
  auto at = reinterpret_cast<uintptr_t>(p);
  const uintptr_t end = at + bytes;
  while (at < end) {
    const size_t first = at % kGranule, n = std::min(kGranule - first, end - at);
    f(granule_at(at, shared), first, n);
    at += n;
  }
}
void visit_bytes(Granule& g, size_t first, size_t n, const void* p, size_t bytes, Kind kind,
                 uint32_t code) {
  if (n == kGranule && g.bytes == nullptr) return visit(g.all, p, bytes, kind, code);
  if (g.bytes == nullptr) {
    g.bytes = std::make_unique<std::array<Cell, 4>>();
    g.bytes->fill(g.all);
  }
  for (size_t i = first; i < first + n; ++i) visit((*g.bytes)[i], p, bytes, kind, code);
}

enum class Where { kFree, kShared, kDevice };
// Which memory this is, when the thread may access it.
Where place(const void* p, size_t bytes, Kind kind, uint32_t code) {
  Checker& c = checker();
  if (within(g_current.stack, p, bytes)) return Where::kFree;
  if (within(c.shared, p, bytes)) return Where::kShared;
  if (within(c.last, p, bytes)) return Where::kDevice;
  if (within(c.arguments, p, bytes)) {
    if (kind == Kind::kRead) return Where::kFree;
    report("a kernel's arguments are written", p, bytes, kind, code);
  }
  const Range r = device_block(p);
  if (within(r, p, bytes)) {
    c.last = r;
    return Where::kDevice;
  }
  if (r.begin != nullptr || within(c.shared, p, 1)) report("past its end", p, bytes, kind, code);
  const auto* at = static_cast<const char*>(p);
  // Constants, and threadIdx and similar variables.
  if (kind == Kind::kRead && at >= &__executable_start && at + bytes <= &_end) return Where::kFree;
  report("no memory of the device", p, bytes, kind, code);
}

void access(const void* p, size_t bytes, Kind kind, uint32_t code, bool read_only = false) {
  const Where where = place(p, bytes, kind, code);
  if (where == Where::kFree) return;
  if (traffic::counting())
    return traffic::record(g_current.thread, code, p, bytes, kind != Kind::kRead,
                           where == Where::kShared ? traffic::kShared : traffic::kGlobal);
  const bool early = where == Where::kDevice && checker().overlaps && !current().waited;
  if (early && kind != Kind::kRead)
    report("written before the thread waits for the kernel before", p, bytes, kind, code);
  for_each_granule(p, bytes, where == Where::kShared, [&](Granule& g, size_t first, size_t n) {
    if (early && g.written >= checker().first_running)
      report("read before the thread waits for the kernels that wrote it", p, bytes, kind, code);
    if (kind != Kind::kRead) g.written = checker().grid;
    if (g.arriving) report("an asynchronous copy is under way there", p, bytes, kind, code);
    if (kind != Kind::kRead && g.read_only)
      report("the grid reads this by the read-only path", p, bytes, kind, code);
    if (read_only) {
      bool written = is_written(g.all);
      if (g.bytes != nullptr)
        for (const Cell& cell : *g.bytes) written = written || is_written(cell);
      if (written) report("read-only path, but the grid wrote this", p, bytes, kind, code);
      g.read_only = true;
    }
    visit_bytes(g, first, n, p, bytes, kind, code);
  });
}

}  // namespace

void hook(const void* p, size_t bytes, Kind kind, bool aligned, const void* pc) {
  if (!g_current.inside) return;
  const Outside checking;
  if (aligned && reinterpret_cast<uintptr_t>(p) % bytes != 0)
    report("misaligned", p, bytes, kind, code_of(pc));
  access(p, bytes, kind, code_of(pc));
}
void switch_on() { checker().on = true; }

void begin_grid(const void* kernel, size_t threads, size_t of_block, Together together,
                bool overlaps) {
  Checker& c = checker();
  if (!c.on) return;
  if (c.checked) c.launched.insert(kernel);
  ++c.grid, c.block = 0;
  c.overlaps = overlaps;
  if (!overlaps) c.first_running = c.grid;
  c.segments.assign(1, {});
  c.at.clear();
  c.last = {};
  c.threads.resize(threads);
  c.cluster = together == Together::kCluster, c.resident = together == Together::kGrid;
  c.of_block = of_block;
}
std::vector<std::string> checked_kernels() {
  std::vector<std::string> names;
  for (const void* kernel : checker().launched) names.push_back(kernel_name(kernel));
  return names;
}
void begin_block(Range shared) {
  Checker& c = checker();
  if (!c.on) return;
  ++c.run, ++c.block;
  c.shared = c.all_shared = shared;
  c.meetings.clear(), c.mbarrier_clocks.clear();
  if (c.shared_cells.size() < shared.bytes / kGranule + 1)
    c.shared_cells.resize(shared.bytes / kGranule + 1);
  c.known.clear(), c.seen.clear();
  const size_t of_block = c.resident ? c.of_block : c.threads.size();
  for (size_t i = 0; i < c.threads.size(); ++i) {
    c.threads[i] = {};
    c.threads[i].now.block = c.block + static_cast<uint32_t>(i / of_block);
    c.threads[i].now.thread = static_cast<uint32_t>(i % of_block);
  }
  c.given.clear(), c.read.clear();
  const size_t blocks = c.threads.size() / of_block;
  c.known_of.assign(c.resident ? blocks * blocks : 0, {});
}
Unchecked::Unchecked() : was_checked_(checker().checked) { checker().checked = false; }
Unchecked::~Unchecked() { checker().checked = was_checked_; }

void enter(int thread, Range stack, Range shared) {
  g_current = {false, thread, stack};
  checker().shared = shared;
}
void end_of_kernel() { g_current.inside = false; }
Outside::Outside() : was_inside_(g_current.inside) { g_current.inside = false; }
Outside::~Outside() { g_current.inside = was_inside_; }

void after_barrier(int thread) {
  if (!checker().on) return;
  Thread& t = checker().threads[static_cast<size_t>(thread)];
  ++t.now.barriers;
  step(t);
}
void after_wait(int thread) {
  if (checker().on) checker().threads[static_cast<size_t>(thread)].waited = true;
}
void all_grids_ended() { checker().first_running = checker().grid + 1; }
void after_warp_sync(int thread) {
  if (!checker().on) return;
  Thread& t = checker().threads[static_cast<size_t>(thread)];
  ++t.now.warp_syncs;
  step(t);
}
void fence(int thread) {
  Checker& c = checker();
  if (!c.on) return;
  Thread& t = c.threads[static_cast<size_t>(thread)];
  step(t);
  t.fenced = true, t.fence_barriers = t.now.barriers, t.fence_clock = t.now.clock;
  if (c.resident) {
    const auto found = c.read.find(static_cast<uint32_t>(thread));
    if (found == c.read.end()) return;
    const size_t n = found->second.size(), mine = (t.now.block - c.block) * n;
    for (size_t b = 0; b < n; ++b) {
      std::array<KnownOf, 2>& k = c.known_of[mine + b];
      k[0] = k[1];
      k[1] = {found->second[b], t.now.thread, t.now.barriers};
    }
    c.read.erase(found);
    return;
  }
  // What atomics of this thread, or of others before a barrier, have read is known now.
  for (const Seen& s : c.seen)
    if ((s.thread == t.now.thread || s.barriers < t.now.barriers) && !s.releases.empty())
      c.known.push_back({t.now.thread, t.now.barriers, s.releases});
}
void atomic(int thread, void* at, size_t bytes, const void* code) {
  Checker& c = checker();
  if (!looked_at()) return;
  if (reinterpret_cast<uintptr_t>(at) % bytes != 0)
    report("misaligned", at, bytes, Kind::kAtomic, code_of(code));
  access(at, bytes, Kind::kAtomic, code_of(code));
  Thread& t = c.threads[static_cast<size_t>(thread)];
  if (within(c.shared, at, bytes)) return;  // says nothing to other blocks
  if (c.resident) {
    std::vector<uint32_t>& given = c.given[at];
    given.resize(c.threads.size() / c.of_block);
    if (t.fenced) given[t.now.block - c.block] = t.fence_barriers;
    step(t);
    return;
  }
  std::vector<Release>& releases = c.at[at];
  c.seen.push_back({t.now.thread, t.now.barriers, releases});
  Release mine;
  mine.block = t.now.block, mine.thread = t.now.thread, mine.clock = t.now.clock;
  mine.before_barrier = t.fenced ? t.fence_barriers : 0;
  mine.clocks.assign(c.threads.size(), 0);
  for (size_t i = 0; i < c.threads.size(); ++i) {
    const Thread& u = c.threads[i];
    if (u.fenced && (&u == &t || u.fence_barriers < t.now.barriers)) mine.clocks[i] = u.fence_clock;
  }
  releases.push_back(std::move(mine));
  step(t);
}

void observe(int thread, const unsigned* at, const void* code) {
  Checker& c = checker();
  if (!looked_at()) return;
  access(at, sizeof *at, Kind::kAtomic, code_of(code));
  if (traffic::counting()) return;
  c.read[static_cast<uint32_t>(thread)] = c.given[at];
  step(c.threads[static_cast<size_t>(thread)]);
}

void begin_copy(void* shared, const void* global, size_t bytes, size_t given, const void* code) {
  if (!looked_at()) return;
  if (given > 0) access(global, given, Kind::kRead, code_of(code));
  access(shared, bytes, Kind::kWrite, code_of(code));
  if (traffic::counting()) return;
  for_each_granule(shared, bytes, true, [](Granule& g, size_t, size_t) { g.arriving = true; });
}
void end_copy(int thread, void* shared, size_t bytes, const void* code) {
  if (!looked_at() || traffic::counting()) return;
  Thread& t = checker().threads[static_cast<size_t>(thread)];
  const Access me = {segment_of(t), code_of(code), 0};
  for_each_granule(shared, bytes, true, [&](Granule& g, size_t, size_t) {
    g.arriving = false;
    g.all = {};
    g.all.write = me;
    g.bytes.reset();
  });
}

namespace {

void join(std::vector<uint32_t>& into, const std::vector<uint32_t>& more) {
  if (into.size() < more.size()) into.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) into[i] = std::max(into[i], more[i]);
}
void raise_clock(std::vector<uint32_t>& clocks, size_t i, uint32_t to) {
  if (clocks.size() <= i) clocks.resize(i + 1);
  clocks[i] = std::max(clocks[i], to);
}

}  // namespace

void release(int thread, const void* at) {
  Checker& c = checker();
  if (!c.on || !c.cluster || !c.checked) return;
  Thread& t = c.threads[static_cast<size_t>(thread)];
  Meeting& m = c.meetings[at];
  join(m.arriving, t.seen);
  raise_clock(m.arriving, t.now.thread, t.now.clock + 1);
  step(t);
}
void completed(const void* at) {
  Checker& c = checker();
  if (!c.on || !c.cluster || !c.checked) return;
  Meeting& m = c.meetings[at];
  join(m.done, m.arriving);
  m.arriving.clear();
}
void acquire(int thread, const void* at) {
  Checker& c = checker();
  if (!c.on || !c.cluster || !c.checked) return;
  Thread& t = c.threads[static_cast<size_t>(thread)];
  join(t.seen, c.meetings[at].done);
  step(t);
}

void begin_bulk_copy(void* shared, const void* global, size_t bytes, const void* code) {
  if (!looked_at()) return;
  if (traffic::counting()) return traffic::record_bulk_copy(code_of(code), global, bytes);
  access(global, bytes, Kind::kRead, code_of(code));
  access(shared, bytes, Kind::kWrite, code_of(code));
  for_each_granule(shared, bytes, true, [](Granule& g, size_t, size_t) { g.arriving = true; });
}
void end_bulk_copy(void* shared, size_t bytes, const void* mbarrier, size_t number) {
  Checker& c = checker();
  if (!looked_at() || traffic::counting()) return;
  if (!c.cluster) {  // threads are not told apart by what they waited for
    for_each_granule(shared, bytes, true, [](Granule& g, size_t, size_t) {
      g.arriving = false;
      g.all = {};
      g.bytes.reset();
    });
    return;
  }
  const size_t writer = c.threads.size() + number;
  const uint32_t clock = c.mbarrier_clocks[number]++;
  const auto id = static_cast<uint32_t>(c.segments.size());
  Segment s;
  s.block = c.block, s.thread = static_cast<uint32_t>(writer), s.clock = clock;
  c.segments.push_back(s);
  for_each_granule(shared, bytes, true, [&](Granule& g, size_t, size_t) {
    g.arriving = false;
    g.all = {};
    g.all.write.segment = id;
    g.bytes.reset();
  });
  raise_clock(c.meetings[mbarrier].arriving, writer, clock + 1);
}
void cluster_write(void* p, size_t bytes, int rank, const void* code) {
  Checker& c = checker();
  if (!looked_at()) return;
  if (traffic::counting())
    return traffic::record(g_current.thread, code_of(code), p, bytes, true,
                           within(c.shared, p, bytes)
                               ? traffic::kShared
                               : traffic::kCluster + static_cast<uint32_t>(rank));
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0)
    report("misaligned", p, bytes, Kind::kWrite, code_of(code));
  const Range mine = std::exchange(c.shared, c.all_shared);
  access(p, bytes, Kind::kWrite, code_of(code));
  c.shared = mine;
}
void async_read(const void* p, size_t bytes, const void* code) {
  Checker& c = checker();
  if (!looked_at()) return;
  access(p, bytes, Kind::kRead, code_of(code));
  if (traffic::counting()) return;
  for_each_granule(p, bytes, true, [&](Granule& g, size_t, size_t) {
    const auto check = [&](const Access& a) {
      if (a.segment == 0) return;
      const Segment& s = c.segments[a.segment];
      if (s.block != c.block || s.thread >= c.threads.size()) return;  // a bulk copy's
      if (s.clock >= c.threads[s.thread].handed_over)
        report("written, and not handed to the asynchronous proxy that reads it", p, bytes,
               Kind::kRead, code_of(code), &a, true);
    };
    check(g.all.write);
    if (g.bytes != nullptr)
      for (const Cell& cell : *g.bytes) check(cell.write);
  });
}
void fence_proxy(int thread) {
  Checker& c = checker();
  if (!c.on) return;
  Thread& t = c.threads[static_cast<size_t>(thread)];
  step(t);
  t.handed_over = t.now.clock;
}

}  // namespace emulator::accesses

namespace emulator {

void kernel_arguments(const void* p, size_t bytes) {
  auto& c = accesses::checker();
  c.arguments = {static_cast<const unsigned char*>(p), bytes};
  accesses::g_current.inside = accesses::looked_at();
}
void store_whole(void* to, const void* from, size_t bytes) {
  const void* pc = __builtin_return_address(0);
  accesses::hook(from, bytes, accesses::Kind::kRead, true, pc);
  accesses::hook(to, bytes, accesses::Kind::kWrite, true, pc);
  std::memcpy(to, from, bytes);
}
void read_only_load(void* to, const void* p, size_t bytes) {
  if (accesses::g_current.inside) {
    const accesses::Outside checking;
    const uint32_t code = accesses::code_of(__builtin_return_address(0));
    if (reinterpret_cast<uintptr_t>(p) % bytes != 0)
      accesses::report("misaligned", p, bytes, accesses::Kind::kRead, code);
    accesses::access(p, bytes, accesses::Kind::kRead, code, true);
  }
  std::memcpy(to, p, bytes);
}

}  // namespace emulator
