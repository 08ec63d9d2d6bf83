#include "runners/verify/endpoints/endpoint_verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/base/text.h"

namespace evalrun::runners {
namespace {

// Evenly over the prompts; every second one in the middle of the plain server's answer.
std::vector<EndpointPlace> drawing_places(const EndpointVerifyRequest& request,
                                          const std::optional<EndpointIdentity>& greedy) {
  std::vector<EndpointPlace> places;
  const bool by_ids = greedy && greedy->by_ids && !greedy->passes.empty() &&
                      request.speculative.connect()->abilities().takes_ids &&
                      request.plain.connect()->abilities().takes_ids;
  const size_t all = request.prompts.size();
  const size_t n = std::min(all, static_cast<size_t>(std::max(1, request.places)));
  for (size_t i = 0; i < n; ++i) {
    const size_t prompt = i * all / n;
    const EndpointPrompt& p = request.prompts[prompt];
    places.push_back({p.id, p.ids, p.text});
    if (i % 2 == 0 || !by_ids) continue;
    const EndpointReply& answer = greedy->passes[0].answers.replies[prompt];
    if (!answer.ok()) continue;
    const auto ids = answer_of(answer, request.identity.stop_ids).ids;
    const auto half = static_cast<std::ptrdiff_t>(ids.size() / 2);
    places.back().ids.insert(places.back().ids.end(), ids.begin(), ids.begin() + half);
  }
  return places;
}

// "gsm8k gsm8k/17, 4 clients, token 31: "a" and not "b"".
std::string example_of(const EndpointVerification& v, DivergenceKind kind) {
  const EndpointIdentity& greedy = *v.greedy;
  for (const EndpointDivergence& d : greedy.divergences) {
    if (d.kind != kind) continue;
    const EndpointPass& pass = greedy.passes[d.pass];
    std::string text =
        fmt::format("{}, {}, {} {}: \"{}\" and not \"{}\"", v.prompts[d.prompt].id,
                    base::plural(pass.clients, "client") +
                        (pass.restart > 0 ? fmt::format(" after restart {}", pass.restart) : ""),
                    greedy.by_ids ? "token" : "byte", d.index, d.found_text, d.expected_text);
    if (d.gap)
      text += fmt::format(", {}{:.3g} less likely", d.at_least ? "more than " : "", *d.gap);
    if (!d.signs.empty()) text += fmt::format(" ({})", fmt::join(d.signs, ", "));
    return text;
  }
  return "";
}

void add_greedy_reasons(const EndpointVerification& v, std::vector<std::string>& reasons) {
  const EndpointIdentity& greedy = *v.greedy;
  if (greedy.answers == 0) reasons.emplace_back("no greedy answer of both servers");
  if (greedy.drafted && *greedy.drafted == 0)
    reasons.push_back(
        fmt::format("{} drafted nothing: its speculation is off, or never began", v.speculative));
  for (const DivergenceKind kind : {DivergenceKind::kStateFault, DivergenceKind::kDiffers,
                                    DivergenceKind::kOpen, DivergenceKind::kNearTie})
    if (const int n = greedy.count(kind); n > 0)
      reasons.push_back(fmt::format("{} of {} answers: {}, for example {}", n, greedy.answers,
                                    to_string(kind), example_of(v, kind)));
}

std::string temperature_words(const DrawnFigures& figures) {
  if (!figures.temperature) return "";
  if (figures.temperature->value < kLeastTemperature) return ", drawn as if greedy";
  return fmt::format(", as if at temperature {:.2f} [{:.2f}, {:.2f}]", figures.temperature->value,
                     figures.temperature->interval.lo, figures.temperature->interval.hi);
}

void add_sampling_reasons(const EndpointVerification& v, std::vector<std::string>& reasons) {
  const EndpointSampling& s = *v.sampling;
  if (!s.no_law.empty())
    reasons.push_back(fmt::format("law of draws not tested: {}{}", s.no_law,
                                  s.plain.p < s.level ? temperature_words(s.plain) : ""));
  if (s.law_refused)
    reasons.push_back(fmt::format(
        "draws do not follow the plain server's log-probabilities (p {:.1g}){}{}", s.speculative.p,
        temperature_words(s.speculative),
        s.speculative.outside > 0
            ? fmt::format(", {} of {} outside of top-k and top-p", s.speculative.outside,
                          s.speculative.inside + s.speculative.outside)
            : ""));
  if (s.texts_refused)
    reasons.push_back(
        fmt::format("continuations differ from the plain server's (p {:.1g})", s.texts.p()));
}

bool is_api_reason(const std::string& no_law) { return no_law.starts_with("an API without"); }

EndpointVerdict verdict_of_draws(const EndpointSampling& s) {
  if (s.law_refused || s.texts_refused) return EndpointVerdict::kDiffers;
  if (!s.trouble.empty() || s.looks == 0) return EndpointVerdict::kUnseen;
  const bool by_texts_alone = is_api_reason(s.no_law) && !s.texts.tests.empty();
  return s.no_law.empty() || by_texts_alone ? EndpointVerdict::kLawNotRefuted
                                            : EndpointVerdict::kUnseen;
}

}  // namespace

const char* to_string(EndpointVerdict verdict) {
  switch (verdict) {
    case EndpointVerdict::kIdentical:
      return "identical";
    case EndpointVerdict::kLawNotRefuted:
      return "law not refuted";
    case EndpointVerdict::kNearTies:
      return "near ties only";
    case EndpointVerdict::kUnseen:
      return "could not see";
    case EndpointVerdict::kDiffers:
      return "differs";
    case EndpointVerdict::kStateFault:
      return "state fault";
  }
  return "";
}

std::string EndpointVerification::trouble() const {
  if (greedy && !greedy->trouble.empty()) return greedy->trouble;
  if (seeded && !seeded->trouble.empty()) return seeded->trouble;
  return sampling ? sampling->trouble : "";
}

EndpointVerdict verdict_of(const EndpointIdentity& greedy) {
  if (greedy.count(DivergenceKind::kStateFault) > 0) return EndpointVerdict::kStateFault;
  if (greedy.count(DivergenceKind::kDiffers) > 0) return EndpointVerdict::kDiffers;
  const bool idle = greedy.drafted && *greedy.drafted == 0;
  if (greedy.answers == 0 || idle || greedy.count(DivergenceKind::kOpen) > 0)
    return EndpointVerdict::kUnseen;
  return greedy.count(DivergenceKind::kNearTie) > 0 ? EndpointVerdict::kNearTies
                                                    : EndpointVerdict::kIdentical;
}

std::optional<EndpointVerdict> sampling_verdict(const EndpointVerification& v) {
  const bool same = v.seeded && v.seeded->answers > 0 && v.seeded->identical == v.seeded->answers;
  if (v.sampling) {
    const EndpointVerdict drawn = verdict_of_draws(*v.sampling);
    return drawn == EndpointVerdict::kLawNotRefuted && same ? EndpointVerdict::kIdentical : drawn;
  }
  if (!v.seeded) return std::nullopt;
  return same ? EndpointVerdict::kIdentical : EndpointVerdict::kUnseen;
}

EndpointVerdict verdict_of(const EndpointVerification& v) {
  const auto sampled = sampling_verdict(v);
  if (!v.greedy) return sampled.value_or(EndpointVerdict::kUnseen);
  const EndpointVerdict greedy = verdict_of(*v.greedy);
  return sampled && *sampled != EndpointVerdict::kLawNotRefuted ? std::max(greedy, *sampled)
                                                                : greedy;
}

std::vector<std::string> reasons_of(const EndpointVerification& v) {
  std::vector<std::string> reasons;
  if (const std::string trouble = v.trouble(); !trouble.empty())
    reasons.push_back("trouble: " + trouble);
  if (v.greedy) add_greedy_reasons(v, reasons);
  if (v.seeded && v.seeded->answers == 0)
    reasons.emplace_back("equal seeds not compared: an API does not promise that they repeat");
  if (v.sampling) add_sampling_reasons(v, reasons);
  return reasons;
}

EndpointVerification verify_endpoint(const EndpointVerifyRequest& request) {
  EndpointVerification v;
  v.prompts = request.prompts;
  v.speculative = request.speculative.name;
  v.plain = request.plain.name;
  v.asked = request.sampling.sampling;
  const auto progress = [&](const std::string& what, double share) {
    if (request.identity.progress) request.identity.progress(what, share);
  };
  if (request.greedy)
    v.greedy =
        compare_endpoints(request.speculative, request.plain, request.prompts, request.identity);
  EndpointSamplingOptions sampling = request.sampling;
  sampling.clients = request.identity.clients.back();
  if (v.greedy) sampling.noise = v.greedy->range.bound();
  sampling.stop_ids = request.identity.stop_ids;
  if (request.seeded && v.trouble().empty()) {
    progress("equal seeds", 0);
    v.seeded = compare_seeded(request.speculative, request.plain, request.prompts,
                              request.identity.max_new, sampling);
  }
  if (request.law && v.trouble().empty()) {
    progress("draws", 0);
    int looks = 0;
    v.sampling = test_endpoint_sampling(request.speculative, request.plain,
                                        drawing_places(request, v.greedy), sampling,
                                        [&] { progress("draws", ++looks / 3.0); });
  }
  return v;
}

}  // namespace evalrun::runners
