// Weight matrices W [out, in] of y = W x, in the storages the kernels multiply with, and the named
// formats (--dtype) that choose a storage for each part of a model.
//
// All storages are packed in panels of 16 output channels; a kernel walks a panel from its first
// byte to its last and keeps 16 independent sums: lanes are outputs, never parts of one reduction.
// The layouts serve every instruction set, so packed weights can be cached on disk.
//
//   kF32           [in][16] float32
//   kBf16          [in/2][16][2] bfloat16, inputs padded to a multiple of 64. One cache line is two
//                  inputs of 16 channels: the operand of vdpbf16ps and a row of an AMX tile.
//   kInt8Channel   [in/4][16][4] bytes w + 128, padded to 64 inputs; then [16] float32 scales.
//                  Weight = scale * w, |w| <= 127.
//   kInt8Group     blocks of 64 inputs: [16][16][4] bytes w + 128, then [2][16] float16 scales, one
//                  per 32 inputs. Keeps Q8_0 files exactly.
//   kQ4Group       blocks of 64 inputs: [8][16][4] bytes, whose low halves are the codes of inputs
//                  0..31 and high halves those of inputs 32..63; then [2][16] float16 scales d and
//                  [2][16] float16 offsets m. Weight = d * code + m. Keeps Q4_0 and Q4_1 files
//                  exactly.
//   kQ4Centred     the same without the offsets, each of which is -8 d: those of Q4_0 files, in as
//                  many bytes. A float16 times 8 is exact in float32 and, below 65536, in float16;
//                  so m = -8.0f * d is the float that kQ4Group stores. Rows come from files only.
//   kQ4K, kQ5K,    blocks of 256 inputs with the codes and scales of a Q4_K, Q5_K or Q6_K file
//   kQ6K           (engine/model/k_panels.h). Rows come from such files only: nothing is ever
//                  rounded to these. `in` is a multiple of 256.
// The unsigned bytes are the operand vpdpbusd and tdpbsud want; kernels take 128 * sum(x) off
// again.
#pragma once
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/formats/dtype.h"
#include "engine/formats/k_quants.h"

namespace evalrun::engine {

enum class WeightStorage : uint8_t {
  kF32,
  kBf16,
  kInt8Channel,
  kInt8Group,
  kQ4Group,
  kQ4Centred,
  kQ4K,
  kQ5K,
  kQ6K
};
// Bits of a K-quant's code; 0: the storage is none.
static constexpr int k_bits(WeightStorage s) {
  return s == WeightStorage::kQ4K   ? 4
         : s == WeightStorage::kQ5K ? 5
         : s == WeightStorage::kQ6K ? 6
                                    : 0;
}
// The storage of the same weights where each group has an offset of its own: what values are
// rounded to, and what devices are given. Other storages stay.
static constexpr WeightStorage with_offsets(WeightStorage s) {
  return s == WeightStorage::kQ4Centred ? WeightStorage::kQ4Group : s;
}

// What a user names. kAuto is resolved by the loader: kStored when a matrix of the file's layers is
// a K-quant; q4 when they are stored in a 4-bit format that
// kQ4Group keeps exactly; otherwise int8.
enum class WeightFormat : uint8_t { kAuto, kF32, kBf16, kInt8, kInt8Fast, kQ4, kStored };

struct WeightFormatSpec {
  WeightFormat format;
  std::string_view name;
  WeightStorage layers, head, embedding;  // in kStored: of types without kernels of their own
  std::string_view summary;               // one line for --help and docs
};
// Without kAuto; f32 first.
std::span<const WeightFormatSpec> weight_formats();
// Those that the weights of any source are rounded to: all but kStored, which keeps what a file
// has.
std::span<const WeightFormatSpec> rounded_formats();
const WeightFormatSpec& spec_of(WeightFormat format);  // format != kAuto
// "auto" or a name of the table; throws usage_error with the list.
WeightFormat weight_format_by_name(std::string_view name);
std::string_view name_of(WeightFormat format);

class WeightMatrix {
 public:
  static constexpr int kPanel = 16;  // output channels of a panel
  static constexpr int kBlock = 64;  // inputs are padded to a multiple of this (not in kF32)
  static constexpr int kGroup = 32;  // inputs that share a scale

  WeightMatrix() = default;
  // In memory of its own. Cleared: every weight, the padding included, is zero.
  WeightMatrix(WeightStorage storage, int out, int in);
  // In `memory` (bytes_for() bytes, 64-byte aligned), whatever that holds: the caller fills it, or
  // clears each panel and sets its rows.
  WeightMatrix(WeightStorage storage, int out, int in, std::shared_ptr<std::byte> memory);
  WeightMatrix(int out, int in) : WeightMatrix(WeightStorage::kF32, out, in) {}
  WeightMatrix(const WeightMatrix& other);  // copies the weights
  WeightMatrix& operator=(const WeightMatrix& other) { return *this = WeightMatrix(other); }
  WeightMatrix(WeightMatrix&&) = default;
  WeightMatrix& operator=(WeightMatrix&&) = default;
  static size_t bytes_for(WeightStorage storage, int out, int in);

