// evalrun tune self_spec: searches the sublayers a self-speculative draft may leave out. evalrun
// tune tree: finds the draft tree of a static drafter. evalrun tune parameters:
// tune_parameters.cpp, evalrun tune method: tune_method.cpp. All measure what they recommend.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "datasets/dataset.h"
#include "engine/base/clock.h"
#include "engine/base/units.h"
#include "methods/adaptive.h"
#include "methods/decode_loop.h"
#include "methods/model_draft/skip_layers.h"
#include "methods/registration.h"
#include "runners/cli/cli.h"
#include "runners/cli/measure/tune_method.h"
#include "runners/cli/measure/tune_parameters.h"
#include "runners/cli/output.h"
#include "runners/cli/units.h"
#include "runners/machine/row_cost_cache.h"
#include "runners/measure/interrupt.h"
#include "runners/measure/progress.h"
#include "runners/plan/conversation.h"
#include "runners/train/skip_search.h"
#include "runners/train/tree_tuning.h"

namespace evalrun::cli {
namespace {

struct TuneArguments {
  ModelOptions model;
  std::string method, wide = "vicuna_7b_stage1";  // tune tree
  int nodes = 32;
  std::string task = "samples";
  std::string data_root;
  int limit = 8, max_new = 48, k_max = 12;
  double seconds = 120;
};

constexpr int kRowRoom = 512;  // rows of a step after the longest text

// Prompts of a data set, and what they are decoded with.
class Tuner {
 public:
  Tuner(const TuneArguments& options, const GlobalOptions& global)
      : options_(options), global_(global), model_(options.model.load()), conversation_(*model_) {
    const datasets::LoadedDataset set =
        datasets::load_dataset(options.task, datasets::resolve_data_root(options.data_root));
    for (const datasets::Prompt& prompt : datasets::limit_prompts(set.prompts, options.limit))
      prompts_.push_back(conversation_.encode(prompt, conversation_.render(prompt, {})));
    size_t longest = 0;
    for (const auto& prompt : prompts_) longest = std::max(longest, prompt.size());
    capacity_ = static_cast<int>(longest) + options.max_new + kRowRoom;
  }

