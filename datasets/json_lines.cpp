#include "datasets/json_lines.h"

#include <utf8proc.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "datasets/manifest.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::datasets {

namespace {

// Far above any prompt file; keeps a hostile archive from filling the memory.
constexpr size_t kMaxInflatedBytes = size_t{2} << 30;
constexpr const char* kRedownload =
    "fetch the file again (`evalrun data fetch`), or check what wrote it";

// Offset of the first byte that is not UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text) {
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  size_t at = 0;
  while (at < text.size()) {
    if (data[at] < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t codepoint = 0;
    const auto n =
        utf8proc_iterate(data + at, static_cast<utf8proc_ssize_t>(text.size() - at), &codepoint);
    if (n <= 0) return at;
    at += static_cast<size_t>(n);
  }
  return std::string_view::npos;
}

// Line and column, both from 1, of a byte of the file.
std::string place_of(std::string_view text, size_t at, int first_line) {
  const std::string_view before = text.substr(0, at);
  const size_t newline = before.rfind('\n');
  const size_t column = newline == std::string_view::npos ? at + 1 : at - newline;
  return fmt::format("line {}, column {}",
                     first_line + std::count(before.begin(), before.end(), '\n'), column);
}

void check_utf8(std::string_view text, const std::string& file, int first_line) {
  const size_t bad = find_invalid_utf8(text);
  if (bad == std::string_view::npos) return;
  throw base::data_error(file, place_of(text, bad, first_line),
                         fmt::format("byte 0x{:02x} is not UTF-8",
                                     static_cast<unsigned>(static_cast<unsigned char>(text[bad]))),
                         "save the file as UTF-8, e.g. iconv -f latin1 -t utf-8");
}

nlohmann::json parse_line(std::string_view text, const std::string& file, int line) {
  check_utf8(text, file, line);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    throw base::data_error(file, fmt::format("line {}, column {}", line, e.byte),
                           "not valid JSON (one object per line is expected)", kRedownload);
  } catch (const nlohmann::json::out_of_range&) {
    throw base::data_error(file, fmt::format("line {}", line),
                           "holds a number that no double can hold", kRedownload);
  }
}

using RecordVisitor = std::function<void(const JsonLine& at, base::ObjectReader& reader)>;

void for_each_of_array(std::string_view text, const std::string& file, const RecordVisitor& visit) {
  check_utf8(text, file, 1);
  const nlohmann::json array = base::parse_json(text, file);
  JsonLine at{.in_array = true};
  for (const nlohmann::json& value : array) {
    ++at.line;
    base::ObjectReader reader(value, fmt::format("{}: {}", file, at.place()), "");
    visit(at, reader);
    ++at.row;
  }
  if (at.row == 0)
    throw base::data_error(file, "", "is empty (an array without a record)", kRedownload);
}

}  // namespace

std::string maybe_gunzip(std::string bytes, const std::string& file) {
  if (bytes.size() < 2 || bytes[0] != '\x1f' || bytes[1] != '\x8b') return bytes;
  std::string out;
  z_stream stream{};
  EVALRUN_CHECK(inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK);
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, &inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  size_t left = bytes.size();  // avail_in is 32 bits wide
  std::string chunk(1 << 16, '\0');
  while (true) {
    if (stream.avail_in == 0) {
      stream.avail_in = static_cast<uInt>(std::min<size_t>(left, 1 << 30));
      left -= stream.avail_in;
    }
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    const int rc = inflate(&stream, Z_NO_FLUSH);
    out.append(chunk, 0, chunk.size() - stream.avail_out);
    const std::string where = fmt::format("gzip, byte {}", bytes.size() - left - stream.avail_in);
    if (out.size() > kMaxInflatedBytes)
      throw base::data_error(file, where,
                             fmt::format("holds more than {} bytes", kMaxInflatedBytes),
                             "unpack and split the file if it is really meant to be so large");
    const bool at_end = stream.avail_in == 0 && left == 0;
    if (rc == Z_STREAM_END) {
      if (at_end) return out;
      inflateReset(&stream);  // concatenated members are one file
      continue;
    }
    if (rc != Z_OK && rc != Z_BUF_ERROR)
      throw base::data_error(file, where,
                             fmt::format("damaged ({})", stream.msg ? stream.msg : "bad data"),
                             kRedownload);
    if (at_end && stream.avail_out != 0)
      throw base::data_error(file, where, "truncated (the compressed data ends too early)",
                             kRedownload);
  }
}

