// The form of a paper's table or figure: what its rows and columns are, which arms of ours and
// which published figures meet in a cell, and by which convention. Forms are data,
// reports/papers/*.json:
//
//   paper, title       names of the publication, as --claims files and as people call it
//   metrics            {key: {label, measured, published, unit, decimals, beside_plain}}
//     measured         speedup, tau, accepted_per_step, alpha_share, de, tok_s, rows_per_step,
//                      rougeL or pass (pass@1 of greedy answers, else pass@10): as `evalrun list
//                      metrics`; win, tie or lose: the share of conversations that the judge of
//                      MT-Bench grades higher than, like or lower than the `control` arm's
//     published        metric of a claims file (docs/claims.md)
//     unit             of the paper: "" as it is, "percent", or "gain" (percent above 1)
//     beside_plain     the cell holds plain decoding's figure in brackets as well
//   data               {key: {label, dataset, category}}, as claims files name them
//   tables             [{table, place, caption, suites, decoding, models, models_as, methods, rows,
//                      columns, across, control, equal_budgets}]
//     suites           built-in suites that measure it
//     decoding         "greedy" or "sampled": other arms do not belong
//     models           the paper's, in its order; models_as "rows" (default) or "columns"
//     methods          [{label, arms, published, config, sweep}]; `arms` are labels, "*" for any
//                      value of a parameter, the default included, "+" for any that is named;
//                      `config` what the published figure must say ("*" = the swept value);
//                      `sweep` the parameter whose values become rows
//     rows             data sets, where the columns are methods
//     columns          [{data or method, metrics}]
//     across           a second swept parameter, whose values become columns
//     control          label of the arm that win, tie and lose are against
//     equal_budgets    the table compares adapters: it is refused where they were not trained alike
//                      (budgets.h)
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::reports {

struct FormMetric {
  std::string label, measured, published, unit;
  int decimals = 2;
  bool beside_plain = false;
  bool against_control() const {
    return measured == "win" || measured == "tie" || measured == "lose";
  }
};
struct FormData {
  std::string label, dataset, category;  // category "" = the whole data set
};
struct FormMethod {
  std::string label;
  std::vector<std::string> arms;
  std::string published;
  std::map<std::string, std::string> config;
  std::string sweep;
};
struct FormColumn {
  size_t at = 0;  // of PaperForm::data, or of methods
  std::vector<FormMetric> metrics;
};

struct PaperForm {
  std::string paper, title, table, place, caption, decoding;
  std::vector<std::string> suites, models;
  bool models_as_columns = false;
  std::vector<FormData> data;
  std::vector<FormMethod> methods;
  std::vector<size_t> rows;  // of `data`; empty = the rows are methods
  std::vector<FormColumn> columns;
  std::string across, control;
  bool equal_budgets = false;
  std::string name() const { return paper + ":" + table; }
  bool methods_as_columns() const { return !rows.empty(); }
};

// Throws data_error naming file and field.
std::vector<PaperForm> parse_paper_forms(std::string_view json, const std::string& file);
const std::vector<PaperForm>& paper_forms();  // the built-in ones

// "space": all of a paper; "space:table-1": one. Throws usage_error with the known names.
std::vector<const PaperForm*> find_paper_forms(const std::string& name);

}  // namespace evalrun::reports
