#include "engine/cuda/runtime/product_path.h"

#include <cstdlib>

#include "engine/base/error.h"

namespace evalrun::engine::cuda {
namespace {

ProductPath path_of_environment() {
  const char* set = std::getenv("EVALRUN_CUDA_PATH");
  const std::string_view word = set == nullptr ? "" : set;
  for (const ProductPath path :
       {ProductPath::kPortable, ProductPath::kHopper, ProductPath::kPersistent})
    if (word == name_of(path)) return path;
  if (!word.empty())
    throw base::usage_error(fmt::format("EVALRUN_CUDA_PATH={}: unknown", word),
                            "portable, hopper or persistent");
  return ProductPath::kPortable;
}

}  // namespace

ProductPath& product_path() {
  static ProductPath path = path_of_environment();
  return path;
}

std::string_view name_of(ProductPath path) {
  switch (path) {
    case ProductPath::kHopper:
      return "hopper";
    case ProductPath::kPersistent:
      return "persistent";
    case ProductPath::kPortable:
      break;
  }
  return "portable";
}

std::string path_refused(int compute_major, int compute_minor) {
  if (product_path() != ProductPath::kHopper || (compute_major == 9 && compute_minor == 0))
    return {};
  return fmt::format(
      "EVALRUN_CUDA_PATH=hopper needs compute capability 9.0, and this one has {}.{}",
      compute_major, compute_minor);
}

void check_product_path(std::string_view gpu, int compute_major, int compute_minor) {
  const std::string why = path_refused(compute_major, compute_minor);
  if (!why.empty())
    throw base::usage_error(fmt::format("{}: {}", gpu, why), std::string(kPathRemedy));
}

}  // namespace evalrun::engine::cuda
