// What a session is asked to be, and the same with its defaults filled in; what cannot be had is
// refused before anything is loaded or allocated. All functions throw usage_error, with what there
// is.
#pragma once
#include <cstdint>
#include <string>

#include "engine/model/weight_matrix.h"

namespace evalrun::engine {

namespace cuda {
struct DeviceList;  // engine/cuda/runtime/devices.h
}
namespace cpu {
struct Places;  // engine/cpu/places.h
}

struct SessionOptions {
  int max_tokens = 2048;  // committed tokens a sequence can hold; <= what memory allows
  int n_sequences = 1;
  // Positions of the KV cache that all sequences share, in blocks of kCacheBlock: a block each at
  // least. 0 = max_tokens for each of them, which is all that a GPU has.
  int64_t pool_tokens = 0;
  int n_threads = 0;     // 0 = cores allowed (affinity and cgroup); always 1 on a GPU
  bool kv_cache = true;  // false: every forward recomputes the committed tokens (BiTA's and SPACE's
                         // released decoders ran so; for honest comparison with them)
  std::string device = "cpu";  // or "cuda", "cuda:N": engine/devices.h
  std::string isa;             // "" = best available, see available_isas(); on a GPU its "sm_90"
  // Gives up equal bits across instruction sets where that is faster; a row's bits still depend on
  // the row alone. Only paths of one_isa_paths() have this.
  bool one_isa = false;
  // Keys and values: "f32", "bf16", "int8" or "fp8" (bytes, one scale per position and head; fp8 is
  // E4M3: engine/cpu/kernels/fp8.h), or "int4" (scale and offset per position and head:
  // engine/cpu/kernels/int4.h); "" = float32 with f32 weights, bfloat16 otherwise. A GPU has these
  // two and bytes.
  std::string kv_dtype;
  bool measure_phases = false;
  // On a GPU: adds to device_time(). Two events around what is queued, no synchronisation.
  bool time_device = false;
  // Tests only: places of the threads instead of those that they have; must outlive the session.
  const cpu::Places* places = nullptr;
};

// Device, path and threads, the same for sessions of any model. On the CPU `isa` becomes the best
// path and `n_threads` the cores allowed. On a GPU `device` becomes "cuda:N", `isa` its
// architecture ("sm_90"), and `n_threads` 1: one thread feeds it. The one with a list is for tests.
SessionOptions resolve_engine(SessionOptions options);
SessionOptions resolve_engine(SessionOptions options, const cuda::DeviceList& gpus);

// The same, and the KV cache for weights of this format. A cache on a GPU has the type of its
// weights, float32 with f32 and bfloat16 otherwise, or bytes.
SessionOptions resolve_options(SessionOptions options, WeightFormat format);
SessionOptions resolve_options(SessionOptions options, WeightFormat format,
                               const cuda::DeviceList& gpus);

}  // namespace evalrun::engine
