#include "runners/cli/cluster/cluster_words.h"

#include "runners/cli/cli.h"
#include "runners/plan/suite.h"

namespace evalrun::cli {

void check_run_words(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (const std::string name = word.substr(0, word.find('='));
        name == "--db" || name == "--shard" || name == "--copy-to")
      throw base::usage_error(fmt::format("{} is given to each shard by whoever starts it", name),
                              "leave it out");
  CLI::App app("", "evalrun");
  Context unused;
  add_run_command(app, unused);
  CLI::App& run = *app.get_subcommand("run");
  run.callback([] {});
  std::vector<std::string> all(words.rbegin(), words.rend());  // CLI11: last one first
  all.emplace_back("run");
  try {
    app.parse(all);
  } catch (const CLI::ParseError& e) {
    throw base::usage_error(fmt::format("evalrun run: {}", e.what()), "see `evalrun run --help`");
  }
  for (const char* name : {"--plan", "--lock-step"})
    if (run.count(name) > 0)
      throw base::usage_error(fmt::format("{} measures nothing that shards could be", name),
                              "leave it out");
  if (const std::string suite = run.get_option("suite")->as<std::string>(); !suite.empty())
    runners::load_suite(suite);
}

}  // namespace evalrun::cli
