#include "runners/cli/output.h"

#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "runners/cli/cli.h"

namespace evalrun::cli {
namespace {

constexpr size_t kElsewhere = 100;  // in a pipe, a file, a log

}  // namespace

void print_line(std::string_view text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
                       std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
  if (!written)
    throw base::data_error("standard output", "", std::strerror(errno),
                           "the rest of the output is lost; send it to a file with room");
}

bool colour_wanted(bool no_color, int file) {
  const char* set = std::getenv("NO_COLOR");
  return !no_color && (set == nullptr || *set == '\0') && ::isatty(file) != 0;
}

void print_json(const nlohmann::ordered_json& value) {
  print_line(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_json_document(const nlohmann::ordered_json& value) {
  print_line(value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

size_t report_width() {
  if (const char* set = std::getenv("COLUMNS"); set != nullptr && *set != '\0')
    return static_cast<size_t>(std::max(0, std::atoi(set)));
  if (::isatty(STDOUT_FILENO) == 0) return kElsewhere;
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string aligned_table(const std::vector<std::string>& header,
                          const std::vector<std::vector<std::string>>& rows) {
  reports::Table table;
  for (const std::string& name : header) table.columns.push_back({.name = name, .words = true});
  for (const auto& row : rows) table.rows.emplace_back(row.begin(), row.end());
  std::string text = reports::text_of(table, {.width = report_width()});
  text.pop_back();  // print_line ends the last line
  return text;
}

void ReportOutput::add_format(CLI::App& app, const std::vector<reports::Format>& formats) {
  formats_ = formats;
  std::vector<std::string> names;
  for (const reports::Format f : formats)
    names.push_back(reports::format_names()[static_cast<size_t>(f)]);
  app.add_option("-o,--format", format,
                 fmt::format("{}, or a file whose name ends so (page.md)", fmt::join(names, ", ")))
      ->type_name("FORMAT|FILE")
      ->capture_default_str();
}

reports::Format ReportOutput::resolve(const GlobalOptions& global) {
  if (global.json) return reports::Format::kJson;
  std::optional<reports::Format> found = reports::format_named(format);
  if (!found && (found = reports::format_of_file(format))) file = format;
  if (found && std::find(formats_.begin(), formats_.end(), *found) != formats_.end()) return *found;
  std::vector<std::string> names;
  for (const reports::Format f : formats_)
    names.push_back(reports::format_names()[static_cast<size_t>(f)]);
  throw base::usage_error(
      fmt::format("-o: '{}' is no format of this report", format),
      fmt::format("use {}; or a file's name with such an ending", fmt::join(names, ", ")));
}

reports::Layout ReportOutput::layout(const GlobalOptions& global) const {
  if (!file.empty()) return {.width = kElsewhere};
  return {.width = report_width(), .colour = colour_wanted(global.no_color)};
}

void ReportOutput::deliver(const std::string& text) const {
  if (file.empty()) return print_line(base::trim(text));
  base::write_file_atomic(file, text);
  spdlog::info("wrote {}", file);
}

}  // namespace evalrun::cli
