#include "reports/gate/gate_yardstick.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace evalrun::reports {

namespace {

bool is_own_plain(const ArmInfo& arm) {
  return arm.method == "ar" && arm.role != "aa" && arm.batch == 1;
}

// Whether the server runs where evalrun does. Runs of older versions do not say.
bool is_here(const RunData& run, const ArmInfo& server) {
  const auto host = run.run.environment.find(fmt::format("endpoint.{}.host", server.label));
  return host == run.run.environment.end() || host->second == results::kThisMachine;
}

class YardstickChoice {
 public:
  YardstickChoice(const RunData& run, const GateOptions& options) : run_(run), options_(options) {
    const auto plain = std::find_if(run.arms.begin(), run.arms.end(), is_own_plain);
    if (plain != run.arms.end()) plain_ = &*plain;
  }

  Yardsticks all() {
    const bool servers = std::any_of(run_.arms.begin(), run_.arms.end(), is_server);
    if (!servers && !options_.yardstick.empty()) {
      result_.wrong_name = true;
      refuse(fmt::format("yardstick '{}': the run has no servers, whose yardstick it would be",
                         options_.yardstick),
             "leave --yardstick out: methods are judged against plain decoding");
    } else if (!servers) {
      for (const ArmInfo& arm : run_.arms)
        if (arm.drafts()) add(arm, run_.reference(arm), true);
    } else if (options_.yardstick.empty() || options_.yardstick == kNoYardstick) {
      for (const ArmInfo& arm : run_.arms)
        if (arm.role != "aa") choose(arm);
      refuse_unjudged();
    } else {
      take_named();
    }
    return std::move(result_);
  }

 private:
  void add(const ArmInfo& arm, const ArmInfo* yardstick, bool both_count) {
    const bool server = is_server(arm) || (yardstick != nullptr && is_server(*yardstick));
    result_.arms.push_back(
        {arm.label, yardstick == nullptr ? "" : yardstick->label, server, both_count});
  }
  void refuse(std::string why, std::string remedy) {
    result_.arms.clear();
    result_.refusal = std::move(why);
    result_.remedy = std::move(remedy);
  }

  void choose(const ArmInfo& arm) {
    const ArmInfo* first = run_.baseline();
    if (is_server(arm)) {
      if (options_.yardstick == kNoYardstick)
        add(arm, nullptr, false);
      else if (plain_ != nullptr && is_here(run_, arm))
        add(arm, plain_, false);
      else if (first != nullptr && first->id != arm.id && is_server(*first))
        add(arm, first, true);
      else
        alone_.push_back(&arm);
    } else if (!is_own_plain(arm) && arm.method != kTunedPlain) {
      // evalrun's own methods: against its own plain decoding, in whatever run.
      const ArmInfo* yardstick = plain_ != nullptr ? plain_ : first;
      if (yardstick != nullptr && yardstick->id != arm.id) add(arm, yardstick, true);
    }
  }

  // A server that is no arm's yardstick either is not seen at all.
  void refuse_unjudged() {
    for (const ArmInfo* server : alone_) {
      const bool seen =
          std::any_of(result_.arms.begin(), result_.arms.end(), [&](const JudgedArm& judged) {
            return judged.both_count && judged.yardstick == server->label;
          });
      if (seen) continue;
      const bool elsewhere = !is_here(run_, *server);
      return refuse(
          fmt::format("server {} has no yardstick: {}", server->label,
                      elsewhere && plain_ != nullptr
                          ? "ar was measured on this machine, and the server is elsewhere"
                          : "nothing that was measured in turns with it tells a slower server from "
                            "a slower machine"),
          elsewhere ? "measure another server of that machine in the same run (--endpoint), or "
                      "judge the time as it is: --yardstick none"
                    : "measure evalrun's plain decoding in the same run (--methods ar) and save "
                      "that as the baseline, or judge the time as it is: --yardstick none");
    }
  }

  void take_named() {
    const ArmInfo* named = run_.arm(options_.yardstick);
    if (named == nullptr || named->role == "aa") {
      std::vector<std::string> labels;
      for (const ArmInfo& arm : run_.arms)
        if (arm.role != "aa") labels.push_back(arm.label);
      result_.wrong_name = true;
      return refuse(fmt::format("yardstick '{}' is no arm of the run", options_.yardstick),
                    fmt::format("name one of {}, or 'none'", fmt::join(labels, ", ")));
    }
    for (const ArmInfo& arm : run_.arms)
      if (arm.role != "aa" && arm.id != named->id && !is_own_plain(arm) &&
          arm.method != kTunedPlain)
        add(arm, named, false);
    if (result_.arms.empty())
      refuse(fmt::format("there is no arm beside the yardstick {}", named->label),
             "name another arm, or 'none'");
  }

  const RunData& run_;
  const GateOptions& options_;
  const ArmInfo* plain_ = nullptr;  // evalrun's own plain decoding
  std::vector<const ArmInfo*> alone_;
  Yardsticks result_;
};

}  // namespace

Yardsticks yardsticks_of(const RunData& run, const GateOptions& options) {
  return YardstickChoice(run, options).all();
}

std::vector<std::string> yardstick_warnings(const RunData& base, const RunData& current,
                                            const GateOptions& options) {
  std::vector<std::string> warnings;
  bool by_engine = false;
  for (const JudgedArm& judged : yardsticks_of(base, options).arms) {
    if (!is_server(*base.arm(judged.label))) continue;
    if (judged.yardstick.empty()) {
      warnings.push_back(
          fmt::format("{}: without a yardstick its time is judged as it is, and moves with the "
                      "machine",
                      judged.label));
      continue;
    }
    const ArmInfo& yardstick = *base.arm(judged.yardstick);
    by_engine = by_engine || !is_server(yardstick);
    if (!is_server(yardstick) && !is_here(base, *base.arm(judged.label)))
      warnings.push_back(fmt::format(
          "{}: its yardstick {} was measured on this machine, and the server is elsewhere",
          judged.label, judged.yardstick));
  }
  if (by_engine && base.run.commit != current.run.commit)
    warnings.push_back(
        fmt::format("the yardstick is evalrun's own, of commit {} then and {} now: what changed in "
                    "it looks like a change of the server; save a baseline with this build",
                    base.run.commit, current.run.commit));
  return warnings;
}

}  // namespace evalrun::reports
