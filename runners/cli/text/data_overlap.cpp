#include "runners/cli/text/data_overlap.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "datasets/overlap.h"
#include "datasets/spec.h"
#include "engine/base/text.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

using datasets::OverlapReport;
using datasets::PromptGrams;

struct OverlapArguments {
  std::vector<std::string> files;
  std::string tasks, data_root, out;
};

double share_of(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::vector<std::string> checked_task_list(const std::string& list) {
  std::vector<std::string> tasks;
  try {
    for (const std::string& task : datasets::split_dataset_list(list))
      tasks.push_back(datasets::checked_dataset_spec(task));
  } catch (const base::Error& e) {
    throw base::Error(e.code(), "--tasks: " + e.message(), e.hint());
  }
  return tasks;
}

// The lines that overlap with nothing, in a file that is there as a whole or not at all.
class CleanLines {
 public:
  explicit CleanLines(const OverlapArguments& o) : path_(o.out), partial_(o.out + ".tmp") {
    if (!wanted()) return;
    if (o.files.size() != 1 || !datasets::is_lines_of_json(o.files[0]))
      throw base::usage_error("--out writes the lines of one .jsonl file",
                              "name one such file, or leave --out away");
    stream_.open(partial_, std::ios::binary);
    if (!stream_)
      throw base::usage_error(fmt::format("--out {}: {}", path_, std::strerror(errno)),
                              "give a file in a folder that you may write to");
  }
  ~CleanLines() {
    std::error_code ignored;
    if (wanted()) std::filesystem::remove(partial_, ignored);
  }
  CleanLines(const CleanLines&) = delete;
  CleanLines& operator=(const CleanLines&) = delete;

  bool wanted() const { return !path_.empty(); }
  void add(std::string_view line, bool overlaps) {
    if (!overlaps) stream_ << line << '\n';
  }
  void finish() {
    stream_.close();
    std::error_code error;
    if (stream_) std::filesystem::rename(partial_, path_, error);
    if (!stream_ || error)
      throw base::data_error(path_, "", "cannot be written", "free some space, or name another");
  }

 private:
  std::string path_, partial_;
  std::ofstream stream_;
};

nlohmann::ordered_json overlap_document(const PromptGrams& grams,
                                        const std::vector<std::string>& missing,
                                        const std::vector<OverlapReport>& reports) {
  nlohmann::ordered_json document;
  document["gram_words"] = datasets::kGramWords;
  document["sets"] = nlohmann::ordered_json::array();
  for (const PromptGrams::Set& set : grams.sets())
    document["sets"].push_back(
        {{"set", set.name}, {"prompts", set.n_prompts}, {"verification", set.verification}});
  document["not_there"] = missing;
  document["texts"] = nlohmann::ordered_json::array();
  for (const OverlapReport& report : reports) {
    nlohmann::ordered_json text;
    text["file"] = report.file;
    text["sha256"] = report.sha256;
    text["documents"] = report.n_documents;
    text["words"] = report.n_words;
    text["overlapping_documents"] = report.n_overlapping;
    text["sets"] = nlohmann::ordered_json::array();
    for (size_t s = 0; s < grams.sets().size(); ++s) {
      const PromptGrams::Set& set = grams.sets()[s];
      text["sets"].push_back({{"set", set.name},
                              {"prompts", set.n_prompts},
                              {"overlapping", report.prompts[s]},
                              {"share", share_of(report.prompts[s], set.n_prompts)}});
    }
    text["examples"] = nlohmann::ordered_json::array();
    for (const datasets::OverlapExample& example : report.examples)
      text["examples"].push_back(
          {{"line", example.line}, {"set", example.set}, {"prompt", example.prompt}});
    document["texts"].push_back(std::move(text));
  }
  return document;
}

void print_overlap(const PromptGrams& grams, const OverlapReport& report) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> clean;
  for (size_t s = 0; s < grams.sets().size(); ++s) {
    const PromptGrams::Set& set = grams.sets()[s];
    if (report.prompts[s] == 0) {
      clean.push_back(set.name);
      continue;
    }
    rows.push_back({set.name, std::to_string(report.prompts[s]), std::to_string(set.n_prompts),
                    fmt::format("{:.1f} %", 100 * share_of(report.prompts[s], set.n_prompts))});
  }
  print_line(fmt::format("{}: {}, {}; {} with prompts of evaluation sets", report.file,
                         base::plural(report.n_documents, "document"),
                         base::plural(report.n_words, "word"), report.n_overlapping));
  if (!rows.empty())
    print_line(aligned_table({"set", "prompts that overlap", "of", "share"}, rows));
  for (const datasets::OverlapExample& example : report.examples)
    print_line(example.line > 0 ? fmt::format("  line {}: {}", example.line, example.prompt)
                                : fmt::format("  {}", example.prompt));
  if (!clean.empty()) print_line(fmt::format("no prompt of {}\n", fmt::join(clean, ", ")));
}

void run_overlap(const OverlapArguments& o, const GlobalOptions& global) {
  const std::string root = datasets::resolve_data_root(o.data_root);
  std::vector<std::string> missing;
  const std::vector<std::string> tasks =
      o.tasks.empty() ? datasets::present_datasets(root, missing) : checked_task_list(o.tasks);
  CleanLines clean(o);
  PromptGrams grams;
  for (const std::string& task : tasks) grams.add(datasets::load_dataset(task, root));
  grams.finish();
  std::vector<OverlapReport> reports;
  for (const std::string& file : o.files)
    reports.push_back(
        datasets::find_overlap(file, grams, [&](std::string_view line, bool overlaps) {
          if (clean.wanted()) clean.add(line, overlaps);
        }));
  if (clean.wanted()) clean.finish();
  if (global.json) return print_json_document(overlap_document(grams, missing, reports));
  for (const OverlapReport& report : reports) print_overlap(grams, report);
  if (!missing.empty())
    print_line(fmt::format("not compared, because no file is there: {}", fmt::join(missing, ", ")));
  if (clean.wanted())
    print_line(fmt::format("{}: {}, without the {} that overlap", o.out,
                           base::plural(reports[0].n_documents - reports[0].n_overlapping, "line"),
                           reports[0].n_overlapping));
}

}  // namespace

void add_data_overlap_command(CLI::App& data, Context& context) {
  auto* command =
      data.add_subcommand("overlap", "Prompts of evaluation sets that stand in a training text");
  auto options = std::make_shared<OverlapArguments>();
  OverlapArguments& o = *options;
  command
      ->add_option("files", o.files,
                   "Prompt lists (.jsonl, every string of a line is looked at) and plain texts, "
                   "either gzipped")
      ->required();
  command->add_option("--tasks", o.tasks,
                      "Sets to compare with, e.g. gsm8k,jsonl:FILE (default: every registered set "
                      "whose file is there)");
  add_data_root(*command, o.data_root);
  command->add_option("--out", o.out, "Write the lines that overlap with nothing (one .jsonl file)")
      ->type_name("FILE");
  command->footer(
      "A prompt overlaps if 13 of its words in a row stand in the text, in lower case and without\n"
      "punctuation. docs/datasets.md, \"Overlap\", has the details and the measured table.\n\n"
      "Examples:\n"
      "  evalrun data overlap prompts.jsonl --data-root ~/data\n"
      "  evalrun data overlap prompts.jsonl --out clean.jsonl\n"
      "  evalrun data overlap corpus.txt.gz --tasks gsm8k,mt_bench");
  command->callback([options, &context] { run_overlap(*options, context.global); });
}

}  // namespace evalrun::cli
