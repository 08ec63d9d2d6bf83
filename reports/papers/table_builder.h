// A paper's table from the arms of a run: which of them its rows and columns name, measured and
// published cells, notes.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reports/claims/published_vs_measured.h"
#include "reports/papers/budgets.h"
#include "reports/papers/paper_table.h"

namespace evalrun::reports {

// Of one form and model. `reports`: of the whole run, then where the form asks for them of its
// categories and languages. All that is passed must outlive it.
class PaperTableBuilder {
 public:
  PaperTableBuilder(const PaperForm& form, std::string model, const std::vector<Report>& reports,
                    const Claims& claims, const FindingsByLine& findings);
  // Once. Nothing measured: nothing.
  std::optional<PaperTable> build();
  // Of the built table: the arms that were not trained like the others, and how. None where
  // adapters are not what the form compares.
  std::vector<std::string> unlike() const;
  void mark_unlike(PaperTable& table) const;

 private:
  // An arm that a method's patterns name, and its values of the swept parameters.
  struct Entry {
    const ArmInfo* arm = nullptr;
    std::string swept, across;
  };
  // Where the figures of a row, or of a column, come from.
  struct Source {
    size_t method = 0, data = 0;
    const Entry* entry = nullptr;
    std::string swept, across;
  };
  std::vector<Entry> entries_of(const FormMethod& method) const;
  bool with_claims() const { return !claims_.file.empty(); }
  void add_columns();
  void push_column(const PaperColumn& column, const Source& source);
  std::vector<std::string> across_values() const;
  void add_method_rows();
  void add_measured_rows(size_t m);
  // Of the swept parameter, as far as figures are published for them.
  std::vector<std::string> published_values(const FormMethod& method) const;
  void add_data_rows();
  // A published row without a figure is none of the paper's.
  void add_row(PaperRow row, const Source& source);
  // Published columns without a figure.
  void drop_empty_columns();
  const Entry* entry_of(const Source& s) const;
  PaperCell measured_cell(const Source& s, const FormMetric& metric) const;
  static bool is_data(const std::string& dataset, const FormData& wanted);
  bool is_claim(const Claim& c, const std::string& model, const std::string& method,
                const FormData& data, const FormMetric& metric) const;
  PaperCell published_cell(const std::string& model, const Source& s,
                           const FormMetric& metric) const;
  void note_measured(const Source& s, const PaperCell& cell);
  void compare_training();
  void add_notes();

  const PaperForm& form_;
  const std::vector<Report>& reports_;
  const Claims& claims_;
  const FindingsByLine& findings_;
  PaperTable table_;
  std::vector<std::vector<Entry>> entries_;  // by method
  std::vector<Source> columns_;
  std::map<std::string, int64_t> prompts_;  // by data set
  std::vector<const ArmInfo*> arms_;        // that have a cell
  std::vector<const ArmInfo*> compared_;    // these, and the control
  ComparedBudgets budgets_;                 // of the compared
};

}  // namespace evalrun::reports
