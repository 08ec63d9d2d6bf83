#include "engine/cpu/kernels_amx.h"

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)
// Each builds on those before it.
// clang-format off
#include "engine/cpu/vectors_avx512_impl.h"
#include "engine/cpu/widened_bf16_impl.h"
#include "engine/cpu/products_impl.h"
#include "engine/cpu/tiles_impl.h"
// clang-format on

namespace {

// Tiles 0..5 are C, 6 is A (rows of signed inputs), 7 is B (a block of a panel, unsigned).
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
  // Tile numbers are part of the instruction.
  static void zero(int t) {
    switch (t) {
      case 0:
        _tile_zero(0);
        return;
      case 1:
        _tile_zero(1);
        return;
      case 2:
        _tile_zero(2);
        return;
      case 3:
        _tile_zero(3);
        return;
      case 4:
        _tile_zero(4);
        return;
      default:
        _tile_zero(5);
        return;
    }
  }
  static void load_a(const std::byte* p, size_t stride) {
    _tile_loadd(6, p, static_cast<long>(stride));
  }
  static void load_b(const std::byte* p) { _tile_loadd(7, p, 64); }
  static void multiply(int t) {
    switch (t) {
      case 0:
        _tile_dpbsud(0, 6, 7);
        return;
      case 1:
        _tile_dpbsud(1, 6, 7);
        return;
      case 2:
        _tile_dpbsud(2, 6, 7);
        return;
      case 3:
        _tile_dpbsud(3, 6, 7);
        return;
      case 4:
        _tile_dpbsud(4, 6, 7);
        return;
      default:
        _tile_dpbsud(5, 6, 7);
        return;
    }
  }
  static void store(int t, int32_t* p) {
    switch (t) {
      case 0:
        _tile_stored(0, p, 64);
        return;
      case 1:
        _tile_stored(1, p, 64);
        return;
      case 2:
        _tile_stored(2, p, 64);
        return;
      case 3:
        _tile_stored(3, p, 64);
        return;
      case 4:
        _tile_stored(4, p, 64);
        return;
      default:
        _tile_stored(5, p, 64);
        return;
    }
  }
  static void release() { _tile_release(); }
};

}  // namespace

namespace evalrun::engine::cpu {
bool amx_compiled() { return true; }
void amx_override(Kernels& kernels) { kernels.multiply_int8_channel = multiply_tiles<AmxTiles>; }
}  // namespace evalrun::engine::cpu

#else
namespace evalrun::engine::cpu {
bool amx_compiled() { return false; }
void amx_override(Kernels&) {}
}  // namespace evalrun::engine::cpu
#endif
