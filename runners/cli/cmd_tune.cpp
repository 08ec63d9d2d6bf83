// evalrun tune self_spec: searches the sublayers a self-speculative draft may leave out, and
// measures the set it recommends.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "datasets/dataset.h"
#include "engine/base/clock.h"
#include "methods/decode_loop.h"
#include "methods/skip_layers.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"
#include "runners/conversation.h"
#include "runners/interrupt.h"
#include "runners/progress.h"
#include "runners/row_cost_cache.h"
#include "runners/skip_search.h"

namespace evalrun::cli {
namespace {

struct Options {
  ModelOptions model;
  std::string task = "samples";
  std::string data_root;
  int limit = 8, max_new = 48, k_max = 12;
  double seconds = 120;
};

constexpr int kRowRoom = 64;  // rows of a step behind the longest text

class Tuner {
 public:
  Tuner(const Options& options, const GlobalOptions& global)
      : options_(options), global_(global), model_(options.model.load()), conversation_(*model_) {
    const datasets::LoadedDataset set =
        datasets::load_dataset(options.task, datasets::resolve_data_root(options.data_root));
    for (const datasets::Prompt& prompt : datasets::limit_prompts(set.prompts, options.limit))
      prompts_.push_back(conversation_.encode(prompt, conversation_.render(prompt, {})));
    size_t longest = 0;
    for (const auto& prompt : prompts_) longest = std::max(longest, prompt.size());
    capacity_ = static_cast<int>(longest) + options.max_new + kRowRoom;
    if (prompts_.size() * static_cast<size_t>(options.max_new) > engine::kMaxRows)
      throw base::usage_error(
          fmt::format("{} prompts of {} tokens are more than the {} places a forward can judge",
                      prompts_.size(), options.max_new, engine::kMaxRows),
          "lower --limit or -n");
  }

  void run() {
    const runners::InterruptGuard guard;
    runners::RowCostRequest request{model_, options_.model.session_options(capacity_),
                                    row_cost_cache_path(), kRowCostSeconds};
    const runners::MeasuredRowCost costs = runners::obtain_row_cost(request);
    if (costs.table.empty())
      throw base::Error(base::ExitCode::kData,
                        "what a row costs could not be measured: " + costs.problem);
    const auto plain = decode_all("ar", costs.table);
    for (size_t i = 0; i < prompts_.size(); ++i)
      texts_.push_back({prompts_[i], plain.turns[i].tokens});
    const std::vector<runners::SkipEstimate> path = search(costs.table);
    if (runners::InterruptGuard::requested())
      throw base::Error(base::ExitCode::kInterrupted,
                        fmt::format("interrupted after {} sublayers; nothing is recommended that "
                                    "was not measured",
                                    path.size()),
                        "--seconds ends the search early and measures its best set");
    if (path.empty())
      throw base::usage_error("the search had no time for a single round", "raise --seconds");
    const auto best = std::max_element(path.begin(), path.end(), [](const auto& a, const auto& b) {
      return a.speedup < b.speedup;
    });
    const std::string spec = fmt::format("self_spec:attention={},k={},mlp={},threshold=0",
                                         methods::to_text(best->skip.attention), best->k,
                                         methods::to_text(best->skip.mlp));
    const auto tuned = decode_all(spec, costs.table);
    const auto again = decode_all("ar", costs.table);  // plain decoding on both sides of it
    const double measured =
        tuned.tokens_per_s() / (0.5 * (plain.tokens_per_s() + again.tokens_per_s()));
    bool same = true;
    for (size_t i = 0; i < prompts_.size(); ++i)
      same &= tuned.turns[i].tokens == plain.turns[i].tokens;
    report(path, *best, spec, tuned, measured, same);
    if (!same)
      throw base::Error(base::ExitCode::kCorrectness,
                        "the recommended set changes the greedy answer of a prompt",
                        "the engine or the method is wrong: please report this");
  }

 private:
  struct Decoded {
    std::vector<results::TurnRecord> turns;
    double tokens_per_s() const {
      double tokens = 0, ns = 0;
      for (const results::TurnRecord& turn : turns) {
        tokens += static_cast<double>(turn.tokens.size()) - 1;
        ns += static_cast<double>(turn.decode_ns);
      }
      return 1e9 * tokens / ns;
    }
    double tau() const {
      double tokens = 0, steps = 0;
      for (const results::TurnRecord& turn : turns) {
        tokens += static_cast<double>(turn.tokens.size()) - 1;
        steps += static_cast<double>(turn.steps.size());
      }
      return tokens / steps;
    }
  };

  Decoded decode_all(const std::string& text, const engine::RowCostTable& costs) {
    const methods::MethodSpec spec = methods::parse_method(text);
    methods::MethodBuildContext build;
    build.target = model_;
    build.session = options_.model.session_options(capacity_);
    build.row_cost = &costs;
    const auto method = spec.info->build(spec.params, build);
    const auto session = engine::Session::create(model_, build.session);
    Decoded decoded;
    for (const auto& prompt : prompts_) {
      session->reset();
      methods::TurnRequest request;
      request.prompt = prompt;
      request.max_new = options_.max_new;
      decoded.turns.push_back(methods::decode_turn(*method, *session, request, clock_));
    }
    return decoded;
  }

