#include "engine/session_options.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/cache_blocks.h"
#include "engine/devices.h"

namespace evalrun::engine {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

SessionOptions resolve_cpu(SessionOptions o) {
  const std::vector<std::string> isas = available_isas();
  if (o.isa.empty()) o.isa = isas.front();
  if (!contains(isas, o.isa))
    throw base::usage_error(fmt::format("this machine cannot run the '{}' kernels", o.isa),
                            base::suggest(o.isa, isas));
  if (o.one_isa && !contains(one_isa_paths(), o.isa))
    throw base::usage_error(
        fmt::format("path '{}' has no bits of its own: one-isa is for AMX with amx_bf16", o.isa),
        "leave --reproducible out: its results are the same and as fast");
  if (o.n_threads <= 0) o.n_threads = allowed_cores();
  return o;
}

SessionOptions resolve_gpu(SessionOptions o, const cuda::DeviceList& gpus) {
  const cuda::Device& gpu = find_gpu(o.device, gpus);
  o.device = fmt::format("cuda:{}", gpu.index);
  const std::string isa = fmt::format("sm_{}{}", gpu.compute_major, gpu.compute_minor);
  if (!o.isa.empty() && o.isa != isa)
    throw base::usage_error(
        fmt::format("device '{}' ({}) computes as '{}', not as '{}' (--isa, EVALRUN_ISA)", o.device,
                    gpu.name, isa, o.isa),
        "leave --isa out and unset EVALRUN_ISA");
  o.isa = isa;
  if (o.one_isa)
    throw base::usage_error(
        "--reproducible one-isa is for the CPU: a GPU has one path per architecture",
        "leave --reproducible out");
  o.n_threads = 1;
  return o;
}

// Looking for GPUs starts their driver: not for work on the CPU.
const cuda::DeviceList& gpus_for(const SessionOptions& o) {
  static const cuda::DeviceList none;
  return o.device == "cpu" ? none : cuda::list_devices();
}

std::string default_kv_dtype(WeightFormat format) {
  return format == WeightFormat::kF32 ? "f32" : "bf16";
}

void check_pool(const SessionOptions& o) {
  const int64_t all = int64_t{o.max_tokens} * o.n_sequences;
  if (o.pool_tokens == 0 || o.pool_tokens == all) return;
  if (is_gpu(o.device))
    throw base::usage_error(
        fmt::format("pool_tokens {} is not for device '{}': its sequences reserve {} x {} tokens",
                    o.pool_tokens, o.device, o.n_sequences, o.max_tokens),
        "leave pool_tokens out, or compute on the CPU: --device cpu");
  if (o.pool_tokens < all && blocks_of(o.pool_tokens) < o.n_sequences)
    throw base::usage_error(
        fmt::format("pool_tokens {} are too few for {} sequences: each needs a block of {}",
                    o.pool_tokens, o.n_sequences, kCacheBlock),
        fmt::format("pool_tokens of {} or more, or fewer sequences",
                    int64_t{o.n_sequences} * kCacheBlock));
}

}  // namespace

SessionOptions resolve_engine(SessionOptions o, const cuda::DeviceList& gpus) {
  return o.device == "cpu" ? resolve_cpu(std::move(o)) : resolve_gpu(std::move(o), gpus);
}

SessionOptions resolve_engine(SessionOptions o) {
  const cuda::DeviceList& gpus = gpus_for(o);
  return resolve_engine(std::move(o), gpus);
}

SessionOptions resolve_options(SessionOptions options, WeightFormat format,
                               const cuda::DeviceList& gpus) {
  SessionOptions o = resolve_engine(std::move(options), gpus);
  const std::string usual = default_kv_dtype(format);
  if (o.kv_dtype.empty()) o.kv_dtype = usual;
  if (!contains(kv_dtypes(), o.kv_dtype))
    throw base::usage_error(fmt::format("unknown format '{}' of the KV cache", o.kv_dtype),
                            base::suggest(o.kv_dtype, kv_dtypes()));
  if (is_gpu(o.device) && o.kv_dtype != usual && !kv_in_bytes(o.kv_dtype))
    throw base::usage_error(
        fmt::format(
            "--kv-dtype {} is not for device '{}': with {} weights its cache is {}, int8 or fp8",
            o.kv_dtype, o.device, name_of(format), usual),
        o.kv_dtype == "int4" ? "--kv-dtype int8, or compute on the CPU: --device cpu"
                             : "leave --kv-dtype out, or choose other weights with --dtype");
  check_pool(o);
  return o;
}

SessionOptions resolve_options(SessionOptions o, WeightFormat format) {
  const cuda::DeviceList& gpus = gpus_for(o);
  return resolve_options(std::move(o), format, gpus);
}

}  // namespace evalrun::engine
