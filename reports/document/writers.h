// The writers that render() calls, one file each.
#pragma once
#include <string>

#include "reports/document/document.h"

namespace evalrun::reports {

std::string write_text(const Document& document, const Layout& layout);
std::string write_markdown(const Document& document);
std::string write_csv(const Document& document);
std::string write_latex(const Document& document);
std::string write_html(const Document& document);

}  // namespace evalrun::reports
