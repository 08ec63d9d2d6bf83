// evalrun predict: what other drafts, another machine or a batch would have given, from the stored
// steps of a run.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "engine/base/json_fields.h"
#include "engine/base/number_range.h"
#include "engine/base/text.h"
#include "methods/heads/rank_tree.h"
#include "reports/data/parameters.h"
#include "reports/predict/predict_report.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"
#include "runners/cli/row_cost_file.h"
#include "runners/cli/run_reference.h"
#include "runners/cli/stored_row_times.h"
#include "runners/machine/row_cost_cache.h"

namespace evalrun::cli {
namespace {

constexpr int kMostShown = 8;  // draft lengths, when none are asked for

struct PredictArguments {
  ReportOutput output;
  std::string run, cost, confirm;
  std::vector<std::string> arms, lengths, trees;
  std::vector<int> batches = {1};
  bool nodes = false, acceptance = false, oracle = false;
  int budget = 16;
};

// T(n) of --cost, and the shape of the random weights that it was measured with, if it was.
struct OtherCost {
  reports::RowTimes times;
  std::string shape;
};

OtherCost cost_in_file(const nlohmann::json& json, const std::string& file) {
  const engine::RowCostTable table = row_cost_of(json, file);
  return {{.one = [table](int rows) { return table.ms(rows); }}, table.shape};
}

// --cost: a file of `evalrun cost --json`, or a run.
OtherCost other_cost(const std::string& text, const std::string& db) {
  if (std::filesystem::is_regular_file(text)) {
    const std::string bytes = base::read_file(text);
    if (!bytes.starts_with("SQLite format 3"))
      return cost_in_file(base::parse_json(bytes, text), text);
  }
  const RunReference other = find_run(text, db);
  const reports::RowTimes times =
      stored_row_times(reports::load_run(*other.store, other.run_id).run);
  if (!times)
    throw base::data_error(text, "", "the run has no T(n) table",
                           "measure one: evalrun cost --json > FILE");
  return {times, ""};
}

std::vector<reports::TreePath> paths_of(const methods::RankTree& tree) {
  std::vector<reports::TreePath> paths;
  for (size_t i = 0; i < tree.rank.size(); ++i) {
    reports::TreePath path;
    if (tree.parent[i] > 0) path = paths[static_cast<size_t>(tree.parent[i]) - 1];
    path.push_back(tree.rank[i]);
    paths.push_back(std::move(path));
  }
  return paths;
}

std::string tree_text(const std::vector<reports::TreePath>& paths) {
  methods::RankTree tree;
  std::map<reports::TreePath, int> node_of{{{}, 0}};
  for (const reports::TreePath& path : paths) {
    tree.add(node_of.at({path.begin(), path.end() - 1}), path.back());
    node_of[path] = tree.size();
  }
  return tree.text();
}

// --k: whole numbers and ranges of them.
std::vector<reports::Draft> chains(const std::vector<std::string>& lengths) {
  constexpr int kMostLengths = 1000;  // more is a slip
  std::vector<reports::Draft> drafts;
  for (const std::string& text : lengths) {
    const auto range = base::parse_number_range(text);
    if (!range || range->empty() || range->first < 1)
      throw base::usage_error(fmt::format("--k: '{}' is no draft length", text),
                              "give whole numbers from 1 and ranges: --k 1..4,8");
    if (range->count() > kMostLengths)
      throw base::usage_error(
          fmt::format("--k: '{}' is more than {} draft lengths", text, kMostLengths));
    for (const int k : range->values())
      drafts.push_back({.name = fmt::format("k={}", k), .length = k, .tree = {}});
  }
  return drafts;
}

std::vector<reports::Draft> trees(const std::vector<std::string>& texts) {
  std::vector<reports::Draft> drafts;
  for (const std::string& text : texts)
    drafts.push_back(
        {.name = "tree=" + text, .tree = paths_of(methods::parse_rank_tree("--tree", text))});
  return drafts;
}

// Nothing for trees that weights or the machine decide (auto), and for shapes of other methods.
std::optional<std::vector<reports::TreePath>> read_tree(const std::string& text) {
  const std::vector<std::string> names = methods::tree_names();
  const bool fixed = text.starts_with("chain:") || text.starts_with("delayed:") ||
                     text.find_first_not_of("0123456789.+") == text.npos ||
                     std::find(names.begin(), names.end(), text) != names.end();
  if (!fixed) return std::nullopt;
  return paths_of(methods::parse_rank_tree("tree", text));
}

class Predict {
 public:
  Predict(const PredictArguments& options, const GlobalOptions& global)
      : options_(options),
        global_(global),
        run_(find_run(options.run, global.db)),
        data_(reports::load_run(*run_.store, run_.run_id)),
        sources_{*run_.store, data_, stored_row_times(data_.run)} {
    report_.run = data_.run;
    report_.tree_text = tree_text;
    if (options.cost.empty()) return;
    OtherCost other = other_cost(options.cost, global.db);
    sources_.other = std::move(other.times);
    report_.shape = std::move(other.shape);
  }

