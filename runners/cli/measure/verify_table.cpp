#include "runners/cli/measure/verify_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "engine/base/text.h"
#include "runners/cli/measure/bound_table.h"
#include "runners/cli/output.h"
#include "runners/verify/certificate.h"
#include "runners/verify/certify.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string p_text(double p) {
  return p < 1e-4 ? fmt::format("{:.0e}", p) : fmt::format("{:.4f}", p);
}

// "p .0123 by 18 tests; control refused (3e-09)"
std::string dist_text(const Json& part) {
  if (part.is_null()) return "-";
  const Json& result = part["result"];
  const size_t n = result["tests"].size();
  if (n == 0) return "nothing to test";
  const std::string found = fmt::format("p {} by {} tests", p_text(result["p"].get<double>()), n);
  if (part["outcome"] == "lossy") return found;
  const bool refused = part["negative_control"]["rejected"].get<bool>();
  const std::string power =
      result.contains("smallest_variation_found")
          ? fmt::format(", would find {:.2g}", result["smallest_variation_found"].get<double>())
          : "";
  return fmt::format("{}{}; control {} ({})", found, power, refused ? "refused" : "NOT refused",
                     p_text(part["negative_control"]["p"].get<double>()));
}

std::string greedy_text(const Json& part) {
  if (part.is_null()) return "-";
  return fmt::format("{} / {} / {}", part["identical"].get<int>(), part["near_ties"].get<int>(),
                     part["divergent"].get<int>());
}

// "40 of 40 the same tokens", "2,113 decisions made again", "60 decisions made again; inconclusive:
// no draft was refused".
std::string sampled_text(const Json& part) {
  if (part.is_null()) return "-";
  const auto why = part.value("why", std::string());
  const std::string remark = why.empty() ? "" : "; inconclusive: " + why;
  if (part["shown_by"] == "tokens")
    return fmt::format("{} of {} the same tokens{}", part["identical"].get<int>(),
                       part["answers"].get<int>(), remark);
  if (const auto blocked = part["blocked"].get<std::string>(); !blocked.empty())
    return "not audited: " + blocked;
  const auto wrong = part["first_differences"].size();
  const int64_t decisions = part["tests"].get<int64_t>() + part["draws"].get<int64_t>();
  if (wrong > 0)
    return fmt::format("{} of {} answers with a wrong decision", wrong, part["answers"].get<int>());
  return fmt::format("{} decisions made again{}{}", base::with_commas(decisions),
                     part.value("on_host", false) ? " on the host" : "", remark);
}

Json part_of(const Json& certificate, const char* name) {
  return certificate.contains(name) ? certificate[name] : Json();
}

// What a reader asks first when something differs.
void print_differences(const Json& certificate) {
  if (const Json sampled = part_of(certificate, "sampled");
      !sampled.is_null() && !sampled["first_differences"].empty()) {
    const Json& first = sampled["first_differences"][0];
    print_line(
        fmt::format("{}: first difference when sampling at token {} of {} {}: {}",
                    certificate["arm"]["method"].get<std::string>(), first["index"].get<int>(),
                    first["task"].get<std::string>(), first["prompt"].get<std::string>(),
                    first.contains("what") ? first["what"].get<std::string>()
                                           : fmt::format("{} and not {}", first["found"].get<int>(),
                                                         first["expected"].get<int>())));
  }
  const Json greedy = part_of(certificate, "greedy");
  if (greedy.is_null() || greedy["first_differences"].empty()) return;
  const Json& first = greedy["first_differences"][0];
  const Json& replay = greedy["replay"];
  print_line(fmt::format(
      "{}: first difference at token {} of {} {}: {} and not {}, {} below it ({} spacings of the "
      "number format); following plain decoding's text it differs at {} of {} places",
      certificate["arm"]["method"].get<std::string>(), first["index"].get<int>(),
      first["task"].get<std::string>(), first["prompt"].get<std::string>(),
      first["found"].get<int>(), first["expected"].get<int>(),
      first["gap"].is_null() ? "no logit" : fmt::format("{:.4f}", first["gap"].get<double>()),
      first["gap"].is_null() || first["spacing"].get<double>() == 0
          ? "no"
          : fmt::format("{:.1f}", first["gap"].get<double>() / first["spacing"].get<double>()),
      replay["differing"].get<int>(), replay["places"].get<int64_t>()));
}

