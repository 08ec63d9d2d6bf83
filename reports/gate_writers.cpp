#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "reports/gate.h"

namespace evalrun::reports {

namespace {

using Json = nlohmann::ordered_json;

Json value(const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); }

Json run_json(const RunInfo& r) {
  return {{"run", r.id},
          {"label", r.label},
          {"suite", r.suite},
          {"commit", r.commit},
          {"started", r.started}};
}

}  // namespace

std::string to_json(const GateResult& r) {
  Json verdicts = Json::array();
  for (const Verdict& v : r.verdicts) {
    Json causes = Json::array();
    for (const Cause c : v.causes) causes.push_back(to_string(c));
    verdicts.push_back({{"metric", v.metric},
                        {"method", v.method},
                        {"outcome", to_string(v.outcome)},
                        {"reason", v.reason},
                        {"effect", value(v.effect)},
                        {"lo", value(v.lo)},
                        {"hi", value(v.hi)},
                        {"margin", value(v.margin)},
                        {"p_value", value(v.p_value)},
                        {"causes", causes},
                        {"n", v.n}});
  }
  const Json all = {{"exit_code", static_cast<int>(r.code)},
                    {"outcome", r.verdicts.empty() ? "ok" : to_string(r.verdicts.front().outcome)},
                    {"summary", r.summary},
                    {"margin", r.margin},
                    {"noise_floor", r.noise_floor},
                    {"baseline", run_json(r.base)},
                    {"run", run_json(r.current)},
                    {"verdicts", verdicts}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_text(const GateResult& r) {
  std::string out;
  for (const Verdict& v : r.verdicts)
    out += fmt::format("{:<20} {:<11} {}{}{}\n", to_string(v.outcome), v.metric, v.method,
                       v.method.empty() ? "" : ": ", v.reason);
  return fmt::format("{}{}\n", out, r.summary);
}

}  // namespace evalrun::reports
