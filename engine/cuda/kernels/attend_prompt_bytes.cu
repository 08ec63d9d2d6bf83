// Rows of a prompt whose keys and values are in bytes.
#include "engine/cuda/kernels/prompt_parts.h"

namespace evalrun::engine::cuda {
namespace {

template <int D, typename T>
__global__ void __launch_bounds__(kPromptThreads, D >= 128 ? 4 : 6)
    attend_prompt_bytes(AttentionArguments a) {
  wait_for_previous();
  attend_tile<D, T>(a);
}

}  // namespace

void attend_prompt_rows_of_bytes(const AttentionArguments& a, KvType type, cudaStream_t stream) {
  of_stride(a.head_stride, [&](auto d) {
    of_bytes(type, [&](auto code) {
      launch_prompt("attend_prompt_bytes", attend_prompt_bytes<decltype(d)::value, decltype(code)>,
                    d, a, stream);
    });
  });
}

}  // namespace evalrun::engine::cuda
