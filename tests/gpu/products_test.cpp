// Products on the device against their definition, and the rule that a row's bits are its own.
#include "engine/cuda/kernels/products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/cpu/reference_products.h"
#include "engine/cuda/kernels/device_code.h"
#include "engine/cuda/kernels/device_matrix.h"
#include "engine/cuda/kernels/pack.h"
#include "engine/cuda/kernels/row_ops.h"
#include "engine/cuda/runtime/devices.h"
#include "tests/engine/random_models.h"
#include "tests/formats/weight_models.h"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/on_path.h"
#include "tests/gpu/product_definition.h"
#include "tests/gpu/tensor_cores.h"
#include "tests/sample.h"

namespace evalrun::engine::cuda::testing {
namespace {

using engine::testing::looks_at_accesses;
using engine::testing::random_floats;
using engine::testing::same_bits;

constexpr WeightStorage kStorages[] = {WeightStorage::kF32,         WeightStorage::kBf16,
                                       WeightStorage::kInt8Channel, WeightStorage::kInt8Group,
                                       WeightStorage::kQ4Group,     WeightStorage::kQ4K,
                                       WeightStorage::kQ5K,         WeightStorage::kQ6K};

// A width near `in` that the storage can have.
int width_for(WeightStorage storage, int in) {
  return k_bits(storage) == 0 ? in : padded_to(in, kKBlock);
}

WeightMatrix random_matrix(WeightStorage storage, int out, int in, uint64_t seed) {
  WeightMatrix w(storage, out, in);
  if (const int bits = k_bits(storage); bits != 0) {
    const DType type = bits == 4 ? DType::kQ4_K : bits == 5 ? DType::kQ5_K : DType::kQ6_K;
    base::Rng rng(seed);
    for (int o = 0; o < out; ++o) {
      const std::string row = engine::testing::random_weights(type, in, rng);
      w.set_row_exactly(o, type, {reinterpret_cast<const uint8_t*>(row.data()), row.size()});
    }
    return w;
  }
  for (int o = 0; o < out; ++o) w.set_row(o, random_floats(in, seed + static_cast<uint64_t>(o)));
  return w;
}

// y = W x through everything a product needs: repacking, rounding of inputs, kernels.
struct Product {
  DeviceMatrix m;
  explicit Product(const WeightMatrix& w) : m(w, nullptr) {}
  std::vector<float> operator()(const std::vector<float>& x, int rows, Epilogue e = {}) const {
    const bool f32 = m.storage() == WeightStorage::kF32;
    const DeviceBuffer from = on_device(x);
    const InputRows in_rows = {nullptr, f32 ? m.in() : m.padded_in(), !f32};
    DeviceBuffer in(static_cast<size_t>(rows) * static_cast<size_t>(in_rows.stride) * 4);
    const InputRows to = {in.as<void>(), in_rows.stride, !f32};
    round_rows(from.as<float>(), m.in(), m.in(), 1.0f, to, rows, nullptr);
    const int outputs = e.outputs > 0 ? e.outputs : m.outputs();
    DeviceBuffer y(static_cast<size_t>(rows) * static_cast<size_t>(outputs) * 4);
    e.y = y.as<float>(), e.ldy = e.outputs = outputs;
    prepare_products();
    ProductWorkspace workspace;
    workspace.ensure(product_geometry(m.storage(), m.ref().tiles, m.ref().blocks, rows));
    multiply({m.ref(), in.as<void>(), rows, e}, workspace, nullptr);
    return to_host<float>(y, static_cast<size_t>(rows) * static_cast<size_t>(outputs));
  }
};

float rounded(float x) { return bfloat16_to_float(float_to_bfloat16(x)); }

// As a storage, and with matrices of these sizes taken for small ones or for large ones: these from
// nine rows on. Or by the kernels that only Hopper has.
struct Way {
  WeightStorage storage;
  bool large = false, hopper = false;
};
class Products : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (GetParam().hopper) {
      if (!has_path(ProductPath::kHopper)) GTEST_SKIP() << "not compute capability 9.0";
      path_.emplace(ProductPath::kHopper);
    }
    if (!GetParam().large) return;
    small_matrix() = 0, narrow_rows() = 8;
  }
  void TearDown() override {
    path_.reset();
    small_matrix() = usual_, narrow_rows() = usual_rows_;
  }

 private:
  std::optional<OnPath> path_;
  const int64_t usual_ = small_matrix();
  const int usual_rows_ = narrow_rows();
};

