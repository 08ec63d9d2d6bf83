#include "engine/cpu/kernels/kernels_amx.h"

#if defined(__AMX_INT8__) && defined(__AMX_BF16__) && defined(__AVX512VNNI__)
// Each builds on those before it.
// clang-format off
#include "engine/cpu/kernels/vectors_avx512_impl.h"
#include "engine/cpu/kernels/widened_bf16_impl.h"
#include "engine/cpu/kernels/products_impl.h"
#include "engine/cpu/kernels/tiles_impl.h"
// clang-format on

namespace {

// The number of a tile is part of its instruction.
#define EVALRUN_TILE(t, instruction) \
  switch (t) {                       \
    case 0:                          \
      instruction(0);                \
      return;                        \
    case 1:                          \
      instruction(1);                \
      return;                        \
    case 2:                          \
      instruction(2);                \
      return;                        \
    case 3:                          \
      instruction(3);                \
      return;                        \
    case 4:                          \
      instruction(4);                \
      return;                        \
    default:                         \
      instruction(5);                \
      return;                        \
  }
#define EVALRUN_ZERO(t) _tile_zero(t)
#define EVALRUN_BYTES(t) _tile_dpbsud(t, 6, 7)
#define EVALRUN_BF16(t) _tile_dpbf16ps(t, 6, 7)
#define EVALRUN_STORE(t) _tile_stored(t, p, 64)

// Tiles 0..5 are C, 6 is A (rows of inputs), 7 is B (a block of a panel).
struct AmxTiles {
  struct alignas(64) Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes_per_row[16] = {};
    uint8_t rows[16] = {};
  };
  static void configure(int n_rows) {
    Configuration c;
    for (int t = 0; t < 8; ++t) {
      c.bytes_per_row[t] = 64;
      c.rows[t] = static_cast<uint8_t>(t < 7 ? n_rows : 16);
    }
    _tile_loadconfig(&c);
  }
  static void zero(int t) { EVALRUN_TILE(t, EVALRUN_ZERO) }
  static void load_a(const std::byte* p, size_t stride) {
    _tile_loadd(6, p, static_cast<long>(stride));
  }
  static void load_b(const std::byte* p) { _tile_loadd(7, p, 64); }
  static void multiply_bytes(int t) { EVALRUN_TILE(t, EVALRUN_BYTES) }
  static void multiply_bf16(int t) { EVALRUN_TILE(t, EVALRUN_BF16) }
  static void store(int t, void* p) { EVALRUN_TILE(t, EVALRUN_STORE) }
  static void release() { _tile_release(); }
};

}  // namespace

namespace evalrun::engine::cpu {
bool amx_compiled() { return true; }
void amx_override(Kernels& kernels) {
  kernels.multiply_int8_channel = multiply_tiles<AmxTiles, int32_t>;
}
void amx_one_isa_override(Kernels& kernels) {
  kernels.multiply_bf16 = multiply_tiles<AmxTiles, float>;
}
}  // namespace evalrun::engine::cpu

#else
namespace evalrun::engine::cpu {
bool amx_compiled() { return false; }
void amx_override(Kernels&) {}
void amx_one_isa_override(Kernels&) {}
}  // namespace evalrun::engine::cpu
#endif
