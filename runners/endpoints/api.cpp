#include <fmt/format.h>

#include <cstdlib>

#include "engine/base/error.h"
#include "engine/base/registry.h"
#include "runners/endpoints/apis.h"

namespace evalrun::runners {
namespace {

using EndpointMaker = std::unique_ptr<Endpoint> (*)(const EndpointSetup&);

const base::Registry<EndpointMaker>& endpoint_makers() {
  static const base::Registry<EndpointMaker> all = [] {
    base::Registry<EndpointMaker> apis("api");
    apis.add("llama", make_llama_endpoint);
    apis.add("vllm", make_vllm_endpoint);
    apis.add("openai", make_openai_endpoint);
    apis.add("sglang", make_sglang_endpoint);
    apis.add("tgi", make_tgi_endpoint);
    return apis;
  }();
  return all;
}

std::string endpoint_key(const EndpointSpec& spec) {
  if (spec.key_env.empty()) return "";
  const char* key = std::getenv(spec.key_env.c_str());
  if (key == nullptr || *key == '\0')
    throw base::usage_error(
        fmt::format("endpoint {}: the environment variable {} is not set", spec.name, spec.key_env),
        fmt::format("export {}=..., or leave out key-env", spec.key_env));
  return key;
}

}  // namespace

std::vector<std::string> endpoint_apis() {
  std::vector<std::string> names;
  for (const auto& entry : endpoint_makers().entries()) names.push_back(entry.first);
  return names;
}

std::unique_ptr<Endpoint> make_endpoint(const EndpointSpec& spec, const EndpointTools& tools) {
  const EndpointMaker make = endpoint_makers().get(spec.api);
  const std::string key = endpoint_key(spec);
  net::check_url(spec.url, key, fmt::format("endpoint {}", spec.name));
  std::unique_ptr<Endpoint> endpoint = make({spec, tools, key});
  if (spec.cache == EndpointSpec::Cache::kOff && !endpoint->abilities().cache_off)
    throw base::usage_error(
        fmt::format("endpoint {}: api {} cannot ask for a request without the prompt cache",
                    spec.name, spec.api),
        "start the server without one and say cache=declared-off, or say cache=kept");
  return endpoint;
}

std::optional<int64_t> target_steps(int64_t tokens, const EndpointCounts& counts) {
  if (!counts.accepted) return std::nullopt;
  const int64_t steps = tokens - *counts.accepted;
  // Draft tokens after the end of an answer are accepted, but not part of it.
  if (*counts.accepted < 0 || (steps < 1 && tokens > 0)) return std::nullopt;
  return steps;
}

}  // namespace evalrun::runners
