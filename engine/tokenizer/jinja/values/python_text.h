// Python's str: its white space, its case, its characters.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::engine::python {

// Characters of UTF-8 text; a byte that is none counts as one.
int64_t length(std::string_view text);
std::vector<std::string_view> characters(std::string_view text);

constexpr bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char32_t c);  // as str.isspace() and str.strip() see it

enum class Side { kLeft, kRight, kBoth };
std::string_view strip(std::string_view text, Side side = Side::kBoth);
std::string_view strip(std::string_view text, std::string_view characters, Side side);

// By runs of white space, and by a separator that is not empty; max < 0 = all.
std::vector<std::string_view> split(std::string_view text, int64_t max);
std::vector<std::string_view> split_right(std::string_view text, int64_t max);
std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t max);
std::vector<std::string_view> split_right(std::string_view text, std::string_view separator,
                                          int64_t max);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// In time that grows with the text alone; npos when `part` does not occur.
size_t find(std::string_view text, std::string_view part, size_t from = 0);
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t max = -1);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);

enum class Class { kAlpha, kDigit, kAlnum, kSpace, kUpper, kLower };
bool is_all(std::string_view text, Class what);  // str.isalpha() and its like

std::string quoted(std::string_view text);  // repr()

}  // namespace evalrun::engine::python
