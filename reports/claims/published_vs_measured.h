// Published figures beside the measured ones of a report: the same method and data set, metric by
// metric. Models and hardware are other ones in nearly every case, and every figure says which.
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/stats.h"
#include "reports/claims/claims.h"
#include "reports/figures/report.h"

namespace evalrun::reports {

struct PublishedFigure {
  size_t row = 0;                      // of Report::rows
  Claim claim;                         // as printed
  std::vector<std::string> places;     // where its paper prints it
  std::string metric;                  // the report's name for it: "speedup", "tau(+bonus)", ...
  double published = 0, rounding = 0;  // in the report's unit and convention
  std::string conversion;              // what was done to the printed figure; "" = nothing
  double measured = 0;
  std::optional<base::Interval> interval;  // of `measured`, where the report has one
  std::vector<std::string> findings;       // rules of the audit that flag it

  // Where the published figure, give or take its rounding, lies to the interval: "below", "within"
  // or "above"; "" without one.
  std::string position() const;
};

struct PublishedVsMeasured {
  std::string file;
  std::vector<PublishedFigure> figures;  // by report row, then metric, then the order of the file
  int64_t other_decoding = 0;  // left out: greedy decoding measured and sampling published, or back
};

// What a report's row was measured on, as published tables name it:
// "humaneval_x[python]:prompt=chat" and "humaneval_x / python" are the part "python" of
// humaneval_x. `single` is false for several parts at once.
struct PublishedData {
  std::string dataset;
  std::string part;  // "" = the whole set
  bool single = true;
};
PublishedData published_data(std::string dataset_of_row);

// Rules of the audit by the line of the figures they flag.
using FindingsByLine = std::map<size_t, std::vector<std::string>>;
FindingsByLine findings_by_line(const Claims& claims);

// What the file's papers call a method of evalrun ("eagle" -> "eagle1"); empty where none has it.
const std::vector<std::string>& published_names(const std::string& method);

// Rows of the report without a published counterpart get no figure; neither does the pooled "all".
PublishedVsMeasured compare_with_claims(const Report& report, const Claims& claims);

// A data set's published figures beside the measured ones, their ratio, whose they are; no rows
// where there are none. And what is left out, and how to read it.
Table claims_table(const PublishedVsMeasured& claimed, const Report& report,
                   const std::string& dataset);
void add_claims_intro(const PublishedVsMeasured& claimed, Document& document);
std::vector<std::string> claims_notes(const PublishedVsMeasured& claimed);
// A table per data set, with the notes that belong to it, to follow the report's own.
void add_claims(const PublishedVsMeasured& claimed, const Report& report, Document& document);
// The report's JSON, every row with a list `claims` of its figures.
std::string to_json(const PublishedVsMeasured& claimed, const Report& report);

}  // namespace evalrun::reports
