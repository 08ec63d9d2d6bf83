#include "runners/cli/results/token_differences.h"

#include <fmt/format.h>

#include "engine/base/text.h"

namespace evalrun::cli {

std::string token_differences_text(const results::TokenComparison& c) {
  if (c.equal())
    return fmt::format(
        "equal: {} generations, in tokens, statuses, seeds, steps, counters and scores",
        c.compared);
  std::string text = fmt::format("different: {} generations were compared", c.compared);
  const auto missing = [&](int64_t count, const char* run, const std::string& first) {
    if (count > 0)
      text += fmt::format("\nonly in {}: {} generations, the first is {}", run, count, first);
  };
  missing(c.only_a, "A", c.first_only_a);
  missing(c.only_b, "B", c.first_only_b);
  for (int kind = 0; kind < results::kComparedKinds; ++kind)
    if (c.differing[kind] > 0)
      text +=
          fmt::format("\nother {}: {} generations",
                      results::to_string(static_cast<results::Compared>(kind)), c.differing[kind]);
  if (!c.first.empty()) text += "\nthe first differences:";
  for (const results::TokenDifference& d : c.first)
    text += fmt::format("\n  {} of {}, {}, repeat {}, sample {}\n    A: {}\n    B: {}",
                        results::to_string(d.what), d.arm, d.prompt, d.repeat, d.sample, d.a, d.b);
  return text;
}

nlohmann::ordered_json token_differences_json(const results::TokenComparison& c) {
  nlohmann::ordered_json json = {
      {"equal", c.equal()}, {"compared", c.compared}, {"only_a", c.only_a}, {"only_b", c.only_b}};
  for (int kind = 0; kind < results::kComparedKinds; ++kind)
    json["differing"][results::to_string(static_cast<results::Compared>(kind))] = c.differing[kind];
  json["first"] = nlohmann::json::array();
  for (const results::TokenDifference& d : c.first)
    json["first"].push_back({{"what", results::to_string(d.what)},
                             {"arm", d.arm},
                             {"prompt", d.prompt},
                             {"repeat", d.repeat},
                             {"sample", d.sample},
                             {"a", d.a},
                             {"b", d.b}});
  return json;
}

}  // namespace evalrun::cli
