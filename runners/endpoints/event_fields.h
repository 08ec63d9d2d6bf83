// Fields that several APIs have in their events. Wrong types are data_errors that name the place.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json_fields.h"
#include "runners/endpoints/endpoint.h"

namespace evalrun::runners {

// [1, 2, 3], each a token id. nullptr and null give none.
std::vector<int32_t> read_token_ids(const nlohmann::json* list, const std::string& url,
                                    const std::string& place);
// llama-server: [{"id", "token", "logprob", "top_logprobs": [{"id", "token", "logprob"}]}], one for
// each token.
std::vector<std::vector<EndpointLogProb>> read_token_probs(const nlohmann::json& list,
                                                           const std::string& url,
                                                           const std::string& place);
// {"data": [{"id": "name"}]} of GET /v1/models.
std::vector<std::string> listed_models(const nlohmann::json& listed, const std::string& url);
// A count, 0 and more; absent where the field is, or null.
std::optional<int64_t> read_count(base::ObjectReader& reader, const std::string& key);
// A list, or a data_error.
const nlohmann::json& list_of(const nlohmann::json* value, const std::string& url,
                              const std::string& place);

}  // namespace evalrun::runners
