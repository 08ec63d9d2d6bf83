// Small text helpers shared by messages, parsers and reports.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::base {

// Levenshtein distance; used for suggestions only.
int edit_distance(std::string_view a, std::string_view b);

// "did you mean 'medusa'? known: ar, pld, sps" - nearest names first, then the whole list.
std::string suggest(std::string_view unknown, const std::vector<std::string>& known);

// "1 thread", "2 threads", "0 repeats": nouns whose plural takes an s.
std::string plural(int64_t n, std::string_view noun);
std::string with_commas(int64_t n);  // 12345 -> "12,345"

std::vector<std::string> split(std::string_view text, char separator);  // keeps empty pieces
std::string_view trim(std::string_view text);                           // ASCII white space

// Lower-case hex SHA-256 of a byte string / of a whole file (throws data_error if unreadable).
std::string sha256_hex(std::string_view bytes);
std::string sha256_file(const std::string& path);

// Whole file as bytes; throws data_error with the reason when it cannot be read.
std::string read_file(const std::string& path);
// Writes to PATH.tmp and renames, so that a reader sees the old file or the new one, never a part.
void write_file_atomic(const std::string& path, std::string_view bytes);
// The same for bytes that lie in several places, one after the other.
void write_file_atomic(const std::string& path, std::span<const std::string_view> parts);

}  // namespace evalrun::base
