// As much of cuBLAS as prefill asks for, written from its definition: C = A^T B, column-major.
#include <cstdint>
#include <cstring>

#include "tests/gpu/emulator/include/emulator.h"

namespace emulator {
namespace {

struct Handle {
  cudaStream_t stream = nullptr;
  const void* workspace = nullptr;
};
float at(const void* p, size_t i) {
  const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(p)[i]) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
bool g_left_out = false;

}  // namespace

WithoutCublas::WithoutCublas() { g_left_out = true; }
WithoutCublas::~WithoutCublas() { g_left_out = false; }

int cublas_property(int which, int* value) {
  *value = which == 0 ? 13 : 0;
  return 0;
}
int cublas_create(void** handle) {
  *handle = new Handle;
  return 0;
}
int cublas_destroy(void* handle) {
  delete static_cast<Handle*>(handle);
  return 0;
}
int cublas_set_stream(void* handle, cudaStream_t stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return 0;
}
int cublas_set_workspace(void* handle, void* workspace, size_t) {
  static_cast<Handle*>(handle)->workspace = workspace;
  return 0;
}

int cublas_gemm(void* handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha,
                const void* a, int a_type, int lda, const void* b, int b_type, int ldb,
                const void* beta, void* c, int c_type, int ldc, int compute, int) {
  constexpr int kInvalid = 7;
  if (trans_a != 1 || trans_b != 0 || a_type != 14 || b_type != 14 || c_type != 0 ||
      compute != 68 || lda < k || ldb < k || ldc < m || *static_cast<const float*>(alpha) != 1)
    return kInvalid;
  const float kept = *static_cast<const float*>(beta);  // read at once, as cuBLAS does
  if (kept != 0 && kept != 1) return kInvalid;
  if (g_left_out) return 0;
  const auto multiply = [=] {
    const auto index = [](int column, int ld, int row) {
      return static_cast<size_t>(column) * static_cast<size_t>(ld) + static_cast<size_t>(row);
    };
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < m; ++i) {
        float sum = 0;
        for (int l = 0; l < k; ++l) sum += at(a, index(i, lda, l)) * at(b, index(j, ldb, l));
        float& y = static_cast<float*>(c)[index(j, ldc, i)];
        y = kept == 0 ? sum : y + sum;
      }
  };
  const auto* h = static_cast<const Handle*>(handle);
  constexpr int kFailed = 13;
  return queue_work(h->stream, multiply, "a product by cuBLAS", {a, b, c, h->workspace}) ==
                 cudaSuccess
             ? 0
             : kFailed;
}

}  // namespace emulator
