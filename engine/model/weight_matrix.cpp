#include "engine/model/weight_matrix.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::engine {
namespace {

constexpr int kPanel = WeightMatrix::kPanel, kBlock = WeightMatrix::kBlock,
              kGroup = WeightMatrix::kGroup;
constexpr size_t kInt8Block = kBlock * kPanel + 2 * kPanel * 2;    // codes, scales
constexpr size_t kQ4Block = kBlock * kPanel / 2 + 4 * kPanel * 2;  // codes, scales, offsets

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
};

float load_half(const std::byte* p) {
  uint16_t h;
  std::memcpy(&h, p, sizeof h);
  return half_to_float(h);
}
void store_half(std::byte* p, uint16_t h) { std::memcpy(p, &h, sizeof h); }

size_t panel_bytes_for(WeightStorage s, int in) {
  const size_t blocks = static_cast<size_t>((in + kBlock - 1) / kBlock);
  switch (s) {
    case WeightStorage::kF32:
      return static_cast<size_t>(in) * kPanel * sizeof(float);
    case WeightStorage::kBf16:
      return blocks * kBlock * kPanel * 2;
    case WeightStorage::kInt8Channel:
      return blocks * kBlock * kPanel + kPanel * sizeof(float);
    case WeightStorage::kInt8Group:
      return blocks * kInt8Block;
    case WeightStorage::kQ4Group:
      return blocks * kQ4Block;
  }
  return 0;
}

// The scale and offset of one group of 4-bit codes with the smallest squared error: ranges shrunk
// from both ends, each refined by least squares over the codes it gives.
struct Fit {
  float d = 0, m = 0;
  double error = 0;
};

double group_error(std::span<const float> x, float d, float m) {
  double error = 0;
  for (const float v : x) {
    const float code = d > 0 ? std::clamp(std::nearbyint((v - m) / d), 0.0f, 15.0f) : 0.0f;
    const double e = static_cast<double>(v) - static_cast<double>(d * code + m);
    error += e * e;
  }
  return error;
}

Fit fit_q4(std::span<const float> x) {
  const auto rounded = [&](double d, double m) {
    Fit f{half_to_float(float_to_half(static_cast<float>(d))),
          half_to_float(float_to_half(static_cast<float>(m))), 0};
    f.error = group_error(x, f.d, f.m);
    return f;
  };
  const auto [lo, hi] = std::minmax_element(x.begin(), x.end());
  const double low = *lo, range = static_cast<double>(*hi) - low;
  Fit best = rounded(range / 15, low);
  if (range <= 0) return best;
  for (int step = 0; step < 12; ++step) {
    const double shrink = 0.02 * step * range;
    double d = (range - 2 * shrink) / 15, m = low + shrink;
    double n = 0, sc = 0, scc = 0, sx = 0, scx = 0;
    for (const float v : x) {
      const double c = std::clamp(std::nearbyint((static_cast<double>(v) - m) / d), 0.0, 15.0);
      n += 1, sc += c, scc += c * c, sx += static_cast<double>(v),
          scx += c * static_cast<double>(v);
    }
    const double det = n * scc - sc * sc;
    if (det > 0) {
      const double fitted = (n * scx - sc * sx) / det;
      if (fitted > 0) d = fitted, m = (sx - fitted * sc) / n;
    }
    const Fit f = rounded(d, m);
    if (f.error < best.error) best = f;
  }
  return best;
}

}  // namespace

std::span<const WeightFormatSpec> weight_formats() { return kFormats; }

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

