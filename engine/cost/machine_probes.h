// Two facts about the machine that belong beside every time of a forward: how fast memory can be
// read at best, and how far apart the threads sit.
#pragma once
#include <cstddef>

namespace evalrun::engine {

// Bytes per second with which `n_threads` threads read `bytes` bytes, each its own share from the
// first byte to the last: the best of all passes within `seconds`, over several ways to read (one
// stream per thread, or several with prefetching). A second look within the same run may be faster;
// callers keep the larger.
double read_bandwidth(size_t bytes, int n_threads, double seconds);

// Nanoseconds for a cache line to go from one core to another and back: the median of short series
// between the first core this process may use and each of the other n_threads - 1 (seven of them at
// most), and of these the largest. Virtual cores of one cache cluster need about 100 ns, those of
// two about 400, and a host may move them while a program runs. 0 with one thread or one core.
double cache_line_round_trip_ns(int n_threads);

// At or above this many ns cores count as "far" apart.
inline constexpr double kFarRoundTripNs = 200;

}  // namespace evalrun::engine
