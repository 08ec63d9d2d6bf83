#include "runners/cli/text/corpus_input.h"

#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "datasets/json_lines.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;  // strings in the order of the file

std::string read_input(const std::string& path) {
  std::string bytes;
  if (path == "-") {
    bytes.assign(std::istreambuf_iterator<char>(std::cin), {});
    if (std::cin.bad()) throw base::data_error("standard input", "", "reading failed");
  } else if (std::filesystem::is_directory(path)) {
    throw base::data_error(path, "", "is a folder", "name the files in it: " + path + "/*");
  } else {
    bytes = base::read_file(path);
  }
  return datasets::maybe_gunzip(std::move(bytes), path);
}

// Every string within `value`, arrays and objects included, joined by line ends.
void join_strings(const Json& value, std::string& text) {
  if (value.is_string()) {
    if (!text.empty()) text += '\n';
    text += value.get_ref<const std::string&>();
  }
  if (value.is_structured())
    for (const Json& part : value) join_strings(part, text);
}

std::string text_of(const Json& object, const CorpusInput& input, const std::string& file,
                    const std::string& line) {
  if (!object.is_object())
    throw base::data_error(file, line,
                           fmt::format("must be a JSON object, not {}", object.type_name()),
                           "each line holds one object in braces");
  std::string text;
  if (input.fields.empty()) join_strings(object, text);
  for (const std::string& field : input.fields) {
    const auto it = object.find(field);
    if (it == object.end()) {
      std::vector<std::string> known;
      for (const auto& [key, value] : object.items()) known.push_back(key);
      throw base::data_error(file, line, fmt::format("field '{}' is missing", field),
                             base::suggest(field, known));
    }
    std::string part;
    join_strings(*it, part);
    if (part.empty() && !it->is_string() && !it->is_array())
      throw base::data_error(
          file, line, fmt::format("field '{}' must hold text, not {}", field, it->type_name()));
    if (!text.empty()) text += '\n';
    text += part;
  }
  return text;
}

}  // namespace

bool is_json_lines(std::string_view path, const CorpusInput& input) {
  if (path == "-") return !input.fields.empty();
  if (path.ends_with(".gz")) path.remove_suffix(3);
  return path.ends_with(".jsonl");
}

std::string collapse_blanks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t newlines = 0;
  bool blank = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n' || c == '\r') {
      newlines += c == '\n' || i + 1 == text.size() || text[i + 1] != '\n';
      blank = false;
    } else if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f') {
      blank = true;
    } else {
      if (!out.empty() && newlines > 0)
        out.append(std::min<size_t>(newlines, 2), '\n');
      else if (!out.empty() && blank)
        out += ' ';
      newlines = 0;
      blank = false;
      out += c;
    }
  }
  return out;
}

void for_each_document(const std::string& path, const CorpusInput& input,
                       const std::function<void(const std::string& text)>& visit) {
  const std::string file = path == "-" ? "standard input" : path;
  std::string text = read_input(path);
  const auto pass_on = [&](const std::string& document) {
    visit(input.raw ? document : collapse_blanks(document));
  };
  if (!is_json_lines(path, input)) return pass_on(text);
  const std::string_view all = text;
  size_t number = 0;
  for (size_t begin = 0; begin < all.size(); ++begin) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    const std::string_view line = all.substr(begin, end - begin);
    begin = end;
    const std::string place = fmt::format("line {}", ++number);
    if (base::trim(line).empty()) continue;
    Json object;
    try {
      object = Json::parse(line);
    } catch (const nlohmann::json::parse_error& e) {
      throw base::data_error(file, fmt::format("{}, column {}", place, e.byte), "not valid JSON",
                             "each line holds one complete JSON object");
    } catch (const nlohmann::json::out_of_range&) {
      throw base::data_error(file, place, "holds a number that no double can hold");
    }
    pass_on(text_of(object, input, file, place));
  }
}

}  // namespace evalrun::cli
