#include "runners/cli/gate/gate_study.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/base/stats.h"
#include "runners/cli/gate/gate_study_data.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;

// "1 of 224, 0.4 % [0.1, 2.5]": share with its 95 % interval (Wilson).
std::string share_text(int64_t hits, int64_t all) {
  const double share = static_cast<double>(hits) / static_cast<double>(all);
  const base::Interval i = base::wilson_interval(share, static_cast<size_t>(all), 0.95);
  return fmt::format("{} of {}, {:.1f} % [{:.1f}, {:.1f}]", hits, all, 100 * share, 100 * i.lo,
                     100 * i.hi);
}

}  // namespace

const Json& gate_study() {
  static const Json study = [] {
    const auto files = gate_study_files();
    EVALRUN_CHECK(files.size() == 1, "{} files of the gate study", files.size());
    return Json::parse(files[0].text);
  }();
  return study;
}

std::string gate_study_text(const Json& study) {
  std::string text =
      fmt::format("measured by scripts/gate-study on {} ({} cores, {} processes; {}; {}):",
                  study["date"].get<std::string>(), study["cores"].get<int64_t>(),
                  study["processes"].get<int64_t>(), study["model"].get<std::string>(),
                  study["suite"].get<std::string>());
  for (const Json& kind : study["kinds"]) {
    const auto name = kind["kind"].get<std::string>();
    const auto all = kind["decisions"].get<int64_t>();
    if (all == 0 || (name != "unchanged" && name != "slow:5%")) continue;
    text +=
        fmt::format("\n  {}: {}", name == "unchanged" ? "false alarms" : "slowdowns of 5 % found",
                    share_text(kind["red"].get<int64_t>(), all));
  }
  return text;
}

}  // namespace evalrun::cli
