// NVML against a library that stands in for the driver's (fake_nvml.cpp). No GPU is needed.
#include "engine/cuda/runtime/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace evalrun::engine::cuda {
namespace {

constexpr const char* kBusId = "0000:41:00.0";

TEST(Nvml, SaysWhatTheDriverKnows) {
  const Nvml nvml(EVALRUN_FAKE_NVML);
  ASSERT_TRUE(nvml.available());
  const std::optional<GpuFacts> f = nvml.facts(kBusId);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->name, "Fake GPU 80GB");
  EXPECT_EQ(f->driver_version, "530.41");
  EXPECT_EQ(f->sm_mhz_max, 1980);
  EXPECT_EQ(f->memory_mhz, 2619);
  EXPECT_EQ(f->memory_mhz_max, 2619);
  EXPECT_EQ(f->power_limit_w, 700);
  EXPECT_EQ(f->memory_used_bytes, int64_t{2} << 30);
  EXPECT_EQ(f->memory_free_bytes, int64_t{78} << 30);
  EXPECT_EQ(f->ecc, true);
  EXPECT_FALSE(f->persistence) << "not supported is not off";
  ASSERT_EQ(nvml.all().size(), 1u);
  EXPECT_EQ(nvml.all()[0].name, f->name);
}

TEST(Nvml, SamplesAMoment) {
  const Nvml nvml(EVALRUN_FAKE_NVML);
  const std::optional<GpuSample> first = nvml.sample(kBusId), second = nvml.sample(kBusId);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->sm_mhz, 1410);
  EXPECT_EQ(first->temperature_c, 61);
  EXPECT_EQ(first->power_w, 312.5);
  EXPECT_GT(*first->energy_mj, int64_t{1} << 32);
  EXPECT_EQ(*second->energy_mj - *first->energy_mj, 1500);
  EXPECT_EQ(first->reasons, 0x24u) << "by the older name of the function";
}

TEST(Nvml, WhatIsMissingIsAbsent) {
  const Nvml nvml(EVALRUN_FAKE_NVML);
  EXPECT_FALSE(nvml.facts("0000:42:00.0"));
  EXPECT_FALSE(nvml.sample(""));
  // No such file, none at all, a library of something else.
  for (const char* library : {"libno-such-library.so.1", "", "libm.so.6"}) {
    const Nvml none(library);
    EXPECT_FALSE(none.available()) << library;
    EXPECT_FALSE(none.facts(kBusId)) << library;
    EXPECT_FALSE(none.sample(kBusId)) << library;
    EXPECT_TRUE(none.all().empty()) << library;
  }
}

TEST(Nvml, ReasonsAreWords) {
  EXPECT_EQ(words_of_reasons(0), "");
  EXPECT_EQ(words_of_reasons(1), "idle");
  EXPECT_EQ(words_of_reasons(0x24), "power cap, heat (software)");
  EXPECT_EQ(words_of_reasons(0x4000'0000'0080), "power brake, reason 0x400000000000");
  for (const uint64_t harmless : {0x0, 0x1, 0x2, 0x10, 0x100}) EXPECT_FALSE(is_slowed(harmless));
  for (const uint64_t slowed : {0x4, 0x8, 0x20, 0x40, 0x80, 0x81}) EXPECT_TRUE(is_slowed(slowed));
}

}  // namespace
}  // namespace evalrun::engine::cuda
