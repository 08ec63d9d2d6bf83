// Where the threads of a team sit: on which NUMA node, under which last-level cache.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace evalrun::engine::cpu {

struct Places {
  std::vector<int> node;     // [thread] its NUMA node, as the kernel numbers them
  std::vector<int> cluster;  // [thread] equal for threads that share their last-level cache
  // Not empty: made up by a test. Node i has so many bytes free, and no memory is moved to it.
  std::vector<int64_t> made_up_free_bytes = {};

  bool made_up() const { return !made_up_free_bytes.empty(); }
  // Each node once, that of the first thread first.
  std::vector<int> nodes() const;
};

// Threads of which nothing is known, because they stay nowhere: one node, one cache.
Places one_place(int n_threads);
// Of threads that stay on these CPUs, by a tree like /sys/devices/system. A CPU that the tree says
// nothing about is on node 0, or shares its cache with its like.
Places places_of(std::span<const int> cpus, const std::filesystem::path& sys);

// "0-3,8,10-11", as the kernel writes lists of CPUs. What it does not write ends the list.
std::vector<int> cpus_in_list(std::string_view list);

}  // namespace evalrun::engine::cpu