 protected:
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
    // Of its steps, the mean of `of` the rows that were verified; a method's side rows are among
    // them.
    template <typename Of>
    double mean_over_rows(const Of& of) const {
      double sum = 0, steps = 0;
      for (const results::TurnRecord& turn : turns)
        for (const results::StepRecord& step : turn.steps) sum += of(step.rows), ++steps;
      return sum / steps;
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

  methods::MethodBuildContext build_context(const engine::RowCostTable& costs) const {
    methods::MethodBuildContext build;
    build.target = model_;
    build.session = options_.model.session_options(capacity_);
    build.row_cost = &costs;
    return build;
  }
  Decoded decode_all(const std::string& text, const engine::RowCostTable& costs) {
    const methods::MethodSpec spec = methods::parse_method(text);
    const methods::MethodBuildContext context = build_context(costs);
    const auto method = spec.info->build(spec.params, context);
    return decode_all(*method, methods::decoded_model(spec, context), context.session);
  }
  // `model` is what the method decodes.
  Decoded decode_all(methods::DecodingMethod& method,
                     const std::shared_ptr<const engine::Model>& model,
                     const engine::SessionOptions& options) {
    const auto session = engine::Session::create(model, options);
    Decoded decoded;
    for (const auto& prompt : prompts_) {
      if (runners::InterruptGuard::requested())
        throw base::Error(base::ExitCode::kInterrupted, "interrupted; nothing is recommended");
      session->reset();
      methods::TurnRequest request;
      request.prompt = prompt;
      request.max_new = options_.max_new;
      decoded.turns.push_back(methods::decode_turn(method, *session, request, clock_));
    }
    return decoded;
  }

  engine::RowCostTable row_costs() const {
    runners::RowCostRequest request{model_, options_.model.session_options(capacity_),
                                    runners::row_cost_cache_path(), runners::kRowCostSeconds};
    runners::MeasuredRowCost costs = runners::obtain_row_cost(request);
    if (costs.table.empty())
      throw base::Error(base::ExitCode::kData,
                        "what a row costs could not be measured: " + costs.problem);
    return std::move(costs.table);
  }
  // Plain decoding on both sides of a method, so that a drift of the machine cancels.
  static double ratio(const Decoded& before, const Decoded& tuned, const Decoded& after) {
    return tuned.tokens_per_s() / (0.5 * (before.tokens_per_s() + after.tokens_per_s()));
  }
  static bool same(const Decoded& a, const Decoded& b) {
    bool all = true;
    for (size_t i = 0; i < a.turns.size(); ++i) all &= a.turns[i].tokens == b.turns[i].tokens;
    return all;
  }
  static void check_same(const Decoded& a, const Decoded& b, const std::string& what) {
    if (!same(a, b))
      throw base::Error(base::ExitCode::kCorrectness,
                        what + " changes the greedy answer of a prompt",
                        "the engine or the method is wrong: please report this");
  }

  const TuneArguments& options_;
  const GlobalOptions& global_;
  std::shared_ptr<const engine::Model> model_;
  runners::Conversation conversation_;
  base::SteadyClock clock_;
  std::vector<std::vector<int32_t>> prompts_;
  int capacity_ = 0;
};

// evalrun tune self_spec.
class SkipTuner : public Tuner {
 public:
  SkipTuner(const TuneArguments& options, const GlobalOptions& global) : Tuner(options, global) {
    if (prompts_.size() * static_cast<size_t>(options.max_new) > engine::kMaxRows)
      throw base::usage_error(
          fmt::format("{} prompts of {} tokens are more than the {} places a forward can judge",
                      prompts_.size(), options.max_new, engine::kMaxRows),
          "lower --limit or -n");
  }

  void run() {
    const runners::InterruptGuard guard;
    const engine::RowCostTable costs = row_costs();
    const auto plain = decode_all("ar", costs);
    for (size_t i = 0; i < prompts_.size(); ++i)
      texts_.push_back({prompts_[i], plain.turns[i].tokens});
    const std::vector<runners::SkipEstimate> path = search(costs);
    if (runners::InterruptGuard::requested())
      throw base::Error(base::ExitCode::kInterrupted,
                        fmt::format("interrupted after {} sublayers; nothing is recommended that "
                                    "was not measured",
                                    path.size()),
                        "--max-time ends the search early and measures its best set");
    if (path.empty())
      throw base::usage_error("the search had no time for a single round", "raise --max-time");
    const auto best = std::max_element(path.begin(), path.end(), [](const auto& a, const auto& b) {
      return a.speedup < b.speedup;
    });
    const std::string spec = fmt::format("self_spec:attention={},k={},mlp={},threshold=0",
                                         methods::to_text(best->skip.attention), best->k,
                                         methods::to_text(best->skip.mlp));
    const auto tuned = decode_all(spec, costs);
    const auto again = decode_all("ar", costs);  // plain decoding on both sides of it
    const double measured = ratio(plain, tuned, again);
    report(path, *best, spec, tuned, measured, same(plain, tuned));
    check_same(plain, tuned, "the recommended set");
  }

 private:
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
                 base::format_duration(elapsed), base::format_duration(options_.seconds), skipped,
                 best.speedup);
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

  std::vector<runners::SkipText> texts_;
};

// evalrun tune tree: the first half of the prompts finds the tree, the second half judges it.
class TreeTuner : public Tuner {
 public:
  using Tuner::Tuner;

