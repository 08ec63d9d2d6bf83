// evalrun corpus build|info: the texts that retrieval methods draft from. Loads the tokenizer only,
// not the weights.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "engine/base/text.h"
#include "engine/base/units.h"
#include "engine/tokenizer/tokenizer.h"
#include "methods/corpus/corpus_files.h"
#include "runners/cli/cli.h"
#include "runners/cli/load_tokenizer.h"
#include "runners/cli/output.h"
#include "runners/cli/text/corpus_input.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;
using methods::CorpusKind;
namespace fs = std::filesystem;

struct CorpusArguments {
  std::vector<std::string> files;
  ModelOptions model;
  std::string kind, out, name = "default";
  CorpusInput input;
  methods::NgramOptions ngrams;
  bool ngram_options_given = false;
};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A terminal gets one line that is rewritten, anything else a line per file and stage.
class Progress {
 public:
  explicit Progress(const GlobalOptions& global)
      : on_(global.verbosity >= 0), terminal_(::isatty(STDERR_FILENO) != 0) {}
  ~Progress() {
    if (on_ && terminal_) fmt::print(stderr, "\r\x1b[K");
  }
  void stage(const std::string& line) { show(line); }
  void tokens(const std::string& file, uint64_t n) {
    if (!terminal_ || last_.seconds() < 0.25) return;
    show(fmt::format("reading {}: {} tokens so far", file, n));
  }

 private:
  void show(const std::string& line) {
    if (!on_) return;
    fmt::print(stderr, "{}{}{}", terminal_ ? "\r\x1b[K" : "", line, terminal_ ? "" : "\n");
    std::fflush(stderr);
    last_ = Stopwatch();
  }
  bool on_, terminal_;
  Stopwatch last_;
};

// Before minutes of work: the file can be made there.
void check_target(const std::string& path, bool named) {
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : ".";
  std::error_code error;
  if (named) fs::create_directories(folder, error);
  if (!fs::is_directory(folder))
    throw base::data_error(path, "", fmt::format("cannot write: no folder {}", folder.string()),
                           "make it, or choose another place with --out");
  if (::access(folder.c_str(), W_OK) != 0)
    throw base::data_error(path, "",
                           fmt::format("cannot write: no permission for {}", folder.string()),
                           "choose another place with --out");
  if (fs::is_directory(path))
    throw base::data_error(path, "", "cannot write: is a folder", "name a file with --out");
}

methods::CorpusText read_text(const CorpusArguments& o, const engine::Tokenizer& tokenizer,
                              Progress& progress) {
  methods::CorpusText text({tokenizer.vocabulary_hash(), tokenizer.vocab_size()});
  // Names of special tokens in a text are text; a corpus never drafts the tokens themselves.
  engine::EncodeOptions encode;
  encode.parse_special = false;
  for (const std::string& file : o.files) {
    progress.stage("reading " + file);
    for_each_document(file, o.input, [&](const std::string& document) {
      text.add_document(tokenizer.encode(document, encode));
      progress.tokens(file, text.source().tokens);
    });
    text.add_file();
  }
  if (text.source().tokens == 0)
    throw base::data_error(o.files.front(), "", "holds no text",
                           "give text files, or JSON Lines whose fields hold text");
  return text;
}

std::vector<std::vector<std::string>> common_rows(const std::string& path,
                                                  const methods::CorpusInfo& info) {
  return {{"file", path},
          {"kind", methods::to_string(info.kind)},
          {"size", base::format_bytes(info.file_bytes)},
          {"tokens", std::to_string(info.source.tokens)},
          {"documents", std::to_string(info.source.documents)},
          {"files", std::to_string(info.source.files)},
          {"vocabulary", fmt::format("{:.12}, {} ids", info.vocabulary.hash, info.vocabulary.size)},
          {"content", info.content_hash.substr(0, 12)}};
}

Json json_of(const std::string& path, const methods::CorpusInfo& info) {
  return {{"path", path},
          {"kind", methods::to_string(info.kind)},
          {"bytes", info.file_bytes},
          {"tokens", info.source.tokens},
          {"documents", info.source.documents},
          {"files", info.source.files},
          {"vocabulary_hash", info.vocabulary.hash},
          {"vocabulary_size", info.vocabulary.size},
          {"content_hash", info.content_hash}};
}

