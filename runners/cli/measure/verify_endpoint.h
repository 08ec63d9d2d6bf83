// evalrun verify --endpoint SPEC --against PLAIN: is a server's speculative mode lossless, under
// load? Options, and what is printed.
#pragma once
#include <string>
#include <vector>

#include "engine/sampling.h"
#include "reports/document/document.h"
#include "runners/cli/cli.h"
#include "runners/verify/endpoints/endpoint_verify.h"

namespace evalrun::cli {

struct EndpointVerifyOptions {
  std::string endpoint, against;  // what parse_endpoint() reads
  std::vector<int> clients = {1, 2, 4, 8};
  std::string restart_command;
  int restarts = 1;           // with a command
  double restart_wait = 600;  // seconds until the servers are ready again
  void add(CLI::App& app);
};
// Names of these options but --endpoint.
std::vector<std::string> endpoint_verify_options();

// Of the options that `verify` has for methods as well.
struct EndpointVerifyRun {
  ModelOptions model;  // whose tokenizer and chat template are used
  std::vector<std::string> tasks;
  std::string data_root, out;
  double limit = 12;
  bool greedy = true, seeded = false, draws = false;
  int max_new = 64, n_draws = 200, draw_tokens = 8, places = 4;
  engine::SamplingParams sampling{1.0, 0, 1.0};
  uint64_t seed = 1;
};

// Ascending, without repeats, one client first. Throws usage_error.
std::vector<int> client_counts(std::vector<int> clients, size_t prompts);
reports::Document endpoint_document(const runners::EndpointVerification& v);
base::ExitCode endpoint_exit_code(const runners::EndpointVerification& v);

// Throws what parse_endpoint(), make_endpoint(), check() and verify_endpoint() throw.
void verify_endpoints(Context& context, const EndpointVerifyOptions& options,
                      const EndpointVerifyRun& run);

}  // namespace evalrun::cli
