// Reading JSON Lines files of prompts: whole file in, one checked object per line out.
//
// Tolerated: gzip (by content, not by name), a UTF-8 byte order mark, CRLF line ends, blank lines,
// lines of any length. Everything else that is wrong is a data_error naming file, line and field.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "datasets/dataset.h"
#include "engine/base/json_fields.h"

namespace evalrun::datasets {

// Inflates gzip bytes (all members of a concatenated file); throws data_error naming `file` when
// they are truncated or damaged. Bytes without the gzip magic are returned as they are.
std::string maybe_gunzip(std::string bytes, const std::string& file);

// One line: `line` counts from 1 as editors do, `row` counts the objects from 0.
struct JsonLine {
  int line = 0;
  int row = 0;
};

// Calls `visit` for each object in order. `reader` reports fields as "FILE: line 3: field 'turns'
// ...". Throws when there is no object at all.
void for_each_json_line(
    std::string_view text, const std::string& file,
    const std::function<void(const JsonLine& at, base::ObjectReader& reader)>& visit);

// Collects prompts and refuses an id that is already there, an empty turn, or no turn.
class PromptList {
 public:
  explicit PromptList(std::string file) : file_(std::move(file)) {}
  void add(const JsonLine& at, Prompt prompt);
  std::vector<Prompt> take() { return std::move(prompts_); }

 private:
  std::string file_;
  std::set<std::string> ids_;
  std::vector<Prompt> prompts_;
};

// A row of a data file becomes a prompt.
using RowReader = std::function<Prompt(const JsonLine& at, base::ObjectReader& reader)>;

// Reads `path` (a full path) with `row`; fills prompts, origin and verification. `relative` is the
// path below the data root, by which the manifest knows it, or "" for a file of the user's.
LoadedDataset load_json_lines(const DatasetInfo& info, const std::string& path,
                              const std::string& relative, const RowReader& row);

// The usual loader of a set with one official file (info.file) below the data root. `alternatives`
// are read in order when info.file is not there.
std::function<LoadedDataset(const std::string&)> file_loader(
    DatasetInfo info, RowReader row, std::vector<std::string> alternatives = {});

}  // namespace evalrun::datasets
