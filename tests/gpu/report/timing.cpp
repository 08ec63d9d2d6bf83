#include "tests/gpu/report/timing.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/stats.h"
#include "engine/cuda/dense.h"
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/runtime/graphs.h"

namespace evalrun::engine::gpu_report {

Summary summarise(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const double half = 1.96 * std::sqrt(n) / 2;
  const double lo = std::max(0.0, std::floor(n / 2 - half));
  const double hi = std::min(n - 1, std::ceil(n / 2 + half) - 1);
  return {base::median(values), values[static_cast<size_t>(lo)], values[static_cast<size_t>(hi)],
          static_cast<int>(values.size())};
}

Event::Event() { EVALRUN_CUDA(cudaEventCreate(&handle_)); }
Event::~Event() {
  if (handle_ != nullptr) (void)cudaEventDestroy(handle_);
}
void Event::record(cudaStream_t stream) const { EVALRUN_CUDA(cudaEventRecord(handle_, stream)); }
double Event::ms_since(const Event& earlier) const {
  float ms = 0;
  EVALRUN_CUDA(cudaEventElapsedTime(&ms, earlier.handle_, handle_));
  return static_cast<double>(ms);
}

namespace {
struct Stream {
  cudaStream_t handle = nullptr;
  Stream() { EVALRUN_CUDA(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
  ~Stream() { (void)cudaStreamDestroy(handle); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};
}  // namespace

Copies::Copies(size_t bytes, double warm_s) : from_(bytes), to_(bytes) {
  // Zeros move faster than what memory usually holds.
  std::vector<uint64_t> words(std::min<size_t>(bytes, 64 << 20) / sizeof(uint64_t));
  base::Rng rng(1);
  for (uint64_t& word : words) word = rng.next();
  for (size_t at = 0; at < bytes; at += words.size() * sizeof(uint64_t))
    EVALRUN_CUDA(cudaMemcpy(from_.as<unsigned char>() + at, words.data(),
                            std::min(bytes - at, words.size() * sizeof(uint64_t)),
                            cudaMemcpyHostToDevice));
  const Stream stream;
  base::SteadyClock clock;
  for (const int64_t begin = clock.now_ns();
       static_cast<double>(clock.now_ns() - begin) < warm_s * 1e9;) {  // clocks rise with work
    queue_one(stream.handle);
    EVALRUN_CUDA(cudaStreamSynchronize(stream.handle));
  }
  const auto per_second = [&](double times, double ms) {
    return times * static_cast<double>(bytes) / (ms / 1e3);
  };
  bytes_per_second_ = per_second(2, best_ms([&](cudaStream_t s) { queue_one(s); }, stream.handle));
  read_bytes_per_second_ =
      per_second(1, best_ms([&](cudaStream_t s) { queue_read(s); }, stream.handle));
}
template <typename Queue>
double Copies::best_ms(const Queue& queue, cudaStream_t stream) const {
  const Event begin, end;
  double best = 0;
  for (int i = 0; i < 11; ++i) {  // one to warm up
    begin.record(stream);
    queue(stream);
    end.record(stream);
    EVALRUN_CUDA(cudaStreamSynchronize(stream));
    if (const double ms = end.ms_since(begin); i > 0 && (best == 0 || ms < best)) best = ms;
  }
  EVALRUN_CHECK(best > 0, "a copy took no time");
  return best;
}
void Copies::queue_read(cudaStream_t stream) const {
  queue_read_all(from_.as<void>(), from_.bytes(), to_.as<unsigned>(), stream);
}
void Copies::queue_one(cudaStream_t stream) const {
  EVALRUN_CUDA(cudaMemcpyAsync(to_.as<void>(), from_.as<void>(), from_.bytes(),
                               cudaMemcpyDeviceToDevice, stream));
}
void Copies::queue(double ms, cudaStream_t stream) const {
  const double one_ms = 1e3 * static_cast<double>(from_.bytes()) / read_bytes_per_second_;
  const int n = std::clamp(static_cast<int>(std::ceil(ms / one_ms)), 1, 200);
  for (int i = 0; i < n; ++i) queue_read(stream);
}

namespace {
bool is_graph(const char* kernel) { return std::string_view(kernel) == cuda::kGraphLaunch; }
}  // namespace

void GraphTimer::before(const char* kernel, cudaStream_t stream) {
  if (!is_graph(kernel)) return;
  copies_.queue(0.5, stream);  // longer than the launch of a graph takes the host
  begin_.record(stream);
}
void GraphTimer::after(const char* kernel, cudaStream_t stream) {
  if (!is_graph(kernel)) return;
  end_.record(stream);
  ++graphs_;
}
double GraphTimer::take_ms() {
  EVALRUN_CHECK(graphs_ == 1, "a forward was {} graphs", graphs_);
  graphs_ = 0;
  return end_.ms_since(begin_);
}

DensePeak dense_peak(int n) {
  const Stream stream;
  const auto dense = cuda::Dense::find(stream.handle);
  if (dense == nullptr) return {n, 0};
  const auto size = static_cast<size_t>(n) * static_cast<size_t>(n);
  std::vector<uint16_t> values(size);
  base::Rng rng(2);
  for (uint16_t& v : values) v = cuda::float_to_bf16(static_cast<float>(2 * rng.uniform() - 1));
  cuda::DeviceBuffer w(size * 2), x(size * 2), y(size * 4), unpacked;
  w.upload(values.data(), size * 2);
  x.upload(values.data(), size * 2);
  cuda::MatrixRef ref;
  ref.storage = WeightStorage::kBf16;
  ref.codes = w.as<unsigned char>();
  ref.in = n, ref.tiles = n / cuda::kTile, ref.blocks = n / cuda::kBlock;
  const Event begin, end;
  double best = 0;
  for (int i = 0; i < 13; ++i) {  // three to warm up
    begin.record(stream.handle);
    dense->multiply(ref, x.as<void>(), n, y.as<float>(), false, unpacked);
    end.record(stream.handle);
    EVALRUN_CUDA(cudaStreamSynchronize(stream.handle));
    if (const double ms = end.ms_since(begin); i >= 3 && (best == 0 || ms < best)) best = ms;
  }
  return {n, 2.0 * n * n * n / (best / 1e3)};
}

double empty_span_us(const Copies& copies) {
  const Stream stream;
  std::vector<Event> events(400);
  copies.queue(1, stream.handle);
  for (const Event& event : events) event.record(stream.handle);
  EVALRUN_CUDA(cudaStreamSynchronize(stream.handle));
  std::vector<double> us;
  for (size_t i = 0; i < events.size(); i += 2)
    us.push_back(events[i + 1].ms_since(events[i]) * 1e3);
  return base::median(us);
}

void KernelTimer::before(const char* kernel, cudaStream_t stream) {
  if (used_ == 0) copies_.queue(busy_ms_, stream);
  if (used_ == spans_.size()) spans_.emplace_back();
  spans_[used_].kernel = kernel;
  spans_[used_].begin.record(stream);
}
void KernelTimer::after(const char*, cudaStream_t stream) { spans_[used_++].end.record(stream); }
std::map<std::string, KernelTimer::Total> KernelTimer::take() {
  std::map<std::string, Total> totals;
  for (size_t i = 0; i < used_; ++i) {
    Total& t = totals[spans_[i].kernel];
    ++t.launches;
    t.ms += spans_[i].end.ms_since(spans_[i].begin);
  }
  used_ = 0;
  return totals;
}

}  // namespace evalrun::engine::gpu_report
