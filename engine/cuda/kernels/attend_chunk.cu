// Chunks of keys in bfloat16, and what the host calls.
#include "engine/cuda/kernels/chunk_parts.h"

namespace evalrun::engine::cuda {
namespace {

// Thread blocks that share a multiprocessor: as many as registers allow without spilling.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kMostChunkBlocks = 3;
#else
constexpr int kMostChunkBlocks = 4;
#endif
template <int D>
constexpr int kChunkBlocks = D == 256   ? 2
                             : D == 128 ? 3
                                        : kMostChunkBlocks;

template <int D>
__global__ void __launch_bounds__(kChunkThreads, kChunkBlocks<D>)
    attend_chunk(AttentionArguments a) {
  wait_for_previous();
  attend_item_of_block<D, uint16_t>(a);
}

}  // namespace

int head_stride_for(int head_dim) {
  for (const int d : {32, 64, 128, 256})
    if (head_dim <= d) return d;
  return 0;
}

size_t partial_floats(int rows, int heads, int slots, int head_stride) {
  return static_cast<size_t>(rows) * static_cast<size_t>(heads) * static_cast<size_t>(slots) *
         (static_cast<size_t>(head_stride) + 2);
}

void prepare_attention() {
  allow_shared_memory(attend_chunk<256>, 256);
  prepare_bytes();
}

int& enough_prompt_tiles() {
  static int tiles = 1024;
  return tiles;
}

bool attends_at_once(int rows, int keys, int heads, int kv_heads, int head_stride) {
  if (prompt_tiles_of(rows, heads / kv_heads).n * kv_heads >= enough_prompt_tiles()) return true;
  return rows > kSplitRows && partial_floats(rounded_size(rows, 16), heads,
                                             rounded_size((keys + kChunk - 1) / kChunk, 8),
                                             head_stride) > kMostPromptPartial;
}

void attend_bf16(const AttentionArguments& a, cudaStream_t stream) {
  if (a.at_once) return attend_prompt_rows(a, stream);
  of_stride(a.head_stride, [&](auto d) {
    launch_chunks("attend_chunk", attend_chunk<decltype(d)::value>, d, a, stream);
  });
  merge_partial_results(a, stream);
}

}  // namespace evalrun::engine::cuda
