// Help as wide as the terminal (report_width() in output.h), with the text of CLI11.
#include <CLI/CLI.hpp>
#include <memory>

#include "engine/base/text.h"
#include "reports/document/document.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

constexpr size_t kNarrow = 72;  // below this, descriptions begin near the margin
constexpr size_t kNearMargin = 6;

// `text` in lines of at most `width` columns after an indent; the first line's is `first`.
std::string block(const std::string& text, size_t first, size_t indent, size_t width) {
  std::string out;
  const size_t room = width == 0 ? 0 : width - std::min(width - 1, std::max(first, indent));
  for (const std::string& paragraph : base::split(text, '\n'))
    for (const std::string& line : reports::wrapped(paragraph, room))
      out += std::string(out.empty() ? first : indent, ' ') + line + "\n";
  return out;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  std::string entry(const std::string& name, const std::string& text) const;
};

std::string HelpFormatter::entry(const std::string& name, const std::string& text) const {
  const size_t width = report_width();
  const size_t column = width > 0 && width < kNarrow ? kNearMargin : get_column_width();
  std::string left = block(name, 2, kNearMargin, width);
  if (text.empty()) return left;
  const std::string right = block(text, column, column, width);
  const size_t end = left.size() - 1;  // of its last line, without the line break
  if (left.find('\n') == end && end < column) return left.substr(0, end) + right.substr(end);
  return left + right;
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  // CLI11 leaves two empty lines between groups.
  std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
  for (size_t at = 0; (at = help.find("\n\n\n", at)) != help.npos;) help.erase(at, 1);
  return help;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return entry(make_option_name(option, is_positional) + make_option_opts(option),
               make_option_desc(option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return entry(command->get_display_name(true), command->get_description());
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return block(std::string(base::trim(CLI::Formatter::make_description(app))), 0, 0,
               report_width());
}

std::string HelpFormatter::make_group(std::string group, bool is_positional,
                                      std::vector<const CLI::Option*> options) const {
  std::string out = "\n" + block(group + ":", 0, 0, report_width());
  for (const CLI::Option* option : options) out += make_option(option, is_positional);
  return out;
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  const std::string usage = CLI::Formatter::make_usage(app, std::move(name));
  return block(std::string(base::trim(usage)), 0, kNearMargin, report_width());
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  std::string out;
  for (const std::string& line : base::split(app->get_footer(), '\n')) {
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    out += block(line.substr(indent), indent, indent == 0 ? 0 : indent + 4, report_width());
  }
  return out;
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace evalrun::cli
