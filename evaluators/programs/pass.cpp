#include "evaluators/programs/pass.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "evaluators/programs/program_runner.h"

namespace evalrun::evaluators {
namespace {

using nlohmann::ordered_json;

constexpr size_t kExtractedKept = size_t{64} << 10;

// As JSON text, broken UTF-8 replaced.
std::string dump(const ordered_json& j) {
  return j.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string readable(const std::string& bytes) {
  return ordered_json::parse(dump(bytes.substr(0, kExtractedKept))).get<std::string>();
}

// What changes verdicts. When it differs, an answer is judged anew.
std::string options_of(const ScoringContext& context) {
  return fmt::format("time x {}{}", context.time_scale,
                     context.fix_go_imports ? ", go imports fixed" : "");
}

std::string facts_of(const ProgramResult& r, const datasets::CodeProblem& problem,
                     const ScoringContext& context) {
  ordered_json limits = {{"run_s", r.limits.run_s}};
  if (r.limits.together)
    limits["compile"] = "counts";
  else
    limits["compile_s"] = r.limits.compile_s;
  limits["memory_bytes"] = r.memory_limit;
  ordered_json facts = {{"sandbox", r.sandbox},     {"language", problem.language},
                        {"toolchain", r.toolchain}, {"limits", limits},
                        {"wall_ms", r.wall_ms},     {"compile_ms", r.compile_ms}};
  if (r.cpu_ms) facts["cpu_ms"] = *r.cpu_ms;
  facts["peak_rss_bytes"] = r.peak_rss;
  facts["options"] = options_of(context);
  facts["exit_code"] = r.exit_code;
  if (r.signal != 0) facts["signal"] = r.signal;
  if (problem.language == "go") facts["imports"] = context.fix_go_imports ? "fixed" : "official";
  if (r.cached) facts["cached"] = true;
  if (!r.output.empty()) facts["output"] = r.output;
  return dump(facts);
}

EvaluatorEntry entry(const char* version, const char* summary, CodeConvention convention) {
  EvaluatorInfo info;
  info.name = "pass";
  info.version = version;
  info.summary = summary;
  info.unit = "pass rate";
  info.deferred = true;
  const auto score = [info, convention](const datasets::Prompt& prompt,
                                        const std::vector<std::string>& texts,
                                        const ScoringContext& context) {
    results::ScoreRecord record;
    record.evaluator = info.name;
    record.version = info.version;
    record.facts = ordered_json{{"options", options_of(context)}}.dump();
    if (prompt.code == nullptr) {
      record.status = "no reference";
      return record;
    }
    if (texts.empty()) {
      record.status = "no answer";
      return record;
    }
    const Answer answer = read_answer(*prompt.code, prompt.chat, texts.back(), convention);
    const ProgramResult result = run_answer(*prompt.code, answer, convention, context);
    if (result.has_value()) record.value = result.status == "passed" ? 1 : 0;
    record.extracted = readable(answer.code);
    record.status = result.status;
    record.detail = readable(result.detail);
    record.suspicious = result.suspicious;
    record.facts = facts_of(result, *prompt.code, context);
    return record;
  };
  return {info, score, [](const ScoringContext& context) { shared_sandbox(context); }, options_of};
}

}  // namespace

EvaluatorEntry pass_evalrun() {
  return entry("evalrun", "the test passes: official programs, 5 s for the run, 30 s to compile",
               CodeConvention::kEvalrun);
}

EvaluatorEntry pass_codegeex() {
  return entry("codegeex", "the test passes: rules of HumanEval-X, 5 s with compiling",
               CodeConvention::kCodegeex);
}

EvaluatorEntry pass_bigcode() {
  return entry("bigcode", "the test passes: stop words and time limits of bigcode's harness",
               CodeConvention::kBigcode);
}

}  // namespace evalrun::evaluators
