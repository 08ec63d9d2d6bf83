// What a row says of a server.
#pragma once
#include "results/records.h"
#include "runners/endpoints/endpoint.h"
#include "runners/plan/suite.h"

namespace evalrun::runners {

// Settings of an arm that is a server.
inline constexpr const char* kEndpointSetting = "endpoint";      // its name
inline constexpr const char* kPromptsSetting = "prompts";        // how they are sent: "ids", "text"
inline constexpr const char* kTokensSetting = "tokens";          // whose ids: "server", "from text"
inline constexpr const char* kCacheSetting = "prompt_cache";     // "off", "declared off", "kept"
inline constexpr const char* kVerifiedSetting = "api_verified";  // run against the real one: "yes"
inline constexpr const char* kSeededSetting = "seeded";  // "no": a seed does not repeat an answer

// Fills in the arm, but for its role, its key, and what the suite says of every arm. Throws
// usage_error where the suite asks for what this API cannot.
void describe_endpoint(const Suite& suite, const EndpointSpec& spec, const EndpointAbilities& can,
                       results::ArmRecord& arm);

}  // namespace evalrun::runners
