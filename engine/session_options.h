// Session options with their defaults filled in; what cannot be had is refused before anything is
// loaded or allocated. All functions throw usage_error, with what there is.
#pragma once
#include "engine/cuda/runtime/devices.h"
#include "engine/session.h"

namespace evalrun::engine {

// Device, path and threads, the same for sessions of any model. On the CPU `isa` becomes the best
// path and `n_threads` the cores allowed. On a GPU `device` becomes "cuda:N", `isa` its
// architecture ("sm_90"), and `n_threads` 1: one thread feeds it. The one with a list is for tests.
SessionOptions resolve_engine(SessionOptions options);
SessionOptions resolve_engine(SessionOptions options, const cuda::DeviceList& gpus);

// The same, and the KV cache for weights of this format. A cache on a GPU has the type of its
// weights: float32 with f32, bfloat16 otherwise.
SessionOptions resolve_options(SessionOptions options, WeightFormat format);
SessionOptions resolve_options(SessionOptions options, WeightFormat format,
                               const cuda::DeviceList& gpus);

}  // namespace evalrun::engine
