#include "runners/cli/measure/doctor_checks.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <span>

#include "engine/base/clock.h"
#include "engine/devices.h"
#include "engine/model/model.h"
#include "engine/session.h"
#include "engine/wrapped_session.h"
#include "methods/decode_loop.h"
#include "methods/registration.h"

namespace evalrun::cli {
namespace {

constexpr int kTinyContext = 4096;

std::shared_ptr<const engine::Model> small_model() {
  engine::ModelConfig c;
  c.architecture = "llama";
  c.name = "random";
  c.n_layers = 2;
  c.d_model = 48;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = 12;
  c.d_ffn = 112;
  c.vocab_size = 300;
  c.max_context = kTinyContext;
  return engine::make_random_model(c, 1);
}

// Logits of the rows after a prompt that crosses a chunk border: each alone, then all in one
// forward.
std::vector<std::vector<float>> probe(const std::shared_ptr<const engine::Model>& model,
                                      const std::string& isa, bool together) {
  constexpr int kPrompt = 261, kRows = 9;
  const auto token = [](int i) { return static_cast<int32_t>((i * 37 + 11) % 300); };
  engine::SessionOptions options;
  options.max_tokens = 512;
  options.isa = isa;
  const auto session = engine::Session::create(model, options);
  std::vector<int32_t> prompt;
  for (int i = 0; i < kPrompt; ++i) prompt.push_back(token(i));
  session->prefill(prompt);
  std::vector<std::vector<float>> logits;
  const auto keep = [&](std::span<const float> row) {
    logits.emplace_back(row.begin(), row.end());
  };
  std::vector<engine::Row> rows(kRows);
  for (int i = 0; i < kRows; ++i) {
    rows[static_cast<size_t>(i)].token = token(kPrompt + i);
    rows[static_cast<size_t>(i)].parent = i - 1;
  }
  engine::ForwardRequest request;
  if (together) {
    request.rows = rows;
    const engine::ForwardResult result = session->forward(request);
    for (int i = 0; i < kRows; ++i) keep(result.logits_row(i));
    return logits;
  }
  for (engine::Row& row : rows) {
    row.parent = -1;
    request.rows = {&row, 1};
    keep(session->forward(request).logits_row(0));
    const int root = 0;
    session->commit({&root, 1});
  }
  return logits;
}

// Answers every forward at once, always the same, and commits nothing: what is left of a step is
// the harness.
class IdleSession final : public engine::WrappedSession {
 public:
  using WrappedSession::WrappedSession;
  engine::ForwardResult forward(const engine::ForwardRequest& request) override {
    const size_t n = request.rows.size();
    top_.assign(n, 5);
    none_.assign(n, -1);
    no_weight_.assign(n, -1);
    engine::ForwardResult result;
    result.top = top_;
    result.logits_of = result.hidden_of = result.drawn = result.passed = result.best_of = none_;
    result.weight = no_weight_;
    return result;
  }
  using Session::commit;
  void commit(std::span<const engine::SequencePath>) override {}

 private:
  std::vector<int32_t> top_, none_;
  std::vector<double> no_weight_;
};

}  // namespace

std::vector<std::string> compare_isa_paths() {
  const auto model = small_model();
  const std::vector<std::vector<float>> expected = probe(model, "reference", false);
  std::vector<std::string> problems;
  for (const std::string& isa : engine::available_isas()) {
    for (const bool together : {false, true}) {
      const std::vector<std::vector<float>> found = probe(model, isa, together);
      for (size_t i = 0; i < expected.size(); ++i)
        if (std::memcmp(found[i].data(), expected[i].data(), expected[i].size() * sizeof(float)) !=
            0) {
          problems.push_back(fmt::format("{}: row {} {} differs from the reference path", isa, i,
                                         together ? "in a forward of 9" : "alone"));
          break;
        }
    }
  }
  return problems;
}

double measure_step_overhead_ns() {
  const auto model = small_model();
  engine::SessionOptions options;
  options.max_tokens = kTinyContext;
  options.n_threads = 1;
  IdleSession session(engine::Session::create(model, options));
  base::SteadyClock clock;
  const auto method = methods::parse_method("ar").info->build({}, {});
  const std::vector<int32_t> prompt = {1, 2, 3, 4};
  methods::TurnRequest request;
  request.prompt = prompt;
  request.max_new = 1001;
  std::vector<double> per_step;
  for (int i = 0; i < 9; ++i) {
    session.reset();
    const results::TurnRecord turn = methods::decode_turn(*method, session, request, clock);
    per_step.push_back(static_cast<double>(turn.decode_ns) /
                       static_cast<double>(turn.steps.size()));
  }
  std::nth_element(per_step.begin(), per_step.begin() + 4, per_step.end());
  return per_step[4];
}

}  // namespace evalrun::cli
