// tensor_core_cases: what the emulated device's mma.m16n8k16 computes, for
// scripts/check-tensor-cores. From standard input matrices A (16 x 16, bfloat16), B (16 x 8,
// bfloat16) and C (16 x 8, float32) one triple after the other, all by row, little-endian; to
// standard output D of each, as C. CUDA_EMULATOR_MMA says by which model. An argument names a
// mistake to compute D with instead.
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/emulator/mma_kernel.h"
#include "tests/gpu/tensor_cores.h"

namespace emulator::testing {
namespace {

namespace cores = evalrun::engine::cuda::testing;
using cores::CutModel;

struct Case {
  uint16_t a[16][16], b[16][8];
  uint32_t c[16][8];
};
static_assert(sizeof(Case) == 2 * 16 * 16 + 2 * 16 * 8 + 4 * 16 * 8);

MmaData widened(const Case& from) {
  MmaData m;
  const auto wide = [](uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); };
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 16; ++c) m.a[r][c] = wide(from.a[r][c]);
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 8; ++c) {
      m.b[r][c] = wide(from.b[r][c]);
      m.c[r][c] = std::bit_cast<float>(from.c[r][c]);
    }
  return m;
}

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

// On the emulated device.
std::vector<float> computed(const std::vector<MmaData>& cases) {
  std::vector<float> d(cases.size() * 16 * 8);
  MmaData* data = nullptr;
  float* result = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&data), cases.size() * sizeof(MmaData)));
  check(cudaMalloc(reinterpret_cast<void**>(&result), d.size() * sizeof(float)));
  check(cudaMemcpy(data, cases.data(), cases.size() * sizeof(MmaData), cudaMemcpyHostToDevice));
  cudaLaunchConfig_t config;
  config.gridDim = dim3(static_cast<unsigned>(cases.size())), config.blockDim = dim3(32);
  check(cudaLaunchKernelEx(&config, mma_kernel, static_cast<const MmaData*>(data), result));
  check(cudaDeviceSynchronize());
  check(cudaMemcpy(d.data(), result, d.size() * sizeof(float), cudaMemcpyDeviceToHost));
  check(cudaFree(data)), check(cudaFree(result));
  return d;
}

template <CutModel kModel>
std::vector<float> computed_by(const std::vector<MmaData>& cases) {
  std::vector<float> all;
  for (const MmaData& m : cases) {
    float b[8][16], d[16][8];
    std::memcpy(d, m.c, sizeof d);
    for (int k = 0; k < 16; ++k)
      for (int c = 0; c < 8; ++c) b[c][k] = m.b[k][c];
    cores::multiply_cut<kModel>(m.a, b, d);
    all.insert(all.end(), &d[0][0], &d[0][0] + 16 * 8);
  }
  return all;
}

// With one thing wrong of what `kModel` says.
template <CutModel kModel>
std::vector<float> computed_wrongly(std::string_view mistake, const std::vector<MmaData>& cases) {
  constexpr auto with = [](auto change) {
    CutModel m = kModel;
    change(m);
    return m;
  };
  if (mistake == "bit-less") return computed_by<with([](CutModel& m) { --m.fraction; })>(cases);
  if (mistake == "bit-more") return computed_by<with([](CutModel& m) { ++m.fraction; })>(cases);
  if (mistake == "terms-rounded")
    return computed_by<with([](CutModel& m) { m.round_terms = true; })>(cases);
  if (mistake == "sums-rounded")
    return computed_by<with([](CutModel& m) { m.round_sums = true; })>(cases);
  if (mistake == "other-number-at-once")
    return computed_by<with([](CutModel& m) { m.at_once = 24 - m.at_once; })>(cases);
  if (mistake == "zeros-without-exponent")
    return computed_by<with([](CutModel& m) { m.zero_exponent = -999; })>(cases);
  if (mistake == "subnormals-normalised")
    return computed_by<with([](CutModel& m) { m.normalise = true; })>(cases);
  std::fprintf(stderr, "error: no mistake '%.*s' is known\n", static_cast<int>(mistake.size()),
               mistake.data());
  std::exit(2);
}

int run(int argc, char** argv) {
  const cores::TensorCores how = cores::emulated_tensor_cores();
  std::vector<MmaData> cases;
  Case next;
  size_t got = 0;
  while ((got = std::fread(&next, 1, sizeof next, stdin)) == sizeof next)
    cases.push_back(widened(next));
  if (got != 0 || cases.empty()) {
    std::fprintf(stderr, "error: standard input ends in the middle of a case\n");
    return 2;
  }
  const std::vector<float> d = argc < 2 ? computed(cases)
                               : how == cores::TensorCores::kAmpere
                                   ? computed_wrongly<cores::kAmpereSums>(argv[1], cases)
                                   : computed_wrongly<cores::kHopperSums>(argv[1], cases);
  return std::fwrite(d.data(), sizeof(float), d.size(), stdout) == d.size() ? 0 : 1;
}

}  // namespace
}  // namespace emulator::testing

int main(int argc, char** argv) { return emulator::testing::run(argc, argv); }