TEST_P(Products, EqualTheDefinitionAtOddShapes) {
  const WeightStorage s = GetParam().storage;
  for (const auto& [out, any_in] : tests::sample(
           {std::pair{1, 1}, {16, 32}, {17, 33}, {48, 80}, {100, 300}, {5, 1000}, {20, 2700}},
           looks_at_accesses() ? 2 : 3))
    for (const int rows : tests::sample({1, 3, 8, 9, 16, 17, 70}, looks_at_accesses() ? 3 : 4)) {
      const int in = width_for(s, any_in);
      const WeightMatrix w = random_matrix(s, out, in, 5);
      const auto x = random_floats(rows * in, 77);
      const auto y = Product(w)(x, rows, {.outputs = out});
      std::vector<float> inputs = x;
      for (float& value : inputs) value = rounded(value);
      const auto row_of = [&](const std::vector<float>& rows_of, int r) {
        return std::span(rows_of).subspan(static_cast<size_t>(r) * static_cast<size_t>(in),
                                          static_cast<size_t>(in));
      };
      if (s == WeightStorage::kF32) {
        for (int r = 0; r < rows; ++r)
          ASSERT_TRUE(
              same_bits({y.data() + static_cast<ptrdiff_t>(r) * out, static_cast<size_t>(out)},
                        cpu::reference_product(w, row_of(x, r))))
              << out << " x " << in << " row " << r;
        continue;
      }
      for (int o = 0; o < out; ++o) {
        const DefinedOutput defined(w, o);
        for (int r = 0; r < rows; ++r) {
          const DefinedOutput::Value want = defined.of(row_of(inputs, r));
          ASSERT_NEAR(y[static_cast<size_t>(r * out + o)], want.sum, want.tolerance)
              << out << " x " << in << ", " << rows << " rows: row " << r << " output " << o;
        }
      }
    }
}

// Which of a block's 32 inputs is number k of its first or second mma.sync: lane 4 g + t has inputs
// 8 t .. 8 t + 7, and in a fragment the numbers 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
int input_of(int half, int k) { return 8 * (k % 8 / 2) + 4 * half + 2 * (k / 8) + k % 2; }

// Of both mma.sync of a block, onto `sum`.
float add_block(TensorCores how, const float (&weights)[32], const float (&inputs)[32], float sum) {
  for (const int half : {0, 1}) {
    float a[16], b[16];
    for (int k = 0; k < 16; ++k)
      a[k] = weights[input_of(half, k)], b[k] = inputs[input_of(half, k)];
    sum = multiply_add(how, a, b, sum);
  }
  return sum;
}

// The code of a weight as tensor cores multiply it; of kBf16 the weight.
float factor_of(const WeightMatrix& w, int o, int k) {
  if (w.storage() == WeightStorage::kBf16) return w.at(o, k);
  if (k_bits(w.storage()) == 0) return static_cast<float>(w.code(o, k));
  const int code = w.k_block(o, k / kKBlock).code[static_cast<size_t>(k % kKBlock)];
  return static_cast<float>(w.storage() == WeightStorage::kQ6K ? code - 32 : code);
}
// What the codes of a block are scaled with; of kQ6K its first 16 inputs (`half` 0) or the others.
float scale_of(const WeightMatrix& w, int o, int block, int half) {
  if (k_bits(w.storage()) == 0) return w.group_scale(o, block);
  const KBlock k = w.k_block(o, block / 8);
  const int scale = w.storage() == WeightStorage::kQ6K ? block % 8 * 2 + half : block % 8;
  return half_to_float(k.d) * static_cast<float>(k.scale[static_cast<size_t>(scale)]);
}