  void run() {
    const bool needs_times = !options_.acceptance || options_.oracle;
    if (const std::string why = reports::why_not_one_machine(data_.run);
        needs_times && !why.empty())
      throw base::usage_error(why);
    if (!options_.confirm.empty())
      confirm();
    else if (options_.nodes)
      for (const reports::ArmInfo* arm : arms()) nodes(*arm);
    else if (options_.acceptance || options_.oracle)
      look_back();
    else
      predict();
    ReportOutput output = options_.output;
    const reports::Format format = output.resolve(global_);
    output.deliver(reports::rendered(report_, format, output.layout(global_)));
  }

 private:
  // Those asked for, or all that draft: where there are batches, those of the smallest size, from
  // whose steps larger ones are predicted.
  std::vector<const reports::ArmInfo*> arms() const {
    std::vector<const reports::ArmInfo*> chosen;
    std::vector<std::string> labels;
    int64_t smallest = std::numeric_limits<int64_t>::max();
    for (const reports::ArmInfo& arm : data_.arms)
      if (arm.drafts()) smallest = std::min(smallest, arm.batch);
    for (const reports::ArmInfo& arm : data_.arms) {
      if (!arm.drafts()) continue;
      labels.push_back(arm.label);
      if (options_.arms.empty() && arm.batch == smallest) chosen.push_back(&arm);
    }
    for (const std::string& label : options_.arms) {
      const reports::ArmInfo* arm = data_.arm(label);
      if (arm == nullptr)
        throw base::usage_error(
            fmt::format("--arm: run {} has no arm '{}'", data_.run.id, label),
            labels.empty() ? "none of its arms drafts" : base::suggest(label, labels));
      chosen.push_back(arm);
    }
    if (chosen.empty())
      throw base::usage_error(fmt::format("run {} has no arm that drafts", data_.run.id),
                              "measure one: evalrun run --methods ar,pld");
    return chosen;
  }

  // An arm that was named says why it cannot; others stand aside with a note.
  bool stands_aside(const std::string& why) {
    if (why.empty() || !options_.arms.empty()) return false;
    report_.notes.push_back(why);
    return true;
  }

