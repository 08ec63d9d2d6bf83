// Reading JSON Lines files of prompts: whole file in, one checked object per line out.
//
// Tolerated: one JSON array in place of lines, gzip (by content, not by name), a UTF-8 byte order
// mark, CRLF line ends, blank lines, lines of any length. Everything else that is wrong is a
// data_error naming file, line and field.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "datasets/dataset.h"
#include "datasets/manifest.h"
#include "engine/base/json_fields.h"

namespace evalrun::datasets {

// Inflates gzip bytes (all members of a concatenated file); throws data_error naming `file` when
// they are truncated or damaged. Bytes without the gzip magic are returned as they are.
std::string maybe_gunzip(std::string bytes, const std::string& file);

// One record: `line` counts from 1 as editors do, `row` counts the objects from 0.
struct JsonLine {
  int line = 0;  // in a JSON array: of the record
  int row = 0;
  bool in_array = false;
  std::string place() const { return fmt::format("{} {}", in_array ? "record" : "line", line); }
};

// Calls `visit` for each object in order. `reader` reports fields as "FILE: line 3: field 'turns'
// ...". Throws when there is no object at all. A file that is one JSON array is read too; its
// objects are then reported as "record 3". With `on_error`, what is wrong with a line goes there
// (also what `visit` throws), and the next line is read.
void for_each_json_record(
    std::string_view text, const std::string& file,
    const std::function<void(const JsonLine& at, base::ObjectReader& reader)>& visit,
    const std::function<void(const base::Error&)>& on_error = {});

// Collects prompts and refuses an id that is already there, an empty turn, or no turn.
class PromptList {
 public:
  // `file` names the place in messages.
  void add(const std::string& file, const JsonLine& at, Prompt prompt);
  size_t size() const { return prompts_.size(); }
  std::vector<Prompt> take() { return std::move(prompts_); }

 private:
  std::set<std::string> ids_;
  std::vector<Prompt> prompts_;
};

// A row of a data file becomes a prompt, or nothing when it is not wanted.
using RowReader =
    std::function<std::optional<Prompt>(const JsonLine& at, base::ObjectReader& reader)>;

// Reads `path` (a full path) with `row` into `prompts`. `relative` is the path below the data root,
// by which the manifest knows it; returns what its checksum says, kUnknown when `relative` is "".
FileState read_rows(const std::string& path, const std::string& relative, const RowReader& row,
                    PromptList& prompts);

// Full path of the first of `candidates` (relative to the data root) that exists, and which one it
// is. Throws usage_error without a data root, data_error when none exists; both say how to get it.
struct FoundFile {
  std::string path, relative;
};
FoundFile find_data_file(const DatasetInfo& info, const std::string& data_root,
                         const std::vector<std::string>& candidates);

// The set as read from this file; its verification counts what was wanted of it.
LoadedDataset load_one_file(const DatasetInfo& info, const DatasetSpec& spec, const FoundFile& file,
                            const RowReader& row);

// The usual loader of a set with one official file (info.files[0], or its alternatives) below the
// data root. `reader` is asked once per load for the reader of the spec's rows.
using ReaderForSpec = std::function<RowReader(const DatasetSpec& spec)>;
std::function<LoadedDataset(const std::string&, const DatasetSpec&)> file_loader(
    DatasetInfo info, ReaderForSpec reader);

}  // namespace evalrun::datasets
