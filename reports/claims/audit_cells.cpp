// Rules for figures of one measurement: the same model, data, method, configuration and hardware
// under several metrics.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/claims/audit_rules.h"

namespace evalrun::reports {

namespace {

// Published figures are means of per-question ratios, the identities hold for ratios of sums; and
// they come from runs of their own. So much may lie between them beyond rounding.
constexpr double kAlphaSlack = 1.0;      // points of alpha_share
constexpr double kTauSlack = 0.02;       // relative: prefill counted as a step or not
constexpr double kOverheadSlack = 0.01;  // relative

double alpha_percent(double accepted) { return 100 * accepted / (accepted + 1); }

// Alpha (percent) fits `accepted` per step, which rounding may have moved by `rounding`.
bool alpha_fits(const Claim& alpha, double accepted, double rounding) {
  const double slope = 100 / ((accepted + 1) * (accepted + 1));
  const double allowed = alpha.rounding() + slope * rounding + kAlphaSlack;
  return std::abs(*alpha.value - alpha_percent(accepted)) <= allowed + kTiny;
}

bool is_tau(const Claim& claim) {
  return claim.metric == "tau_without_bonus" || claim.metric == "tau_with_bonus" ||
         claim.metric == "decoding_efficiency";
}
double bonus_in(const Claim& tau) { return tau.metric == "tau_without_bonus" ? 0 : 1; }

// The most draft tokens that a step of this configuration can accept.
std::optional<double> draft_limit(const Claim& c) {
  const auto option = [&](const char* name, double less = 0) {
    const std::optional<int> n = c.number(name);
    return n ? std::optional(*n - less) : std::nullopt;
  };
  if (c.method == "space") return option("k");     // one token per mask
  if (c.method == "bita") return option("masks");  // likewise; k is the choice per mask
  if (c.method == "sps") return option("gamma");
  if (c.method == "pld") return option("K");
  if (c.method == "lookahead") return option("N", 1);   // an n-gram less its first token
  if (c.method == "self_draft") return option("G", 1);  // likewise
  if (c.method == "falcon") {
    if (const auto height = option("tree_height")) return height;
    const auto k = option("k"), forwards = option("forwards");
    if (k && forwards) return *k * *forwards;  // k levels of the tree per forward of the drafter
  }
  return std::nullopt;
}

}  // namespace

void check_alpha_tau(const Claims& claims, const ClaimCells& cells, AuditLog& log) {
  constexpr const char* kRule = "alpha_tau";
  for (const Claim& tau : claims.rows) {
    if (!tau.value || !is_tau(tau)) continue;
    const Claim* alpha = cells.partner(tau, "alpha_share");
    if (alpha == nullptr || *alpha->value >= 100) continue;
    log.compared(kRule, tau, {alpha});
    const double bonus = bonus_in(tau);
    if (alpha_fits(*alpha, *tau.value - bonus, tau.rounding())) continue;
    const double accepted = *alpha->value / (100 - *alpha->value);
    std::string why = "with or without the bonus token the two do not fit";
    if (bonus == 0 && alpha_fits(*alpha, *tau.value - 1, tau.rounding()))
      why = "the bonus token seems counted";
    if (bonus == 1 && alpha_fits(*alpha, *tau.value, tau.rounding()))
      why = "the bonus token seems not counted";
    log.flag({kRule,
              {tau},
              {alpha->line},
              accepted + bonus,
              "=",
              fmt::format("alpha_share {} % ({}) implies {} {} per step, {} is printed: {}.",
                          alpha->value_text, alpha->place, printed_like(tau, accepted + bonus),
                          bonus == 0 ? "accepted tokens" : "tokens", tau.value_text, why)});
  }
}

void check_tau_conventions(const Claims& claims, const ClaimCells& cells, AuditLog& log) {
  constexpr const char* kRule = "tau_conventions";
  for (const Claim& tau : claims.rows) {
    if (!tau.value || !is_tau(tau)) continue;
    const ClaimCells::Tokens other = cells.tokens_per_step(tau);
    if (other.claim == nullptr || other.claim->metric == tau.metric) continue;
    log.compared(kRule, tau, {other.claim});
    const double mine = *tau.value + 1 - bonus_in(tau);
    const double theirs = *other.claim->value + other.bonus;
    const double allowed = tau.rounding() + other.claim->rounding() + kTauSlack * theirs;
    if (std::abs(mine - theirs) <= allowed + kTiny) continue;
    const double implied = theirs - 1 + bonus_in(tau);
    log.flag({kRule,
              {tau},
              {other.claim->line},
              implied,
              "=",
              fmt::format("{} {} ({}) implies {} {}, {} is printed.", other.claim->metric,
                          other.claim->value_text, other.claim->place, tau.metric,
                          printed_like(tau, implied), tau.value_text)});
  }
}

void check_speedup_tau(const Claims& claims, const ClaimCells& cells, AuditLog& log) {
  constexpr const char* kRule = "speedup_tau";
  for (const Claim& speed : claims.rows) {
    if (!speed.value || !is_speedup(speed)) continue;
    const ClaimCells::Tokens tokens = cells.tokens_per_step(speed);
    if (tokens.claim == nullptr) continue;
    log.compared(kRule, speed, {tokens.claim});
    const Figure factor = speedup_factor(speed);
    const double limit = *tokens.claim->value + tokens.bonus;
    if (factor.value - factor.rounding <= limit + tokens.claim->rounding() + kTiny) continue;
    log.flag({kRule,
              {speed},
              {tokens.claim->line},
              speed.metric == "throughput_gain" ? 100 * (limit - 1) : limit,
              "<=",
              fmt::format("{:.3g} times as fast with {:.3g} tokens per step ({} {}, {}): a step "
                          "would have to be cheaper than one of plain decoding, or the baseline "
                          "was slowed down.",
                          factor.value, limit, tokens.claim->metric, tokens.claim->value_text,
                          tokens.claim->place)});
  }
}

void check_step_overhead(const Claims& claims, const ClaimCells& cells, AuditLog& log) {
  constexpr const char* kRule = "step_overhead";
  for (const Claim& speed : claims.rows) {
    if (!speed.value || !is_speedup(speed)) continue;
    const Claim* overhead = cells.partner(speed, "step_overhead");
    const ClaimCells::Tokens tokens = cells.tokens_per_step(speed);
    if (overhead == nullptr || tokens.claim == nullptr || *overhead->value <= 0) continue;
    log.compared(kRule, speed, {overhead, tokens.claim});
    const Figure factor = speedup_factor(speed);
    const Figure implied =
        ratio({*tokens.claim->value + tokens.bonus, tokens.claim->rounding()}, figure(*overhead));
    const double allowed =
        factor.rounding + implied.rounding + kOverheadSlack * implied.value + kTiny;
    if (std::abs(factor.value - implied.value) <= allowed) continue;
    log.flag({kRule,
              {speed},
              {tokens.claim->line, overhead->line},
              speed.metric == "throughput_gain" ? 100 * (implied.value - 1) : implied.value,
              "=",
              fmt::format("{:.3g} tokens per step at {} times the cost of a plain one give {:.2f} "
                          "times the speed, not {:.3g}.",
                          *tokens.claim->value + tokens.bonus, overhead->value_text, implied.value,
                          factor.value)});
  }
}

namespace {

// Plain decoding beside `own` in the same place, of the same metric; its configuration may leave
// out what concerns the method only. Null unless there is exactly one.
const Claim* plain_decoding(const Claims& claims, const Claim& own) {
  const Claim* found = nullptr;
  for (const Claim& c : claims.rows) {
    if (!c.value || c.method != "ar" || c.metric != own.metric || !c.measured()) continue;
    if (c.paper != own.paper || c.place != own.place || c.model != own.model ||
        c.dataset != own.dataset || c.category != own.category || c.hardware != own.hardware)
      continue;
    bool shared = true;
    for (const std::string& flag : c.flags)
      shared = shared && std::find(own.flags.begin(), own.flags.end(), flag) != own.flags.end();
    if (!shared) continue;
    if (found != nullptr) return nullptr;
    found = &c;
  }
  return found;
}

}  // namespace

void check_throughput(const Claims& claims, const ClaimCells& cells, AuditLog& log) {
  constexpr const char* kRule = "throughput";
  for (const Claim& speed : claims.rows) {
    if (!speed.value || !is_speedup(speed) || speed.method == "ar") continue;
    for (const char* metric : {"throughput", "time_per_token"}) {
      const Claim* own = cells.partner(speed, metric);
      const Claim* base = own == nullptr ? nullptr : plain_decoding(claims, *own);
      if (base == nullptr || *own->value <= 0 || *base->value <= 0) continue;
      log.compared(kRule, speed, {own, base});
      const bool times = own->metric == "time_per_token";
      const Figure implied =
          times ? ratio(figure(*base), figure(*own)) : ratio(figure(*own), figure(*base));
      const Figure factor = speedup_factor(speed);
      if (std::abs(factor.value - implied.value) <= factor.rounding + implied.rounding + kTiny)
        continue;
      log.flag({kRule,
                {speed},
                {own->line, base->line},
                speed.metric == "throughput_gain" ? 100 * (implied.value - 1) : implied.value,
                "=",
                fmt::format("{} {} against {} of plain decoding ({}) gives {:.3f} times the "
                            "speed; {} {} is printed.",
                            metric, own->value_text, base->value_text, own->place, implied.value,
                            speed.metric, speed.value_text)});
    }
  }
}

void check_bounds(const Claims& claims, const ClaimCells&, AuditLog& log) {
  constexpr const char* kRule = "bounds";
  for (const Claim& c : claims.rows) {
    const bool alpha = c.metric == "alpha_share";
    if (!c.value || (!alpha && !is_tau(c) && !is_speedup(c))) continue;
    const std::optional<double> limit = draft_limit(c);
    // Nothing is too slow, and without a limit nothing too fast.
    if (is_speedup(c) && (!limit || c.option("versus"))) continue;
    log.compared(kRule, c, {});
    const Figure f = is_speedup(c) ? speedup_factor(c) : figure(c);
    const double least = is_tau(c) ? bonus_in(c) : 0;
    if (!is_speedup(c) && f.value + f.rounding < least - kTiny) {
      log.flag({kRule, {c}, {}, least, ">=", fmt::format("it cannot lie below {:g}.", least)});
      continue;
    }
    double most = alpha ? 100 : INFINITY;
    std::string why = "a share cannot exceed 100 %.";
    if (limit) {
      most = alpha ? alpha_percent(*limit) : *limit + (is_speedup(c) ? 1 : bonus_in(c));
      why = fmt::format("a step of this configuration can accept {} draft tokens: at most {:.4g}.",
                        *limit, most);
    }
    if (f.value - f.rounding <= most + kTiny) continue;
    if (c.metric == "throughput_gain") most = 100 * (most - 1);
    log.flag({kRule, {c}, {}, most, "<=", why});
  }
}

}  // namespace evalrun::reports
