#include "tests/gpu/emulator/traffic.h"

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <map>
#include <unordered_map>
#include <vector>

#include "tests/gpu/emulator/accesses.h"
#include "tests/gpu/emulator/traffic_counting.h"

namespace emulator::traffic {
namespace {

constexpr size_t kLanes = 32, kBanks = 32;
constexpr uintptr_t kSector = 32, kWord = 4, kPageSectors = 128;

struct Request {
  Memory memory = Memory::kGlobal;
  uint32_t lanes = 0;  // that asked
  size_t bytes = 0;    // each
  std::array<uintptr_t, kLanes> at;
};
struct Site {
  std::array<uint32_t, kLanes> times{};  // that a lane came by since lanes met
  std::vector<Request> requests;
};
struct Page {
  std::bitset<kPageSectors> read, written;
};

struct Counter {
  bool on = false;
  Counts counts;
  std::vector<std::unordered_map<uint32_t, Site>> warps;
  std::unordered_map<uintptr_t, Page> pages;  // of the launch

  void finish_pages() {
    for (const auto& [number, page] : pages) {
      counts.read += page.read.count() * kSector;
      counts.written += page.written.count() * kSector;
    }
    pages.clear();
  }
  void finish(const Request& r, uint32_t key) {
    const Counts before = counts;
    r.memory == Memory::kShared ? finish_shared(r) : finish_global(r);
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
  std::unordered_map<uint32_t, OfLine> lines;  // by the key of a site
};
Counter& counter() {
  static auto* c = new Counter;
  return *c;
}

}  // namespace

void Counts::operator+=(const Counts& more) {
  requests += more.requests, asked += more.asked, sectors += more.sectors;
  sectors_least += more.sectors_least, read += more.read, written += more.written;
  wavefronts += more.wavefronts, wavefronts_least += more.wavefronts_least;
}

void start() { counter().on = true, counter().counts = {}; }
Counts stop() {
  Counter& c = counter();
  c.finish_pages();
  c.on = false;
  return c.counts;
}

namespace {
std::vector<Line> lines_of(Memory memory, size_t most) {
  // One line is many places in code: unrolled, and of several instances.
  std::map<std::string, Line> by_line;
  for (const auto& [key, line] : counter().lines) {
    if ((key % 2 != 0) != (memory == Memory::kShared) || line.asked == line.least) continue;
    const std::string code = accesses::source_line(key / 2);
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
std::vector<Line> lines_of_sectors(size_t most) { return lines_of(Memory::kGlobal, most); }
std::vector<Line> lines_of_wavefronts(size_t most) { return lines_of(Memory::kShared, most); }

bool counting() { return counter().on; }
void begin_grid(size_t threads) {
  Counter& c = counter();
  c.finish_pages();
  c.warps.resize((threads + kLanes - 1) / kLanes);
}
void record(int thread, uint32_t code, const void* p, size_t bytes, bool write, Memory memory) {
  Counter& c = counter();
  const auto at = reinterpret_cast<uintptr_t>(p);
  if (memory == Memory::kGlobal)
    for (uintptr_t s = at / kSector; s <= (at + bytes - 1) / kSector; ++s) {
      Page& page = c.pages[s / kPageSectors];
      (write ? page.written : page.read).set(s % kPageSectors);
    }
  // Shared and global accesses of one line are two requests.
  const uint32_t key = code * 2 + (memory == Memory::kShared ? 1 : 0);
  Site& site = c.warps[static_cast<size_t>(thread) / kLanes][key];
  const uint32_t time = site.times[static_cast<size_t>(thread) % kLanes]++;
  if (time >= site.requests.size()) site.requests.resize(time + 1);
  Request& r = site.requests[time];
  r.memory = memory, r.bytes = bytes;
  const size_t lane = static_cast<size_t>(thread) % kLanes;
  r.lanes |= 1u << lane;
  r.at[lane] = at;
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