  void predict() {
    const std::vector<reports::Draft> lengths = chains(options_.lengths);
    const std::vector<reports::Draft> shapes = trees(options_.trees);
    for (const reports::ArmInfo* arm : arms()) {
      if (stands_aside(reports::why_not_predicted(sources_, *arm))) continue;
      if (arm->batch > 1 && (options_.batches != std::vector<int>{1} || sources_.other))
        throw base::usage_error(
            fmt::format("{} was measured in batches: --batch and --cost begin with batch 1",
                        arm->label),
            fmt::format("predict from {}, or measure it: --batch 1",
                        reports::label_without_batch(*arm)));
      const reports::Predictor predictor(sources_, *arm);
      std::vector<reports::Draft> drafts(1);
      drafts.insert(drafts.end(), lengths.begin(), lengths.end());
      drafts.insert(drafts.end(), shapes.begin(), shapes.end());
      if (drafts.size() == 1) add_lengths(*arm, predictor, drafts);
      std::erase_if(drafts, [&](const reports::Draft& draft) {
        return stands_aside(predictor.why_not(draft));
      });
      for (const int batch : options_.batches)
        for (const reports::Draft& draft : drafts)
          report_.predictions.push_back(predictor.predict(draft, batch));
      report_.notes.insert(report_.notes.end(), predictor.notes().begin(), predictor.notes().end());
    }
    if (report_.predictions.empty())
      throw base::usage_error(fmt::format("nothing of run {} can be predicted", data_.run.id),
                              fmt::format("{}", fmt::join(report_.notes, "; ")));
    say_assumptions();
  }

  // Every length below the measured one, as far as a table of them is readable.
  void add_lengths(const reports::ArmInfo& arm, const reports::Predictor& predictor,
                   std::vector<reports::Draft>& drafts) {
    if (!predictor.not_cut().empty()) {
      report_.notes.push_back(
          fmt::format("{}: no other drafts: {}", arm.label, predictor.not_cut()));
      return;
    }
    const int last = predictor.chain() ? predictor.depth() - 1 : predictor.depth();
    for (int k = 1; k <= std::min(last, kMostShown); ++k)
      drafts.push_back({.name = fmt::format("k={}", k), .length = k, .tree = {}});
  }

  void say_assumptions() {
    if (!report_.shape.empty())
      report_.notes.push_back(fmt::format(
          "T(n)/T(1) is that of random weights in the shape of {} ({}), and tau that of the model "
          "measured here; drafting and overhead keep their share of a plain step: too much where "
          "text is looked up and the shape is larger, and right for a draft model only if it grows "
          "alike",
          report_.shape, options_.cost));
    else if (sources_.other)
      report_.notes.push_back(fmt::format(
          "T(n)/T(1) is that of {}; drafting and overhead keep their share of a plain step",
          options_.cost));
    if (std::any_of(options_.batches.begin(), options_.batches.end(), [](int b) { return b > 1; }))
      report_.notes.push_back(
          "batch B: B answers step together, against plain decoding of B answers; a forward of n "
          "rows each takes T(nB)/T(B) of the one-answer table (beyond its last row count on a "
          "line), so the answers' own contexts are not in it; drafting and overhead keep their "
          "share of a plain step, and no answer waits for a longer one");
  }

  void nodes(const reports::ArmInfo& arm) {
    if (stands_aside(reports::why_not_predicted(sources_, arm))) return;
    report_.trees.push_back(reports::tree_report(sources_, arm, options_.budget));
  }

  // Of the stored steps themselves: how drafts fared, and what perfect choices would have given.
  void look_back() {
    const reports::SharedAnswers shared = reports::load_shared_answers(*run_.store, data_);
    if (options_.acceptance)
      report_.acceptance = reports::acceptance_of_arms(*run_.store, data_, arms(), shared);
    if (options_.oracle)
      report_.oracle =
          reports::oracle_report(*run_.store, data_, shared, stored_row_times(data_.run));
  }

  void confirm() {
    const RunReference other = find_run(options_.confirm, global_.db);
    const reports::RunData data = reports::load_run(*other.store, other.run_id);
    const reports::PredictSources measured{*other.store, data, stored_row_times(data.run)};
    report_.confirmations = reports::confirm(sources_, measured, read_tree);
    report_.confirmed_by = data.run;
  }