// An output as engine/cuda/kernels/products.h says that it is summed, by these tensor cores.
float planned_output(TensorCores how, const WeightMatrix& w, int o, std::span<const float> row) {
  const WeightStorage s = w.storage();
  const bool offset =
      s == WeightStorage::kQ4Group || s == WeightStorage::kQ4K || s == WeightStorage::kQ5K;
  const int blocks = (w.in() + 31) / 32;
  constexpr float kOnes[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                               1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  float slices[kSlices];
  for (int slice = 0; slice < kSlices; ++slice) {
    float acc = 0;
    for (int b = slice_of(blocks, slice).first; b < slice_of(blocks, slice).last; ++b) {
      float weights[32] = {}, inputs[32] = {};
      for (int i = 0; i < 32 && 32 * b + i < w.in(); ++i) {
        const int k = 32 * b + i;
        weights[i] = factor_of(w, o, k);
        inputs[i] = rounded(row[static_cast<size_t>(k)]);
      }
      if (s == WeightStorage::kBf16 || s == WeightStorage::kInt8Channel) {
        acc = add_block(how, weights, inputs, acc);
        continue;
      }
      if (s == WeightStorage::kQ6K) {  // twice, with the other half's inputs as zeros
        for (const int half : {0, 1}) {
          float of_half[32] = {};
          std::copy_n(inputs + 16 * half, 16, of_half + 16 * half);
          acc = std::fma(scale_of(w, o, b, half), add_block(how, weights, of_half, 0), acc);
        }
        continue;
      }
      acc = std::fma(scale_of(w, o, b, 0), add_block(how, weights, inputs, 0), acc);
      if (offset) acc = std::fma(offset_of(w, o, 32 * b), add_block(how, kOnes, inputs, 0), acc);
    }
    slices[slice] = acc;
  }
  float sum = slices[0] + slices[1];
  for (int quarter = 1; quarter < kQuarters; ++quarter)
    sum = sum + (slices[2 * quarter] + slices[2 * quarter + 1]);
  return s == WeightStorage::kInt8Channel ? sum * w.channel_scale(o) : sum;
}

// So no tolerance is left but that of the definition above: what tensor cores cut is in the plan.
TEST_P(Products, HaveTheBitsOfTheirPlan) {
  const WeightStorage s = GetParam().storage;
  if (s == WeightStorage::kF32) return;  // has the bits of the definition
  const TensorCores how = tensor_cores_of_device(list_devices().devices.front().compute_major);
#if !defined(EVALRUN_CUDA_EMULATED)
  if (how == TensorCores::kExact) GTEST_SKIP() << "no model of these tensor cores is known here";
#endif
  for (const auto& [out, any_in] :
       tests::sample({std::pair{16, 32}, {17, 33}, {48, 80}, {100, 300}, {5, 1000}, {20, 2700}},
                     looks_at_accesses() ? 1 : 2))
    for (const int rows : tests::sample({1, 9, 17, 70}, looks_at_accesses() ? 1 : 2)) {
      const int in = width_for(s, any_in);
      const WeightMatrix w = random_matrix(s, out, in, 6);
      const auto x = random_floats(rows * in, 78);
      const auto y = Product(w)(x, rows, {.outputs = out});
      for (int r = 0; r < rows; ++r)
        for (int o = 0; o < out; ++o)
          ASSERT_EQ(
              y[static_cast<size_t>(r * out + o)],
              planned_output(how, w, o,
                             {x.data() + static_cast<ptrdiff_t>(r) * in, static_cast<size_t>(in)}))
              << out << " x " << in << ", " << rows << " rows: row " << r << " output " << o;
    }
}

TEST_P(Products, RowsHaveBitsOfTheirOwn) {
  const int out = 70, in = width_for(GetParam().storage, 330);
  const Product product(random_matrix(GetParam().storage, out, in, 9));
  const auto x = random_floats(300 * in, 3);
  const auto all = product(x, 300, {.outputs = out});
  const auto row_of = [&](int r) {
    return std::vector<float>(x.begin() + static_cast<ptrdiff_t>(r) * in,
                              x.begin() + static_cast<ptrdiff_t>(r + 1) * in);
  };
  for (const int r : tests::sample({0, 1, 7, 8, 40, 63, 64, 255, 256, 299}, 4)) {
    const auto alone = product(row_of(r), 1, {.outputs = out});
    ASSERT_TRUE(
        same_bits(alone, {all.data() + static_cast<ptrdiff_t>(r) * out, static_cast<size_t>(out)}))
        << "row " << r;
  }
  // In every company of up to 64 rows, at a place that moves.
  const auto mine = row_of(2);
  const auto alone = product(mine, 1, {.outputs = out});
  std::vector<int> companies;
  for (int n = 2; n <= 64; n += n < 20 ? 1 : 7) companies.push_back(n);
  for (const int n : tests::sample(companies, looks_at_accesses() ? 3 : 7)) {
    std::vector<float> rows(x.begin(), x.begin() + static_cast<ptrdiff_t>(n) * in);
    const int place = n * 5 % n == 0 ? n / 2 : n - 1;
    std::copy(mine.begin(), mine.end(), rows.begin() + static_cast<ptrdiff_t>(place) * in);
    const auto y = product(rows, n, {.outputs = out});
    ASSERT_TRUE(same_bits(
        alone, {y.data() + static_cast<ptrdiff_t>(place) * out, static_cast<size_t>(out)}))
        << n << " rows";
  }
}

// Sums so long that a pipeline of copies runs several times round.
TEST_P(Products, LongSumsHaveBitsOfTheirOwn) {
  const int out = 40, in = width_for(GetParam().storage, 3333);
  const Product product(random_matrix(GetParam().storage, out, in, 21));
  const auto x = random_floats(70 * in, 13);
  const auto alone = product({x.begin(), x.begin() + in}, 1, {.outputs = out});
  for (const int n : tests::sample({9, 16, 17, 32, 33, 64, 70}, looks_at_accesses() ? 1 : 3)) {
    const auto y =
        product({x.begin(), x.begin() + static_cast<ptrdiff_t>(n) * in}, n, {.outputs = out});
    ASSERT_TRUE(same_bits(alone, {y.data(), static_cast<size_t>(out)})) << n << " rows";
  }
}

TEST_P(Products, WhatIsNoNumberStaysInItsRow) {
  const int out = 20, in = width_for(GetParam().storage, 64);
  const Product product(random_matrix(GetParam().storage, out, in, 4));
  auto x = random_floats(3 * in, 8);
  x[static_cast<size_t>(in) + 7] = std::nanf("");
  const auto y = product(x, 3, {.outputs = out});
  for (int i = 0; i < 3 * out; ++i)
    ASSERT_EQ(std::isnan(y[static_cast<size_t>(i)]), i / out == 1) << i;
}

TEST_P(Products, PartsBehindEachOtherAndInTurns) {
  const WeightStorage s = GetParam().storage;
  const int in = width_for(s, 70);
  const WeightMatrix a = random_matrix(s, 20, in, 1), b = random_matrix(s, 12, in, 100),
                     c = random_matrix(s, 12, in, 200);
  const auto x = random_floats(2 * in, 6);
  const auto part = [&](const WeightMatrix& w) { return Product(w)(x, 2, {.outputs = w.out()}); };
  const auto ya = part(a), yb = part(b), yc = part(c);

  const WeightMatrix* const three[] = {&a, &b, &c};
  Product behind(a);
  behind.m = DeviceMatrix(three, Joint::kBehind, nullptr);
  const auto y = behind(x, 2);
  ASSERT_EQ(behind.m.outputs(), 32 + 16 + 16);
  for (int r = 0; r < 2; ++r) {
    const auto at = [&](int part_index, int o) {
      return y[static_cast<size_t>(r * behind.m.outputs() +
                                   behind.m.part(static_cast<size_t>(part_index)) + o)];
    };
    for (int o = 0; o < 20; ++o) ASSERT_EQ(at(0, o), ya[static_cast<size_t>(r * 20 + o)]);
    for (int o = 0; o < 12; ++o) ASSERT_EQ(at(1, o), yb[static_cast<size_t>(r * 12 + o)]);
    for (int o = 0; o < 12; ++o) ASSERT_EQ(at(2, o), yc[static_cast<size_t>(r * 12 + o)]);
  }
  const WeightMatrix* const two[] = {&b, &c};
  Product turns(b);
  turns.m = DeviceMatrix(two, Joint::kTurns, nullptr);
  const auto z = turns(x, 2);
  for (int r = 0; r < 2; ++r)
    for (int o = 0; o < 12; ++o) {
      const size_t at = static_cast<size_t>(r * turns.m.outputs() + o / 8 * 16 + o % 8);
      ASSERT_EQ(z[at], yb[static_cast<size_t>(r * 12 + o)]);
      ASSERT_EQ(z[at + 8], yc[static_cast<size_t>(r * 12 + o)]);
    }
}

TEST_P(Products, EmbeddingsAreTheWeights) {
  const int in = width_for(GetParam().storage, 72);
  const WeightMatrix w = random_matrix(GetParam().storage, 37, in, 3);
  const DeviceMatrix m(w, nullptr);
  std::vector<StepRow> rows(37);
  for (int i = 0; i < 37; ++i)
    rows[static_cast<size_t>(i)].token = i, rows[static_cast<size_t>(i)].embedding = -1;
  const DeviceBuffer on = on_device(rows);
  const auto width = static_cast<size_t>(in);
  DeviceBuffer x(37 * width * 4);
  embed_rows(on.as<StepRow>(), 37, m.ref(), nullptr, in, in, x.as<float>(), nullptr, nullptr);
  const auto got = to_host<float>(x, 37 * width);
  std::vector<float> want(width);
  for (int i = 0; i < 37; ++i) {
    w.copy_row(i, want);
    ASSERT_TRUE(same_bits(want, {got.data() + static_cast<ptrdiff_t>(i) * in, width})) << i;
  }
}

// The host's matrices without offsets, as Q4_0 has them, become those with offsets; in one matrix
// both may meet.
TEST(Packing, WritesTheOffsetsThatTheHostDoesNotKeep) {
  constexpr int kOut = 40, kIn = 96;
  base::Rng rng(6);
  WeightMatrix centred(WeightStorage::kQ4Centred, kOut, kIn);
  for (int o = 0; o < kOut; ++o) {
    std::vector<uint8_t> row(kIn / 32 * 18);
    for (uint8_t& b : row) b = static_cast<uint8_t>(rng.below(256));
    for (size_t at = 0; at < row.size(); at += 18) row[at + 1] = 0x2C;  // scales of about 1/16
    centred.set_row_exactly(o, DType::kQ4_0, row);
  }
  const WeightMatrix stored = centred.converted(WeightStorage::kQ4Group),
                     own = random_matrix(WeightStorage::kQ4Group, kOut, kIn, 8);
  EXPECT_EQ(DeviceMatrix::bytes_for(WeightStorage::kQ4Centred, kOut, kIn),
            DeviceMatrix::bytes_for(WeightStorage::kQ4Group, kOut, kIn));
  const auto unpacked = [](const WeightMatrix& first, const WeightMatrix& second, Joint joint) {
    const std::array<const WeightMatrix*, 2> parts = {&first, &second};
    const DeviceMatrix m(parts, joint, nullptr);
    EXPECT_EQ(m.storage(), WeightStorage::kQ4Group);
    const auto n = static_cast<size_t>(m.outputs()) * static_cast<size_t>(m.padded_in());
    DeviceBuffer rows(n * 2);
    unpack(m.ref(), rows.as<uint16_t>(), nullptr);
    return to_host<uint16_t>(rows, n);
  };
  for (const Joint joint : {Joint::kBehind, Joint::kTurns}) {
    EXPECT_EQ(unpacked(centred, own, joint), unpacked(stored, own, joint));
    EXPECT_EQ(unpacked(own, centred, joint), unpacked(own, stored, joint));
  }
  const auto x = random_floats(3 * kIn, 4);
  EXPECT_TRUE(same_bits(Product(centred)(x, 3, {.outputs = kOut}),
                        Product(stored)(x, 3, {.outputs = kOut})));
}

// Of storages that are packed.
class PackedProducts : public Products {};

// What cuBLAS is given instead of codes: the weights, rounded, zeros in the padding.
TEST_P(PackedProducts, UnpackedWeightsAreTheWeights) {
  const WeightStorage s = GetParam().storage;
  for (const auto& [out, any_in] : {std::pair{1, 1}, {17, 33}, {40, 300}}) {
    const int in = width_for(s, any_in);
    const WeightMatrix w = random_matrix(s, out, in, 12);
    const DeviceMatrix m(w, nullptr);
    const int width = m.padded_in();
    const auto n = static_cast<size_t>(m.outputs()) * static_cast<size_t>(width);
    DeviceBuffer rows(n * 2);
    unpack(m.ref(), rows.as<uint16_t>(), nullptr);
    const auto got = to_host<uint16_t>(rows, n);
    for (int o = 0; o < m.outputs(); ++o)
      for (int k = 0; k < width; ++k) {
        const float want = o < out && k < in ? rounded(w.at(o, k)) : 0.0f;
        ASSERT_EQ(bfloat16_to_float(got[static_cast<size_t>(o * width + k)]), want)
            << out << " x " << in << ": " << o << ", " << k;
      }
  }
}

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const WeightStorage s : kStorages) {
    all.push_back({s, false});
    if (s != WeightStorage::kF32) all.push_back({s, true});
    if (s != WeightStorage::kF32 && k_bits(s) == 0) all.push_back({s, false, true});
  }
  return all;
}
std::vector<Way> packed_ways() {
  std::vector<Way> packed = ways();
  std::erase_if(packed, [](const Way& way) {
    return way.storage == WeightStorage::kF32 || way.storage == WeightStorage::kBf16 ||
           way.hopper;  // what is multiplied by cuBLAS
  });
  return packed;
}
std::string name_of(const Way& way) {
  constexpr const char* kNames[] = {"f32",      "bf16", "int8_channel", "int8_group",
                                    "q4_group", "q4_k", "q5_k",         "q6_k"};
  const auto at = std::find(std::begin(kStorages), std::end(kStorages), way.storage);
  return std::string(kNames[at - std::begin(kStorages)]) + (way.large ? "_large" : "") +
         (way.hopper ? "_hopper" : "");
}

