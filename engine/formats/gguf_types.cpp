#include "engine/formats/gguf_types.h"

#include <fmt/format.h>

#include <vector>

namespace evalrun::engine {
namespace {

// Q8_1 and Q8_K are for inputs of products, never in files. 4 and 5 are of 2023; 31 to 33 and 36 to
// 38 were rows of Q4_0 and IQ4_NL interleaved, which llama.cpp now does at load.
constexpr GgufType kGgufTypes[] = {
    {0, "F32", DType::kF32},
    {1, "F16", DType::kF16},
    {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},
    {4, "Q4_2", {}},
    {5, "Q4_3", {}},
    {6, "Q5_0", DType::kQ5_0},
    {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", DType::kQ2_K},
    {11, "Q3_K", DType::kQ3_K},
    {12, "Q4_K", DType::kQ4_K},
    {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", DType::kIQ2_XXS},
    {17, "IQ2_XS", DType::kIQ2_XS},
    {18, "IQ3_XXS", DType::kIQ3_XXS},
    {19, "IQ1_S", DType::kIQ1_S},
    {20, "IQ4_NL", DType::kIQ4_NL},
    {21, "IQ3_S", DType::kIQ3_S},
    {22, "IQ2_S", DType::kIQ2_S},
    {23, "IQ4_XS", DType::kIQ4_XS},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", DType::kI32},
    {27, "I64", DType::kI64},
    {28, "F64", {}},
    {29, "IQ1_M", DType::kIQ1_M},
    {30, "BF16", DType::kBF16},
    {31, "Q4_0_4_4", {}},
    {32, "Q4_0_4_8", {}},
    {33, "Q4_0_8_8", {}},
    {34, "TQ1_0", DType::kTQ1_0},
    {35, "TQ2_0", DType::kTQ2_0},
    {36, "IQ4_NL_4_4", {}},
    {37, "IQ4_NL_4_8", {}},
    {38, "IQ4_NL_8_8", {}},
    {39, "MXFP4", DType::kMXFP4},
    {40, "NVFP4", DType::kNVFP4},
    {41, "Q1_0", DType::kQ1_0},
};

}  // namespace

const GgufType* gguf_type(uint32_t id) {
  for (const GgufType& type : kGgufTypes)
    if (type.id == id) return &type;
  return nullptr;
}

std::string gguf_types_read() {
  std::vector<std::string_view> names;
  for (const GgufType& type : kGgufTypes)
    if (type.dtype && *type.dtype < DType::kI32) names.push_back(type.name);
  return fmt::format("supported: {}; quantise the model again to one of these",
                     fmt::join(names, ", "));
}

}  // namespace evalrun::engine
