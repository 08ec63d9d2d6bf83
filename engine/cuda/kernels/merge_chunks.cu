// Chunks' partial results to outputs.
#include <algorithm>

#include "engine/cuda/kernels/merge_parts.h"

namespace evalrun::engine::cuda {
namespace {

template <int D>
__global__ void __launch_bounds__(merge_threads(D)) merge_chunks(AttentionArguments a) {
  wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x);
  merge_head<D>(
      a, a.merge_batch, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), thread,
      reinterpret_cast<float4*>(evalrun_shared_memory()) + thread / kWarp * kMostMergeBatch);
}

template <int D>
void launch_merge(const AttentionArguments& a, cudaStream_t stream) {
  launch("merge_chunks", merge_chunks<D>,
         dim3(static_cast<unsigned>(a.n_rows), static_cast<unsigned>(a.heads)), merge_threads(D),
         merge_threads(D) / kWarp * kMostMergeBatch * sizeof(float4), stream, a);
}

}  // namespace

int& merge_batch() {
  static int batch = kMostMergeBatch;
  return batch;
}

void merge_partial_results(const AttentionArguments& a, cudaStream_t stream) {
  AttentionArguments b = a;
  b.merge_batch = std::min(merge_batch(), kMostMergeBatch);
  of_stride(a.head_stride, [&](auto d) { launch_merge<decltype(d)::value>(b, stream); });
}

}  // namespace evalrun::engine::cuda
