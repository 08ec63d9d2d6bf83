#include "runners/plan/endpoint_arm.h"

#include "engine/base/error.h"

namespace evalrun::runners {
namespace {

const char* cache_text(EndpointSpec::Cache cache) {
  switch (cache) {
    case EndpointSpec::Cache::kOff:
      return "off";
    case EndpointSpec::Cache::kDeclaredOff:
      return "declared off";
    case EndpointSpec::Cache::kKept:
      return "kept";
  }
  return "";
}

}  // namespace

void describe_endpoint(const Suite& suite, const EndpointSpec& spec, const EndpointAbilities& can,
                       results::ArmRecord& arm) {
  if (suite.ignore_eos && !can.ignores_eos)
    throw base::usage_error(
        fmt::format("endpoint {}: field 'ignore_eos': the API '{}' cannot be told to go on after "
                    "the stop token",
                    spec.name, spec.api),
        "leave --ignore-eos out (suite: \"ignore_eos\": false), or take an API that can: "
        "docs/endpoints.md");
  arm.label = spec.name;
  arm.method = results::kEndpointMethod;
  arm.params = spec.api;
  arm.method_version = "1";
  arm.lossless = "none";  // nothing is claimed: the share of equal answers says what was seen
  arm.model = spec.model;
  arm.device = "server";
  arm.settings[kEndpointSetting] = spec.name;
  arm.settings[kPromptsSetting] = can.takes_ids ? "ids" : "text";
  arm.settings[kTokensSetting] = can.gives_ids ? "server" : "from text";
  arm.settings[kCacheSetting] = cache_text(spec.cache);
  arm.settings[kVerifiedSetting] = can.verified ? "yes" : "no";
  if (!suite.sampling.greedy() && !can.seeded) arm.settings[kSeededSetting] = "no";
  // Pieces come as they come.
  arm.settings["steps"] = "follow the machine";
}

}  // namespace evalrun::runners
