// JSON values as a template's, for tests.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "engine/tokenizer/jinja/jinja.h"

namespace evalrun::engine::jinja {

inline constexpr Date kTestDate = {2024, 7, 26};

inline Value from_json(const nlohmann::ordered_json& j, Budget& budget) {
  using Type = nlohmann::ordered_json::value_t;
  switch (j.type()) {
    case Type::boolean:
      return Value::boolean(j.get<bool>());
    case Type::number_integer:
    case Type::number_unsigned:
      return Value::integer(j.get<int64_t>());
    case Type::number_float:
      return Value::number(j.get<double>());
    case Type::string:
      return budget.text(j.get<std::string>());
    case Type::array: {
      Values items;
      for (const auto& item : j) items.push_back(from_json(item, budget));
      return budget.list(std::move(items));
    }
    case Type::object: {
      Entries entries;
      for (const auto& [key, value] : j.items())
        entries.emplace_back(budget.text(key), from_json(value, budget));
      return make_dict(std::move(entries), budget);
    }
    default:
      return Value::none();
  }
}

// `task`: "template" and "variables". Gives {"text"} or {"error", "line"}.
inline nlohmann::ordered_json render_json(const nlohmann::ordered_json& task,
                                          const Limits& limits = {}) {
  try {
    const Template made(task.at("template").get<std::string>());
    Budget budget(limits);
    Variables variables;
    for (const auto& [name, value] : task.at("variables").items())
      variables.emplace_back(name, from_json(value, budget));
    return {{"text", made.render(variables, kTestDate, budget)}};
  } catch (const Fault& fault) {
    return {{"error", fault.what()}, {"line", fault.line()}};
  }
}

}  // namespace evalrun::engine::jinja
