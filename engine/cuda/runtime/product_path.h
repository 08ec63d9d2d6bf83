// Which kernels a step takes. EVALRUN_CUDA_PATH says it:
//   portable    those for every GPU; without the setting, too
//   hopper      products by those for compute capability 9.0 alone (kernels/hopper_product.cu)
//   persistent  the layers of small models by one kernel (persistent_path.h), on every GPU
// No CUDA header here: builds without CUDA know the setting, too.
#pragma once
#include <string>
#include <string_view>

namespace evalrun::engine::cuda {

enum class ProductPath { kPortable, kHopper, kPersistent };

// Read from the environment once; tests change it. usage_error for another word.
ProductPath& product_path();
std::string_view name_of(ProductPath path);

// Why a GPU of this compute capability cannot take product_path(); empty when it can.
std::string path_refused(int compute_major, int compute_minor);
inline constexpr std::string_view kPathRemedy =
    "EVALRUN_CUDA_PATH=portable, or without it, works on every GPU";
// usage_error for such a GPU.
void check_product_path(std::string_view gpu, int compute_major, int compute_minor);

}  // namespace evalrun::engine::cuda
