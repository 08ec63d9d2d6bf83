// Requests of plans over a tiny model and a few prompts of one's own.
#pragma once
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "runners/plan/plan.h"
#include "tests/runners/fakes.h"
#include "tests/temp_folder.h"

namespace evalrun::runners {

inline const tests::TempFolder& folder() {
  static const tests::TempFolder one;
  return one;
}

inline std::string write_prompts(const std::string& name, const std::vector<std::string>& lines) {
  const std::string path = folder().file(name);
  std::ofstream out(path);
  for (const std::string& line : lines) out << line << "\n";
  return "jsonl:" + path;
}

inline std::string two_prompts() {
  return write_prompts("two.jsonl", {R"({"id": "a", "turns": ["one", "and two"]})",
                                     R"({"id": "b", "turns": ["just one question"]})"});
}

inline PlanRequest request_for(const std::string& task) {
  PlanRequest request;
  request.suite.tasks = {{.task = task}};
  request.suite.methods = {"pld"};
  request.suite.max_new = 8;
  request.target = tests::tiny_model(256);
  request.session.n_threads = 1;
  request.session.isa = "reference";
  complete_suite(request.suite, "test");
  return request;
}

// The same plan in batches of these sizes.
inline PlanRequest in_batches(PlanRequest request, std::vector<int> sizes,
                              methods::BatchMode mode = methods::BatchMode::kStatic) {
  request.suite.batches = {.sizes = std::move(sizes), .mode = mode};
  complete_suite(request.suite, "test");
  return request;
}

// T(n)/T(1) = 1, 2, 8 for 1, 4, 16 rows.
inline engine::RowCostTable steep_rows() {
  engine::RowCostTable table;
  table.context = 256, table.rounds = 3;
  table.rows = {{1, 10, 10, 10, {}}, {4, 20, 20, 20, {}}, {16, 80, 80, 80, {}}};
  return table;
}

}  // namespace evalrun::runners