  std::vector<runners::SkipEstimate> search(const engine::RowCostTable& costs) {
    engine::SessionOptions session = options_.model.session_options(capacity_);
    session.n_sequences = static_cast<int>(texts_.size());
    session.max_tokens = std::min(model_->config().max_context, capacity_ + engine::kMaxRows);
    runners::SkipSearchOptions search;
    search.k_max = options_.k_max;
    search.seconds = options_.seconds;
    search.stop = runners::InterruptGuard::requested;
    const bool terminal = global_.verbosity >= 0 && ::isatty(STDERR_FILENO) != 0;
    search.progress = [&](const runners::SkipEstimate& best, int skipped, double elapsed) {
      if (!terminal) return;
      fmt::print(stderr, "\r\x1b[K{} of at most {}: {} sublayers left out, best so far {:.2f}x",
                 runners::format_duration(elapsed), runners::format_duration(options_.seconds),
                 skipped, best.speedup);
      std::fflush(stderr);
    };
    const auto s = engine::Session::create(model_, session);
    auto path = runners::search_skip_set(*s, texts_, costs, search);
    if (terminal) fmt::print(stderr, "\r\x1b[K");
    return path;
  }

  void report(const std::vector<runners::SkipEstimate>& path, const runners::SkipEstimate& best,
              const std::string& spec, const Decoded& tuned, double measured, bool same) const {
    if (global_.json) {
      nlohmann::ordered_json out{{"method", spec},
                                 {"attention", methods::to_text(best.skip.attention)},
                                 {"mlp", methods::to_text(best.skip.mlp)},
                                 {"k", best.k},
                                 {"kept_weights", best.kept},
                                 {"agreement", best.agreement},
                                 {"tau_expected", best.tau},
                                 {"speedup_expected", best.speedup},
                                 {"tau", tuned.tau()},
                                 {"speedup", measured},
                                 {"prompts", prompts_.size()},
                                 {"same_tokens", same}};
      out["path"] = nlohmann::ordered_json::array();
      for (const runners::SkipEstimate& e : path)
        out["path"].push_back({{"kept_weights", e.kept},
                               {"agreement", e.agreement},
                               {"k", e.k},
                               {"tau", e.tau},
                               {"speedup", e.speedup}});
      return print_json_document(out);
    }
    std::vector<std::vector<std::string>> cells;
    for (size_t i = 0; i < path.size(); ++i) {
      const runners::SkipEstimate& e = path[i];
      const bool shown = i + 1 == path.size() || (i + 1) % 4 == 0 || &e == &best;
      if (shown)
        cells.push_back({fmt::format("{}{}", i + 1, &e == &best ? " *" : ""),
                         fmt::format("{:.0f} %", 100 * e.kept),
                         fmt::format("{:.0f} %", 100 * e.agreement), std::to_string(e.k),
                         fmt::format("{:.2f}", e.tau), fmt::format("{:.2f}", e.speedup)});
    }
    print_line(aligned_table(
        {"left out", "weights read", "agreement", "best k", "tau", "speedup (expected)"}, cells));
    print_line(fmt::format("measured on the same {} prompts: tau {:.2f}, speedup {:.2f}",
                           prompts_.size(), tuned.tau(), measured));
    if (measured < 1)
      print_line("No set pays here: what is left of the model costs more than its drafts save.");
    print_line(fmt::format("\n{}\n\nwith an interval: evalrun run --tasks {} --methods {}", spec,
                           options_.task, spec));
  }

  const Options& options_;
  const GlobalOptions& global_;
  std::shared_ptr<const engine::Model> model_;
  runners::Conversation conversation_;
  base::SteadyClock clock_;
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<runners::SkipText> texts_;
  int capacity_ = 0;
};

}  // namespace

void add_tune_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("tune", "Search what a method needs for this model");
  command->require_subcommand(1);
  auto* self_spec =
      command->add_subcommand("self_spec", "Sublayers a self-speculative draft may leave out");
  auto options = std::make_shared<Options>();
  options->model.add(*self_spec);
  self_spec->add_option("--task", options->task, "Data set the search takes prompts from")
      ->capture_default_str();
  self_spec->add_option("--data-root", options->data_root,
                        "Folder of the data sets' files (EVALRUN_DATA)");
  self_spec->add_option("--limit", options->limit, "Prompts, evenly over categories")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  self_spec->add_option("-n,--max-new", options->max_new, "Tokens per answer")
      ->check(CLI::Range(4, 512))
      ->capture_default_str();
  self_spec->add_option("--k-max", options->k_max, "Longest draft considered")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  self_spec->add_option("--seconds", options->seconds, "Time for the search")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  self_spec->footer(
      "Sublayers (attention and MLP of every layer) are left out one by one, each time the one "
      "that\n"
      "costs least agreement with the whole model for the weights it saves. Expected: from the\n"
      "agreement on the model's own answers and what rows cost here; the best set is then "
      "measured.\n\n"
      "Examples:\n"
      "  evalrun tune self_spec\n"
      "  evalrun tune self_spec -m model.gguf --task xsum --limit 8 --seconds 600");
  self_spec->callback([options, &context] { Tuner(*options, context.global).run(); });
}

}  // namespace evalrun::cli
