#include "engine/model/weight_matrix.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/model/k_panels.h"

namespace evalrun::engine {
namespace {

constexpr int kPanel = WeightMatrix::kPanel, kBlock = WeightMatrix::kBlock,
              kGroup = WeightMatrix::kGroup;
constexpr size_t kCodes = size_t{kBlock} * kPanel;             // bytes of a block's 8-bit codes
constexpr size_t kInt8Block = kCodes + 2 * kPanel * 2;         // codes, scales
constexpr size_t kQ4Block = kCodes / 2 + 4 * kPanel * 2;       // codes, scales, offsets
constexpr size_t kCentredBlock = kCodes / 2 + 2 * kPanel * 2;  // codes, scales

constexpr WeightFormatSpec kFormats[] = {
    {WeightFormat::kF32, "f32", WeightStorage::kF32, WeightStorage::kF32, WeightStorage::kF32,
     "float32 weights and arithmetic: the oracle"},
    {WeightFormat::kBf16, "bf16", WeightStorage::kBf16, WeightStorage::kBf16, WeightStorage::kBf16,
     "bfloat16 weights and inputs, float32 sums"},
    {WeightFormat::kInt8, "int8", WeightStorage::kInt8Group, WeightStorage::kInt8Group,
     WeightStorage::kInt8Group, "8-bit weights, a scale per 32 inputs; keeps Q8_0 exactly"},
    {WeightFormat::kInt8Fast, "int8-fast", WeightStorage::kInt8Channel, WeightStorage::kInt8Channel,
     WeightStorage::kInt8Group,
     "8-bit weights, a scale per output channel: flattest cost per row, less faithful"},
    {WeightFormat::kQ4, "q4", WeightStorage::kQ4Group, WeightStorage::kInt8Group,
     WeightStorage::kInt8Group,
     "4-bit layers, scale and offset per 32 inputs, 8-bit head; keeps Q4_0 and Q4_1 exactly"},
    {WeightFormat::kStored, "stored", WeightStorage::kInt8Group, WeightStorage::kInt8Group,
     WeightStorage::kInt8Group,
     "every tensor as the file has it (Q4_K, Q5_K, Q6_K, Q4_0, Q4_1, Q8_0), others as int8"},
};

float load_half(const std::byte* p) {
  uint16_t h;
  std::memcpy(&h, p, sizeof h);
  return half_to_float(h);
}
void store_half(std::byte* p, uint16_t h) { std::memcpy(p, &h, sizeof h); }
uint16_t half_at(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }

// The offset of a group of Q4_0 and of kQ4Centred: weights are d * (code - 8).
float centred_offset(float d) { return -8.0f * d; }

bool has_nibbles(WeightStorage s) {
  return s == WeightStorage::kQ4Group || s == WeightStorage::kQ4Centred;
}

// Bytes a block of 64 inputs takes in a panel of codes.
size_t code_block_bytes(WeightStorage s) {
  switch (s) {
    case WeightStorage::kInt8Channel:
      return kCodes;
    case WeightStorage::kInt8Group:
      return kInt8Block;
    case WeightStorage::kQ4Group:
      return kQ4Block;
    case WeightStorage::kQ4Centred:
      return kCentredBlock;
    case WeightStorage::kF32:
    case WeightStorage::kBf16:
    case WeightStorage::kQ4K:  // of 256 inputs: k_panels.h
    case WeightStorage::kQ5K:
    case WeightStorage::kQ6K:
      break;
  }
  return 0;
}

size_t panel_bytes_for(WeightStorage s, int in) {
  const size_t blocks = static_cast<size_t>((in + kBlock - 1) / kBlock);
  switch (s) {
    case WeightStorage::kF32:
      return static_cast<size_t>(in) * kPanel * sizeof(float);
    case WeightStorage::kBf16:
      return blocks * kBlock * kPanel * 2;
    case WeightStorage::kInt8Channel:
      return blocks * kCodes + kPanel * sizeof(float);
    case WeightStorage::kInt8Group:
    case WeightStorage::kQ4Group:
    case WeightStorage::kQ4Centred:
      return blocks * code_block_bytes(s);
    case WeightStorage::kQ4K:
    case WeightStorage::kQ5K:
    case WeightStorage::kQ6K:
      return static_cast<size_t>(in / kKBlock) * k_panel_block_bytes(k_bits(s));
  }
  return 0;
}

// The 64 bytes of one channel in a block, as they lie in the panel: four inputs in a row, then the
// other channels' four. In 4 bits a byte holds input i and, in its high half, input i + 32.
void store_codes(WeightStorage s, std::byte* block, int channel, const uint8_t* codes) {
  std::byte* to = block + channel * 4;
  if (has_nibbles(s)) {
    for (int i = 0; i < kGroup; i += 4, to += 64) {
      uint32_t low, high;
      std::memcpy(&low, codes + i, 4);
      std::memcpy(&high, codes + kGroup + i, 4);
      low |= high << 4;
      std::memcpy(to, &low, 4);
    }
    return;
  }
  for (int i = 0; i < kBlock; i += 4, to += 64) std::memcpy(to, codes + i, 4);
}

void load_codes(WeightStorage s, const std::byte* block, int channel, uint8_t* codes) {
  const std::byte* from = block + channel * 4;
  if (has_nibbles(s)) {
    for (int i = 0; i < kGroup; i += 4, from += 64) {
      uint32_t both;
      std::memcpy(&both, from, 4);
      const uint32_t low = both & 0x0F0F0F0Fu, high = both >> 4 & 0x0F0F0F0Fu;
      std::memcpy(codes + i, &low, 4);
      std::memcpy(codes + kGroup + i, &high, 4);
    }
    return;
  }
  for (int i = 0; i < kBlock; i += 4, from += 64) std::memcpy(codes + i, from, 4);
}

// Byte offsets of a group's scale and offset in its block.
size_t scale_in_block(WeightStorage s, int channel, int half) {
  return (has_nibbles(s) ? kCodes / 2 : kCodes) + static_cast<size_t>(half * kPanel + channel) * 2;
}
size_t offset_in_block(int channel, int half) {
  return scale_in_block(WeightStorage::kQ4Group, channel, half) + 2 * kPanel * 2;
}
float load_offset(WeightStorage s, const std::byte* block, int channel, int half) {
  return s == WeightStorage::kQ4Group
             ? load_half(block + offset_in_block(channel, half))
             : centred_offset(load_half(block + scale_in_block(s, channel, half)));
}

// Of blocks of Q4_1: whether kQ4Centred loses nothing. Most tensors say no by their first block.
bool are_centred(std::span<const uint8_t> blocks) {
  const auto size = static_cast<size_t>(block_bytes(DType::kQ4_1));
  for (size_t at = 0; at < blocks.size(); at += size) {
    const uint8_t* b = blocks.data() + at;
    if (half_to_float(half_at(b + 2)) != centred_offset(half_to_float(half_at(b)))) return false;
  }
  return true;
}

// The nearest integer (ties to even) to x, |x| < 2^22, then kept within [lowest, highest]. Adding
// 1.5 * 2^23 rounds as nearbyint() does and leaves the integer in the low bits. No call and no
// comparison of floats, either of which would keep a loop from being vectorised.
int nearest_code(float x, int lowest, int highest) {
  constexpr float kToInteger = 0x1.8p23f;
  const int code = static_cast<int>(std::bit_cast<uint32_t>(x + kToInteger) -
                                    std::bit_cast<uint32_t>(kToInteger));
  return std::min(std::max(code, lowest), highest);
}

float largest_magnitude(std::span<const float> x) {
  float top = 0;
  for (const float v : x) top = std::max(top, std::fabs(v));
  return top;
}

// Scale d and offset m of one group of 4-bit codes, as they are stored.
struct Fit {
  uint16_t d = 0, m = 0;
};

int q4_code(float x, float d, float m) { return d > 0 ? nearest_code((x - m) / d, 0, 15) : 0; }

// One value per input of a group. The loops below run over whole groups without a branch or a call,
// which is what it takes to have them vectorised.
using Group = std::array<float, kGroup>;

void codes_of_group(const Group& x, float d, float m, Group& codes) {
  for (size_t i = 0; i < kGroup; ++i)
    codes[i] = static_cast<float>(nearest_code((x[i] - m) / d, 0, 15));
}

// Eight running sums: an order of additions that needs no reassociation to be vectorised.
float sum_of_products(const Group& a, const Group& b) {
  std::array<float, 8> sum = {};
  for (size_t i = 0; i < kGroup; i += 8)
    for (size_t j = 0; j < 8; ++j) sum[j] += a[i + j] * b[i + j];
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

// The smallest squared error of: the codes spread from minimum to maximum, and ranges shrunk from
// both ends, each refined by least squares over the codes it gives. The rest of a row that is
// shorter than a group just gets minimum to maximum.
Fit fit_q4(std::span<const float> values) {
  const auto [lo, hi] = std::minmax_element(values.begin(), values.end());
  const float low = *lo, range = *hi - low;
  const auto rounded = [](float d, float m) { return Fit{float_to_half(d), float_to_half(m)}; };
  Fit best = rounded(range / 15, low);
  if (values.size() != kGroup || half_to_float(best.d) == 0) return best;

  Group x, above_low, codes, errors, ones;
  std::copy(values.begin(), values.end(), x.begin());
  ones.fill(1.0f);
  for (size_t i = 0; i < kGroup; ++i) above_low[i] = x[i] - low;
  const float sum_x = sum_of_products(above_low, ones);
  const auto error_of = [&](const Fit& fit) {
    const float d = half_to_float(fit.d), m = half_to_float(fit.m);
    if (d == 0) return std::numeric_limits<float>::infinity();
    codes_of_group(x, d, m, codes);
    for (size_t i = 0; i < kGroup; ++i) errors[i] = x[i] - (d * codes[i] + m);
    return sum_of_products(errors, errors);
  };
  float best_error = error_of(best);
  constexpr int kSteps = 12;
  for (int step = 0; step < kSteps; ++step) {
    const float cut = 0.02f * static_cast<float>(step) * range;
    float d = (range - 2 * cut) / 15, m = cut;
    codes_of_group(above_low, d, m, codes);
    // Sums of integers below 2^24 are exact.
    const float sum_c = sum_of_products(codes, ones), sum_cc = sum_of_products(codes, codes);
    const float sum_cx = sum_of_products(codes, above_low);
    const float determinant = kGroup * sum_cc - sum_c * sum_c;
    if (determinant > 0) {
      const float slope = (kGroup * sum_cx - sum_c * sum_x) / determinant;
      if (slope > 0) d = slope, m = (sum_x - slope * sum_c) / kGroup;
    }
    const Fit fit = rounded(d, low + m);
    const float error = error_of(fit);
    if (error < best_error) best = fit, best_error = error;
  }
  return best;
}

}  // namespace

std::span<const WeightFormatSpec> weight_formats() { return kFormats; }

std::span<const WeightFormatSpec> rounded_formats() {
  constexpr size_t kRounded = std::size(kFormats) - 1;
  static_assert(kFormats[kRounded].format == WeightFormat::kStored);
  return weight_formats().first(kRounded);
}

const WeightFormatSpec& spec_of(WeightFormat format) {
  for (const WeightFormatSpec& s : kFormats)
    if (s.format == format) return s;
  EVALRUN_CHECK(false, "format {} is not resolved", static_cast<int>(format));
  return kFormats[0];
}

WeightFormat weight_format_by_name(std::string_view name) {
  if (name == "auto") return WeightFormat::kAuto;
  std::vector<std::string> names = {"auto"};
  for (const WeightFormatSpec& s : kFormats) {
    if (s.name == name) return s.format;
    names.emplace_back(s.name);
  }
  throw base::usage_error(fmt::format("unknown weight format '{}'", name),
                          base::suggest(std::string(name), names));
}

std::string_view name_of(WeightFormat format) {
  return format == WeightFormat::kAuto ? "auto" : spec_of(format).name;
}

std::shared_ptr<std::byte> allocate_weights(size_t bytes) {
  constexpr size_t kHuge = size_t{2} << 20;
  if (bytes < kHuge) {
    auto* p =
        static_cast<std::byte*>(::operator new (std::max<size_t>(bytes, 64), std::align_val_t{64}));
    std::memset(p, 0, bytes);
    return {p, [](std::byte* q) { ::operator delete (q, std::align_val_t{64}); }};
  }
  // Anonymous pages are zero; one huge page more than needed, so that the start can be aligned.
  const size_t length = (bytes + kHuge - 1) / kHuge * kHuge + kHuge;
  void* mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  const size_t skip = (kHuge - address % kHuge) % kHuge;
  auto* start = static_cast<std::byte*>(mapped) + skip;
  madvise(start, length - kHuge, MADV_HUGEPAGE);
  return {start, [mapped, length](std::byte*) { munmap(mapped, length); }};
}

size_t WeightMatrix::bytes_for(WeightStorage storage, int out, int in) {
  return static_cast<size_t>((out + kPanel - 1) / kPanel) * panel_bytes_for(storage, in);
}

WeightMatrix::WeightMatrix(WeightStorage storage, int out, int in)
    : WeightMatrix(storage, out, in, allocate_weights(bytes_for(storage, out, in))) {
  for (int p = 0; p < panels(); ++p) clear_panel(p);
}

WeightMatrix::WeightMatrix(WeightStorage storage, int out, int in,
                           std::shared_ptr<std::byte> memory)
    : storage_(storage),
      out_(out),
      in_(in),
      panel_bytes_(panel_bytes_for(storage, in)),
      data_(std::move(memory)) {
  EVALRUN_CHECK(out > 0 && in > 0 && data_ != nullptr, "matrix of {} x {}", out, in);
  EVALRUN_CHECK(k_bits(storage) == 0 || in % kKBlock == 0, "K-quants of {} x {}", out, in);
}

void WeightMatrix::clear_panel(int p) {
  std::byte* panel = data_.get() + static_cast<size_t>(p) * panel_bytes_;
  std::memset(panel, 0, panel_bytes_);
  // An 8-bit zero is the byte 128.
  if (storage_ == WeightStorage::kInt8Channel)
    std::memset(panel, 128, panel_bytes_ - kPanel * sizeof(float));
  if (storage_ == WeightStorage::kInt8Group)
    for (size_t at = 0; at < panel_bytes_; at += kInt8Block) std::memset(panel + at, 128, kCodes);
}

WeightMatrix::WeightMatrix(const WeightMatrix& other)
    : storage_(other.storage_),
      out_(other.out_),
      in_(other.in_),
      panel_bytes_(other.panel_bytes_),
      data_(other.empty() ? nullptr : allocate_weights(other.size())) {
  if (!empty()) std::memcpy(data_.get(), other.data_.get(), size());
}

WeightMatrix WeightMatrix::converted(WeightStorage storage) const {
  if (storage == storage_) return *this;
  if (storage == with_offsets(storage_)) return with_offsets_written();
  WeightMatrix result(storage, out_, in_);
  std::vector<float> row(static_cast<size_t>(in_));
  for (int o = 0; o < out_; ++o) {
    copy_row(o, row);
    result.set_row(o, row);
  }
  return result;
}

WeightMatrix WeightMatrix::with_offsets_written() const {
  WeightMatrix result(WeightStorage::kQ4Group, out_, in_);
  const std::byte* from = data_.get();
  std::byte* to = result.data_.get();
  for (const std::byte* end = from + size(); from < end; from += kCentredBlock, to += kQ4Block) {
    std::memcpy(to, from, kCentredBlock);
    for (int half = 0; half < 2; ++half)
      for (int channel = 0; channel < kPanel; ++channel)
        store_half(to + offset_in_block(channel, half),
                   float_to_half(load_offset(storage_, from, channel, half)));
  }
  return result;
}

WeightMatrix WeightMatrix::first_rows(int n) const {
  EVALRUN_CHECK(n >= 1 && n <= out_, "the first {} rows of {}", n, out_);
  WeightMatrix result(storage_, n, in_);
  std::memcpy(result.data_.get(), data_.get(), result.size());
  return result;
}

KBlock WeightMatrix::k_block(int o, int block) const {
  const int bits = k_bits(storage_);
  return load_k_block(bits, panel_of(o) + static_cast<size_t>(block) * k_panel_block_bytes(bits),
                      o % kPanel);
}

int WeightMatrix::code(int o, int k) const {
  const std::byte* block =
      panel_of(o) + static_cast<size_t>(k / kBlock) * code_block_bytes(storage_);
  const size_t channel = static_cast<size_t>(o % kPanel) * 4, part = static_cast<size_t>(k % 4);
  const int in_block = k % kBlock;
  if (has_nibbles(storage_)) {
    const int b =
        static_cast<int>(block[static_cast<size_t>(in_block % kGroup / 4) * 64 + channel + part]);
    return in_block < kGroup ? b & 15 : b >> 4;
  }
  return static_cast<int>(block[static_cast<size_t>(in_block / 4) * 64 + channel + part]) - 128;
}

float WeightMatrix::group_scale(int o, int group) const {
  return load_half(panel_of(o) + static_cast<size_t>(group / 2) * code_block_bytes(storage_) +
                   scale_in_block(storage_, o % kPanel, group % 2));
}
float WeightMatrix::group_offset(int o, int group) const {
  return load_offset(storage_,
                     panel_of(o) + static_cast<size_t>(group / 2) * code_block_bytes(storage_),
                     o % kPanel, group % 2);
}
std::byte* WeightMatrix::channel_scale_of(int o) const {
  return panel_of(o) + panel_bytes_ - static_cast<size_t>(kPanel - o % kPanel) * sizeof(float);
}
float WeightMatrix::channel_scale(int o) const {
  float scale;
  std::memcpy(&scale, channel_scale_of(o), sizeof scale);
  return scale;
}

void WeightMatrix::set_row(int o, std::span<const float> values) {
  EVALRUN_CHECK(o >= 0 && o < out_ && values.size() == static_cast<size_t>(in_),
                "row {} of {} values into {} x {}", o, values.size(), out_, in_);
  std::byte* panel = panel_of(o);
  switch (storage_) {
    case WeightStorage::kF32: {
      float* to = reinterpret_cast<float*>(panel) + o % kPanel;
      for (size_t k = 0; k < values.size(); ++k) to[k * kPanel] = values[k];
      return;
    }
    case WeightStorage::kBf16: {
      std::byte* to = panel + o % kPanel * 4;
      for (size_t k = 0; k < values.size(); k += 2, to += 64) {
        const uint16_t pair[2] = {
            float_to_bfloat16(values[k]),
            k + 1 < values.size() ? float_to_bfloat16(values[k + 1]) : uint16_t{0}};
        std::memcpy(to, pair, sizeof pair);
      }
      return;
    }
    case WeightStorage::kInt8Channel:
      return set_int8_channel(o, values);
    case WeightStorage::kInt8Group:
    case WeightStorage::kQ4Group:
      return set_groups(o, values);
    case WeightStorage::kQ4Centred:
    case WeightStorage::kQ4K:
    case WeightStorage::kQ5K:
    case WeightStorage::kQ6K:
      EVALRUN_CHECK(false, "values cannot be rounded to a file's codes");
  }
}

void WeightMatrix::set_int8_channel(int o, std::span<const float> values) {
  const float scale = largest_magnitude(values) / 127.0f;
  std::memcpy(channel_scale_of(o), &scale, sizeof scale);
  std::byte* block = panel_of(o);
  for (size_t first = 0; first < values.size(); first += kBlock, block += kCodes) {
    const auto part = values.subspan(first, std::min<size_t>(kBlock, values.size() - first));
    uint8_t codes[kBlock];
    std::fill(std::begin(codes), std::end(codes), uint8_t{128});
    if (scale > 0)
      for (size_t i = 0; i < part.size(); ++i)
        codes[i] = static_cast<uint8_t>(nearest_code(part[i] / scale, -127, 127) + 128);
    store_codes(storage_, block, o % kPanel, codes);
  }
}

void WeightMatrix::set_groups(int o, std::span<const float> values) {
  const bool q4 = storage_ == WeightStorage::kQ4Group;
  const int channel = o % kPanel;
  std::byte* block = panel_of(o);
  for (size_t first = 0; first < values.size();
       first += kBlock, block += code_block_bytes(storage_)) {
    uint8_t codes[kBlock];
    std::fill(std::begin(codes), std::end(codes), q4 ? uint8_t{0} : uint8_t{128});
    for (int half = 0; half < 2; ++half) {
      const size_t begin = first + static_cast<size_t>(half) * kGroup;
      if (begin >= values.size()) break;
      const auto group = values.subspan(begin, std::min<size_t>(kGroup, values.size() - begin));
      uint8_t* to = codes + half * kGroup;
      const Fit fit = q4 ? fit_q4(group) : Fit{float_to_half(largest_magnitude(group) / 127.0f), 0};
      const float d = half_to_float(fit.d), m = half_to_float(fit.m);
      store_half(block + scale_in_block(storage_, channel, half), fit.d);
      if (q4) {
        store_half(block + offset_in_block(channel, half), fit.m);
        for (size_t i = 0; i < group.size(); ++i)
          to[i] = static_cast<uint8_t>(q4_code(group[i], d, m));
      } else if (d > 0) {
        for (size_t i = 0; i < group.size(); ++i)
          to[i] = static_cast<uint8_t>(nearest_code(group[i] / d, -127, 127) + 128);
      }
    }
    store_codes(storage_, block, channel, codes);
  }
}

WeightStorage WeightMatrix::storage_of(DType source, std::span<const uint8_t> tensor) {
  using enum WeightStorage;
  if (source == DType::kQ4_0 || (source == DType::kQ4_1 && !tensor.empty() && are_centred(tensor)))
    return kQ4Centred;
  for (const WeightStorage s : {kQ4Group, kQ4K, kQ5K, kQ6K})
    if (keeps_exactly(s, source)) return s;
  return kInt8Group;
}

float WeightMatrix::largest(WeightStorage storage) {
  constexpr float kLargestHalf = 65504.0f;
  switch (storage) {
    case WeightStorage::kF32:
      return std::numeric_limits<float>::max();
    case WeightStorage::kInt8Channel:
      return std::numeric_limits<float>::max() / 2;  // 127 * (x / 127) may be a little more than x
    case WeightStorage::kBf16:
      return 0x1.fep127f;
    case WeightStorage::kInt8Group:
      return 127 * kLargestHalf;
    case WeightStorage::kQ4Group:    // Q4_0's smallest weight is -8 d, and -8 d is stored as offset
    case WeightStorage::kQ4Centred:  // the same files are refused
      return kLargestHalf / 8;
    case WeightStorage::kQ4K:
    case WeightStorage::kQ5K:
    case WeightStorage::kQ6K:
      return std::numeric_limits<float>::max();  // what the file's float16 can say
  }
  return 0;
}

bool WeightMatrix::keeps_exactly(WeightStorage storage, DType source) {
  switch (storage) {
    case WeightStorage::kF32:
      return false;  // widening goes through set_row
    case WeightStorage::kBf16:
    case WeightStorage::kInt8Channel:
      return false;
    case WeightStorage::kInt8Group:
      return source == DType::kQ8_0;
    case WeightStorage::kQ4Group:
    case WeightStorage::kQ4Centred:
      return source == DType::kQ4_0 || source == DType::kQ4_1;
    case WeightStorage::kQ4K:
      return source == DType::kQ4_K;
    case WeightStorage::kQ5K:
      return source == DType::kQ5_K;
    case WeightStorage::kQ6K:
      return source == DType::kQ6_K;
  }
  return false;
}

void WeightMatrix::set_row_exactly(int o, DType source, std::span<const uint8_t> bytes) {
  EVALRUN_CHECK(
      keeps_exactly(storage_, source) && in_ % block_length(source) == 0 && o >= 0 && o < out_,
      "row {} of type {} into {} x {}", o, dtype_name(source), out_, in_);
  EVALRUN_CHECK(static_cast<int64_t>(bytes.size()) == bytes_of(source, in_), "{} bytes in a row",
                bytes.size());
  if (k_bits(storage_) != 0) return set_k_row(o, source, bytes);
  const size_t block = static_cast<size_t>(block_bytes(source));
  const int channel = o % kPanel;
  std::byte* to = panel_of(o);
  for (int first = 0; first < in_; first += kBlock, to += code_block_bytes(storage_)) {
    uint8_t codes[kBlock];
    std::fill(std::begin(codes), std::end(codes),
              source == DType::kQ8_0 ? uint8_t{128} : uint8_t{0});
    for (int half = 0; half < 2 && first + half * kGroup < in_; ++half) {
      const uint8_t* b = bytes.data() + static_cast<size_t>(first / kGroup + half) * block;
      uint8_t* c = codes + half * kGroup;
      uint16_t d = half_at(b);
      if (source == DType::kQ8_0) {
        for (int i = 0; i < kGroup; ++i) c[i] = b[2 + i] ^ 0x80;  // + 128
      } else {
        const uint8_t* nibbles = b + (source == DType::kQ4_1 ? 4 : 2);
        for (int i = 0; i < kGroup / 2; ++i) {
          c[i] = nibbles[i] & 15;
          c[i + kGroup / 2] = nibbles[i] >> 4;
        }
        // Q4_0 is d * (code - 8): the offset -8 d is a power of two away from d, so it is exact. It
        // can only overflow when every weight of the group is zero (see largest()).
        uint16_t m = source == DType::kQ4_1 ? half_at(b + 2)
                                            : float_to_half(centred_offset(half_to_float(d)));
        if (source == DType::kQ4_0 && (m & 0x7FFF) == 0x7C00) d = m = 0;
        if (storage_ == WeightStorage::kQ4Group)
          store_half(to + offset_in_block(channel, half), m);
        else
          EVALRUN_CHECK(half_to_float(m) == centred_offset(half_to_float(d)),
                        "row {}: an offset is not -8 times its scale", o);
      }
      store_half(to + scale_in_block(storage_, channel, half), d);
    }
    store_codes(storage_, to, channel, codes);
  }
}

void WeightMatrix::set_k_row(int o, DType source, std::span<const uint8_t> bytes) {
  const int bits = k_bits(storage_);
  const auto size = static_cast<size_t>(block_bytes(source));
  std::byte* to = panel_of(o);
  for (size_t at = 0; at < bytes.size(); at += size, to += k_panel_block_bytes(bits))
    store_k_block(bits, to, o % kPanel, unpack_k_block(source, bytes.subspan(at, size)));
}

float WeightMatrix::at(int o, int k) const {
  const std::byte* panel = panel_of(o);
  switch (storage_) {
    case WeightStorage::kF32:
      return reinterpret_cast<const float*>(
          panel)[static_cast<size_t>(k) * kPanel + static_cast<size_t>(o % kPanel)];
    case WeightStorage::kBf16:
      return bfloat16_to_float(reinterpret_cast<const uint16_t*>(
          panel)[static_cast<size_t>(k / 2 * kPanel + o % kPanel) * 2 +
                 static_cast<size_t>(k % 2)]);
    case WeightStorage::kInt8Channel:
      return channel_scale(o) * static_cast<float>(code(o, k));
    case WeightStorage::kInt8Group:
      return group_scale(o, k / kGroup) * static_cast<float>(code(o, k));
    case WeightStorage::kQ4Group:
    case WeightStorage::kQ4Centred:
      return group_scale(o, k / kGroup) * static_cast<float>(code(o, k)) +
             group_offset(o, k / kGroup);
    case WeightStorage::kQ4K:
    case WeightStorage::kQ5K:
    case WeightStorage::kQ6K: {
      std::array<float, kKBlock> weights;
      k_weights(k_bits(storage_), k_block(o, k / kKBlock), weights);
      return weights[static_cast<size_t>(k % kKBlock)];
    }
  }
  return 0;
}

void WeightMatrix::copy_row(int o, std::span<float> values) const {
  EVALRUN_CHECK(o >= 0 && o < out_ && values.size() == static_cast<size_t>(in_),
                "row {} of {} x {} into {} values", o, out_, in_, values.size());
  if (storage_ == WeightStorage::kF32) {
    const float* from = reinterpret_cast<const float*>(panel_of(o)) + o % kPanel;
    for (size_t k = 0; k < values.size(); ++k) values[k] = from[k * kPanel];
    return;
  }
  if (k_bits(storage_) != 0) {
    for (size_t first = 0; first < values.size(); first += kKBlock)
      k_weights(k_bits(storage_), k_block(o, static_cast<int>(first / kKBlock)),
                values.subspan(first, kKBlock));
    return;
  }
  const int channel = o % kPanel;
  const std::byte* block = panel_of(o);
  if (storage_ == WeightStorage::kBf16) {
    const std::byte* from = block + channel * 4;
    for (size_t k = 0; k < values.size(); k += 2, from += 64) {
      uint16_t pair[2];
      std::memcpy(pair, from, sizeof pair);
      values[k] = bfloat16_to_float(pair[0]);
      if (k + 1 < values.size()) values[k + 1] = bfloat16_to_float(pair[1]);
    }
    return;
  }
  const float row_scale = storage_ == WeightStorage::kInt8Channel ? channel_scale(o) : 0;
  for (size_t first = 0; first < values.size();
       first += kBlock, block += code_block_bytes(storage_)) {
    uint8_t codes[kBlock];
    float weights[kBlock];
    load_codes(storage_, block, channel, codes);
    for (int half = 0; half < 2; ++half) {
      const uint8_t* c = codes + half * kGroup;
      float* w = weights + half * kGroup;
      const float d = storage_ == WeightStorage::kInt8Channel
                          ? row_scale
                          : load_half(block + scale_in_block(storage_, channel, half));
      if (has_nibbles(storage_)) {
        const float m = load_offset(storage_, block, channel, half);
        for (int i = 0; i < kGroup; ++i) w[i] = d * static_cast<float>(c[i]) + m;
      } else {
        for (int i = 0; i < kGroup; ++i) w[i] = d * static_cast<float>(c[i] - 128);
      }
    }
    std::memcpy(values.data() + first, weights,
                std::min<size_t>(kBlock, values.size() - first) * sizeof(float));
  }
}

std::vector<WeightMatrix> allocate_like(std::span<const WeightMatrix* const> matrices) {
  constexpr size_t kLine = 64;
  const auto padded = [](size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; };
  size_t total = 0;
  for (const WeightMatrix* m : matrices) total += padded(m->size());
  const std::shared_ptr<std::byte> memory = allocate_weights(total);
  std::vector<WeightMatrix> made;
  size_t at = 0;
  for (const WeightMatrix* m : matrices) {
    if (m->empty())
      made.emplace_back();
    else
      made.emplace_back(m->storage(), m->out(), m->in(),
                        std::shared_ptr<std::byte>(memory, memory.get() + at));
    at += padded(m->size());
  }
  return made;
}

void gather_weights(std::span<WeightMatrix* const> matrices) {
  const std::vector<const WeightMatrix*> from(matrices.begin(), matrices.end());
  std::vector<WeightMatrix> made = allocate_like(from);
  for (size_t i = 0; i < made.size(); ++i) {
    if (!made[i].empty())
      std::memcpy(made[i].mutable_bytes().data(), from[i]->bytes().data(), from[i]->size());
    *matrices[i] = std::move(made[i]);
  }
}

}  // namespace evalrun::engine
