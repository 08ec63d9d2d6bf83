// The table of an instruction set, filled from kernels_impl.h, rows_impl.h, products_impl.h and
// k_products_impl.h.
namespace {
constexpr evalrun::engine::cpu::Kernels table_named(const char* name) {
  return {name,
          B::kBytesPerInput,
          false,
          multiply_panels<Kind::kF32>,
          multiply_panels<Kind::kBf16>,
          multiply_panels<Kind::kChannel>,
          multiply_panels<Kind::kGroup>,
          multiply_panels<Kind::kQ4>,
          multiply_panels<Kind::kQ4Centred>,
          multiply_panels<Kind::kQ4K>,
          multiply_panels<Kind::kQ5K>,
          multiply_panels<Kind::kQ6K>,
          round_int,
          B::round_row,
          rms_norm,
          silu_mul,
          lstm,
          add,
          rotate,
          values_to_bf16,
          keys_to_bf16,
          head_to_bytes,
          scores<float>,
          scores<uint16_t>,
          scores<int8_t>,
          softmax_chunk,
          weighted_sum<float>,
          weighted_sum<uint16_t>,
          weighted_sum<int8_t>,
          merge,
          track_max};
}
}  // namespace
