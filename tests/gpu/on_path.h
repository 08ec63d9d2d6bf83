// What steps of a scope go through (EVALRUN_CUDA_PATH).
#pragma once
#include <utility>

#include "engine/cuda/runtime/product_path.h"
#ifdef EVALRUN_CUDA_EMULATED
#include "tests/gpu/emulator/include/emulator.h"
#else
#include "engine/cuda/runtime/devices.h"
#endif

namespace evalrun::engine::cuda::testing {

// Whether this device takes them; the emulated one says of itself what is needed.
inline bool has_path(ProductPath path) {
#ifdef EVALRUN_CUDA_EMULATED
  (void)path;
  return true;
#else
  const auto& devices = list_devices().devices;
  return path != ProductPath::kHopper || (!devices.empty() && devices.front().compute_major == 9 &&
                                          devices.front().compute_minor == 0);
#endif
}

class OnPath {
 public:
  explicit OnPath(ProductPath path) : usual_(std::exchange(product_path(), path)) { tell(path); }
  ~OnPath() {
    product_path() = usual_;
    tell(usual_);
  }
  OnPath(const OnPath&) = delete;
  OnPath& operator=(const OnPath&) = delete;

 private:
  static void tell(ProductPath path) {
#ifdef EVALRUN_CUDA_EMULATED
    emulator::set_device_capability(path == ProductPath::kHopper ? 90 : 80);
#else
    (void)path;
#endif
  }
  ProductPath usual_;
};

}  // namespace evalrun::engine::cuda::testing
