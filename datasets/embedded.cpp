#include "datasets/embedded.h"

#include "engine/base/error.h"

namespace evalrun::datasets {

std::string_view embedded_text(std::string_view name) {
  for (const base::EmbeddedFile& file : embedded_files())
    if (file.name == name) return file.text;
  EVALRUN_CHECK(false, "no embedded file '{}'", name);
  return {};
}

}  // namespace evalrun::datasets
