// Spans as a profiler gets them. A program of its own: NVTX looks for its profiler once.
#include "engine/trace.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/engine/random_models.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests {
namespace {

TEST(Trace, AProfilerSeesPhasesAndTheForwardsInThem) {
  ASSERT_EQ(setenv("NVTX_INJECTION64_PATH", EVALRUN_FAKE_NVTX, 1), 0);
  const auto model = small_model(3);
  const auto session = make_session(model);
  Turn turn{{1, 2, 3, 1, 2}};
  turn.max_new = 2;  // one from the prefill, one step
  run(*build_method("ar", model), *session, turn);
  void* profiler = dlopen(EVALRUN_FAKE_NVTX, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(profiler, nullptr) << "NVTX did not load it";
  const auto log = reinterpret_cast<const char* (*)()>(dlsym(profiler, "fake_nvtx_log"));
  ASSERT_NE(log, nullptr);
  EXPECT_EQ(std::string(log()),
            "(prefill ) (forward ) (draft ) (verify (forward ) ) (commit ) (draft ) ");
}

}  // namespace
}  // namespace evalrun::tests