// What only n-grams have; says nothing about other kinds.
struct NgramReport {
  explicit NgramReport(const std::string& path, const methods::CorpusInfo& info) {
    if (info.kind != CorpusKind::kNgrams) return;
    const methods::NgramCorpus corpus(path);
    const methods::NgramOptions o = corpus.options();
    json = {{"max_key", o.max_key}, {"gram", o.gram}, {"top", o.top}, {"min_count", o.min_count}};
    std::vector<std::vector<std::string>> rows;
    for (int n = 1; n <= corpus.max_key(); ++n) {
      const auto stats = corpus.stats(n);
      rows.push_back({std::to_string(n), std::to_string(stats.keys), std::to_string(stats.grams)});
      json["lengths"].push_back({{"key", n}, {"keys", stats.keys}, {"grams", stats.grams}});
    }
    table = fmt::format("\n{}\n\nat most {} grams of {} tokens per key, each seen {} times or more",
                        aligned_table({"key length", "keys", "grams"}, rows), o.top, o.gram,
                        o.min_count);
  }
  Json json;
  std::string table;
};

void run_build(const CorpusArguments& o, const GlobalOptions& global) {
  const CorpusKind kind = methods::corpus_kind(o.kind);
  if (kind != CorpusKind::kNgrams && o.ngram_options_given)
    throw base::usage_error("--max-key, --gram, --top and --min-count belong to --kind ngrams");
  if (!o.input.fields.empty() && std::none_of(o.files.begin(), o.files.end(), [&](const auto& f) {
        return is_json_lines(f, o.input);
      }))
    throw base::usage_error("--fields is for JSON Lines, and none of the files is one",
                            "name files *.jsonl or *.jsonl.gz, or leave --fields out");
  const auto tokenizer = load_tokenizer(o.model.path());
  const bool named = o.out.empty();
  const std::string path =
      named ? methods::named_corpus_path(o.name, kind,
                                         {tokenizer->vocabulary_hash(), tokenizer->vocab_size()})
            : o.out;
  check_target(path, named);

  methods::CorpusInfo info;
  double read_s = 0, build_s = 0;
  {
    Progress progress(global);
    const Stopwatch reading;
    const methods::CorpusText text = read_text(o, *tokenizer, progress);
    read_s = reading.seconds();
    progress.stage(fmt::format("sorting {} tokens", text.source().tokens));
    const Stopwatch building;
    info = kind == CorpusKind::kNgrams ? methods::build_ngram_corpus(path, text, o.ngrams)
                                       : methods::build_suffix_corpus(path, text);
    build_s = building.seconds();
  }

  const NgramReport ngrams(path, info);
  if (global.json) {
    Json out = json_of(path, info);
    out["tokenize_s"] = read_s;
    out["build_s"] = build_s;
    if (!ngrams.json.is_null()) out["ngrams"] = ngrams.json;
    return print_json_document(out);
  }
  auto rows = common_rows(path, info);
  rows.push_back({"tokenized in", base::format_duration(read_s)});
  rows.push_back({"built in", base::format_duration(build_s)});
  print_line(aligned_table({"corpus", named ? o.name : o.out}, rows));
  if (!ngrams.table.empty()) print_line(ngrams.table);
  if (kind == CorpusKind::kSuffixes)
    print_line(fmt::format("\nuse: --methods rest:datastore={}", named ? o.name
                                                                 : methods::is_corpus_path(path)
                                                                     ? path
                                                                     : "./" + path));
}

// A path, or every corpus of a name, whatever its kind and vocabulary.
std::vector<std::string> paths_of(const std::string& value) {
  if (methods::is_corpus_path(value)) return {value};
  std::vector<std::string> paths;
  const std::string folder = methods::corpus_folder();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string stem = entry.path().stem().string();
    const size_t dash = stem.rfind('-');
    if (dash != std::string::npos && stem.substr(0, dash) == value)
      for (const CorpusKind kind : {CorpusKind::kNgrams, CorpusKind::kSuffixes})
        if (entry.path().extension() == std::string(".") + methods::to_string(kind))
          paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty())
    throw base::usage_error(
        fmt::format("there is no corpus '{}' under {}", value, folder),
        fmt::format("build it: evalrun corpus build FILES... --kind suffixes --name {}; a file is "
                    "given as ./{}",
                    value, value));
  return paths;
}

