#include "runners/cli/cluster/cluster_words.h"

#include "runners/cli/cli.h"
#include "runners/plan/suite.h"

namespace evalrun::cli {
namespace {

struct RunWordsRead {};

}  // namespace

void check_run_words(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (const std::string name = word.substr(0, word.find('='));
        name == "--db" || name == "--shard" || name == "--copy-to")
      throw base::usage_error(fmt::format("{} is given to each shard by whoever starts it", name),
                              "leave it out");
  CLI::App app("", "evalrun");
  Context unused;
  add_run_command(app, unused);
  const CLI::App& run = *app.get_subcommand("run");
  // All values are read and checked by then, and the command has not begun. Its own callback cannot
  // be replaced: it keeps the values alive.
  app.parse_complete_callback([] { throw RunWordsRead(); });
  std::vector<std::string> all(words.rbegin(), words.rend());  // CLI11: last one first
  all.emplace_back("run");
  try {
    app.parse(all);
  } catch (const RunWordsRead&) {
  } catch (const CLI::ParseError& e) {
    throw base::usage_error(fmt::format("evalrun run: {}", e.what()), "see `evalrun run --help`");
  }
  for (const char* name : {"--plan", "--lock-step"})
    if (run.count(name) > 0)
      throw base::usage_error(fmt::format("{} measures nothing that shards could be", name),
                              "leave it out");
  for (const char* name : {"--model", "--device", "--dtype", "--isa", "--reproducible",
                           "--kv-dtype", "--threads", "--max-new", "--temperature"})
    if (const CLI::Option* option = run.get_option_no_throw(name);
        option != nullptr && option->results().size() > 1)
      throw base::usage_error(
          fmt::format("{} names several values, each a run of its own: shards are of one run",
                      name),
          "submit each into a folder of its own");
  if (const std::string suite = run.get_option("suite")->as<std::string>(); !suite.empty())
    runners::load_suite(suite);
}

}  // namespace evalrun::cli
