// The command line: one file per command (runners/cli/cmd_<name>.cpp), one line each in main.cpp.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/model/model.h"
#include "engine/session.h"

namespace evalrun::evaluators {
struct ScoringContext;
}

namespace evalrun::cli {

// Options every command has.
struct GlobalOptions {
  std::string db = "evalrun.db";  // --db, EVALRUN_DB
  bool json = false;
  bool no_color = false;
  int verbosity = 0;  // -v = 1, -q = -1
};

// --dtype when it is not given. What a file's own format resolves `auto` to is stored and shown.
inline constexpr const char* kDefaultDtype = "auto";

// A path of the engine that is compiled for some machines, and what it asks of the processor.
struct IsaInfo {
  std::string name, needs;
};
const std::vector<IsaInfo>& known_isas();
// Throws usage_error: a name nobody knows, or one this processor lacks, each with what there is.
void check_isa(const std::string& isa);

// --device and --reproducible when they are not given.
inline constexpr const char* kDefaultDevice = "cpu";
inline constexpr const char* kDefaultBits = "cross-isa";

// Options of every command that loads a model. What is empty was not named: the default holds, and
// `check` takes the baseline's.
struct ModelOptions {
  std::string model;                         // -m; default: the default model under EVALRUN_HOME
  std::string draft;                         // --draft PATH
  std::optional<std::string> device;         // --device
  std::optional<std::string> dtype;          // --dtype
  std::optional<std::string> draft_dtype;    // --draft-dtype; default: as dtype
  std::optional<std::string> isa;            // --isa, EVALRUN_ISA
  std::optional<std::string> bits;           // --reproducible
  std::optional<std::string> kv_dtype;       // --kv-dtype
  std::optional<int> threads;                // -t; 0 = the default
  std::optional<std::string> chat_template;  // --chat-template NAME|FILE
  // Each registers options on a subcommand; a command takes those that it reads.
  void add(CLI::App& app);                  // all
  void add_without_draft(CLI::App& app);    // all but --draft and --draft-dtype
  void add_without_formats(CLI::App& app);  // all but these and --dtype
  void add_model(CLI::App& app);            // -m alone
  // The model's file or folder, the default one filled in. data_error when it is not there (with
  // how to get it).
  std::string path() const;
  // Throws usage_error for an unknown device or dtype, data_error when the model is not there (with
  // how to get it).
  std::shared_ptr<const engine::Model> load() const;
  std::shared_ptr<const engine::Model> load_draft() const;  // null when --draft was not given
  engine::SessionOptions session_options(int max_tokens) const;
  // Words of a command line that say the same, -m left out.
  std::vector<std::string> words() const;
};
// The same options for a command that takes several values of each: -m again and again, the others
// with commas (--dtype q4,bf16).
struct ModelLists {
  std::vector<std::string> model, device, dtype, isa, bits, kv_dtype;
  std::vector<int> threads;
  std::string draft;
  std::optional<std::string> draft_dtype;
  std::optional<std::string> chat_template;
  void add(CLI::App& app);  // all
};
// --data-root, of every command that reads official data files: a folder that exists.
void add_data_root(CLI::App& app, std::string& data_root);
// Registers what evaluators that run programs can be told.
void add_scoring_options(CLI::App& app, evaluators::ScoringContext& scoring);
void warn_if_unsafe(const evaluators::ScoringContext& scoring);
// "auto (default), or: f32 = ..., bf16 = ..." for --help.
std::string describe_formats();

// The default model, under $EVALRUN_HOME. Throws data_error when neither EVALRUN_HOME nor HOME says
// where that is.
std::string default_model_path();
// A model as suites name it: "default", a path, or a file or folder in $EVALRUN_HOME/models, whose
// ".gguf" may be left out. data_error, with the places looked at, when it is not there.
std::string model_path(const std::string& name);

// Each adds its subcommand; the callback does the work and reports its exit code through
// `exit_code`. Errors are thrown and turned into a message and an exit code in main().
struct Context {
  GlobalOptions global;
  int exit_code = 0;
};
void add_audit_command(CLI::App& app, Context& context);
void add_run_command(CLI::App& app, Context& context);
void add_report_command(CLI::App& app, Context& context);
void add_cluster_command(CLI::App& app, Context& context);
void add_completion_command(CLI::App& app, Context& context);
void add_compare_command(CLI::App& app, Context& context);
void add_corpus_command(CLI::App& app, Context& context);
void add_cost_command(CLI::App& app, Context& context);
void add_capture_command(CLI::App& app, Context& context);
void add_check_command(CLI::App& app, Context& context);
void add_baseline_command(CLI::App& app, Context& context);
void add_score_command(CLI::App& app, Context& context);
void add_judge_command(CLI::App& app, Context& context);
void add_list_command(CLI::App& app, Context& context);
void add_load_command(CLI::App& app, Context& context);
void add_merge_command(CLI::App& app, Context& context);
void add_man_command(CLI::App& app, Context& context);
void add_predict_command(CLI::App& app, Context& context);
void add_show_command(CLI::App& app, Context& context);
void add_verify_command(CLI::App& app, Context& context);
void add_validate_command(CLI::App& app, Context& context);
void add_doctor_command(CLI::App& app, Context& context);
void add_data_command(CLI::App& app, Context& context);
void add_tokenize_command(CLI::App& app, Context& context);
void add_tune_command(CLI::App& app, Context& context);
void add_generate_command(CLI::App& app, Context& context);
void add_perplexity_command(CLI::App& app, Context& context);
void add_serve_command(CLI::App& app, Context& context);

// Of --help: as wide as report_width().
std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace evalrun::cli