  // Makes every weight of panel p zero, those of the padding included.
  void clear_panel(int p);
  // The smallest storage that keeps a file's tensor of this type exactly; kInt8Group where there is
  // none. Of Q4_1 its bytes tell: kQ4Centred when every offset is -8 times its scale. Without them,
  // that of any tensor of the type.
  static WeightStorage storage_of(DType source, std::span<const uint8_t> tensor = {});
  // The storage for new values of a matrix in this one: no values are rounded to K-quants, nor to
  // codes whose offsets follow from the scales.
  static WeightStorage storage_for_values(WeightStorage storage) {
    return k_bits(storage) != 0 ? WeightStorage::kInt8Group : with_offsets(storage);
  }
  // The largest magnitude a weight can have without an infinity among the codes' scales.
  static float largest(WeightStorage storage);
  // Row o of W, `in` finite values no larger than largest(), rounded to the storage, which is one
  // for values (storage_for_values()). Thread-safe for distinct o. Padding stays zero, except that
  // in kQ4Group it is m in a group that `in` cuts.
  void set_row(int o, std::span<const float> values);
  // True when a file's rows of this type can be stored without any rounding; Q4_1 in kQ4Centred,
  // when storage_of() says so of the tensor.
  static bool keeps_exactly(WeightStorage storage, DType source);
  // Row o from a file's bytes of a type that keeps_exactly(); thread-safe for distinct o.
  void set_row_exactly(int o, DType source, std::span<const uint8_t> bytes);
  void copy_row(int o, std::span<float> values) const;  // values.size() == in()
  // The same weights, dequantised and rounded again; from kQ4Centred to kQ4Group exactly, with the
  // offsets written out.
  WeightMatrix converted(WeightStorage storage) const;
  // The first rows alone, in memory of their own. 1 <= n <= out().
  WeightMatrix first_rows(int n) const;

  WeightStorage storage() const { return storage_; }
  int out() const { return out_; }
  int in() const { return in_; }
  int padded_in() const { return (in_ + kBlock - 1) / kBlock * kBlock; }
  int panels() const { return (out_ + kPanel - 1) / kPanel; }
  size_t panel_bytes() const { return panel_bytes_; }
  const std::byte* panel(int p) const {
    return data_.get() + static_cast<size_t>(p) * panel_bytes_;
  }
  std::span<const std::byte> bytes() const { return {data_.get(), size()}; }
  std::span<std::byte> mutable_bytes() { return {data_.get(), size()}; }
  size_t size() const { return static_cast<size_t>(panels()) * panel_bytes_; }
  // Lives as long as the weights do: devices keep copies no longer than that.
  std::weak_ptr<const std::byte> owner() const { return data_; }
  bool empty() const { return out_ == 0; }

  // Single values, for the reference and for tests.
  float at(int o, int k) const;                // the weight, dequantised
  int code(int o, int k) const;                // kInt8*: w in [-128, 127]; 4 bits: 0..15
  float channel_scale(int o) const;            // kInt8Channel
  float group_scale(int o, int group) const;   // kInt8Group, kQ4Group, kQ4Centred: d
  float group_offset(int o, int group) const;  // kQ4Group, kQ4Centred: m
  KBlock k_block(int o, int block) const;      // kQ4K, kQ5K, kQ6K: inputs 256 block ..

 private:
  std::byte* panel_of(int o) const {
    return data_.get() + static_cast<size_t>(o / kPanel) * panel_bytes_;
  }
  std::byte* channel_scale_of(int o) const;
  void set_int8_channel(int o, std::span<const float> values);
  void set_groups(int o, std::span<const float> values);  // kInt8Group, kQ4Group
  void set_k_row(int o, DType source, std::span<const uint8_t> bytes);
  WeightMatrix with_offsets_written() const;

  WeightStorage storage_ = WeightStorage::kF32;
  int out_ = 0, in_ = 0;
  size_t panel_bytes_ = 0;
  std::shared_ptr<std::byte> data_;
};

// Rounds to bfloat16, ties to even; magnitudes below 2^-50 become zero, so that no product or sum
// of two such numbers is ever a denormal float32 and all instruction sets agree (denormals are
// flushed by vdpbf16ps only). Internal linkage: this header is compiled for several instruction
// sets (engine/cpu/kernels/arith.h says more).
static inline uint16_t float_to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (!(std::fabs(x) >= 0x1p-50f) && x == x) return static_cast<uint16_t>(bits >> 16 & 0x8000u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

// Memory for weights, 64-byte aligned and cleared; large blocks ask for huge pages.
std::shared_ptr<std::byte> allocate_weights(size_t bytes);
// Matrices of these shapes and storages in one such piece of memory, in sequence, for the caller to
// fill; an empty one for an empty one.
std::vector<WeightMatrix> allocate_like(std::span<const WeightMatrix* const> matrices);
// Moves matrices into one such piece of memory, in sequence. One matrix alone may be too small for
// large pages. Plain decoding with 210 separate matrices was measured a seventh slower.
void gather_weights(std::span<WeightMatrix* const> matrices);

}  // namespace evalrun::engine