  const PredictArguments& options_;
  const GlobalOptions& global_;
  RunReference run_;
  reports::RunData data_;
  reports::PredictSources sources_;
  reports::PredictReport report_;
};

}  // namespace

void add_predict_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand(
      "predict", "Estimate other drafts, machines or batch sizes from a stored run");
  auto options = std::make_shared<PredictArguments>();
  command
      ->add_option("run", options->run,
                   "Number, run:N, label, key or baseline; FILE or FILE:RUN for another database "
                   "(default: the newest run)")
      ->option_text("[RUN]");
  auto* arm =
      command
          ->add_option("--arm", options->arms, "Arm to predict from, as tables name it; repeatable")
          ->type_name("METHOD");
  auto* lengths =
      command
          ->add_option(
              "--k", options->lengths,
              "Cut drafts to chains of this many tokens: 1..8 or 1,2,4 (default: all shorter "
              "ones, up to 8)")
          ->delimiter(',')
          ->type_name("LIST");
  auto* trees =
      command
          ->add_option(
              "--tree", options->trees,
              "Trees cut from the measured one: paths (0+00+1), chain:N, delayed:K:L1:L2 or a "
              "published name")
          ->delimiter(',')
          ->type_name("TREE");
  auto* cost =
      command
          ->add_option(
              "--cost", options->cost,
              "T(n) of another device or of a shape: a file of evalrun cost --json, or a run "
              "measured there")
          ->type_name("FILE|RUN");
  auto* batch = command
                    ->add_option("--batch", options->batches,
                                 "Answers decoded together: T(nB)/T(B) in place of T(n)/T(1)")
                    ->delimiter(',')
                    ->check(CLI::Range(1, 1024));
  auto* confirm =
      command
          ->add_option("--confirm", options->confirm,
                       "Run with measured arms to hold predictions against; may be the same run")
          ->type_name("RUN2")
          ->excludes(arm)
          ->excludes(lengths)
          ->excludes(trees)
          ->excludes(cost)
          ->excludes(batch);
  auto* nodes = command->add_flag("--nodes", options->nodes,
                                  "Hit rate of every place of the draft trees, waste, best trees");
  nodes->excludes(confirm)->excludes(lengths)->excludes(trees)->excludes(cost)->excludes(batch);
  command->add_option("--budget", options->budget, "With --nodes: nodes of the largest tree")
      ->check(CLI::Range(1, 512))
      ->capture_default_str()
      ->needs(nodes);
  auto* acceptance = command->add_flag(
      "--acceptance", options->acceptance,
      "How drafts fared: along the answer, by depth (refused, not drafted), by where steps began");
  auto* oracle = command->add_flag(
      "--oracle", options->oracle,
      "What perfect choices of the draft's length and of the drafter would have given");
  for (CLI::Option* look_back : {acceptance, oracle})
    look_back->excludes(confirm)
        ->excludes(lengths)
        ->excludes(trees)
        ->excludes(cost)
        ->excludes(batch)
        ->excludes(nodes);
  oracle->excludes(arm);
  using reports::Format;
  options->output.add_format(
      *command, {Format::kText, Format::kMarkdown, Format::kCsv, Format::kJson, Format::kLatex});
  command->footer(
      "Walks the stored answers once more in steps of other drafts: no model is read, nothing is\n"
      "run. What is assumed, and how far it was off: docs/predict.md.\n\n"
      "Examples:\n"
      "  evalrun predict                                   # shorter drafts for every arm\n"
      "  evalrun predict before --arm pld --k 1..8 --batch 1,4,16\n"
      "  evalrun predict --arm medusa:tree=mc_sim_7b_63 --tree 0+00+1,chain:3\n"
      "  evalrun predict --cost server-cost.json\n"
      "  evalrun cost --shape llama-2-7b --dtype q4 --json > 7b.json; evalrun predict --cost "
      "7b.json\n"
      "  evalrun predict long --confirm short              # predicted and measured\n"
      "  evalrun predict --nodes --budget 32               # which tree?\n"
      "  evalrun predict --acceptance --arm pld            # where are drafts refused?\n"
      "  evalrun predict --oracle                          # how far from perfect choices?");
  command->callback([options, &context] { Predict(*options, context.global).run(); });
}

}  // namespace evalrun::cli
