#include <fmt/format.h>

#include "reports/compare/run_json.h"
#include "reports/gate/gate.h"

namespace evalrun::reports {

namespace {

Json steps_json(const GateCheck& v, int64_t LongSteps::*count) {
  return v.long_steps ? Json((*v.long_steps).*count) : Json(nullptr);
}

}  // namespace

std::string to_json(const GateResult& r) {
  Json checks = Json::array();
  for (const GateCheck& v : r.checks) {
    Json causes = Json::array();
    for (const Cause c : v.causes) causes.push_back(to_string(c));
    checks.push_back({{"metric", v.metric},
                      {"method", v.method},
                      {"outcome", to_string(v.outcome)},
                      {"reason", v.reason},
                      {"effect", json_value(v.effect)},
                      {"lo", json_value(v.lo)},
                      {"hi", json_value(v.hi)},
                      {"margin", json_value(v.margin)},
                      {"p_value", json_value(v.p_value)},
                      {"detectable", json_value(v.detectable)},
                      {"step_pairs", steps_json(v, &LongSteps::pairs)},
                      {"long_steps", steps_json(v, &LongSteps::now)},
                      {"long_steps_other", steps_json(v, &LongSteps::base)},
                      {"causes", causes},
                      {"n", v.n}});
  }
  const Json all = {{"exit_code", static_cast<int>(r.code)},
                    {"outcome", r.checks.empty() ? "ok" : to_string(r.checks.front().outcome)},
                    {"summary", r.summary},
                    {"margin", r.margin},
                    {"noise_floor", r.noise_floor},
                    {"baseline", run_json(r.base)},
                    {"run", run_json(r.current)},
                    {"warnings", r.warnings},
                    {"verdicts", checks}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_text(const GateResult& r) {
  std::string out;
  for (const GateCheck& v : r.checks)
    out += fmt::format("{:<20} {:<11} {}{}{}\n", to_string(v.outcome), v.metric, v.method,
                       v.method.empty() ? "" : ": ", v.reason);
  return fmt::format("{}{}\n", out, r.summary);
}

}  // namespace evalrun::reports
