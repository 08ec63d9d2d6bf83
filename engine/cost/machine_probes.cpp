#include "engine/cost/machine_probes.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/cpu/thread_pool.h"
#include "engine/model/weight_matrix.h"

namespace evalrun::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// ---- Reading ------------------------------------------------------------------------------------

constexpr size_t kLineWords = 8;           // 64 bytes
constexpr size_t kPrefetchWords = 2 << 7;  // 2 KiB ahead
// Below this a pass would measure how fast threads start.
constexpr double kLeastPassBytes = 64e6;

// Sum of all words of whole cache lines, read as `kStreams` sequential streams side by side. Eight
// independent sums per stream: the loop over them becomes vector additions.
template <size_t kStreams>
uint64_t read_words(const uint64_t* words, size_t n_lines) {
  std::array<std::array<uint64_t, kLineWords>, kStreams> sums = {};
  const size_t lines = n_lines / kStreams;
  for (size_t i = 0; i < lines; ++i)
    for (size_t s = 0; s < kStreams; ++s) {
      const uint64_t* line = words + (s * lines + i) * kLineWords;
      if constexpr (kStreams > 1) __builtin_prefetch(line + kPrefetchWords);
      for (size_t k = 0; k < kLineWords; ++k) sums[s][k] += line[k];
    }
  uint64_t total = 0;
  for (const auto& stream : sums)
    for (const uint64_t sum : stream) total += sum;
  return total;
}

using Reader = uint64_t (*)(const uint64_t*, size_t);
constexpr Reader kReaders[] = {read_words<1>, read_words<4>, read_words<8>};

// ---- Ping-pong ----------------------------------------------------------------------------------

constexpr int kTrips = 100;            // of one series
constexpr int kSeries = 21;            // medians shrug off the ones another process interrupted
constexpr double kMostSeconds = 0.05;  // for one pair of cores, were one of them taken away
constexpr int kMostPairs = 7;

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  return cpus;
}

// Where pinning is not allowed the two threads still land on two cores: both are busy.
void stay_on(int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(cpu, &mask);
  sched_setaffinity(0, sizeof mask, &mask);
}

struct Ball {
  alignas(64) std::atomic<int> value{0};
  alignas(64) std::atomic<bool> stop{false};
};

// Waits for `value`, giving the core away now and then: the other side may need it.
bool wait_for(const Ball& ball, int value) {
  for (int spins = 1; ball.value.load(std::memory_order_acquire) != value; ++spins) {
    if (ball.stop.load(std::memory_order_relaxed)) return false;
    if (spins % 4096 == 0) std::this_thread::yield();
  }
  return true;
}

double round_trip_ns(int first, int second) {
  Ball ball;
  std::thread answer([&] {
    stay_on(second);
    for (int i = 0; wait_for(ball, 2 * i + 1); ++i)
      ball.value.store(2 * i + 2, std::memory_order_release);
  });
  double median = 0;
  std::thread call([&] {
    stay_on(first);
    std::vector<double> series;
    const Clock::time_point start = Clock::now();
    for (int s = 0, i = 0; s < kSeries + 1; ++s) {
      const Clock::time_point begin = Clock::now();
      for (int t = 0; t < kTrips; ++t, ++i) {
        ball.value.store(2 * i + 1, std::memory_order_release);
        wait_for(ball, 2 * i + 2);
      }
      if (s > 0) series.push_back(seconds_since(begin) * 1e9 / kTrips);  // the first is cold
      if (s > 0 && seconds_since(start) > kMostSeconds) break;
    }
    ball.stop.store(true, std::memory_order_relaxed);
    std::nth_element(series.begin(), series.begin() + static_cast<int>(series.size() / 2),
                     series.end());
    median = series[series.size() / 2];
  });
  call.join();
  answer.join();
  return median;
}

}  // namespace

struct ReadProbe::State {
  State(int n_threads, int n_lines)
      : pool(n_threads),
        lines(n_lines),
        memory(allocate_weights(static_cast<size_t>(n_lines) * 64)) {}

  cpu::ThreadPool pool;
  int lines;
  // The memory weights live in: huge pages where the system grants them to weights.
  std::shared_ptr<std::byte> memory;

  size_t size() const { return static_cast<size_t>(lines) * 64; }
};

// Rounded up to a line per thread and stream, with room for the last prefetch.
ReadProbe::ReadProbe(size_t bytes, int n_threads) {
  EVALRUN_CHECK(bytes > 0 && n_threads >= 1, "{} bytes, {} threads", bytes, n_threads);
  const int lines =
      static_cast<int>(std::max<size_t>(bytes / 64, 8 * static_cast<size_t>(n_threads)));
  state_ = std::make_unique<State>(n_threads, lines);
  State& state = *state_;
  state.pool.run([&](int thread) {  // first touch by the thread that reads
    const auto [begin, end] = state.pool.share(lines, thread);
    std::memset(state.memory.get() + static_cast<size_t>(begin) * 64, 1,
                static_cast<size_t>(end - begin) * 64);
  });
}

ReadProbe::~ReadProbe() = default;
ReadProbe::ReadProbe(ReadProbe&&) noexcept = default;
ReadProbe& ReadProbe::operator=(ReadProbe&&) noexcept = default;

double ReadProbe::bytes_per_second(double seconds) {
  State& state = *state_;
  const auto* words = reinterpret_cast<const uint64_t*>(state.memory.get());
  const auto size = static_cast<double>(state.size());
  const int repeats = static_cast<int>(kLeastPassBytes / size) + 1;
  std::atomic<uint64_t> sink{0};
  double best = 0;
  const Clock::time_point start = Clock::now();
  do {
    for (const Reader read : kReaders) {
      const Clock::time_point begin = Clock::now();
      state.pool.run([&](int thread) {
        const auto [from, to] = state.pool.share(state.lines, thread);
        uint64_t sum = 0;
        for (int r = 0; r < repeats; ++r) {
          sum +=
              read(words + static_cast<size_t>(from) * kLineWords, static_cast<size_t>(to - from));
          // Otherwise the compiler may read once and multiply.
          asm volatile("" : "+r"(sum) : : "memory");
        }
        sink.fetch_add(sum, std::memory_order_relaxed);
      });
      best = std::max(best, size * repeats / seconds_since(begin));
    }
  } while (seconds_since(start) < seconds);
  EVALRUN_CHECK(sink.load() != 0, "the probe read nothing");
  return best;
}

double read_bandwidth(size_t bytes, int n_threads, double seconds) {
  return ReadProbe(bytes, n_threads).bytes_per_second(seconds);
}

double cache_line_round_trip_ns(int n_threads) {
  const std::vector<int> cpus = allowed_cpus();
  const int others = std::min(n_threads, static_cast<int>(cpus.size())) - 1;
  double largest = 0;
  for (int i = 0; i < std::min(others, kMostPairs); ++i) {
    const int other = 1 + i * others / std::min(others, kMostPairs);
    largest = std::max(largest, round_trip_ns(cpus[0], cpus[static_cast<size_t>(other)]));
  }
  return largest;
}

}  // namespace evalrun::engine
