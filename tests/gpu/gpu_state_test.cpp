// What a run stores about its GPU, from made-up devices and the stand-in for NVML.
#include "runners/machine/gpu_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace evalrun::runners {
namespace {

using engine::cuda::GpuSample;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

engine::cuda::Device device() {
  return {.index = 1,
          .name = "Some GPU",
          .compute_major = 9,
          .memory_bytes = 1000,
          .pci_bus_id = "0000:41:00.0",
          .ecc = true};
}
engine::cuda::DeviceList machine() {
  engine::cuda::DeviceList list;
  list.runtime_version = "13.0";
  list.driver_version = "13.1";
  return list;
}

TEST(GpuState, TheEnvironmentSaysWhatTheGpuIs) {
  const engine::cuda::Nvml nvml(EVALRUN_FAKE_NVML);
  EXPECT_THAT(
      describe_gpu(device(), machine(), nvml.facts(device().pci_bus_id)),
      UnorderedElementsAre(Pair("gpu", "Some GPU"), Pair("gpu_compute", "9.0"),
                           Pair("gpu_memory_bytes", "1000"), Pair("gpu_ecc", "on"),
                           Pair("cuda_driver", "13.1"), Pair("cuda_runtime", "13.0"),
                           Pair("gpu_driver", "530.41"), Pair("gpu_sm_mhz_max", "1980"),
                           Pair("gpu_memory_mhz_max", "2619"), Pair("gpu_power_limit_w", "700")));
  EXPECT_EQ(describe_gpu(device(), machine(), {}).size(), 6u);
}

TEST(GpuState, NothingOnTheCpu) {
  EXPECT_THAT(gpu_environment("cpu"), IsEmpty());
  EXPECT_FALSE(sample_gpu("cpu"));
}

TEST(GpuState, AGenerationUsesWhatTheCounterMoved) {
  const engine::cuda::Nvml nvml(EVALRUN_FAKE_NVML);
  const auto before = nvml.sample(device().pci_bus_id), after = nvml.sample(device().pci_bus_id);
  const auto g = gpu_between(before, after, {});
  ASSERT_TRUE(g);
  EXPECT_EQ(g->energy_mj, 1500);
  EXPECT_EQ(g->temperature_c, 61);
  EXPECT_EQ(g->power_w, 312.5);
  EXPECT_EQ(g->slowed_by, "power cap, heat (software)");
  EXPECT_FALSE(g->busy);
  EXPECT_FALSE(gpu_between(before, {}, {}));
  EXPECT_FALSE(gpu_between({}, after, {}));
  const auto silent = gpu_between(GpuSample{}, GpuSample{.temperature_c = 40}, {});
  ASSERT_TRUE(silent);
  EXPECT_FALSE(silent->energy_mj || silent->power_w);
  EXPECT_EQ(silent->slowed_by, "");
}

TEST(GpuState, BusyIsWhatWasAddedMeanwhile) {
  engine::DeviceTime before{{1, 2, 3, 4, 5, 6}, 7}, after{{11, 22, 33, 44, 55, 1000}, 9};
  const results::GpuBusy busy = busy_between(before, after);
  EXPECT_EQ(busy, (results::GpuBusy{10, 20, 30, 40, 50, 2}));
  // Where NVML is silent it is stored all the same.
  const auto g = gpu_between({}, {}, busy);
  ASSERT_TRUE(g);
  EXPECT_EQ(g->busy, busy);
  EXPECT_FALSE(g->energy_mj);
}

}  // namespace
}  // namespace evalrun::runners