void for_each_json_record(
    std::string_view text, const std::string& file,
    const std::function<void(const JsonLine& at, base::ObjectReader& reader)>& visit,
    const std::function<void(const base::Error&)>& on_error) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  JsonLine at;
  if (base::trim(text).starts_with('[')) return for_each_of_array(text, file, visit);
  bool found_none = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++at.line;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (base::trim(line).empty()) continue;
    found_none = false;
    try {
      const nlohmann::json value = parse_line(line, file, at.line);
      base::ObjectReader reader(value, fmt::format("{}: {}", file, at.place()), "");
      visit(at, reader);
    } catch (const base::Error& error) {
      if (!on_error) throw;
      on_error(error);
    }
    ++at.row;
  }
  if (found_none)
    throw base::data_error(file, "", "is empty (no line with a JSON object)", kRedownload);
}

void PromptList::add(const std::string& file, const JsonLine& at, Prompt prompt) {
  const std::string where = at.place();
  if (prompt.turns.empty())
    throw base::data_error(file, where, "the prompt has no turn", "give it at least one");
  for (const std::string& turn : prompt.turns)
    if (base::trim(turn).empty())
      throw base::data_error(file, where, fmt::format("prompt '{}' has an empty turn", prompt.id),
                             "remove the line or fill in the text");
  if (!ids_.insert(prompt.id).second)
    throw base::data_error(file, where, fmt::format("id '{}' was used before", prompt.id),
                           "ids name results, so each must be unique in its file");
  prompts_.push_back(std::move(prompt));
}

FileState read_rows(const std::string& path, const std::string& relative, const RowReader& row,
                    PromptList& prompts) {
  std::string bytes = base::read_file(path);
  const FileState state =
      relative.empty() ? FileState::kUnknown : checked_state(path, relative, bytes);
  const std::string text = maybe_gunzip(std::move(bytes), path);
  const size_t before = prompts.size();
  for_each_json_record(text, path, [&](const JsonLine& at, base::ObjectReader& reader) {
    if (std::optional<Prompt> prompt = row(at, reader)) prompts.add(path, at, std::move(*prompt));
  });
  if (prompts.size() == before)
    throw base::data_error(path, "", "holds none of the records that are wanted",
                           "use a more complete file, or choose another part of the set");
  return state;
}

FoundFile find_data_file(const DatasetInfo& info, const std::string& data_root,
                         const std::vector<std::string>& candidates) {
  const std::string& wanted = candidates.front();
  const ManifestFile* entry = find_manifest_file(wanted);
  EVALRUN_CHECK(entry != nullptr, "{} has no manifest entry", wanted);
  const std::string how = entry->fetchable()
                              ? fmt::format("`evalrun data fetch {}` downloads it", entry->dataset)
                              : fmt::format("it has to be put there by hand. {}", entry->note);
  if (data_root.empty())
    throw base::usage_error(
        fmt::format("data set '{}' needs a data root (it reads {})", info.name, wanted),
        "give --data-root DIR or set EVALRUN_DATA; " + how);
  for (const std::string& relative : candidates) {
    const auto path = std::filesystem::path(data_root) / relative;
    if (std::filesystem::exists(path)) return {path.string(), relative};
  }
  throw base::data_error((std::filesystem::path(data_root) / wanted).string(), "",
                         fmt::format("not found; data set '{}' reads it", info.name), how);
}

LoadedDataset load_one_file(const DatasetInfo& info, const DatasetSpec& spec, const FoundFile& file,
                            const RowReader& row) {
  PromptList prompts;
  const FileState state = read_rows(file.path, file.relative, row, prompts);
  LoadedDataset loaded{info, spec.text, prompts.take(), file.path, ""};
  loaded.verification = verification_text(state, loaded.prompts.size(), info.official_count);
  return loaded;
}

std::function<LoadedDataset(const std::string&, const DatasetSpec&)> file_loader(
    DatasetInfo info, ReaderForSpec reader) {
  std::vector<std::string> candidates = {info.files.at(0)};
  candidates.insert(candidates.end(), info.alternatives.begin(), info.alternatives.end());
  return [info = std::move(info), reader = std::move(reader), candidates = std::move(candidates)](
             const std::string& root, const DatasetSpec& spec) {
    return load_one_file(info, spec, find_data_file(info, root, candidates), reader(spec));
  };
}

}  // namespace evalrun::datasets
