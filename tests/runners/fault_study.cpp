// Which planted faults of graded size which check of `evalrun verify` finds, and at which budget:
// token identity, the audit of decisions, the laws of steps and of texts; and that none of them
// finds the honest build. Prints the table of docs/measurement.md, "Planted faults".
//
//   fault_study                                        the tiny model of the tests
//   fault_study --model MODEL --method sps:draft=trained --tokens 48 --draws none --samples none
//
// Options: --model PATH, --method M, --seeds N, --tokens N (of an answer), --answers 1,10 (to each
// of twelve prompts), --draws 200,2000 (at each place), --samples 16 (answers to each prompt of the
// law of texts), --temperature T, --faults A,B. "none" for a list leaves its check out.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "datasets/dataset.h"
#include "engine/base/error.h"
#include "engine/base/parse_number.h"
#include "engine/base/stats.h"
#include "engine/base/text.h"
#include "runners/verify/certificate.h"
#include "tests/runners/fault_table.h"

namespace {

using namespace evalrun;
using namespace evalrun::runners;

struct StudyOptions {
  std::string model;  // "" = the tiny one
  std::string method = "sps:draft=layers:1,k=3";
  int tokens = 64;
  FaultBudget budget;
  std::vector<std::string> faults = {
      "wrong-accept:1%",    "wrong-accept:2%",        "wrong-accept:5%",        "wrong-accept:10%",
      "redraw-from-target", "verify-temperature:95%", "verify-temperature:98%", "verify-top-p:95%",
      "drop-below:0.1%",    "misreport-draft:80%",    "scale-acceptance:110%",  kNoFault};
};

template <typename T>
T number_of(const std::string& option, const std::string& text) {
  const auto number = base::parse_number<T>(text);
  if (!number || *number <= 0)
    throw base::usage_error(fmt::format("{} takes a number above 0, found '{}'", option, text),
                            "the head of tests/runners/fault_study.cpp lists the options");
  return *number;
}

std::vector<int> list_of(const std::string& option, const std::string& text) {
  std::vector<int> list;
  if (text == "none") return list;
  for (const std::string& part : base::split(text, ','))
    list.push_back(number_of<int>(option, part));
  if (!std::is_sorted(list.begin(), list.end()))
    throw base::usage_error(fmt::format("{} {}: not ascending", option, text), "sort it");
  return list;
}

StudyOptions parse(int argc, char** argv) {
  StudyOptions o;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) throw base::usage_error(option + " has no value", "give one after it");
    const std::string value = argv[i + 1];
    if (option == "--model") {
      o.model = value;
    } else if (option == "--method") {
      o.method = value;
    } else if (option == "--seeds") {
      o.budget.seeds = number_of<int>(option, value);
    } else if (option == "--tokens") {
      o.tokens = number_of<int>(option, value);
    } else if (option == "--answers") {
      o.budget.answers = list_of(option, value);
    } else if (option == "--draws") {
      o.budget.draws = list_of(option, value);
    } else if (option == "--samples") {
      o.budget.samples = list_of(option, value);
    } else if (option == "--temperature") {
      o.budget.temperature = number_of<double>(option, value);
    } else if (option == "--faults") {
      o.faults = base::split(value, ',');
    } else {
      throw base::usage_error(fmt::format("unknown option '{}'", option),
                              "the head of tests/runners/fault_study.cpp lists them");
    }
  }
  return o;
}

// Twelve of the sample prompts, as `verify` takes them.
FaultSubject subject_of(const StudyOptions& o) {
  if (o.model.empty()) return tiny_subject(o.method, o.tokens);
  PlanRequest request;
  request.target = engine::load_model(o.model, {.format = engine::weight_format_by_name("auto")});
  request.suite.methods = {o.method};
  request.suite.tasks = {{.task = "samples"}};
  request.suite.limit = 12;
  request.suite.max_new = o.tokens;
  request.suite.max_turns = 1;
  request.suite.aa = false;
  request.suite.evaluate = false;
  complete_suite(request.suite, "study");
  request.data_root = datasets::resolve_data_root("");
  const RunPlan plan = make_plan(request);
  FaultSubject subject;
  subject.model = request.target;
  subject.session = planned_session(request, plan);
  subject.prompts = plan.prompts;
  subject.build = plan.arms.back().build;
  subject.sampled = plan.arms.back().sampled;
  return subject;
}

void print_head(const FaultBudget& budget) {
  std::string head = "| fault | variation |", rule = "|:--|--:|";
  const auto add = [&](const std::string& column) {
    head += " " + column + " |";
    rule += "--:|";
  };
  const auto add_each = [&](const char* check, const std::vector<int>& amounts, const char* unit) {
    for (const int n : amounts)
      add(fmt::format("{}: {} {}{}", check, base::with_commas(n), unit, n == 1 ? "" : "s"));
  };
  add_each("other tokens", budget.answers, "answer");
  add_each("audit", budget.answers, "answer");
  if (!budget.answers.empty()) add("steps until then"), add("decisions until then");
  add_each("law of steps", budget.draws, "draw");
  add_each("law of texts", budget.samples, "answer");
  fmt::print("{}\n{}\n", head, rule);
}

// "9 (48)": the median and the most.
std::string until(const std::vector<double>& sorted) {
  return fmt::format("{:g} ({:g})", base::median(sorted), sorted.back());
}

void print_row(const std::string& fault, const FaultRow& row, const FaultBudget& budget) {
  std::string line = fmt::format("| {} | {} |", fault,
                                 row.variation ? fmt::format("{:.2g}", *row.variation) : "-");
  const auto add = [&](const std::string& cell) { line += " " + cell + " |"; };
  const auto add_each = [&](const std::vector<int>& found) {
    for (const int n : found) add(fmt::format("{} of {}", n, budget.seeds));
  };
  if (row.other_tokens.empty())
    for (size_t i = 0; i < budget.answers.size(); ++i) add("-");
  add_each(row.other_tokens);
  add_each(row.audited);
  if (!budget.answers.empty()) add(until(row.steps)), add(until(row.decisions));
  add_each(row.by_steps);
  add_each(row.by_texts);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const StudyOptions o = parse(argc, argv);
  base::SteadyClock clock;
  const int64_t begin = clock.now_ns();
  FaultTable table(subject_of(o), o.budget);
  print_head(o.budget);
  for (const std::string& fault : o.faults) print_row(fault, table.row(fault), o.budget);
  const auto sampler = table.sampler_of_tokens();
  fmt::print(
      "\nOf {} seeds each; T = {:g}; answers of {} tokens; {} places. Tokens by the sampler {}. "
      "Laws at level {:.2g}.\n{:.0f} seconds.\n",
      o.budget.seeds, o.budget.temperature, o.tokens, o.budget.contexts,
      sampler ? engine::to_string(*sampler) : "-", level_of_part(3),
      static_cast<double>(clock.now_ns() - begin) * 1e-9);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "fault_study: {}\n", e.what());
    return 1;
  }
}
