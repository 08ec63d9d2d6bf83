// Reports in the formats of a Document, as tests ask for them.
#pragma once
#include <string>

#include "reports/document/document.h"

namespace evalrun::reports {

template <typename Report>
std::string to_text(const Report& r, bool colour = false) {
  return render(document(r), Format::kText, {.colour = colour});
}
template <typename Report>
std::string to_markdown(const Report& r) {
  return render(document(r), Format::kMarkdown);
}
template <typename Report>
std::string to_csv(const Report& r) {
  return render(document(r), Format::kCsv);
}
template <typename Report>
std::string to_latex(const Report& r) {
  return render(document(r), Format::kLatex);
}

}  // namespace evalrun::reports
