#include "engine/cpu/node_memory.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>
#include <vector>

namespace evalrun::engine::cpu {

int64_t free_bytes_of_node(int node, const std::filesystem::path& sys) {
  std::ifstream in(sys / "node" / ("node" + std::to_string(node)) / "meminfo");
  // "Node 0 MemFree:        12404584 kB"
  std::string word, number, name, unit;
  int64_t kib = 0, total = 0;
  while (in >> word >> number >> name >> kib) {
    if (name == "MemFree:" || name == "Inactive(file):") total += kib * 1024;
    std::getline(in, unit);  // "kB", and nothing for numbers of pages
  }
  return total;
}

std::string move_pages_to(std::span<const std::byte> memory, std::span<const int> nodes) {
  constexpr uintptr_t kTurn = uintptr_t{2} << 20;
  constexpr size_t kAtOnce = 4096;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t end = (begin + memory.size()) / page * page;
  std::vector<void*> pages;
  std::vector<int> to, status;
  for (uintptr_t at = (begin + page - 1) / page * page; at < end;) {
    pages.clear(), to.clear();
    for (; at < end && pages.size() < kAtOnce; at += page) {
      pages.push_back(reinterpret_cast<void*>(at));
      to.push_back(nodes[at / kTurn % nodes.size()]);
    }
    status.resize(pages.size());
    const long moved = syscall(SYS_move_pages, 0, pages.size(), pages.data(), to.data(),
                               status.data(), MPOL_MF_MOVE);
    // ENOENT: all of them are there already (until Linux 4.17).
    if (moved < 0 && errno != ENOENT) return std::generic_category().message(errno);
  }
  return {};
}

long PagesInTurns::set(int mode, const Mask& nodes) {
  return syscall(SYS_set_mempolicy, mode, nodes.data(), kMostNodes + 1);
}

PagesInTurns::PagesInTurns(std::span<const int> nodes) {
  if (nodes.size() < 2 ||
      syscall(SYS_get_mempolicy, &mode_, nodes_.data(), kMostNodes + 1, nullptr, 0UL) != 0)
    return;
  Mask wanted = {};
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  for (const int node : nodes) {
    const auto n = static_cast<size_t>(node);
    if (n < kMostNodes) wanted[n / kBits] |= 1UL << n % kBits;
  }
  changed_ = set(MPOL_INTERLEAVE, wanted) == 0;
}

PagesInTurns::~PagesInTurns() {
  if (changed_) set(mode_, nodes_);
}

}  // namespace evalrun::engine::cpu
