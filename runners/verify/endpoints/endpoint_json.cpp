// What `evalrun verify --endpoint --json` prints (docs/json.md).
#include <map>

#include "runners/verify/endpoints/endpoint_verify.h"

namespace evalrun::runners {
namespace {

using OrderedJson = nlohmann::ordered_json;

template <typename T>
OrderedJson value_or_null(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson();
}

// Of one pass: how many answers of which kind.
OrderedJson pass_json(const EndpointIdentity& greedy, size_t pass) {
  const EndpointPass& p = greedy.passes[pass];
  std::map<DivergenceKind, int> kinds;
  for (const EndpointDivergence& d : greedy.divergences)
    if (d.pass == pass) ++kinds[d.kind];
  int answers = 0;
  for (const EndpointReply& reply : p.answers.replies) answers += reply.ok() ? 1 : 0;
  OrderedJson j = {{"speculative", p.speculative}, {"clients", p.clients},
                   {"restart", p.restart},         {"again", p.again},
                   {"answers", answers},           {"failed", p.answers.failed}};
  if (!p.speculative) {
    j["differing"] = p.differing;
    return j;
  }
  j["near_ties"] = kinds[DivergenceKind::kNearTie];
  j["differs"] = kinds[DivergenceKind::kDiffers];
  j["state_faults"] = kinds[DivergenceKind::kStateFault];
  j["open"] = kinds[DivergenceKind::kOpen];
  return j;
}

OrderedJson divergence_json(const EndpointVerification& v, const EndpointDivergence& d) {
  const EndpointPass& pass = v.greedy->passes[d.pass];
  return {{"prompt", v.prompts[d.prompt].id},
          {"kind", to_string(d.kind)},
          {"signs", d.signs},
          {"clients", pass.clients},
          {"restart", pass.restart},
          {"index", d.index},
          {"expected", d.expected},
          {"found", d.found},
          {"expected_text", d.expected_text},
          {"found_text", d.found_text},
          {"gap", value_or_null(d.gap)},
          {"gap_at_least", d.at_least},
          {"own_answer", d.own_answer},
          {"asked", d.asked},
          {"gave_it", d.gave_it},
          {"refused_drafts", value_or_null(d.refused)},
          {"followed", d.followed},
          {"foreign", d.foreign}};
}

OrderedJson greedy_json(const EndpointVerification& v) {
  if (!v.greedy) return nullptr;
  const EndpointIdentity& g = *v.greedy;
  const PlainRange& r = g.range;
  OrderedJson passes = OrderedJson::array(), divergences = OrderedJson::array();
  for (size_t i = 0; i < g.passes.size(); ++i) passes.push_back(pass_json(g, i));
  for (const EndpointDivergence& d : g.divergences) divergences.push_back(divergence_json(v, d));
  return {{"verdict", to_string(verdict_of(g))},
          {"compared_by", g.by_ids ? "token ids" : "text"},
          {"answers", g.answers},
          {"identical", g.identical},
          {"near_ties", g.count(DivergenceKind::kNearTie)},
          {"differs", g.count(DivergenceKind::kDiffers)},
          {"state_faults", g.count(DivergenceKind::kStateFault)},
          {"open", g.count(DivergenceKind::kOpen)},
          {"tokens", g.tokens},
          {"drafted", value_or_null(g.drafted)},
          {"accepted", value_or_null(g.accepted)},
          {"plain",
           {{"answers", r.answers},
            {"differing", r.differing},
            {"by_repeat", r.by_repeat},
            {"by_clients", r.by_clients},
            {"by_restart", r.by_restart},
            {"log_probs", r.log_probs},
            {"places", r.places},
            {"widest_shift", r.widest_shift},
            {"widest_gap", r.widest_gap}}},
          {"passes", passes},
          {"divergences", divergences}};
}

OrderedJson figures_json(const DrawnFigures& figures) {
  OrderedJson j = {{"p", figures.p}, {"temperature", nullptr}};
  if (const auto& t = figures.temperature)
    j["temperature"] = {{"value", t->value}, {"lo", t->interval.lo}, {"hi", t->interval.hi}};
  j["inside"] = figures.inside;
  j["outside"] = figures.outside;
  return j;
}

OrderedJson sampling_json(const EndpointVerification& v) {
  if (!v.sampling) return nullptr;
  const EndpointSampling& s = *v.sampling;
  return {{"temperature", v.asked.temperature},
          {"top_k", v.asked.top_k},
          {"top_p", v.asked.top_p},
          {"places", s.places},
          {"nodes", s.nodes},
          {"looks", s.looks},
          {"draws", s.draws},
          {"level", s.level},
          {"speculative", figures_json(s.speculative)},
          {"plain", figures_json(s.plain)},
          {"order", s.order == CutOrder::kCutFirst ? "cut first" : "temperature first"},
          {"not_tested", s.no_law},
          {"smallest_variation_found", value_or_null(s.smallest_found)},
          {"texts_p", s.texts.p()},
          {"law_refused", s.law_refused},
          {"texts_refused", s.texts_refused}};
}

}  // namespace

nlohmann::ordered_json to_json(const EndpointVerification& v) {
  OrderedJson seeded;
  if (v.seeded)
    seeded = {{"answers", v.seeded->answers},
              {"identical", v.seeded->identical},
              {"plain_again", v.seeded->plain_again}};
  const auto sampled = sampling_verdict(v);
  return {{"endpoint", v.speculative},
          {"against", v.plain},
          {"verdict", to_string(verdict_of(v))},
          {"sampling_verdict", sampled ? OrderedJson(to_string(*sampled)) : OrderedJson()},
          {"reasons", reasons_of(v)},
          {"trouble", v.trouble()},
          {"prompts", v.prompts.size()},
          {"greedy", greedy_json(v)},
          {"seeded", seeded},
          {"sampling", sampling_json(v)}};
}

}  // namespace evalrun::runners
