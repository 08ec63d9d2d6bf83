#include "reports/table/metric_glossary.h"

#include <array>
#include <utility>

namespace evalrun::reports {

std::span<const MetricInfo> metric_glossary() {
  static constexpr auto kMetrics = std::to_array<MetricInfo>({
      {"speedup",
       "tokens per second of decoding over those of the baseline arm (of a tuned target: of its "
       "ar_tuned), same prompts: ratio of sums; "
       "the token read from the prefill is in neither",
       "v_speed", "speedup"},
      {"speedup_lo", "lower end of the 95 % interval of speedup (new prompts of this kind)",
       "v_pair", "speedup"},
      {"speedup_hi", "upper end of the 95 % interval of speedup", "v_pair", "speedup"},
      {"request_speedup",
       "the same for whole requests: all tokens over prefill, the drafter's prefill and decoding",
       "v_sample", "speedup"},
      {"first_token_ms",
       "milliseconds that the first token of an answer takes: the target's prefill of the first "
       "turn, mean over answers; the drafter's prefill comes after it; not in a batch, whose table "
       "has TTFT",
       "v_sample", "speedup"},
      {"first_token_ratio",
       "the time to the first token over that of the baseline arm, same prompts; above 1 it comes "
       "later",
       "v_sample", "speedup"},
      {"may_be_fastest",
       "whether the arm is in the set that holds the fastest lossless one with 95 %; null for arms "
       "that are not ranked",
       "v_sample", "the-fastest-arm"},
      {"tok_s", "decoded tokens over decode seconds, summed over prompts", "v_speed", "accounting"},
      {"tau",
       "emitted tokens over steps, the target's own (bonus) token included; 1 for plain decoding",
       "v_acceptance", "ratios"},
      {"accepted_per_step", "accepted draft tokens over steps (what Falcon calls tau)",
       "v_acceptance", "ratios"},
      {"de", "decoding efficiency: emitted tokens over all target forwards, drafting included",
       "v_acceptance", "ratios"},
      {"no_draft",
       "share of steps in which nothing was drafted; null for plain decoding, which never drafts",
       "v_acceptance", "ratios"},
      {"rows_per_step",
       "rows of the target forward of a step: the root, the draft, and rows computed beside it",
       "v_acceptance", "ratios"},
      {"alpha_draft", "accepted over drafted tokens", "v_acceptance", "ratios"},
      {"alpha_share", "draft tokens kept over all emitted tokens", "v_acceptance", "ratios"},
      {"alpha_cond",
       "per depth d: share of steps that accept token d+1 among those that accepted d",
       "v_acceptance_histogram", "ratios"},
      {"acceptance_by_node",
       "per depth and rank (siblings in front) of a draft node: how often the verifier tested one "
       "there, and accepted it",
       "v_node_acceptance", "ratios"},
      {"identical_share",
       "generations whose token ids equal those of the arm that speedup is against, for the same "
       "prompt, repeat and sample",
       "v_identity", "ratios"},
      {"certificate",
       "what `evalrun verify` showed for this method with this build, weights and engine mode, "
       "when "
       "greedy and when sampling (at the temperature, top_k and top_p that are named). Four "
       "grades: "
       "identical, the token ids of plain decoding; decisions audited, every draw and every "
       "acceptance made again by a second implementation; law not refuted, tests of the "
       "distribution found nothing; not shown. Only the first two are called proven",
       "certificate", "losslessness-evalrun-verify"},
      {"steps", "target passes that verify a draft; the prefill is none", "v_acceptance",
       "accounting"},
      {"emitted", "tokens that steps gave, up to the stop token or the limit", "v_acceptance",
       "accounting"},
      {"t_ratio", "T(n)/T(1): verify time of a step over that of a plain step", "v_speed",
       "why-a-method-is-as-fast-as-it-is"},
      {"draft_share", "draft time of a step over the time of a plain step", "v_speed",
       "why-a-method-is-as-fast-as-it-is"},
      {"overhead", "what is neither draft nor verify, over the time of a plain step", "v_speed",
       "why-a-method-is-as-fast-as-it-is"},
      {"residual",
       "speedup * (t_ratio + draft_share + overhead) / tau - 1: 0 when all is explained", "v_speed",
       "why-a-method-is-as-fast-as-it-is"},
      {"quality", "mean score per evaluator, with the number of answers it is over", "v_quality",
       "quality"},
      {"weight_bytes", "weights of the target as they are kept in memory", "arm", "memory"},
      {"extra_parameter_bytes",
       "what the method keeps beside the target: adapter, draft model, corpus or datastore", "arm",
       "memory"},
      {"kv_bytes", "keys and values of the target at the run's longest text", "arm", "memory"},
      {"peak_bytes", "most memory that the process has held when the arm was done", "arm",
       "memory"},
      {"gpu_draft_ms", "milliseconds of a step that the GPU was busy with drafting", "v_gpu",
       "gpu"},
      {"gpu_verify_ms", "milliseconds of a step that the GPU was busy with verifying", "v_gpu",
       "gpu"},
      {"gpu_commit_ms", "milliseconds of a step that the GPU was busy with committing", "v_gpu",
       "gpu"},
      {"gpu_host_ms", "wall time of a step in which the GPU had nothing to do", "v_gpu", "gpu"},
      {"gpu_busy", "share of the wall time of decoding in which the GPU was busy", "v_gpu", "gpu"},
      {"joules_per_token", "energy of whole generations, prompts included, over their tokens",
       "v_energy", "energy"},
      {"energy_gain", "tokens per joule over those of the arm that speedup is against", "v_energy",
       "energy"},
  });
  return kMetrics;
}

std::string definition_of(std::string_view metric) {
  if (metric == "pass" || metric == "rougeL" || metric.starts_with("pass@") || metric == "win" ||
      metric == "tie" || metric == "lose")
    metric = "quality";
  std::string page = "docs/measurement.md";
  for (const MetricInfo& m : metric_glossary())
    if (metric == m.name) return page + "#" + m.anchor;
  return page;
}

Column metric_column(std::string name, const char* metric, Room room) {
  return {.name = std::move(name), .room = room, .metric = metric, .link = definition_of(metric)};
}

}  // namespace evalrun::reports
