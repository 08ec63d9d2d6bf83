#include "engine/cuda/kernels/key_values.h"

#include <cstring>
#include <vector>

#include "engine/cpu/kernels/arith.h"
#include "engine/model/weight_matrix.h"

namespace evalrun::engine::cuda {

void put_head(unsigned char* to, const HeadPlace& place, const float* x) {
  const auto hd = static_cast<size_t>(place.head_dim),
             stride = static_cast<size_t>(place.head_stride);
  std::vector<int8_t> codes(hd);
  if (place.type == KvType::kBytes) {
    const float scale = cpu::round_to_bytes(x, hd, codes.data(), 1);
    std::memcpy(to + byte_scale_at(place.head, place.capacity, place.position, place.head_stride),
                &scale, sizeof scale);
  }
  to += place.head * place.capacity * kv_line_bytes(place.type, place.head_stride);
  for (size_t d = 0; d < hd; ++d) {
    const size_t at =
        place.by_dimension ? d * place.capacity + place.position : place.position * stride + d;
    if (place.type == KvType::kBytes) {
      to[at] = static_cast<unsigned char>(codes[d] + 128);
    } else if (place.type == KvType::kBf16) {
      const uint16_t bits = float_to_bfloat16(x[d]);
      std::memcpy(to + at * sizeof bits, &bits, sizeof bits);
    } else {
      std::memcpy(to + at * sizeof(float), &x[d], sizeof(float));
    }
  }
}

}  // namespace evalrun::engine::cuda
