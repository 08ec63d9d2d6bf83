#include "engine/cuda/kernels/key_values.h"

#include <cstring>
#include <vector>

#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/kernels/fp8.h"
#include "engine/model/weight_matrix.h"

namespace evalrun::engine::cuda {

namespace {
float bytes_of_head(const float* x, size_t n, KvType type, unsigned char* to) {
  if (type == KvType::kFp8) return cpu::round_to_fp8(x, n, reinterpret_cast<cpu::Fp8*>(to), 1);
  std::vector<int8_t> codes(n);
  const float scale = cpu::round_to_bytes(x, n, codes.data(), 1);
  for (size_t d = 0; d < n; ++d) to[d] = static_cast<unsigned char>(codes[d] + 128);
  return scale;
}
}  // namespace

float byte_number(KvType type, unsigned char code) {
  return type == KvType::kFp8 ? cpu::fp8_value(static_cast<cpu::Fp8>(code))
                              : static_cast<float>(code - 128);
}

void put_head(unsigned char* to, const HeadPlace& place, const float* x) {
  const auto hd = static_cast<size_t>(place.head_dim),
             stride = static_cast<size_t>(place.head_stride);
  std::vector<unsigned char> codes(hd);
  if (in_bytes(place.type)) {
    const float scale = bytes_of_head(x, hd, place.type, codes.data());
    std::memcpy(to + byte_scale_at(place.head, place.capacity, place.position, place.head_stride),
                &scale, sizeof scale);
  }
  to += place.head * place.capacity * kv_line_bytes(place.type, place.head_stride);
  for (size_t d = 0; d < hd; ++d) {
    const size_t at =
        place.by_dimension ? d * place.capacity + place.position : place.position * stride + d;
    if (in_bytes(place.type)) {
      to[at] = codes[d];
    } else if (place.type == KvType::kBf16) {
      const uint16_t bits = float_to_bfloat16(x[d]);
      std::memcpy(to + at * sizeof bits, &bits, sizeof bits);
    } else {
      std::memcpy(to + at * sizeof(float), &x[d], sizeof(float));
    }
  }
}

}  // namespace evalrun::engine::cuda
