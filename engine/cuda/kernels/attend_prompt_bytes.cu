// Rows of a prompt whose keys and values are in bytes.
#include "engine/cuda/kernels/prompt_parts.h"

namespace evalrun::engine::cuda {
namespace {

template <int D>
__global__ void __launch_bounds__(kPromptThreads, D >= 128 ? 4 : 6)
    attend_prompt_bytes(AttentionArguments a) {
  wait_for_previous();
  attend_tile<D, unsigned char>(a);
}

}  // namespace

void attend_prompt_rows_of_bytes(const AttentionArguments& a, cudaStream_t stream) {
  of_stride(a.head_stride, [&](auto d) {
    launch_prompt("attend_prompt_bytes", attend_prompt_bytes<decltype(d)::value>, d, a, stream);
  });
}

}  // namespace evalrun::engine::cuda
