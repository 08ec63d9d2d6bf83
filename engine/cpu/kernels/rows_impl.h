// What happens to rows between products and attention: rotation, keys and values as they are
// stored, rounding to integers. Written once over V (kernels_impl.h), which must also offer:
// store_bf16(p, x): float_to_bfloat16 of the lanes; store_bytes(p, x): lanes within [-127.5, 127.5]
// rounded to even; store_keys(key, lane, n, p): key(r)[d] as bfloat16 to p[16 d + lane + r] for
// d < 16, r < n. And over the integer arrangement D: split64(x, lo, sums, hi, hi_sums): 64 inputs
// over their scale, in four vectors, to lo parts as bytes and the sums of both groups of them.
// Returns which fours have hi parts, bit by bit; those get them as bytes in `hi`, their sums in
// `hi_sums`. start_of_k(lo): of 16 inputs at `lo` what a row's `starts` hold.

namespace {

using evalrun::engine::cpu::ByteSteps;
using evalrun::engine::cpu::IntegerRow;

void rotate(const float* x, const float* cos, const float* sin, int half, int n_heads, float* y) {
  for (int head = 0; head < n_heads; ++head, x += 2 * half, y += 2 * half) {
    int i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      const V a = V::load(x + i), b = V::load(x + half + i);
      const V c = V::load(cos + i), s = V::load(sin + i);
      (a * c - b * s).store(y + i);
      (b * c + a * s).store(y + half + i);
    }
    if (i == half) continue;
    const int n = half - i;
    const V a = V::load_first(x + i, n), b = V::load_first(x + half + i, n);
    const V c = V::load_first(cos + i, n), s = V::load_first(sin + i, n);
    V::store_first(y + i, n, a * c - b * s);
    V::store_first(y + half + i, n, b * c + a * s);
  }
}

void values_to_bf16(const float* v, int n, uint16_t* to) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) V::store_bf16(to + i, V::load(v + i));
  if (i == n) return;
  alignas(32) uint16_t rest[kLanes];
  V::store_bf16(rest, V::load_first(v + i, n - i));
  for (int j = i; j < n; ++j) to[j] = rest[j - i];
}

// Up to so many keys are written one number at a time. By count of instructions the exchange of
// rows and columns, which costs the same for any number, is cheaper from four on.
constexpr int kFewKeys = 3;

void keys_to_bf16(const float* k, int ldk, int n, int head_dim, int lane, uint16_t* block) {
  for (int d = 0; d < head_dim; d += kLanes) {
    const int dims = head_dim - d < kLanes ? head_dim - d : kLanes;
    uint16_t* to = block + static_cast<ptrdiff_t>(d) * kLanes;
    const auto key = [&](int r) {
      const float* x = k + static_cast<ptrdiff_t>(r) * ldk + d;
      return dims == kLanes ? V::load(x) : V::load_first(x, dims);
    };
    if (n > kFewKeys && dims == kLanes) {
      V::store_keys(key, lane, n, to);
      continue;
    }
    for (int r = 0; r < n; ++r) {
      alignas(32) uint16_t one[kLanes];
      V::store_bf16(one, key(r));
      for (int j = 0; j < dims; ++j) to[j * kLanes + lane + r] = one[j];
    }
  }
}

// round_to_bytes() of arith.h.
float head_to_bytes(const float* x, int n, int8_t* q, int stride) {
  const auto vector = [&](int i) {
    return i + kLanes <= n ? V::load(x + i) : V::load_first(x + i, n - i);
  };
  V largest = V::zero(), poison = V::zero();  // 0 x = 0 for finite x only
  for (int i = 0; i < n; i += kLanes) {
    const V v = vector(i);
    largest = V::vmax(V::abs(v), largest);
    poison = V::fma(v, V::zero(), poison);
  }
  const bool finite = V::sum(poison) == 0.0f;
  const ByteSteps steps =
      evalrun::engine::cpu::byte_steps(finite ? V::largest(largest) : __builtin_nanf(""), 127.0f);
  const bool nothing = steps.inverse == 0.0f;
  const V inverse = V::bcast(steps.inverse);
  for (int i = 0; i < n; i += kLanes) {
    alignas(16) int8_t bytes[kLanes];
    V::store_bytes(bytes, nothing ? V::zero() : vector(i) * inverse);
    for (int j = 0; j < kLanes && i + j < n; ++j)
      q[static_cast<ptrdiff_t>(i + j) * stride] = bytes[j];
  }
  return steps.scale;
}

