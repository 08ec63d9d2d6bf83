#include "runners/plan/suite_endpoints.h"

#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "methods/registration.h"

namespace evalrun::runners {
namespace {

using base::ExitCode;
using base::ObjectReader;
using base::usage_error;

// {"name": "plain", "url": "http://..."} as parse_endpoint() has it: "plain=http://...".
std::string endpoint_text(const nlohmann::json& item, const std::string& file,
                          const std::string& place) {
  ObjectReader fields(item, file, place, ExitCode::kUsage);
  const auto checked = [&](const char* key, const std::string& value) {
    if (value.find(',') != std::string::npos) fields.fail(key, "holds a comma");
    return value;
  };
  std::string text = checked("name", fields.required<std::string>("name")) + "=" +
                     checked("url", fields.required<std::string>("url"));
  for (const char* key : {"api", "model", "key-env", "cache"})
    if (fields.has(key))
      text += fmt::format(",{}={}", key, checked(key, fields.required<std::string>(key)));
  fields.finish();
  return text;
}

std::string label_of(const std::string& method) { return methods::parse_method(method).label(); }

void check_endpoint_names(const EndpointArms& arms, const std::vector<std::string>& optional,
                          const std::string& where) {
  for (size_t i = 0; i < arms.endpoints.size(); ++i) {
    const std::string& name = arms.endpoints[i].name;
    for (size_t j = 0; j < i; ++j)
      if (arms.endpoints[j].name == name)
        throw usage_error(fmt::format("{}: two endpoints are named {}", where, name),
                          "the name is the arm's label: give each its own");
    for (const std::vector<std::string>* list : {&arms.methods, &optional})
      for (const std::string& method : *list)
        if (label_of(method) == name)
          throw usage_error(
              fmt::format("{}: {} is the name of an endpoint and of a method", where, name),
              "the name is the arm's label: call the endpoint something else");
  }
}

void check_baseline(const EndpointArms& arms, const std::string& where) {
  if (arms.baseline.empty() || baseline_endpoint(arms) != nullptr || !baseline_method(arms).empty())
    return;
  std::vector<std::string> names;
  for (const EndpointSpec& endpoint : arms.endpoints) names.push_back(endpoint.name);
  for (const std::string& method : arms.methods) names.push_back(label_of(method));
  throw usage_error(
      fmt::format("{}: field 'baseline' (--baseline) is '{}', which is no arm of this run", where,
                  arms.baseline),
      base::suggest(arms.baseline, names));
}

}  // namespace

void read_endpoints(ObjectReader& reader, const std::string& file,
                    std::vector<EndpointSpec>& endpoints, std::string& baseline) {
  baseline = reader.optional<std::string>("baseline", baseline);
  const nlohmann::json* list = reader.raw("endpoints");
  if (list == nullptr) return;
  if (!list->is_array())
    reader.fail("endpoints", "must be a list of \"NAME=URL,...\" or {\"name\": ...} objects");
  endpoints.clear();
  for (size_t i = 0; i < list->size(); ++i) {
    const nlohmann::json& item = (*list)[i];
    const std::string place = fmt::format("endpoints[{}]", i);
    endpoints.push_back(parse_endpoint(
        item.is_string() ? item.get<std::string>() : endpoint_text(item, file, place),
        fmt::format("{}: field '{}'", file, place)));
  }
}

void check_endpoints(const EndpointArms& arms, const std::vector<std::string>& optional,
                     const std::string& where) {
  if (arms.endpoints.empty()) {
    if (arms.baseline.empty()) return;
    throw usage_error(
        fmt::format("{}: field 'baseline' (--baseline) is '{}', and there are no endpoints: "
                    "methods are compared with plain decoding",
                    where, arms.baseline),
        "leave it out, or name servers: --endpoint NAME=URL");
  }
  check_endpoint_names(arms, optional, where);
  check_baseline(arms, where);
  for (const std::vector<std::string>* list : {&arms.methods, &optional})
    for (const std::string& method : *list)
      if (methods::parse_method(method).info->needs_answer)
        throw usage_error(
            fmt::format("{}: method {} with endpoints: synthetic acceptance says what a method "
                        "could reach in evalrun's own engine",
                        where, method),
            "measure it in a run without endpoints");
}

void add_endpoints(const EndpointArms& arms, nlohmann::json& suite) {
  if (arms.endpoints.empty()) return;
  suite["endpoints"] = nlohmann::json::array();
  for (const EndpointSpec& endpoint : arms.endpoints)
    suite["endpoints"].push_back(to_string(endpoint));
  if (!arms.baseline.empty()) suite["baseline"] = arms.baseline;
}

const EndpointSpec* baseline_endpoint(const EndpointArms& arms) {
  for (const EndpointSpec& endpoint : arms.endpoints)
    if (arms.baseline.empty() || endpoint.name == arms.baseline) return &endpoint;
  return nullptr;
}

std::string baseline_method(const EndpointArms& arms) {
  if (arms.baseline.empty()) return "";
  for (const std::string& method : arms.methods)
    if (method == arms.baseline || label_of(method) == arms.baseline) return method;
  return "";
}

}  // namespace evalrun::runners
