// Typed fields of a request's JSON body. What is wrong with one is an ApiRefusal that names it.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runners/serve/served_model.h"

namespace evalrun::runners {

using BodyJson = nlohmann::json;

// Status 400: "'field' what".
[[noreturn]] void refuse_field(std::string_view field, const std::string& what,
                               const std::string& code = {});

// Null is as good as missing.
class BodyFields {
 public:
  // Refuses what is no JSON object, and one that is nested too deeply.
  explicit BodyFields(std::string_view body);
  const BodyJson* find(const std::string& field) const;
  const BodyJson& required(const std::string& field) const;
  bool flag(const std::string& field, bool otherwise = false) const;
  std::optional<int> integer(const std::string& field, int low, int high) const;
  double number(const std::string& field, double otherwise) const;
  // A value for messages.
  static std::string shortened(const BodyJson& value);

 private:
  BodyJson object_;
};

// "model", where it is given: 404 for another one than the one served.
void check_served_model(const BodyFields& fields, const ServedModel& served);
// A list of token ids, each below `vocab`.
std::vector<int32_t> ids_of(const BodyJson& list, std::string_view field, int vocab);

}  // namespace evalrun::runners