uint16_t float_to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (!(std::fabs(x) >= 0x1p-50f) && x == x) return static_cast<uint16_t>(bits >> 16 & 0x8000u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
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

WeightMatrix::WeightMatrix(WeightStorage storage, int out, int in,
                           std::shared_ptr<std::byte> memory)
    : storage_(storage), out_(out), in_(in), panel_bytes_(panel_bytes_for(storage, in)) {
  EVALRUN_CHECK(out > 0 && in > 0, "matrix of {} x {}", out, in);
  data_ = memory != nullptr ? std::move(memory) : allocate_weights(size());
  // A zero weight is the byte 128; scales and offsets stay zero.
  const size_t codes = static_cast<size_t>(kBlock) * kPanel;
  if (storage == WeightStorage::kInt8Channel)
    for (int p = 0; p < panels(); ++p)
      std::memset(data_.get() + static_cast<size_t>(p) * panel_bytes_, 128,
                  panel_bytes_ - kPanel * sizeof(float));
  if (storage == WeightStorage::kInt8Group)
    for (size_t at = 0; at < size(); at += kInt8Block) std::memset(data_.get() + at, 128, codes);
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
  WeightMatrix result(storage, out_, in_);
  std::vector<float> row(static_cast<size_t>(in_));
  for (int o = 0; o < out_; ++o) {
    copy_row(o, row);
    result.set_row(o, row);
  }
  return result;
}

void WeightMatrix::set_code(int o, int k, int code) {
  std::byte* panel = panel_of(o);
  const size_t channel = static_cast<size_t>(o % kPanel) * 4, part = static_cast<size_t>(k % 4);
  if (storage_ == WeightStorage::kQ4Group) {
    const int in_block = k % kBlock;
    std::byte& b = panel[static_cast<size_t>(k / kBlock) * kQ4Block +
                         static_cast<size_t>(in_block % kGroup / 4) * 64 + channel + part];
    b = in_block < kGroup ? (b & std::byte{0xF0}) | static_cast<std::byte>(code)
                          : (b & std::byte{0x0F}) | static_cast<std::byte>(code << 4);
    return;
  }
  const size_t line =
      storage_ == WeightStorage::kInt8Channel
          ? static_cast<size_t>(k / 4) * 64
          : static_cast<size_t>(k / kBlock) * kInt8Block + static_cast<size_t>(k % kBlock / 4) * 64;
  panel[line + channel + part] = static_cast<std::byte>(code + 128);
}

int WeightMatrix::code(int o, int k) const {
  const std::byte* panel = panel_of(o);
  const size_t channel = static_cast<size_t>(o % kPanel) * 4, part = static_cast<size_t>(k % 4);
  if (storage_ == WeightStorage::kQ4Group) {
    const int in_block = k % kBlock;
    const int b =
        static_cast<int>(panel[static_cast<size_t>(k / kBlock) * kQ4Block +
                               static_cast<size_t>(in_block % kGroup / 4) * 64 + channel + part]);
    return in_block < kGroup ? b & 15 : b >> 4;
  }
  const size_t line =
      storage_ == WeightStorage::kInt8Channel
          ? static_cast<size_t>(k / 4) * 64
          : static_cast<size_t>(k / kBlock) * kInt8Block + static_cast<size_t>(k % kBlock / 4) * 64;
  return static_cast<int>(panel[line + channel + part]) - 128;
}

namespace {
// Byte offset of a group's scale in its panel.
size_t scale_offset(WeightStorage s, int o, int group) {
  const size_t block = s == WeightStorage::kQ4Group ? kQ4Block : kInt8Block;
  const size_t codes = s == WeightStorage::kQ4Group ? kBlock * kPanel / 2 : kBlock * kPanel;
  return static_cast<size_t>(group / 2) * block + codes +
         static_cast<size_t>(group % 2 * kPanel + o % kPanel) * 2;
}
}  // namespace

void WeightMatrix::set_group_scale(int o, int group, uint16_t half) {
  store_half(panel_of(o) + scale_offset(storage_, o, group), half);
}
void WeightMatrix::set_group_offset(int o, int group, uint16_t half) {
  store_half(panel_of(o) + scale_offset(storage_, o, group) + 2 * kPanel * 2, half);
}
float WeightMatrix::group_scale(int o, int group) const {
  return load_half(panel_of(o) + scale_offset(storage_, o, group));
}
float WeightMatrix::group_offset(int o, int group) const {
  return load_half(panel_of(o) + scale_offset(storage_, o, group) + 2 * kPanel * 2);
}
float WeightMatrix::channel_scale(int o) const {
  float scale;
  std::memcpy(&scale,
              panel_of(o) + panel_bytes_ - kPanel * sizeof(float) +
                  static_cast<size_t>(o % kPanel) * sizeof(float),
              sizeof scale);
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
      uint16_t* to = reinterpret_cast<uint16_t*>(panel) + o % kPanel * 2;
      for (size_t k = 0; k < values.size(); ++k)
        to[k / 2 * kPanel * 2 + k % 2] = float_to_bfloat16(values[k]);
      return;
    }
    case WeightStorage::kInt8Channel: {
      float top = 0;
      for (const float v : values) top = std::max(top, std::fabs(v));
      const float scale = top / 127.0f;
      std::memcpy(panel + panel_bytes_ - kPanel * sizeof(float) +
                      static_cast<size_t>(o % kPanel) * sizeof(float),
                  &scale, sizeof scale);
      for (int k = 0; k < in_; ++k)
        set_code(o, k,
                 scale > 0
                     ? static_cast<int>(std::clamp(
                           std::nearbyint(values[static_cast<size_t>(k)] / scale), -127.0f, 127.0f))
                     : 0);
      return;
    }
    case WeightStorage::kInt8Group:
    case WeightStorage::kQ4Group:
      break;
  }
  for (int first = 0; first < in_; first += kGroup) {
    const auto group = values.subspan(static_cast<size_t>(first),
                                      static_cast<size_t>(std::min(kGroup, in_ - first)));
    float d, m = 0, lowest = -127, highest = 127;
    if (storage_ == WeightStorage::kQ4Group) {
      const Fit f = fit_q4(group);
      d = f.d, m = f.m, lowest = 0, highest = 15;
      set_group_offset(o, first / kGroup, float_to_half(m));
    } else {
      float top = 0;
      for (const float v : group) top = std::max(top, std::fabs(v));
      d = half_to_float(float_to_half(top / 127.0f));
    }
    set_group_scale(o, first / kGroup, float_to_half(d));
    for (size_t i = 0; i < group.size(); ++i) {
      const float code = d > 0 ? std::nearbyint((group[i] - m) / d) : 0.0f;
      set_code(o, first + static_cast<int>(i), static_cast<int>(std::clamp(code, lowest, highest)));
    }
  }
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
      return source == DType::kQ4_0 || source == DType::kQ4_1;
  }
  return false;
}

