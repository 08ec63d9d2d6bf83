#include "engine/base/error.h"
#include "reports/document/writers.h"

namespace evalrun::reports {

std::string render(const Document& document, Format format, const Layout& layout) {
  switch (format) {
    case Format::kText:
      return write_text(document, layout);
    case Format::kMarkdown:
      return write_markdown(document);
    case Format::kCsv:
      return write_csv(document);
    case Format::kLatex:
      return write_latex(document);
    case Format::kHtml:
      return write_html(document);
    case Format::kJson:
      break;
  }
  EVALRUN_CHECK(false, "a document has no JSON");
}

}  // namespace evalrun::reports
