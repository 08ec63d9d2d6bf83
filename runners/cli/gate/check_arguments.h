// What `evalrun check` was asked for, and the requests that follow from it.
#pragma once
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "runners/cli/cli.h"
#include "runners/cli/gate/gate_against.h"
#include "runners/cli/gate/gate_ci.h"
#include "runners/cli/gate/gate_run.h"
#include "runners/cli/run_reference.h"

namespace evalrun::cli {

struct CheckArguments {
  ModelOptions model;
  CiOptions ci;
  std::string run, baseline = "main", data_root;
  double max_regression = 0.03, max_quality_loss = 0.05;  // shares
  std::string verdict, suite = "ci";
  std::vector<std::string> fail_on = {"regression", "no-baseline", "correctness", "environment"};
  std::string fault;                   // of --self-test FAULT
  std::string against;                 // another build's program
  std::vector<std::string> endpoints;  // where servers of the baseline are now
  std::string yardstick;               // what their time is judged by
  std::optional<int> sessions;         // processes of each build, per look
  double significance = 0.05, limit = 0;
  int max_extra_runs = 2, repeats = 0, max_new = 0;
  bool confirm = true, allow_missing = false, self_test = false, plan = false;
  bool own_suite = false;    // --suite, -r, -n or --limit was named
  bool suite_named = false;  // --suite was
  bool extra_runs_named = false;
};

reports::GateOptions gate_options(const CheckArguments& o);

// A suite measured with a model as the command line has it.
GateRequest make_request(const CheckArguments& o, const runners::Suite& suite, ModelOptions model);
// The suite of --suite, -r, -n and --limit.
runners::Suite self_test_suite(const CheckArguments& o);
// The baseline's suite, model and engine mode. Throws exit code 3 where the command line names
// another.
GateRequest request_like(const CheckArguments& o, const RunReference& baseline);
// The suite as asked for, for two builds at once.
AgainstRequest against_request(const CheckArguments& o, const std::string& program);

double seconds_since(int64_t begin_ns);
// Tells the CI system of an error that is on its way to main(): a job whose report is missing looks
// like one that never ran.
void tell_error(const CheckArguments& o, int64_t begin_ns, const std::exception& e);

// `check --self-test` without a fault: all drills, then simulated machines. The exit code says
// whether the gate did what it should.
void run_self_test(const CheckArguments& o, Context& context, int64_t begin_ns);

}  // namespace evalrun::cli
