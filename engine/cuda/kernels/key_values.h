// How keys and values lie in the device's memory: in the cache, among the rows of a forward, in the
// prefix bank. Host code and kernels read it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace evalrun::engine::cuda {

// kInt8 and kFp8 are bytes, the codes and scales of the CPU: cpu::round_to_bytes(), each code +
// 128; cpu::round_to_fp8().
enum class KvType { kF32, kBf16, kInt8, kFp8 };
constexpr bool in_bytes(KvType type) { return type == KvType::kInt8 || type == KvType::kFp8; }

// Keys and values of one layer, heads padded to head_stride (where products take bfloat16: 32, 64,
// 128 or 256). bfloat16: padded with zeros; keys by position, values by dimension, so that both are
// read in whole words:
//   k [sequence][kv head][capacity][head_stride], v [sequence][kv head][head_stride][capacity].
// The rows of a forward have both by row: [kv head][rows][head_stride].
// float32: both by position.
// Bytes: as bfloat16, in a byte each; behind the codes of every head are its scales, in float32:
// [capacity], or [rows].
struct KeyValues {
  void* k = nullptr;
  void* v = nullptr;
  int capacity = 0;  // positions, a multiple of 128; or rows
};

// Bytes that one position, or one row, of a head takes.
constexpr size_t kv_line_bytes(KvType type, int head_stride) {
  const auto stride = static_cast<size_t>(head_stride);
  return type == KvType::kF32    ? stride * sizeof(float)
         : type == KvType::kBf16 ? stride * sizeof(uint16_t)
                                 : stride + sizeof(float);
}
// The same of bytes, and where the scale of a position is, of head number `head`. Its codes begin
// at head * capacity * byte_line().
constexpr size_t byte_line(int head_stride) { return kv_line_bytes(KvType::kInt8, head_stride); }
constexpr size_t byte_scale_at(size_t head, size_t capacity, size_t position, int head_stride) {
  return head * capacity * byte_line(head_stride) + capacity * static_cast<size_t>(head_stride) +
         position * sizeof(float);
}

// Host side: head number `head` of the keys or values `to`, at a position.
struct HeadPlace {
  KvType type = KvType::kF32;
  size_t head = 0, capacity = 0, position = 0;
  int head_dim = 0, head_stride = 0;
  bool by_dimension = false;
};
// x [head_dim], rounded as `type` wants.
void put_head(unsigned char* to, const HeadPlace& place, const float* x);
// Of bytes: what a code is, without its scale.
float byte_number(KvType type, unsigned char code);

}  // namespace evalrun::engine::cuda
