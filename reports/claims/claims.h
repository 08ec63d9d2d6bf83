// Published numbers as a table: one row per number that a paper prints, read from a CSV file of the
// user's. Columns and metrics are defined in docs/claims.md.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::reports {

struct Claim {
  size_t line = 0;  // in the file
  std::string paper, place, model, dataset, category, method, config, metric;
  std::string value_text;  // as printed; "" = not stated
  std::optional<double> value, sd;
  std::string unit, hardware, note;
  std::vector<std::string> flags;  // `config`, taken apart at ';'
  std::vector<std::string> tags;   // "doubt=...", "caveat=...", ... before `note`

  // The value of `name=value` in config; nullopt without it.
  std::optional<std::string> option(std::string_view name) const;
  std::optional<int> number(std::string_view name) const;  // a whole number, else nullopt
  // One measured figure, not an end of a range (stat=) or a comparison (versus=).
  bool measured() const;
  // Decoding as the config says it: "greedy", "sampled", or "" where it is not stated.
  std::string decoding() const;
  // Half of a unit in the last printed digit: how far rounding may have moved `value`.
  double rounding() const;
  // "vicuna-7b mt_bench overall eagle1 greedy": everything but paper and place.
  std::string description() const;
};

struct Claims {
  std::string file;
  std::vector<Claim> rows;  // in the order of the file
  std::vector<std::string> papers() const;
};

// Throws data_error naming file, line and column: not UTF-8, a column that is missing, unknown or
// doubled, a row of another length, a bad number, nothing where paper, place or metric must stand,
// two rows with one key (all columns but value, sd, unit and note).
Claims read_claims(const std::string& path);
Claims parse_claims(std::string_view text, const std::string& file);

// The rows of these papers; all of them when none is named. Throws usage_error for an unknown one.
Claims select_papers(const Claims& claims, const std::vector<std::string>& papers);

}  // namespace evalrun::reports