void run_info(const CorpusArguments& o, const GlobalOptions& global) {
  Json array = Json::array();
  for (const std::string& value : o.files) {
    for (const std::string& path : paths_of(value)) {
      const methods::CorpusFile file(path);
      file.verify();  // throws when damaged
      const NgramReport ngrams(path, file.info());
      Json json = json_of(path, file.info());
      if (!ngrams.json.is_null()) json["ngrams"] = ngrams.json;
      if (!global.json) {
        if (!array.empty()) print_line("");
        auto rows = common_rows(path, file.info());
        rows.back()[1] += ", intact";
        print_line(aligned_table({"corpus", value}, rows));
        if (!ngrams.table.empty()) print_line(ngrams.table);
      }
      array.push_back(std::move(json));
    }
  }
  if (global.json) print_json_document(array);
}

void add_build(CLI::App& command, Context& context) {
  auto options = std::make_shared<CorpusArguments>();
  auto* build = command.add_subcommand("build", "Tokenize text files and make a corpus of them");
  build->add_option("files", options->files, "Text, JSON Lines, either gzipped; - = standard input")
      ->required();
  build
      ->add_option("--kind", options->kind,
                   "suffixes (for rest, pia and sam), or ngrams (for self_draft)")
      ->required();
  build->add_option("-m,--model", options->model.model,
                    "Whose tokenizer: GGUF file or Hugging Face folder (default: SmolLM2-135M)");
  auto* out = build->add_option("--out", options->out, "File to write");
  build
      ->add_option("--name", options->name,
                   "Or: a name under EVALRUN_HOME, for every model its own")
      ->capture_default_str()
      ->excludes(out);
  build
      ->add_option("--fields", options->input.fields,
                   "Fields of JSON Lines to take, with commas (default: all strings)")
      ->delimiter(',')
      ->allow_extra_args(false);
  build->add_flag("--raw", options->input.raw,
                  "Keep every blank (for source code); else runs of them become one");
  const char* group = "N-grams";
  methods::NgramOptions& n = options->ngrams;
  const std::vector<CLI::Option*> given = {
      build->add_option("--max-key", n.max_key, "Longest key, in tokens")
          ->check(CLI::Range(1, methods::kMaxNgramKey)),
      build->add_option("--gram", n.gram, "Tokens of a gram")
          ->check(CLI::Range(1, methods::kMaxGram)),
      build->add_option("--top", n.top, "Grams kept per key")
          ->check(CLI::Range(1, methods::kMaxNgramTop)),
      build->add_option("--min-count", n.min_count, "Least count of a gram that is kept")
          ->check(CLI::Range(1, 1 << 30))};
  for (CLI::Option* option : given) option->capture_default_str()->group(group);
  build->footer(
      "A text file is one document, and so is each line of JSON Lines (*.jsonl; standard input "
      "with\n"
      "--fields). Documents do not run into each other. A corpus belongs to the tokenizer it was "
      "made\n"
      "with. Keep evaluation data out of it. Memory: about 14 bytes a token.\n\nExamples:\n"
      "  evalrun corpus build books/*.txt --kind suffixes\n"
      "  evalrun corpus build code/*.py --raw --kind suffixes --name python\n"
      "  evalrun corpus build chat.jsonl.gz --fields question,answer --kind ngrams --out "
      "chat.ngrams\n"
      "  cat *.txt | evalrun corpus build - --kind ngrams --min-count 3 --name prose");
  build->callback([options, given, &context] {
    for (const CLI::Option* option : given)
      options->ngram_options_given = options->ngram_options_given || option->count() > 0;
    run_build(*options, context.global);
  });
}

}  // namespace

void add_corpus_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("corpus", "Corpora that methods draft from: build, info");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  evalrun corpus build books/*.txt --kind suffixes --name books\n"
      "  evalrun corpus info books\n"
      "  evalrun run --methods rest:datastore=books --tasks samples");
  add_build(*command, context);
  auto options = std::make_shared<CorpusArguments>();
  auto* info = command->add_subcommand("info", "What a corpus holds, and whether it is intact");
  info->add_option("corpus", options->files, "Files or names")->required();
  info->callback([options, &context] { run_info(*options, context.global); });
  info->footer("Reads the whole file and compares its bytes with what was written.");
}

}  // namespace evalrun::cli
