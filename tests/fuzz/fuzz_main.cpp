// libFuzzer's entry for one target, EVALRUN_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  evalrun::fuzz::EVALRUN_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