  void run() {
    const runners::InterruptGuard guard;
    const engine::RowCostTable costs = row_costs();
    const methods::MethodSpec wide = methods::parse_method(with_tree(options_.wide));
    if (prompts_.size() < 2) throw base::usage_error("a tree needs two prompts", "raise --limit");
    const auto all = prompts_;
    const size_t half = all.size() / 2;
    prompts_.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(half));
    runners::TreeCounts counts;
    const methods::MethodBuildContext context = build_context(costs);
    const auto watched = wide.info->build(wide.params, context);
    const auto decoded = methods::decoded_model(wide, context);
    counts.watch(*watched);
    decode_all(*watched, decoded, context.session);
    // Plain decoding of the same model.
    const std::string plain_text =
        decoded != model_ && wide.info->plain ? wide.info->plain(wide.params) : "ar";
    const auto paths = counts.best(options_.nodes);
    if (paths.empty())
      throw base::usage_error("no draft of the wide tree was ever accepted",
                              "is the adapter one for this model? See evalrun report --why");
    prompts_.assign(all.begin() + static_cast<ptrdiff_t>(half), all.end());
    const Decoded before = decode_all(plain_text, costs);
    std::vector<Row> rows;
    const methods::RowPrice price(&costs);
    for (int n = 1; n <= static_cast<int>(paths.size()); n = n < 4 ? n + 1 : n * 3 / 2) {
      const methods::RankTree tree = runners::tree_of(paths, n);
      Row row{tree.text(), n, tree.depth(), 1, 0, 0, 0, 0};
      for (int i = 0; i < n; ++i) row.expected_tau += paths[static_cast<size_t>(i)].gain;
      const Decoded tuned = decode_all(with_tree(tree.text()), costs);
      check_same(before, tuned, "tree " + tree.text());
      row.tau = tuned.tau();
      row.rows = tuned.mean_over_rows([](int r) { return static_cast<double>(r); });
      row.price = tuned.mean_over_rows(price);
      row.tokens_per_s = tuned.tokens_per_s();
      rows.push_back(std::move(row));
    }
    const Decoded after = decode_all(plain_text, costs);
    const double plain = 0.5 * (before.tokens_per_s() + after.tokens_per_s());
    report(rows, plain, half, all.size() - half, counts.steps());
  }

 private:
  struct Row {
    std::string tree;
    int nodes, depth;
    double expected_tau;       // on the prompts that chose it
    double rows, price;        // of a step: rows verified, their T(n)/T(1)
    double tau, tokens_per_s;  // on the others
  };

  std::string with_tree(const std::string& tree) const {
    return fmt::format("{}{}tree={}", options_.method,
                       options_.method.find(':') == std::string::npos ? ":" : ",", tree);
  }

  void report(const std::vector<Row>& rows, double plain, size_t chosen_on, size_t judged_on,
              int64_t steps) const {
    const auto best = std::max_element(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return a.tokens_per_s < b.tokens_per_s;
    });
    const std::string spec = with_tree(best->tree);
    if (global_.json) {
      nlohmann::ordered_json out{{"method", spec},
                                 {"speedup", best->tokens_per_s / plain},
                                 {"tau", best->tau},
                                 {"prompts_chosen_on", chosen_on},
                                 {"prompts_judged_on", judged_on},
                                 {"steps_counted", steps}};
      out["trees"] = nlohmann::ordered_json::array();
      for (const Row& row : rows)
        out["trees"].push_back({{"tree", row.tree},
                                {"nodes", row.nodes},
                                {"depth", row.depth},
                                {"tau_expected", row.expected_tau},
                                {"rows", row.rows},
                                {"price", row.price},
                                {"tau", row.tau},
                                {"speedup", row.tokens_per_s / plain}});
      return print_json_document(out);
    }
    std::vector<std::vector<std::string>> cells;
    for (const Row& row : rows)
      cells.push_back({fmt::format("{}{}", row.nodes, &row == &*best ? " *" : ""),
                       std::to_string(row.depth), fmt::format("{:.1f}", row.rows),
                       fmt::format("{:.2f}", row.price), fmt::format("{:.2f}", row.expected_tau),
                       fmt::format("{:.2f}", row.tau),
                       fmt::format("{:.2f}", row.tokens_per_s / plain)});
    print_line(aligned_table(
        {"nodes", "depth", "rows/step", "T(n)/T(1)", "tau (chosen on)", "tau", "speedup"}, cells));
    print_line(fmt::format("chosen on {} prompts ({} steps of a wide tree), judged on {} others",
                           chosen_on, steps, judged_on));
    if (best->tokens_per_s < plain) print_line("No tree pays here.");
    print_line(fmt::format("\n{}\n\nwith an interval: evalrun run --tasks {} --methods {}", spec,
                           options_.task, spec));
  }
};

}  // namespace

