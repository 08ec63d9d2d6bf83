// docs/methods.md, written from the registry: what is registered is documented, and nothing else.
#pragma once
#include <string>

namespace evalrun::cli {

// Markdown, ending in one newline.
std::string methods_document();

}  // namespace evalrun::cli