// round_to_int4() of int4.h.
Int4Steps head_to_int4(const float* x, int n, uint8_t* codes) {
  alignas(64) float rest[kLanes];  // the last values; lanes that do not exist are the first value
  const int full = n / kLanes * kLanes;
  for (int j = 0; j < kLanes; ++j) rest[j] = full + j < n ? x[full + j] : x[0];
  const auto vector = [&](int i) { return V::load(i < full ? x + i : rest); };
  V low = V::bcast(x[0]), high = low, largest = V::zero(), poison = V::zero();
  for (int i = 0; i < n; i += kLanes) {
    const V v = vector(i);
    low = V::vmin(v, low), high = V::vmax(v, high);
    largest = V::vmax(V::abs(v), largest);
    poison = V::fma(v, V::zero(), poison);
  }
  const bool fits =
      V::sum(poison) == 0.0f && V::largest(largest) <= evalrun::engine::cpu::kInt4Most;
  const Int4Steps steps =
      fits ? evalrun::engine::cpu::int4_steps(-V::largest(V::zero() - low), V::largest(high))
           : evalrun::engine::cpu::kInt4NotANumber;
  const V offset = V::bcast(evalrun::engine::cpu::int4_offset(steps)),
          inverse = V::bcast(evalrun::engine::cpu::int4_inverse(steps));
  for (int i = 0; i < n; i += kLanes) {
    const V code = fits ? (vector(i) - offset) * inverse : V::zero();
    alignas(16) int8_t bytes[kLanes];
    V::store_bytes(bytes, V::vmin(V::vmax(code, V::zero()), V::bcast(15.0f)));
    for (int j = 0; j < kLanes && i + j < n; ++j) codes[i + j] = static_cast<uint8_t>(bytes[j]);
  }
  return steps;
}

// What products with K-quants need beside the integers of a row. Blocks are of 64 inputs, so groups
// come in pairs; a sum is 32 * 127 at most.
void add_for_k(int groups, const IntegerRow& to) {
  for (size_t i = 0; i < static_cast<size_t>(groups) * 2; ++i)
    to.starts[i] = D::start_of_k(to.values + i * 16);
  for (int g = 0; g < groups; g += 2)
    to.pairs[g / 2] = static_cast<int32_t>((static_cast<uint32_t>(to.sums[g]) & 0xFFFFu) |
                                           static_cast<uint32_t>(to.sums[g + 1]) << 16);
}

int round_int(const float* x, int n, int padded, const IntegerRow& to) {
  V squares = V::zero(), largest = V::zero();
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V v = V::load(x + i);
    squares = V::fma(v, v, squares);
    largest = V::vmax(V::abs(v), largest);
  }
  if (i < n) {
    const V v = V::load_first(x + i, n - i);
    squares = V::fma(v, v, squares);
    largest = V::vmax(V::abs(v), largest);
  }
  *to.scale = evalrun::engine::cpu::input_scale(V::sum(squares), n, V::largest(largest));
  const V inverse = V::bcast(1.0f / *to.scale);
  int n_wide = 0;
  alignas(64) int32_t hi[16] = {}, hi_sums[16] = {};
  for (int at = 0; at < padded; at += 64) {
    V scaled[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const int from = at + j * kLanes;
      const V v = from + kLanes <= n ? V::load(x + from)
                  : from < n         ? V::load_first(x + from, n - from)
                                     : V::zero();
      scaled[j] = v * inverse;
    }
    uint32_t fours = D::split64(scaled, to.values + at, to.sums + at / 32, hi, hi_sums);
    for (; fours != 0; fours &= fours - 1) {
      const int four = __builtin_ctz(fours);
      to.wide[n_wide++] = {at / 4 + four, hi_sums[four], hi[four]};
    }
  }
  if (to.pairs != nullptr) add_for_k(padded / 32, to);
  return n_wide;
}

}  // namespace
