// Devices by name and the options of a session on one, on machines that are made up: none of this
// needs a GPU or asks for one.
#include "engine/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/session_options.h"

namespace evalrun::engine::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

cuda::DeviceList machine(const std::vector<cuda::Device>& devices = {}) {
  cuda::DeviceList list;
  list.compiled_in = true;
  list.runtime_version = "13.0";
  list.driver_version = "13.1";
  list.devices = devices;
  return list;
}
cuda::Device gpu(int index, int major, int minor) {
  return {.index = index,
          .name = "GPU " + std::to_string(index),
          .compute_major = major,
          .compute_minor = minor,
          .memory_bytes = 1 << 30};
}
// Two that can be used with an old one between them.
cuda::DeviceList three() { return machine({gpu(0, 9, 0), gpu(1, 7, 5), gpu(2, 12, 0)}); }

// Message and hint of the usage error that f throws.
template <typename F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    return e.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}
std::string refusal_of(const std::string& device, const cuda::DeviceList& list) {
  return refusal([&] { (void)find_gpu(device, list); });
}

SessionOptions options(const std::string& device, const std::string& kv_dtype = "") {
  SessionOptions o;
  o.device = device;
  o.kv_dtype = kv_dtype;
  return o;
}

TEST(Devices, ThoseThatCanBeUsedHaveNames) {
  EXPECT_THAT(available_devices(machine()), ElementsAre("cpu"));
  EXPECT_THAT(available_devices(three()), ElementsAre("cpu", "cuda", "cuda:0", "cuda:2"));
  // "cuda" is the first one, which is of no use here.
  EXPECT_THAT(available_devices(machine({gpu(0, 7, 0), gpu(1, 8, 0)})),
              ElementsAre("cpu", "cuda:1"));
  EXPECT_EQ(available_devices().front(), "cpu");
}

TEST(Devices, NamesMeanDevices) {
  const cuda::DeviceList list = three();
  EXPECT_EQ(find_gpu("cuda", list).index, 0);
  EXPECT_EQ(find_gpu("cuda:0", list).index, 0);
  EXPECT_EQ(find_gpu("cuda:2", list).index, 2);
  EXPECT_TRUE(is_gpu("cuda") && is_gpu("cuda:17"));
  for (const char* no : {"cpu", "", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:99999999999",
                         "cuda0", "CUDA", "cuda:+1", "cuda: 1"})
    EXPECT_FALSE(is_gpu(no)) << no;
  EXPECT_THAT(refusal_of("gpu", list),
              AllOf(HasSubstr("unknown device 'gpu'"), HasSubstr("cpu, cuda, cuda:0, cuda:2")));
  EXPECT_THAT(refusal_of("cuda:3", list), HasSubstr("there is no such GPU"));
  EXPECT_THAT(refusal_of("cuda:1", list),
              AllOf(HasSubstr("GPU 1"), HasSubstr("compute capability 7.5 is below 8.0")));
  EXPECT_NO_THROW(check_device("cpu"));
  EXPECT_THAT(refusal([] { check_device("cuda:x"); }), HasSubstr("unknown device 'cuda:x'"));
}

TEST(Devices, ARefusalSaysWhyThereIsNoGpu) {
  EXPECT_EQ(gpu_obstacle(three()).why, "");
  EXPECT_THAT(refusal_of("cuda", {}), AllOf(HasSubstr("this build has no CUDA"),
                                            HasSubstr("devices here: cpu"), HasSubstr("Toolkit")));
  cuda::DeviceList list = machine();
  EXPECT_THAT(refusal_of("cuda", list), HasSubstr("the driver sees no GPU"));
  list.error = "unknown error";
  EXPECT_THAT(refusal_of("cuda", list), HasSubstr("CUDA says: unknown error"));
  list.error = "CUDA driver version is insufficient for CUDA runtime version";
  list.old_driver = true;
  list.driver_version = "12.2";
  EXPECT_THAT(refusal_of("cuda:0", list),
              AllOf(HasSubstr("runs CUDA up to 12.2, this build needs 13.0"),
                    HasSubstr("update the driver, or build with a toolkit of CUDA 12.2")));
  list.old_driver = false;
  list.driver_version = "";
  EXPECT_THAT(refusal_of("cuda", list), AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("--gpus")));
  EXPECT_THAT(refusal_of("cuda:4", machine({gpu(0, 7, 5)})),
              AllOf(HasSubstr("GPU 0"), HasSubstr("7.5 is below 8.0")));
}

