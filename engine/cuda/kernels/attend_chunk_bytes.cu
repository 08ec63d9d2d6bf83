// Chunks of keys in bytes.
#include "engine/cuda/kernels/chunk_parts.h"

namespace evalrun::engine::cuda {
namespace {

// Thread blocks that share a multiprocessor: as many as registers allow without spilling.
template <int D>
constexpr int kByteBlocks = D == 256   ? 2
                            : D == 128 ? 3
                                       : 4;

template <int D, typename T>
__global__ void __launch_bounds__(kChunkThreads, kByteBlocks<D>)
    attend_chunk_bytes(AttentionArguments a) {
  wait_for_previous();
  attend_item_of_block<D, T>(a);
}

}  // namespace

void prepare_bytes() {
  allow_shared_memory(attend_chunk_bytes<256, Int8Code>, 256);
  allow_shared_memory(attend_chunk_bytes<256, cpu::Fp8>, 256);
}

void attend_bytes(const AttentionArguments& a, KvType type, cudaStream_t stream) {
  if (a.at_once) return attend_prompt_rows_of_bytes(a, type, stream);
  of_stride(a.head_stride, [&](auto d) {
    of_bytes(type, [&](auto code) {
      launch_chunks("attend_chunk_bytes", attend_chunk_bytes<decltype(d)::value, decltype(code)>, d,
                    a, stream);
    });
  });
  merge_partial_results(a, stream);
}

}  // namespace evalrun::engine::cuda
