// Two facts about the machine that belong beside every time of a forward: how fast memory can be
// read at best, and how far apart the threads sit.
#pragma once
#include <cstddef>
#include <memory>

namespace evalrun::engine {

// Reads the same `bytes` > 0 bytes again and again with `n_threads` >= 1 threads, each its own
// share from the first byte to the last. A host may move the threads to other cores while a program
// runs, and then memory is read at another speed: look again wherever a time is measured.
class ReadProbe {
 public:
  ReadProbe(size_t bytes, int n_threads);  // takes the memory and touches it
  ~ReadProbe();
  ReadProbe(ReadProbe&&) noexcept;
  ReadProbe& operator=(ReadProbe&&) noexcept;

  // Bytes per second: the best of all passes within `seconds`, over several ways to read (one
  // stream per thread, or several with prefetching). Each way is tried at least once.
  double bytes_per_second(double seconds);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One look of a probe of its own.
double read_bandwidth(size_t bytes, int n_threads, double seconds);

// Nanoseconds for a cache line to go from one core to another and back: the median of short series
// between the first core this process may use and each of the other n_threads - 1 (seven of them at
// most), and of these the largest. Virtual cores of one cache cluster need about 100 ns, those of
// two about 400, and a host may move them while a program runs. 0 with one thread or one core.
double cache_line_round_trip_ns(int n_threads);

// At or above this many ns cores count as "far" apart.
inline constexpr double kFarRoundTripNs = 200;

}  // namespace evalrun::engine
