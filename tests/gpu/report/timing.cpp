#include "tests/gpu/report/timing.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/stats.h"
#include "engine/cuda/graphs.h"

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

Copies::Copies(size_t bytes) : from_(bytes), to_(bytes) {
  cudaStream_t stream = nullptr;
  EVALRUN_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const Event begin, end;
  double best = 0;
  for (int i = 0; i < 11; ++i) {  // one to warm up
    begin.record(stream);
    queue_one(stream);
    end.record(stream);
    EVALRUN_CUDA(cudaStreamSynchronize(stream));
    if (const double ms = end.ms_since(begin); i > 0 && (best == 0 || ms < best)) best = ms;
  }
  EVALRUN_CUDA(cudaStreamDestroy(stream));
  EVALRUN_CHECK(best > 0, "a copy took no time");
  bytes_per_second_ = 2.0 * static_cast<double>(bytes) / (best / 1e3);
}
void Copies::queue_one(cudaStream_t stream) const {
  EVALRUN_CUDA(cudaMemcpyAsync(to_.as<void>(), from_.as<void>(), from_.bytes(),
                               cudaMemcpyDeviceToDevice, stream));
}
void Copies::queue(double ms, cudaStream_t stream) const {
  const double one_ms = 2e3 * static_cast<double>(from_.bytes()) / bytes_per_second_;
  const int n = std::clamp(static_cast<int>(std::ceil(ms / one_ms)), 1, 100);
  for (int i = 0; i < n; ++i) queue_one(stream);
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
