// Text files of every kind `evalrun corpus build` takes, document by document.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::cli {

// Runs of blanks (spaces, tabs, control characters) become one space, none at the ends of a line;
// runs of empty lines become one, none at the ends of the text; line ends become \n. For prose:
// source code loses its indentation.
std::string collapse_blanks(std::string_view text);

struct CorpusInput {
  std::vector<std::string> fields;  // of JSON Lines; empty = every string value
  bool raw = false;                 // leave the text alone
};

// Whether a file of this name is read line by line; standard input, "-", when fields are given.
bool is_json_lines(std::string_view path, const CorpusInput& input);

// Calls `visit` for each document of a file: the whole of a text file, each line of JSON Lines.
// Gzip is seen by content. Throws data_error naming file, line and field.
void for_each_document(const std::string& path, const CorpusInput& input,
                       const std::function<void(const std::string& text)>& visit);

}  // namespace evalrun::cli