void PrintTo(const Way& way, std::ostream* out) { *out << name_of(way); }

INSTANTIATE_TEST_SUITE_P(Cuda, Products, ::testing::ValuesIn(ways()),
                         [](const auto& instance) { return name_of(instance.param); });
INSTANTIATE_TEST_SUITE_P(Cuda, PackedProducts, ::testing::ValuesIn(packed_ways()),
                         [](const auto& instance) { return name_of(instance.param); });

// RMSNorm for a product: every width the kernels are cut for, and one beyond. The sum of squares is
// that of 256 lanes, halves added until one is left.
TEST(Norms, EqualTheDefinitionAtEveryWidth) {
  for (const int d : {1, 5, 256, 576, 1024, 1025, 4096, 4097, 8192, 8200}) {
    constexpr int kRows = 3, kLanes = 256;
    const int stride = padded_to(d, kBlock);
    const auto x = random_floats(kRows * d, 3), weights = random_floats(d, 4);
    const DeviceBuffer from = on_device(x), by = on_device(weights);
    DeviceBuffer to(static_cast<size_t>(kRows) * static_cast<size_t>(stride) * 2),
        hidden(x.size() * sizeof(float));
    NormJob job;
    job.x = from.as<float>(), job.d = d, job.weights = by.as<float>(), job.eps = 1e-5f;
    job.to = {to.as<void>(), stride, true};
    job.hidden = hidden.as<float>();
    norm_rows(job, kRows, nullptr);
    const auto got = to_host<uint16_t>(to, static_cast<size_t>(kRows * stride));
    const auto kept = to_host<float>(hidden, x.size());
    for (int r = 0; r < kRows; ++r) {
      float lane[kLanes] = {};
      for (int j = 0; j < d; ++j) {
        const float v = x[static_cast<size_t>(r * d + j)];
        lane[j % kLanes] = std::fma(v, v, lane[j % kLanes]);
      }
      for (int half = kLanes / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) lane[i] = lane[i] + lane[i + half];
      const float scale = cpu::rms_scale(lane[0], d, job.eps);
      for (int j = 0; j < stride; ++j) {
        const auto at = static_cast<size_t>(r * d + j);
        const float want = j < d ? x[at] * scale * weights[static_cast<size_t>(j)] : 0.0f;
        ASSERT_EQ(bfloat16_to_float(got[static_cast<size_t>(r * stride + j)]), rounded(want))
            << d << " wide, row " << r << ", " << j;
        if (j >= d) continue;
        ASSERT_EQ(kept[at], want) << d << " wide, row " << r << ", " << j;
      }
    }
  }
}

