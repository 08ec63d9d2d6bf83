#include "tests/gpu/emulator/traffic.h"

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "tests/gpu/emulator/accesses.h"
#include "tests/gpu/emulator/traffic_counting.h"

namespace emulator::traffic {
namespace {

constexpr size_t kLanes = 32, kBanks = 32;
constexpr uintptr_t kSector = 32, kWord = 4, kPageSectors = 128;
constexpr uintptr_t kPageWords = kPageSectors * kSector / kWord;
constexpr uint64_t kMemories = 16;  // in the key of a site: whose memory it asks

struct Request {
  uint32_t memory = kGlobal;
  uint32_t lanes = 0;  // that asked
  size_t bytes = 0;    // each
  std::array<uintptr_t, kLanes> at;
};
struct Site {
  std::array<uint32_t, kLanes> times{};  // that a lane came by since lanes met
  std::vector<Request> requests;
};
struct Page {
  std::bitset<kPageSectors> read, written, again;
  std::bitset<kPageWords> words_written;
};

struct Counter {
  bool on = false;
  Counts counts;
  std::vector<std::unordered_map<uint64_t, Site>> warps;
  std::unordered_map<uintptr_t, Page> pages;  // of the launch
  std::set<const unsigned char*> written;     // allocations, of the step

  void finish_pages() {
    for (const auto& [number, page] : pages) {
      counts.read += page.read.count() * kSector;
      counts.written += page.written.count() * kSector;
      counts.again += page.again.count() * kSector;
      for_sectors(number, page.written, [&](const accesses::Range& r) { written.insert(r.begin); });
    }
    for (const auto& [number, page] : pages)
      for_sectors(number, page.read, [&](const accesses::Range& r) {
        counts.lasting += written.contains(r.begin) ? 0 : kSector;
      });
    pages.clear();
  }
  // visit(allocation) for each sector of a page that is set.
  template <typename Visit>
  void for_sectors(uintptr_t number, const std::bitset<kPageSectors>& set, const Visit& visit) {
    if (set.none()) return;
    for (size_t s = 0; s < kPageSectors; ++s) {
      if (!set[s]) continue;
      const auto* at =
          reinterpret_cast<const unsigned char*>((number * kPageSectors + s) * kSector);
      if (at < last.begin || at >= last.begin + last.bytes) last = accesses::device_block(at);
      visit(last);
    }
  }
  void touch(uintptr_t at, size_t bytes, bool write) {
    for (uintptr_t s = at / kSector; s <= (at + bytes - 1) / kSector; ++s) {
      Page& page = pages[s / kPageSectors];
      (write ? page.written : page.read).set(s % kPageSectors);
    }
    for (uintptr_t w = at / kWord; w <= (at + bytes - 1) / kWord; ++w) {
      Page& page = pages[w / kPageWords];
      if (write)
        page.words_written.set(w % kPageWords);
      else if (page.words_written[w % kPageWords])
        page.again.set(w % kPageWords * kWord / kSector);
    }
  }
  void finish(const Request& r, uint64_t key) {
    const Counts before = counts;
    r.memory == kGlobal ? finish_global(r) : finish_shared(r);
    add_to_line(key, before);
  }
  void add_to_line(uint64_t key, const Counts& before) {
    OfLine& line = lines[key];
    line.asked += counts.sectors - before.sectors + counts.wavefronts - before.wavefronts;
    line.least += counts.sectors_least - before.sectors_least + counts.wavefronts_least -
                  before.wavefronts_least;
  }
  void finish_global(const Request& r) {
    std::vector<uintptr_t>& sectors = places;
    sectors.clear();
    for (size_t i = 0; i < kLanes; ++i)
      if ((r.lanes >> i & 1u) != 0)
        for (uintptr_t s = r.at[i] / kSector; s <= (r.at[i] + r.bytes - 1) / kSector; ++s)
          sectors.push_back(s);
    std::sort(sectors.begin(), sectors.end());
    counts.sectors +=
        static_cast<uint64_t>(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
    counts.sectors_least += (different_bytes(r) + kSector - 1) / kSector;
    ++counts.requests;
    counts.asked += static_cast<uint64_t>(std::popcount(r.lanes)) * r.bytes;
  }
  // Words of 8 and 16 bytes go half a warp and a quarter at a time.
  void finish_shared(const Request& r) {
    const size_t together = r.bytes >= 16 ? 8 : r.bytes == 8 ? 16 : kLanes;
    for (size_t begin = 0; begin < kLanes; begin += together) {
      const size_t n = words(r, begin, begin + together);
      std::array<uint32_t, kBanks> of_bank{};
      uint32_t most = 0;
      for (size_t i = 0; i < n; ++i) most = std::max(most, ++of_bank[places[i] % kBanks]);
      counts.wavefronts += most;
      counts.wavefronts_least += (n + kBanks - 1) / kBanks;
      counts.shared += n * kWord;
      counts.cluster += r.memory >= kCluster ? n * kWord : 0;
    }
  }
  size_t different_bytes(const Request& r) {
    places.clear();
    for (size_t i = 0; i < kLanes; ++i)
      if ((r.lanes >> i & 1u) != 0) places.push_back(r.at[i]);
    std::sort(places.begin(), places.end());
    size_t n = 0;
    for (size_t i = 0; i < places.size(); ++i)
      n += i + 1 < places.size() ? std::min(r.bytes, places[i + 1] - places[i]) : r.bytes;
    return n;
  }
  // Different words of these lanes, in `places`.
  size_t words(const Request& r, size_t begin, size_t end) {
    places.clear();
    for (size_t i = begin; i < end; ++i)
      if ((r.lanes >> i & 1u) != 0)
        for (uintptr_t w = r.at[i] / kWord; w <= (r.at[i] + r.bytes - 1) / kWord; ++w)
          places.push_back(w);
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    return places.size();
  }
  std::vector<uintptr_t> places;
  struct OfLine {
    uint64_t asked = 0, least = 0;
  };
  std::unordered_map<uint64_t, OfLine> lines;  // by the key of a site
  accesses::Range last;                        // allocation that was looked up
};
Counter& counter() {
  static auto* c = new Counter;
  return *c;
}

}  // namespace

void Counts::operator+=(const Counts& more) {
  for (const auto figure : kFigures) this->*figure += more.*figure;
}

void new_step() { counter().written.clear(); }
void count_as_written(const void* p) { counter().written.insert(accesses::device_block(p).begin); }
void start() { counter().on = true, counter().counts = {}; }
Counts stop() {
  Counter& c = counter();
  c.finish_pages();
  c.on = false;
  return c.counts;
}

namespace {
std::vector<Line> lines_of(bool global, size_t most) {
  // One line is many places in code: unrolled, and of several instances.
  std::map<std::string, Line> by_line;
  for (const auto& [key, line] : counter().lines) {
    if ((key % kMemories == kGlobal) != global || line.asked == line.least) continue;
    const std::string code = accesses::source_line(static_cast<uint32_t>(key / kMemories));
    Line& sum = by_line[code];
    sum.code = code, sum.asked += line.asked, sum.least += line.least;
  }
  std::vector<Line> lines;
  for (auto& [code, line] : by_line) lines.push_back(std::move(line));
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.asked - a.least > b.asked - b.least; });
  lines.resize(std::min(lines.size(), most));
  return lines;
}
}  // namespace
std::vector<Line> lines_of_sectors(size_t most) { return lines_of(true, most); }
std::vector<Line> lines_of_wavefronts(size_t most) { return lines_of(false, most); }

