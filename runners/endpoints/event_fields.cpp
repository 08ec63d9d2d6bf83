#include "runners/endpoints/event_fields.h"

#include <fmt/format.h>

#include <limits>

#include "engine/base/error.h"

namespace evalrun::runners {
namespace {

EndpointLogProb token_prob(base::ObjectReader& reader) {
  return {.token = reader.optional<int32_t>("id", -1),
          .text = reader.optional<std::string>("token", ""),
          .log_prob = reader.required<double>("logprob")};
}

}  // namespace

const nlohmann::json& list_of(const nlohmann::json* value, const std::string& url,
                              const std::string& place) {
  if (value == nullptr || !value->is_array())
    throw base::data_error(
        url, place,
        fmt::format("must be a list, found {}", value == nullptr ? "nothing" : value->type_name()));
  return *value;
}

std::optional<int64_t> read_count(base::ObjectReader& reader, const std::string& key) {
  const nlohmann::json* value = reader.raw(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  const int64_t count = reader.required<int64_t>(key);
  if (count < 0) reader.fail(key, "is negative");
  return count;
}

std::vector<int32_t> read_token_ids(const nlohmann::json* list, const std::string& url,
                                    const std::string& place) {
  std::vector<int32_t> ids;
  if (list == nullptr || list->is_null()) return ids;
  for (const nlohmann::json& id : list_of(list, url, place)) {
    // Integers above int64 are unsigned in the library, and would come out negative.
    const int64_t value = id.is_number_integer() ? id.get<int64_t>() : -1;
    if (value < 0 || value > std::numeric_limits<int32_t>::max())
      throw base::data_error(url, place, "must hold token ids alone");
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

std::vector<std::vector<EndpointLogProb>> read_token_probs(const nlohmann::json& list,
                                                           const std::string& url,
                                                           const std::string& place) {
  std::vector<std::vector<EndpointLogProb>> tokens;
  for (const nlohmann::json& one : list_of(&list, url, place)) {
    base::ObjectReader token(one, url, place);
    std::vector<EndpointLogProb>& best = tokens.emplace_back();
    best.push_back(token_prob(token));
    const nlohmann::json* others = token.raw("top_logprobs");
    if (others == nullptr || others->is_null()) continue;
    for (const nlohmann::json& other : list_of(others, url, place + ".top_logprobs")) {
      base::ObjectReader reader(other, url, place + ".top_logprobs");
      best.push_back(token_prob(reader));
    }
  }
  return tokens;
}

std::vector<std::string> listed_models(const nlohmann::json& listed, const std::string& url) {
  base::ObjectReader reader(listed, url, "models");
  std::vector<std::string> names;
  for (const nlohmann::json& one : list_of(reader.raw("data"), url, "models.data"))
    names.push_back(base::ObjectReader(one, url, "models.data").required<std::string>("id"));
  return names;
}

}  // namespace evalrun::runners