// One of the parts that plain decoding has once: of the first certificate that holds it.
void print_plain_parts(const std::vector<Json>& certificates) {
  const auto first_with = [&](auto part) {
    for (const Json& c : certificates)
      if (const Json found = part(c); !found.is_null()) return found;
    return Json();
  };
  const Json audit = first_with([](const Json& c) {
    const Json sampled = part_of(c, "sampled");
    return sampled.is_null() ? Json() : part_of(sampled, "plain_decoding");
  });
  if (!audit.is_null()) print_line(fmt::format("Plain decoding, audit: {}.", sampled_text(audit)));
  const Json law = first_with([](const Json& c) { return part_of(c, "law"); });
  if (!law.is_null())
    print_line(fmt::format(
        "Plain decoding, law of its draws: p {} by {} draws of {} rows{}.",
        p_text(law["p"].get<double>()), law["draws"].get<int64_t>(), law["rows"].size(),
        law.contains("smallest_variation_found")
            ? fmt::format(", would find {:.2g}", law["smallest_variation_found"].get<double>())
            : ""));
  const Json texts = first_with([](const Json& c) { return part_of(c, "texts"); });
  if (!texts.is_null())
    print_line(fmt::format("Plain decoding against itself, test of texts: p {}.",
                           p_text(texts["plain_against_plain"]["p"].get<double>())));
}

// "Time of audits over that of the audited steps: sps:k=3 1.3, plain decoding 1.9."
void print_audit_times(const std::vector<Json>& certificates) {
  std::vector<std::string> list;
  const auto add = [&](const std::string& name, const Json& audit) {
    const double steps = audit.value("step_seconds", 0.0);  // 0: no audit
    if (steps > 0)
      list.push_back(fmt::format("{} {:.1f}", name, audit["audit_seconds"].get<double>() / steps));
  };
  Json plain;
  for (const Json& c : certificates) {
    const Json sampled = part_of(c, "sampled");
    if (sampled.is_null()) continue;
    add(c["arm"]["method"].get<std::string>(), sampled);
    if (plain.is_null()) plain = part_of(sampled, "plain_decoding");
  }
  if (!plain.is_null()) add("plain decoding", plain);
  if (!list.empty())
    print_line(
        fmt::format("Time of audits over that of the audited steps: {}.", fmt::join(list, ", ")));
}

// Of the parts that test laws: one for all certificates, which have the same parts.
double level_of(const std::vector<Json>& certificates) {
  for (const Json& c : certificates)
    for (const char* name : {"law", "steps", "texts"})
      if (const Json part = part_of(c, name); !part.is_null()) return part["level"].get<double>();
  return runners::kCertificateLevel;
}

}  // namespace

void print_certificates(const std::vector<Json>& certificates) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& c : certificates) {
    const auto shown = c["shown"].get<std::string>();
    rows.push_back({c["arm"]["method"].get<std::string>(), c["arm"]["claims"].get<std::string>(),
                    greedy_text(part_of(c, "greedy")), sampled_text(part_of(c, "sampled")),
                    dist_text(part_of(c, "steps")), dist_text(part_of(c, "texts")),
                    c["outcome"].get<std::string>(), shown.empty() ? "-" : shown});
  }
  // Parts that nobody asked for are no columns.
  std::vector<std::string> head = {"method",  "claims",       "same / near tie / other",
                                   "sampled", "law of steps", "law of texts",
                                   "outcome", "shown"};
  for (size_t column = 6; column-- > 2;) {
    const auto at = static_cast<std::ptrdiff_t>(column);
    if (std::any_of(rows.begin(), rows.end(), [&](const auto& r) { return r[column] != "-"; }))
      continue;
    head.erase(head.begin() + at);
    for (auto& row : rows) row.erase(row.begin() + at);
  }
  print_line(aligned_table(head, rows));
  print_line("");
  for (const Json& c : certificates) print_differences(c);
  print_plain_parts(certificates);
  print_audit_times(certificates);
  print_bounds(certificates);
  print_line(fmt::format(
      "Identical: the tokens of plain decoding. Decisions audited: every draw, every test and "
      "every\n"
      "draw after a refusal was made again by a second implementation, and was equal. Both prove.\n"
      "Law not refuted: tests found nothing. They fail below p {:.2g}, and must refuse a planted\n"
      "fault ({}).\n"
      "Would find: a total variation of that size at every place, in 95 of 100 tests.\n"
      "Greedy: prompts with the tokens of plain decoding / with a near tie first / with another\n"
      "first difference.",
      level_of(certificates), runners::kNegativeControl));
}

}  // namespace evalrun::cli
