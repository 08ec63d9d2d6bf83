// Memory on NUMA nodes, by the kernel's own calls (move_pages(2), set_mempolicy(2)). Containers
// often refuse them; then pages stay where a thread touched them first.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace evalrun::engine::cpu {

// Bytes of a node that nobody uses, or only as pages of files that nobody used lately; 0 where a
// tree like /sys/devices/system does not say.
int64_t free_bytes_of_node(int node, const std::filesystem::path& sys);

// Moves the pages that lie wholly within `memory` to these nodes: all to one, or in turns of 2 MiB,
// the size of a huge page. Pages without room there stay. "" = not refused; else why.
std::string move_pages_to(std::span<const std::byte> memory, std::span<const int> nodes);

// While it lives, pages that this thread is the first to touch come from these nodes in turns.
// Nothing changes with one node, and where the kernel refuses.
class PagesInTurns {
 public:
  explicit PagesInTurns(std::span<const int> nodes);
  ~PagesInTurns();
  PagesInTurns(const PagesInTurns&) = delete;
  PagesInTurns& operator=(const PagesInTurns&) = delete;

 private:
  static constexpr size_t kMostNodes = 1024;  // of Linux
  using Mask = std::array<unsigned long, kMostNodes / (8 * sizeof(unsigned long))>;
  static long set(int mode, const Mask& nodes);

  int mode_ = 0;  // what the thread had before
  Mask nodes_ = {};
  bool changed_ = false;
};

}  // namespace evalrun::engine::cpu
