// How much the caches hold, and what is so much larger that it comes from memory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

namespace evalrun::engine::cpu {

// Bytes of the second and higher levels of all caches that the CPUs of this process's affinity mask
// use, each cache once: a matrix is divided among the threads, and so among these caches. Where
// nothing says how large they are, a size above most.
int64_t cache_bytes();
// The same for given CPUs and a tree like /sys/devices/system/cpu; 0 where it says nothing.
int64_t cache_bytes(std::span<const int> cpus, const std::filesystem::path& sys);

// Of so many times the caches, a pass over all of it finds little that the last pass left behind,
// whatever the caches replace.
inline constexpr int64_t kTimesTheCaches = 10;

}  // namespace evalrun::engine::cpu