void WeightMatrix::set_row_exactly(int o, DType source, std::span<const uint8_t> bytes) {
  EVALRUN_CHECK(keeps_exactly(storage_, source) && in_ % kGroup == 0 && o >= 0 && o < out_,
                "row {} of type {} into {} x {}", o, dtype_name(source), out_, in_);
  const size_t block = static_cast<size_t>(block_bytes(source));
  EVALRUN_CHECK(bytes.size() == block * static_cast<size_t>(in_ / kGroup), "{} bytes in a row",
                bytes.size());
  const auto half_at = [](const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); };
  for (int g = 0; g < in_ / kGroup; ++g) {
    const uint8_t* b = bytes.data() + static_cast<size_t>(g) * block;
    const uint16_t d = half_at(b);
    set_group_scale(o, g, d);
    if (source == DType::kQ8_0) {
      for (int i = 0; i < kGroup; ++i) set_code(o, g * kGroup + i, static_cast<int8_t>(b[2 + i]));
      continue;
    }
    // Q4_0 is d * (code - 8): the offset -8 d is a power of two away from d, hence exact.
    const uint16_t m =
        source == DType::kQ4_1 ? half_at(b + 2) : float_to_half(-8.0f * half_to_float(d));
    set_group_offset(o, g, m);
    const uint8_t* codes = b + (source == DType::kQ4_1 ? 4 : 2);
    for (int i = 0; i < kGroup / 2; ++i) {
      set_code(o, g * kGroup + i, codes[i] & 15);
      set_code(o, g * kGroup + i + kGroup / 2, codes[i] >> 4);
    }
  }
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
      return group_scale(o, k / kGroup) * static_cast<float>(code(o, k)) +
             group_offset(o, k / kGroup);
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
  for (int k = 0; k < in_; ++k) values[static_cast<size_t>(k)] = at(o, k);
}

}  // namespace evalrun::engine
