// The command line: one file per command (runners/cli/cmd_<name>.cpp), one line each in main.cpp.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/model/model.h"
#include "engine/session.h"

namespace evalrun::cli {

// Options every command has.
struct GlobalOptions {
  std::string db = "evalrun.db";  // --db, EVALRUN_DB
  bool json = false;
  bool no_color = false;
  int verbosity = 0;  // -v = 1, -q = -1
};

// Options of every command that loads a model. `add` registers them on a subcommand.
struct ModelOptions {
  std::string model;           // -m; default: the default model under EVALRUN_HOME
  std::string draft;           // --draft PATH
  std::string device = "cpu";  // --device
  std::string dtype = "f32";   // --dtype
  std::string isa;             // --isa, EVALRUN_ISA
  int threads = 0;             // -t
  std::string chat_template;   // --chat-template NAME
  void add(CLI::App& app);
  // The model's file or folder, the default one filled in. data_error when it is not there (with
  // how to get it).
  std::string path() const;
  // Throws usage_error for an unknown device or dtype, data_error when the model is not there (with
  // how to get it).
  std::shared_ptr<const engine::Model> load() const;
  std::shared_ptr<const engine::Model> load_draft() const;  // null when --draft was not given
  engine::SessionOptions session_options(int max_tokens) const;
};

// $EVALRUN_HOME, by default ~/.cache/evalrun; and the default model under it.
std::string evalrun_home();
std::string default_model_path();

// Each adds its subcommand; the callback does the work and reports its exit code through
// `exit_code`. Errors are thrown and turned into a message and an exit code in main().
struct Context {
  GlobalOptions global;
  int exit_code = 0;
};
void add_run_command(CLI::App& app, Context& context);
void add_report_command(CLI::App& app, Context& context);
void add_compare_command(CLI::App& app, Context& context);
void add_check_command(CLI::App& app, Context& context);
void add_baseline_command(CLI::App& app, Context& context);
void add_list_command(CLI::App& app, Context& context);
void add_show_command(CLI::App& app, Context& context);
void add_validate_command(CLI::App& app, Context& context);
void add_doctor_command(CLI::App& app, Context& context);
void add_data_command(CLI::App& app, Context& context);
void add_tokenize_command(CLI::App& app, Context& context);
void add_generate_command(CLI::App& app, Context& context);
void add_perplexity_command(CLI::App& app, Context& context);

}  // namespace evalrun::cli
