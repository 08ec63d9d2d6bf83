// Servers among the arms of a suite: its fields `endpoints` and `baseline`.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/json_fields.h"
#include "runners/endpoints/endpoint.h"

namespace evalrun::runners {

// What of a suite decides about them. All must outlive the object.
struct EndpointArms {
  const std::vector<EndpointSpec>& endpoints;
  const std::string& baseline;
  const std::vector<std::string>& methods;  // in their one spelling, without `auto`
};

// The fields of a suite; those that are missing keep what it has. `file` is its name in messages.
// An endpoint is a string as parse_endpoint() reads it, or an object with the same keys.
void read_endpoints(base::ObjectReader& reader, const std::string& file,
                    std::vector<EndpointSpec>& endpoints, std::string& baseline);
// Throws usage_error: two endpoints of one name or one with a method's name, a baseline that is no
// arm, synthetic acceptance; `where` starts the messages. `optional`: further methods.
void check_endpoints(const EndpointArms& arms, const std::vector<std::string>& optional,
                     const std::string& where);
// Adds the fields that say something, so that suites without servers keep their keys.
void add_endpoints(const EndpointArms& arms, nlohmann::json& suite);

// The endpoint that every arm is compared with; null where that is a method (baseline_method()), or
// plain decoding in a suite without endpoints.
const EndpointSpec* baseline_endpoint(const EndpointArms& arms);
// The same of methods, in its one spelling; "" where it is an endpoint.
std::string baseline_method(const EndpointArms& arms);

}  // namespace evalrun::runners
