#include "runners/serve/body_fields.h"

#include <fmt/format.h>

namespace evalrun::runners {
namespace {

// Copies and texts of JSON are made by recursion: a body as deep as its bytes allow would overflow
// the stack.
constexpr int kDeepestBody = 64;

}  // namespace

void refuse_field(std::string_view field, const std::string& what, const std::string& code) {
  throw ApiRefusal(ApiError{.status = 400,
                            .message = fmt::format("'{}' {}", field, what),
                            .param = std::string(field),
                            .code = code});
}

BodyFields::BodyFields(std::string_view body) {
  try {
    object_ = BodyJson::parse(body, [](int depth, BodyJson::parse_event_t, BodyJson&) {
      if (depth > kDeepestBody)
        throw ApiRefusal(
            ApiError{.message = fmt::format("the body is nested too deeply: {} levels are the most",
                                            kDeepestBody)});
      return true;
    });
  } catch (const BodyJson::exception& e) {
    throw ApiRefusal(ApiError{.message = fmt::format("the body is not JSON: {}", e.what())});
  }
  if (!object_.is_object())
    throw ApiRefusal(ApiError{
        .message = fmt::format("the body must be an object, not {}", object_.type_name())});
}

const BodyJson* BodyFields::find(const std::string& field) const {
  const auto at = object_.find(field);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

const BodyJson& BodyFields::required(const std::string& field) const {
  const BodyJson* value = find(field);
  if (value == nullptr) refuse_field(field, "is missing");
  return *value;
}

bool BodyFields::flag(const std::string& field, bool otherwise) const {
  const BodyJson* value = find(field);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean())
    refuse_field(field, fmt::format("must be true or false, not {}", value->type_name()));
  return value->get<bool>();
}

std::optional<int> BodyFields::integer(const std::string& field, int low, int high) const {
  const BodyJson* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer())
    refuse_field(field, fmt::format("must be an integer, not {}", value->type_name()));
  const bool huge =
      value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(high);
  if (huge || value->get<int64_t>() < low || value->get<int64_t>() > high)
    refuse_field(field, fmt::format("must be {} to {}, not {}", low, high, value->dump()));
  return static_cast<int>(value->get<int64_t>());
}

double BodyFields::number(const std::string& field, double otherwise) const {
  const BodyJson* value = find(field);
  if (value == nullptr) return otherwise;
  if (!value->is_number())
    refuse_field(field, fmt::format("must be a number, not {}", value->type_name()));
  return value->get<double>();
}

std::string BodyFields::shortened(const BodyJson& value) {
  const std::string text = value.dump(-1, ' ', true, BodyJson::error_handler_t::replace);
  return text.size() > 80 ? text.substr(0, 77) + "..." : text;
}

void check_served_model(const BodyFields& fields, const ServedModel& served) {
  const BodyJson* model = fields.find("model");
  if (model == nullptr) return;
  if (!model->is_string())
    refuse_field("model", fmt::format("must be a text, not {}", model->type_name()));
  if (model->get<std::string>() != served.name)
    throw ApiRefusal(ApiError{.status = 404,
                              .message = fmt::format("the model {} does not exist; here is '{}'",
                                                     BodyFields::shortened(*model), served.name),
                              .param = "model",
                              .code = "model_not_found"});
}

std::vector<int32_t> ids_of(const BodyJson& list, std::string_view field, int vocab) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const BodyJson& id : list) {
    if (!id.is_number_integer())
      refuse_field(field, fmt::format("has {} among token ids", id.type_name()));
    const bool known = id.is_number_unsigned()
                           ? id.get<uint64_t>() < static_cast<uint64_t>(vocab)
                           : id.get<int64_t>() >= 0 && id.get<int64_t>() < vocab;
    if (!known)
      refuse_field(field, fmt::format("has the token id {}; there are {}", id.dump(), vocab));
    ids.push_back(static_cast<int32_t>(id.get<int64_t>()));
  }
  return ids;
}

}  // namespace evalrun::runners