class TensorCoreBits : public ::testing::TestWithParam<ProductPath> {};
INSTANTIATE_TEST_SUITE_P(Cuda, TensorCoreBits,
                         ::testing::Values(ProductPath::kPortable, ProductPath::kHopper),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

// Products whose first slice is one block and whose other slices are zeros: two mma.sync, the
// second with the first one's sums; or two wgmma. Factors of very different sizes, so that most
// terms are cut.
TEST_P(TensorCoreBits, AreThePublishedOnes) {
  if (!has_path(GetParam())) GTEST_SKIP() << "not compute capability 9.0";
  const OnPath path(GetParam());
  const TensorCores how = tensor_cores_of_device(list_devices().devices.front().compute_major);
#if !defined(EVALRUN_CUDA_EMULATED)
  if (how == TensorCores::kExact) GTEST_SKIP() << "no model of these tensor cores is known here";
#endif
  const bool all = tests::test_everything();
  const int out = all ? 4096 : 64, in = 8 * kBlock, rows = all ? 256 : 9;
  base::Rng rng(17);
  const auto number = [&] {
    const double x = (rng.uniform() - 0.5) * std::exp2(static_cast<double>(rng.below(15)) - 7);
    return rng.below(20) == 0 ? 0.0f : rounded(static_cast<float>(x));
  };
  WeightMatrix w(WeightStorage::kBf16, out, in);
  std::vector<float> weights(static_cast<size_t>(out) * kBlock), row(static_cast<size_t>(in)),
      x(static_cast<size_t>(rows * in));
  for (int o = 0; o < out; ++o) {
    for (int k = 0; k < kBlock; ++k)
      weights[static_cast<size_t>(o * kBlock + k)] = row[static_cast<size_t>(k)] = number();
    w.set_row(o, row);
  }
  for (int r = 0; r < rows; ++r)
    for (int k = 0; k < kBlock; ++k) x[static_cast<size_t>(r * in + k)] = number();
  const auto y = Product(w)(x, rows, {.outputs = out});
  int64_t different = 0;
  for (int r = 0; r < rows; ++r)
    for (int o = 0; o < out; ++o) {
      float a[32], b[32];
      for (int k = 0; k < kBlock; ++k) {
        a[k] = weights[static_cast<size_t>(o * kBlock + k)];
        b[k] = x[static_cast<size_t>(r * in + k)];
      }
      const float sum = add_block(how, a, b, 0);
      const float got = y[static_cast<size_t>(r * out + o)];
      if (got == sum) continue;
      if (++different <= 3)
        ADD_FAILURE() << "row " << r << " output " << o << ": " << got << " is not " << sum;
    }
  EXPECT_EQ(different, 0) << "of " << rows * out;
}

// Each wgmma adds up the inputs that an mma.sync of the portable kernels does. So where both
// compute what is published of Hopper, or exact sums, the bits are the same.
TEST(HopperProducts, HaveTheBitsOfThePortableKernels) {
  if (!has_path(ProductPath::kHopper)) GTEST_SKIP() << "not compute capability 9.0";
  for (const WeightStorage s : {WeightStorage::kBf16, WeightStorage::kInt8Channel,
                                WeightStorage::kInt8Group, WeightStorage::kQ4Group})
    for (const auto& [out, in] :
         tests::sample({std::pair{70, 330}, {130, 1100}, {16, 32}, {40, 3333}},
                       looks_at_accesses() ? 1 : 2)) {
      const WeightMatrix w = random_matrix(s, out, in, 31);
      const Product product(w);
      for (const int rows : tests::sample({1, 5, 8, 9, 16, 30, 33, 64, 70, 200}, 2)) {
        const auto x = random_floats(rows * in, 19);
        const auto by = [&](ProductPath path) {
          const OnPath on(path);
          return product(x, rows, {.outputs = out});
        };
        ASSERT_TRUE(same_bits(by(ProductPath::kPortable), by(ProductPath::kHopper)))
            << out << " x " << in << ", " << rows << " rows";
      }
    }
}

// Two warpgroups of a ring that has room for five stages, some of them several rounds ahead of
// copies that came late: neither takes the other's stage for its own.
TEST(HopperProducts, WarpgroupsWaitForTheirOwnStages) {
  if (!has_path(ProductPath::kHopper)) GTEST_SKIP() << "not compute capability 9.0";
  constexpr int kIn = 4096, kOut = 9 * 64, kRows = 16;
  const WeightMatrix w = random_matrix(WeightStorage::kBf16, kOut, kIn, 31);
  const Product product(w);
  const auto x = random_floats(kRows * kIn, 19);
  const auto by = [&](ProductPath path) {
    const OnPath on(path);
    return product(x, kRows, {.outputs = kOut});
  };
  const auto portable = by(ProductPath::kPortable);
  for (int i = 0; i < 3; ++i)  // of the emulated device each in another order
    ASSERT_TRUE(same_bits(portable, by(ProductPath::kHopper)));
}

// A ring of every size that a shape may get, and inputs so long that fewer rows have room.
TEST(HopperProducts, FitAThreadBlockWhateverTheShape) {
  const OnPath path(ProductPath::kHopper);
  const int usual = std::exchange(clusters_together(), 16);
  for (const auto storage : {WeightStorage::kBf16, WeightStorage::kInt8Channel,
                             WeightStorage::kInt8Group, WeightStorage::kQ4Group})
    for (const int tiles : {1, 3, 4, 60, 2000, 8017})
      for (const int blocks : {1, 18, 128, 344, 896, 1664})
        for (int rows = 1; rows <= 1024; rows += rows < 70 ? 1 : 91) {
          const ProductGeometry g = product_geometry(storage, tiles, blocks, rows);
          ASSERT_TRUE(g.cluster) << tiles << " x " << blocks;
          const int batch = std::min(rows, g.batch_rows);
          EXPECT_GE(static_cast<int>(g.grid_y) * g.tile_rows, batch);
          EXPECT_LT((static_cast<int>(g.grid_y) - 1) * g.tile_rows, batch);
          EXPECT_EQ(g.grid_x % kSlices, 0u);
          EXPECT_LE(g.grid_x * g.grid_y, 128u + kSlices * g.grid_y);
          EXPECT_LE(static_cast<int>(g.grid_x) / kSlices, (tiles + 3) / 4);
          EXPECT_LE(g.shared_bytes, size_t{227} << 10);
          EXPECT_GE(g.stages, 1);
          EXPECT_TRUE(g.groups == 1 || g.groups == 2);
          EXPECT_EQ(g.stages % g.groups, 0);
          EXPECT_EQ(g.workspace_bytes + g.counter_bytes, 0u);
        }
  // Llama-2-7B: all rows of a step at once, enough under way.
  for (const int blocks : {128, 344}) {
    const ProductGeometry g = product_geometry(WeightStorage::kBf16, 256, blocks, 64);
    EXPECT_EQ(g.tile_rows, 64);
    EXPECT_GE(g.stages * g.stage_blocks * 4096, 32 << 10) << blocks;
  }
  // Where one row's inputs have no room, every number of rows takes the other kernels.
  for (const int rows : {1, 64})
    EXPECT_FALSE(product_geometry(WeightStorage::kBf16, 256, kAnyBlocks, rows).cluster);
  clusters_together() = usual;
}

TEST(HopperProducts, AreForComputeCapability90Alone) {
  EXPECT_EQ(path_refused(8, 0), "");
  const OnPath path(ProductPath::kHopper);
  EXPECT_EQ(path_refused(9, 0), "");
  for (const auto& [first, second] : {std::pair{8, 0}, {8, 9}, {10, 0}, {12, 0}})
    EXPECT_THAT(path_refused(first, second), ::testing::HasSubstr("needs compute capability 9.0"));
#ifdef EVALRUN_CUDA_EMULATED
  emulator::set_device_capability(80);
  try {
    prepare_products();
    FAIL() << "a device of 8.0 took it";
  } catch (const base::Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("EVALRUN_CUDA_PATH=hopper needs"));
  }
#endif
}

