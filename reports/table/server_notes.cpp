#include "reports/table/server_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/base/text.h"

namespace evalrun::reports {
namespace {

std::string how_asked(const ArmInfo& arm) {
  std::string text = fmt::format(
      "{} (API {}{}; prompts as {}, token ids {}, prompt cache {}", arm.label, arm.params,
      arm_setting(arm, "api_verified") == "yes" ? "" : ", not run against the real server",
      arm_setting(arm, "prompts"),
      arm_setting(arm, "tokens") == "server" ? "from the server" : "made from its text",
      arm_setting(arm, "prompt_cache"));
  if (arm_setting(arm, "seeded") == "no") text += ", a seed does not repeat an answer";
  return text + ")";
}

}  // namespace

std::string servers_note(const DatasetRows& rows) {
  std::vector<std::string> servers;
  for (const ReportRow* r : rows.all())
    if (is_server(r->arm)) servers.push_back(how_asked(r->arm));
  if (servers.empty()) return "";
  return fmt::format(
      "Measured over HTTP: {}. Times are the client's, from its request on; tau and alpha are by "
      "the server's own counts, - where it has none. Nothing is claimed of servers' answers: same "
      "tokens says what was seen.",
      fmt::join(servers, "; "));
}

std::vector<std::string> server_remarks(const DatasetRows& rows) {
  std::vector<std::string> remarks;
  for (const ReportRow* r : rows.all()) {
    if (!r->server) continue;
    const results::EndpointTotals& totals = *r->server;
    if (totals.retries > 0)
      remarks.push_back(fmt::format("{}: {} sent again after a failure, in no time of this table.",
                                    r->arm.label, base::plural(totals.retries, "request")));
    if (totals.with_steps > 0 && totals.with_steps < totals.turns)
      remarks.push_back(
          fmt::format("{}: tau and alpha are left out, because steps are known of {} of {} answers "
                      "only.",
                      r->arm.label, totals.with_steps, totals.turns));
    if (totals.cached_tokens > 0)
      remarks.push_back(fmt::format("{}: its cache gave {} tokens of prompts in {} answers.",
                                    r->arm.label, totals.cached_tokens, totals.with_cached));
  }
  return remarks;
}

}  // namespace evalrun::reports
