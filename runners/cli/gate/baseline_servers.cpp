#include "runners/cli/gate/baseline_servers.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "reports/gate/gate_yardstick.h"
#include "results/queries.h"

namespace evalrun::cli {
namespace {

[[noreturn]] void not_this_server(const runners::EndpointSpec& was, const std::string& name,
                                  const char* field, const std::string& old_value,
                                  const std::string& new_value) {
  const auto shown = [](const std::string& value) {
    return value.empty() ? std::string("not named") : fmt::format("'{}'", value);
  };
  throw base::Error(
      base::ExitCode::kNoBaseline,
      fmt::format("not comparable: --endpoint {}: {} is {}, baseline '{}' was measured with {}",
                  was.name, field, shown(new_value), name, shown(old_value)),
      fmt::format("give its address alone, --endpoint {}=URL: the rest is the baseline's",
                  was.name));
}

std::string cache_word(const runners::EndpointSpec& spec) {
  switch (spec.cache) {
    case runners::EndpointSpec::Cache::kOff:
      return "off";
    case runners::EndpointSpec::Cache::kDeclaredOff:
      return "declared-off";
    case runners::EndpointSpec::Cache::kKept:
      return "kept";
  }
  return "";
}

}  // namespace

bool has_servers(const RunReference& baseline) {
  const std::vector<results::ArmRow> arms = results::arms(*baseline.store, baseline.run_id);
  return std::any_of(arms.begin(), arms.end(), [](const results::ArmRow& arm) {
    return arm.record.method == results::kEndpointMethod;
  });
}

void move_servers(const std::vector<std::string>& endpoints, const std::string& name,
                  runners::Suite& suite) {
  for (const std::string& text : endpoints) {
    const runners::EndpointSpec now = runners::parse_endpoint(text, "--endpoint");
    std::vector<std::string> names;
    for (const runners::EndpointSpec& one : suite.endpoints) names.push_back(one.name);
    const auto was =
        std::find_if(suite.endpoints.begin(), suite.endpoints.end(),
                     [&](const runners::EndpointSpec& one) { return one.name == now.name; });
    if (was == suite.endpoints.end())
      throw base::usage_error(
          names.empty()
              ? fmt::format("--endpoint {}: baseline '{}' measured no servers", now.name, name)
              : fmt::format("--endpoint {}: baseline '{}' has no server of that name", now.name,
                            name),
          names.empty() ? "leave it out, or save a baseline of a run with --endpoint"
                        : base::suggest(now.name, names));
    if (text.find(',') == std::string::npos) {
      was->url = now.url;
      continue;
    }
    if (now.api != was->api) not_this_server(*was, name, "api", was->api, now.api);
    if (now.model != was->model) not_this_server(*was, name, "model", was->model, now.model);
    if (now.cache != was->cache)
      not_this_server(*was, name, "cache", cache_word(*was), cache_word(now));
    *was = now;
  }
}

void require_yardstick(const RunReference& baseline, const std::string& name,
                       const reports::GateOptions& options) {
  if (options.yardstick.empty() && !has_servers(baseline)) return;
  const reports::Yardsticks yardsticks =
      reports::yardsticks_of(reports::load_run(*baseline.store, baseline.run_id), options);
  if (yardsticks.refusal.empty()) return;
  if (yardsticks.wrong_name)
    throw base::usage_error(fmt::format("--yardstick: baseline '{}': {}", name, yardsticks.refusal),
                            yardsticks.remedy);
  throw base::Error(base::ExitCode::kNoBaseline,
                    fmt::format("baseline '{}': {}", name, yardsticks.refusal), yardsticks.remedy);
}

}  // namespace evalrun::cli