TEST(SessionOptionsOnAGpu, AreResolvedForTheDevice) {
  const SessionOptions o = resolve_engine(options("cuda"), three());
  EXPECT_EQ(o.device, "cuda:0");
  EXPECT_EQ(o.isa, "sm_90");
  EXPECT_EQ(o.n_threads, 1);
  SessionOptions named = options("cuda:2");
  named.isa = "sm_120";
  named.n_threads = 8;
  EXPECT_EQ(resolve_engine(named, three()).n_threads, 1);
  // What is resolved stays as it is: plans hand it to sessions.
  EXPECT_EQ(resolve_engine(o, three()).isa, "sm_90");
  SessionOptions cpu = options("cpu");
  cpu.n_threads = 3;
  EXPECT_EQ(resolve_engine(cpu, three()).n_threads, 3);
  EXPECT_EQ(resolve_engine(cpu, three()).isa, available_isas().front());
}

TEST(SessionOptionsOnAGpu, PathsOfTheCpuAreRefused) {
  for (const char* isa : {"avx2", "reference", "sm_80"}) {
    SessionOptions o = options("cuda:0");
    o.isa = isa;
    EXPECT_THAT(refusal([&] { resolve_engine(o, three()); }),
                AllOf(HasSubstr(isa), HasSubstr("sm_90"), HasSubstr("EVALRUN_ISA")));
  }
  SessionOptions bits = options("cuda:0");
  bits.one_isa = true;
  EXPECT_THAT(refusal([&] { resolve_engine(bits, three()); }), HasSubstr("one-isa"));
  SessionOptions on_cpu = options("cpu");
  on_cpu.isa = "sm_90";
  EXPECT_THAT(refusal([&] { resolve_engine(on_cpu, three()); }), HasSubstr("sm_90"));
}

TEST(SessionOptionsOnAGpu, TheCacheHasTheTypeOfTheWeightsOrBytes) {
  const auto resolved = [](const char* kv, WeightFormat format) {
    return resolve_options(options("cuda", kv), format, three()).kv_dtype;
  };
  EXPECT_EQ(resolved("", WeightFormat::kF32), "f32");
  EXPECT_EQ(resolved("f32", WeightFormat::kF32), "f32");
  EXPECT_EQ(resolved("", WeightFormat::kInt8), "bf16");
  EXPECT_EQ(resolved("bf16", WeightFormat::kQ4), "bf16");
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kQ4})
    for (const char* kv : {"int8", "fp8"}) EXPECT_EQ(resolved(kv, format), kv);
  EXPECT_THAT(
      refusal([&] { resolved("f32", WeightFormat::kBf16); }),
      AllOf(HasSubstr("with bf16 weights its cache is bf16, int8 or fp8"), Not(HasSubstr("cpu"))));
  EXPECT_THAT(refusal([&] { resolved("bf16", WeightFormat::kF32); }), HasSubstr("f32 weights"));
  EXPECT_THAT(refusal([&] { resolved("int4", WeightFormat::kQ4); }),
              AllOf(HasSubstr("--kv-dtype int4 is not for device 'cuda:0'"),
                    HasSubstr("with q4 weights its cache is bf16, int8 or fp8"),
                    HasSubstr("--kv-dtype int8, or"), HasSubstr("--device cpu")));
  EXPECT_THAT(refusal([&] { resolved("int2", WeightFormat::kF32); }),
              AllOf(HasSubstr("unknown format 'int2'"), HasSubstr("int4")));
  EXPECT_EQ(resolve_options(options("cpu", "int8"), WeightFormat::kF32, three()).kv_dtype, "int8");
}

TEST(SessionOptionsOnAGpu, SequencesShareNoPool) {
  SessionOptions o = options("cuda");
  o.max_tokens = 200, o.n_sequences = 3;
  const auto resolved = [&](int64_t pool) {
    o.pool_tokens = pool;
    return refusal([&] { resolve_options(o, WeightFormat::kF32, three()); });
  };
  for (const int64_t pool : {599, 601, 384, -1})
    EXPECT_THAT(resolved(pool), AllOf(HasSubstr("pool_tokens"), HasSubstr("cuda:0"),
                                      HasSubstr("3 x 200 tokens"), HasSubstr("--device cpu")));
  for (const int64_t pool : {0, 600}) {
    o.pool_tokens = pool;
    EXPECT_NO_THROW(resolve_options(o, WeightFormat::kF32, three())) << pool;
  }
}

TEST(SessionOptionsOnAGpu, WeightsAsStoredHaveTheUsualCache) {
  for (const char* device : {"cpu", "cuda"})
    EXPECT_EQ(resolve_options(options(device), WeightFormat::kStored, three()).kv_dtype, "bf16");
}

}  // namespace
}  // namespace evalrun::engine::testing
