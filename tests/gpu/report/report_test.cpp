// gpu_report on the emulated device: which kernels its comparisons of bits meet, and what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cuda/kernels/products.h"
#include "tests/gpu/report/markdown.h"
#include "tests/gpu/report/measure.h"

namespace evalrun::engine::gpu_report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// 64 rows of a layer go through wide_product where the matrices are those of a 7B model, and rows
// of all three formats are compared there.
TEST(ComparedShapes, LayersOf7BMeetWideProducts) {
  int compared = 0;
  for (const Shape& shape : report_shapes(false)) {
    if (shape.name.find("7B") == std::string::npos) continue;
    EXPECT_GT(shape.bit_layers, 0) << shape.name;
    ++compared;
    const ModelConfig& c = shape.config;
    const WeightStorage storage = spec_of(shape.format).layers;
    for (const auto& [out, in] :
         {std::pair{c.q_dim() + 2 * c.kv_dim(), c.d_model}, std::pair{c.d_model, c.q_dim()},
          std::pair{2 * c.d_ffn, c.d_model}, std::pair{c.d_model, c.d_ffn}})
      EXPECT_TRUE(cuda::product_geometry(storage, out / 16, in / 32, 64).across)
          << shape.name << ", " << out << " x " << in;
  }
  EXPECT_EQ(compared, 3);
}

// The products that a comparison met are counted from its launches.
TEST(ComparedShapes, KernelsThatWereMetAreNamed) {
  const Shape tiny = report_shapes(true).front();
  const auto model = make_shape_model(tiny, 0, 1, tiny.bit_layers).model;
  Workload work = workload(true);
  work.bit_rows = 17;
  const Deadline deadline(600);
  const int64_t usual = cuda::small_matrix();
  for (const bool all_wide : {false, true}) {
    cuda::small_matrix() = all_wide ? 0 : usual;
    Json result = {{"shape", tiny.name}};
    compare_bits(model, work, deadline, result);
    const Json& bits = result.at("bit_identity");
    EXPECT_EQ(bits.at("equal"), bits.at("compared"));
    const int products = 4 * tiny.bit_layers;
    EXPECT_EQ(bits.at("layer_products").at("wide_product"), all_wide ? products : 0);
    EXPECT_EQ(bits.at("layer_products").at("narrow_product"), all_wide ? 0 : products);
  }
  cuda::small_matrix() = usual;
}

Json report_of(const Json& shapes) {
  return {{"date", "today"},
          {"commit", "none"},
          {"part", "1/1"},
          {"only", ""},
          {"seconds", 1.0},
          {"device", Json::object()},
          {"copy", {{"bytes", 1 << 20}, {"bytes_per_s", 1e12}}},
          {"read", {{"bytes", 1 << 20}, {"bytes_per_s", 1e12}}},
          {"empty_span_us", 1.0},
          {"dense_peak", {{"n", 64}, {"flops_per_s", 0.0}}},
          {"expected_for", {{"multiprocessors", 132}, {"ghz", 1.98}, {"overlap", true}}},
          {"predicted_bits", Json::object()},
          {"shapes", shapes},
          {"not_measured", Json::array()}};
}
Json compared(const char* name, int equal, int wide) {
  return {{"shape", name},
          {"bit_identity",
           {{"rows_of_a_step", 64},
            {"compared", 4160},
            {"equal", equal},
            {"layer_products", {{"narrow_product", 8 - wide}, {"wide_product", wide}}}}}};
}

TEST(ReportText, SaysWhatIsCoveredAndWhatIsNot) {
  const auto text = [](const Json& shape) { return markdown(report_of(Json::array({shape}))); };
  EXPECT_THAT(text(compared("a", 4160, 8)),
              AllOf(HasSubstr("Bit identity: pass**, 4160 of 4160"),
                    HasSubstr("8 by `wide_product`"), Not(HasSubstr("not covered"))));
  EXPECT_THAT(text(compared("a", 4159, 8)), HasSubstr("Bit identity: FAIL**, 4159 of 4160"));
  EXPECT_THAT(text(compared("a", 4160, 0)),
              HasSubstr("`wide_product` in a layer is not covered by this shape"));
  EXPECT_THAT(text({{"shape", "unforeseen"}}), HasSubstr("**Bit identity: not covered.**"));
}

// tests/gpu/run makes the parts one by one and puts them together.
TEST(ReportText, PartsHaveWhatTheyWereMadeFor) {
  Json shape = compared("a", 4160, 8);
  Json bits = report_of(Json::array({shape}));
  for (const char* of_times : {"copy", "read", "empty_span_us", "dense_peak", "expected_for"})
    bits.erase(of_times);
  bits["device"] = {{"GPU", "a GPU"}};
  bits["only"] = "bits";
  EXPECT_THAT(markdown(bits), AllOf(HasSubstr("# GPU report: bits\n"), HasSubstr("4160 of 4160"),
                                    Not(HasSubstr("bandwidth")), Not(HasSubstr("a GPU"))));
  Json times = report_of(Json::array({{{"shape", "a"}, {"layers", 2}, {"distinct_layers", 1}}}));
  times["device"] = {{"GPU", "a GPU"}};
  times["only"] = "times";
  EXPECT_THAT(markdown(times),
              AllOf(HasSubstr("# GPU report: times\n"), HasSubstr("| GPU | a GPU |"),
                    HasSubstr("Copy bandwidth: **1000.0 GB/s**"), HasSubstr("Read bandwidth"),
                    HasSubstr("2 layers, 1 of them distinct"), Not(HasSubstr("Bit identity"))));
}

TEST(ReportText, SaysWhetherBitsAreAsPredicted) {
  Json report = report_of(Json::array());
  Json& p = report["predicted_bits"];
  EXPECT_THAT(markdown(report), Not(HasSubstr("Predicted bits")));
  p = {{"model", "exact"}};
  EXPECT_THAT(markdown(report), HasSubstr("**Predicted bits (exact): none**"));
  p = {{"model", "hopper"},
       {"made_from", "commit x"},
       {"cases", Json::array({{{"case", "a bf16"}, {"compared", 49}, {"equal", 49}},
                              {{"case", "b q4"}, {"compared", 49}, {"equal", 49}}})}};
  EXPECT_THAT(markdown(report),
              AllOf(HasSubstr("(hopper): as predicted**, 98 of 98 rows of 2 of 2 cases."),
                    HasSubstr("Predicted on the emulated device: commit x.")));
  p["cases"][1] = {{"case", "b q4"}, {"compared", 49}, {"equal", 40}, {"first", "row 3, logit 2"}};
  EXPECT_THAT(markdown(report),
              AllOf(HasSubstr("(hopper): OTHERS**, 89 of 98 rows of 2 of 2 cases are as predicted. "
                              "First other: b q4, row 3, logit 2."),
                    HasSubstr("- b q4: 40 of 49 rows as predicted.")));
  p["cases"] =
      Json::array({{{"case", "c"}, {"compared", 0}, {"equal", 0}, {"why_not", "no room"}}});
  EXPECT_THAT(markdown(report), AllOf(HasSubstr("(hopper): not compared**"),
                                      HasSubstr("- c: not compared: no room")));
}

}  // namespace
}  // namespace evalrun::engine::gpu_report