// Every block of 32 inputs is in exactly one slice, whatever their number.
TEST(ProductPlan, SlicesCoverAllBlocksInOrder) {
  for (int blocks = 1; blocks < 400; ++blocks) {
    int next = 0;
    for (int s = 0; s < kSlices; ++s) {
      const Slice slice = slice_of(blocks, s);
      ASSERT_EQ(slice.first, next);
      ASSERT_LE(slice.last - slice.first, blocks / kSlices + 1);
      next = slice.last;
    }
    ASSERT_EQ(next, blocks);
  }
}

std::vector<WeightStorage> packed_storages() {
  std::vector<WeightStorage> packed(std::begin(kStorages), std::end(kStorages));
  std::erase(packed, WeightStorage::kF32);
  return packed;
}
TEST(ProductPlan, GridsCoverRowsAndTilesWithinTheDevicesLimits) {
  const bool usual = std::exchange(large_shared_memory(), false);
  for (const auto storage : packed_storages())
    for (const int tiles : {1, 3, 4, 60, 2000, 8017})
      for (const int blocks : {1, 18, 128, kAnyBlocks})
        for (int rows = 1; rows <= 1024; rows += rows < 70 ? 1 : 91) {
          const ProductGeometry g = product_geometry(storage, tiles, blocks, rows);
          const unsigned of_rows = g.across ? g.grid_x : g.grid_y;
          const unsigned of_tiles = g.across ? g.grid_y : g.grid_x;
          const int batch = std::min(rows, g.batch_rows);
          EXPECT_GE(static_cast<int>(of_rows) * g.tile_rows, batch);
          EXPECT_LT((static_cast<int>(of_rows) - 1) * g.tile_rows, batch);
          EXPECT_GE(static_cast<int>(of_tiles) * (g.across ? 8 : 1), tiles);
          EXPECT_LE(g.grid_y, 65535u);
          // Twice into the 164 KiB of sm_80's multiprocessors; of rows of bfloat16 once into the 99
          // of smaller ones.
          const bool lines = storage == WeightStorage::kBf16 && g.across;
          EXPECT_LE(g.shared_bytes, size_t{lines ? 98u : 81u} << 10);
          EXPECT_EQ(g.workspace_bytes > 0, g.across);
          EXPECT_EQ(g.counter_bytes > 0, g.across);
          EXPECT_LE(g.workspace_bytes,
                    product_geometry(storage, tiles, kAnyBlocks, rows).workspace_bytes);
        }
  large_shared_memory() = true;
  for (const int rows : {17, 33, 64})
    EXPECT_LE(product_geometry(WeightStorage::kBf16, 2000, 128, rows).shared_bytes,
              size_t{227} << 10);
  large_shared_memory() = usual;
}

}  // namespace
}  // namespace evalrun::engine::cuda::testing
