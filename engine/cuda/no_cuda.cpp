// All of engine/cuda/ in a build without the toolkit.
#include "engine/backend.h"
#include "engine/base/error.h"
#include "engine/cuda/runtime/devices.h"

namespace evalrun::engine {
namespace cuda {

bool compiled_in() { return false; }

const DeviceList& list_devices() {
  static const DeviceList none;
  return none;
}

std::string cublas_version() { return "none"; }

}  // namespace cuda

namespace {

// Nobody gets here: resolve_engine() refuses the device first.
[[noreturn]] void refuse_cuda() {
  throw base::usage_error("this build has no CUDA", "use --device cpu");
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<const Model>, const SessionOptions&) {
  refuse_cuda();
}
double cuda_session_bytes(const Model&, const SessionOptions&) { refuse_cuda(); }
double cuda_missing_weights(const Model&, const SessionOptions&) { refuse_cuda(); }
double cuda_free_bytes(const std::string&) { refuse_cuda(); }

}  // namespace evalrun::engine