bool counting() { return counter().on; }
void begin_grid(size_t threads) {
  Counter& c = counter();
  c.finish_pages();
  c.last = {};  // may have been freed since
  c.warps.resize((threads + kLanes - 1) / kLanes);
}
void record(int thread, uint32_t code, const void* p, size_t bytes, bool write, uint32_t memory) {
  Counter& c = counter();
  const auto at = reinterpret_cast<uintptr_t>(p);
  if (memory == kGlobal) c.touch(at, bytes, write);
  // Accesses of one line to two memories are two requests.
  const uint64_t key = code * kMemories + memory;
  Site& site = c.warps[static_cast<size_t>(thread) / kLanes][key];
  const uint32_t time = site.times[static_cast<size_t>(thread) % kLanes]++;
  if (time >= site.requests.size()) site.requests.resize(time + 1);
  Request& r = site.requests[time];
  r.memory = memory, r.bytes = bytes;
  const size_t lane = static_cast<size_t>(thread) % kLanes;
  r.lanes |= 1u << lane;
  r.at[lane] = at;
}
void record_bulk_copy(uint32_t code, const void* from, size_t bytes) {
  constexpr size_t kTurn = kBanks * kWord;
  Counter& c = counter();
  const auto at = reinterpret_cast<uintptr_t>(from);
  c.touch(at, bytes, false);
  const Counts before = c.counts;
  ++c.counts.requests;
  c.counts.asked += bytes, c.counts.bulk += bytes, c.counts.shared += bytes;
  c.counts.sectors += (at + bytes - 1) / kSector - at / kSector + 1;
  c.counts.sectors_least += (bytes + kSector - 1) / kSector;
  c.counts.wavefronts += (bytes + kTurn - 1) / kTurn;
  c.counts.wavefronts_least += (bytes + kTurn - 1) / kTurn;
  c.add_to_line(code * kMemories + kGlobal, before);
}
void lanes_meet(int warp) {
  Counter& c = counter();
  for (auto& [key, site] : c.warps[static_cast<size_t>(warp)]) {
    for (const Request& r : site.requests) c.finish(r, key);
    site.requests.clear();
    site.times.fill(0);
  }
}

}  // namespace emulator::traffic