namespace {

void add_tree(CLI::App& command, Context& context) {
  auto* tree = command.add_subcommand("tree", "The draft tree that pays, for a static drafter");
  auto options = std::make_shared<TuneArguments>();
  options->limit = 24;
  options->max_new = 64;
  options->model.add_without_draft(*tree);
  tree->add_option("--method", options->method,
                   "A method that has tree= (medusa, eagle, falcon, bita, ...), its other "
                   "parameters with it")
      ->required();
  tree->add_option("--wide", options->wide,
                   "Tree whose paths are tried (a published name or paths)")
      ->capture_default_str();
  tree->add_option("--nodes", options->nodes, "Largest tree considered")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  tree->add_option("--task", options->task, "Task the prompts come from")->capture_default_str();
  add_data_root(*tree, options->data_root);
  tree->add_option("--limit", options->limit, "Prompts, evenly over categories")
      ->check(CLI::Range(2, 1000))
      ->capture_default_str();
  tree->add_option("-n,--max-new", options->max_new, "Tokens per answer")
      ->check(CLI::Range(4, 4096))
      ->capture_default_str();
  tree->footer(
      "Half of the prompts are decoded with the wide tree; of every path it is counted how often\n"
      "all of it was accepted. Trees of the most frequent paths are then measured on the other\n"
      "half, between two runs of plain decoding.\n\n"
      "Examples:\n"
      "  evalrun tune tree --method medusa\n"
      "  evalrun tune tree --method eagle:dtype=q4 --task mt_bench --limit 40 --nodes 32");
  tree->callback([options, &context] { TreeTuner(*options, context.global).run(); });
}

}  // namespace

void add_tune_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("tune", "Search what a method needs for this model");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  evalrun tune method --tasks jsonl:prompts.jsonl\n"
      "  evalrun tune self_spec\n"
      "  evalrun tune tree --method medusa --limit 40\n"
      "  evalrun tune parameters --method pld --space k=2..12..2,ngram=1..4");
  auto* self_spec =
      command->add_subcommand("self_spec", "Sublayers a self-speculative draft may leave out");
  auto options = std::make_shared<TuneArguments>();
  options->model.add_without_draft(*self_spec);
  self_spec->add_option("--task", options->task, "Task the search takes prompts from")
      ->capture_default_str();
  add_data_root(*self_spec, options->data_root);
  self_spec->add_option("--limit", options->limit, "Prompts, evenly over categories")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  self_spec->add_option("-n,--max-new", options->max_new, "Tokens per answer")
      ->check(CLI::Range(4, 512))
      ->capture_default_str();
  self_spec->add_option("--k-max", options->k_max, "Longest draft considered")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  self_spec->add_option("--max-time", options->seconds, "Time for the search: 90s, 10m, 2h")
      ->transform(as_seconds())
      ->check(CLI::PositiveNumber)
      ->default_str("120s");
  self_spec->footer(
      "Sublayers (attention and MLP of every layer) are left out one by one, each time the one "
      "that\n"
      "costs least agreement with the whole model for the weights it saves. Expected: from the\n"
      "agreement on the model's own answers and what rows cost here; the best set is then "
      "measured.\n\n"
      "Examples:\n"
      "  evalrun tune self_spec\n"
      "  evalrun tune self_spec -m model.gguf --task xsum --limit 8 --max-time 10m");
  self_spec->callback([options, &context] { SkipTuner(*options, context.global).run(); });
  add_tree(*command, context);
  add_tune_parameters(*command, context);
  add_tune_method(*command, context);
}

}  // namespace evalrun::cli
