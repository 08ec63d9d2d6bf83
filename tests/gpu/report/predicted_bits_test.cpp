// Predictions of bits on the emulated device: what they cover, that they are found again, and that
// any other bit is named where it is.
#include "tests/gpu/report/predicted_bits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/cuda/kernels/products.h"
#include "tests/gpu/report/shapes.h"

namespace evalrun::engine::gpu_report {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

ComputedCase computed_as(TensorCores how, const BitCase& c) {
  const TensorCores usual = std::exchange(cuda::testing::emulated_tensor_cores(), how);
  ComputedCase computed = compute_bits(c);
  cuda::testing::emulated_tensor_cores() = usual;
  return computed;
}

const BitCase& small_case() {
  static const BitCase c = [] {
    for (BitCase& each : bit_cases(false))
      if (each.name == "mistral bf16") return std::move(each);
    return BitCase{};
  }();
  return c;
}
const ComputedCase& by_hopper() {
  static const ComputedCase c = computed_as(TensorCores::kHopper, small_case());
  return c;
}
const ComputedCase& by_ampere() {
  static const ComputedCase c = computed_as(TensorCores::kAmpere, small_case());
  return c;
}
Predictions predictions() {
  PredictedCase p{small_case().name, by_hopper().inputs, {}};
  p.rows[TensorCores::kHopper] = by_hopper().steps.back();
  p.rows[TensorCores::kAmpere] = by_ampere().steps.back();
  return {"a test", {p}};
}

TEST(PredictedBits, CoverFamiliesFormatsAndLargeLayers) {
  std::set<std::string> names;
  for (const BitCase& c : bit_cases(true)) EXPECT_TRUE(names.insert(c.name).second) << c.name;
  for (const char* family : {"llama", "qwen2", "qwen3", "mistral"})
    for (const WeightFormatSpec& spec : rounded_formats())
      EXPECT_TRUE(names.contains(fmt::format("{} {}", family, spec.name)));
  for (const char* format : {"bf16", "int8", "q4"})
    EXPECT_TRUE(names.contains(std::string("Llama-2-7B layer ") + format));
}

// What rows are computed with in their company changes nothing; what each model of tensor cores
// says, does.
TEST(PredictedBits, AreThoseOfEveryStepByTheirModelAlone) {
  for (const auto& [how, computed] : {std::pair{TensorCores::kHopper, &by_hopper()},
                                      std::pair{TensorCores::kAmpere, &by_ampere()}}) {
    const CaseComparison same =
        compare_with_prediction(small_case(), *computed, predictions(), how);
    EXPECT_THAT(same.why_not, IsEmpty());
    EXPECT_FALSE(same.first) << same.first->text();
    EXPECT_EQ(same.compared, 1 + 2 + 12 + 17 + 17);
    EXPECT_EQ(same.equal, same.compared);
  }
  const CaseComparison other =
      compare_with_prediction(small_case(), by_hopper(), predictions(), TensorCores::kAmpere);
  EXPECT_LT(other.equal, other.compared / 2);
  const ComputedCase exact = computed_as(TensorCores::kExact, small_case());
  EXPECT_LT(compare_with_prediction(small_case(), exact, predictions(), TensorCores::kHopper).equal,
            other.compared / 2);
}

TEST(PredictedBits, ADifferenceIsNamedWhereItIs) {
  const auto compared = [](const Predictions& p) {
    return compare_with_prediction(small_case(), by_hopper(), p, TensorCores::kHopper);
  };
  Predictions p = predictions();
  RowBits& row = p.cases[0].rows[TensorCores::kHopper][14];
  const RowBits right = row;
  row.first[2] ^= 1, row.hash ^= 1;
  CaseComparison result = compared(p);
  EXPECT_EQ(result.equal, result.compared - 2) << "both steps of 17 rows have it";
  ASSERT_TRUE(result.first);
  EXPECT_EQ(result.first->step, "17 rows");
  EXPECT_EQ(result.first->row, 14);
  EXPECT_EQ(result.first->index, 2);
  EXPECT_EQ(result.first->predicted, right.first[2] ^ 1);
  EXPECT_EQ(result.first->found, right.first[2]);
  EXPECT_THAT(result.first->text(),
              HasSubstr(fmt::format("row 14, logit 2: predicted {:08x} (", right.first[2] ^ 1)));
  row = right, row.hash ^= 4;  // a logit after the first four
  result = compared(p);
  ASSERT_TRUE(result.first);
  EXPECT_EQ(result.first->index, -1);
  EXPECT_EQ(result.first->found, right.hash);
  EXPECT_THAT(result.first->text(), HasSubstr("row 14, after its first 4 logits"));
}

TEST(PredictedBits, WhatCannotBeComparedIsNamed) {
  const auto why = [](const Predictions& p) {
    return compare_with_prediction(small_case(), by_hopper(), p, TensorCores::kHopper).why_not;
  };
  Predictions p = predictions();
  p.cases[0].inputs ^= 1;
  EXPECT_THAT(why(p), HasSubstr("weights or angles"));
  p = predictions();
  p.cases[0].name = "another";
  EXPECT_THAT(why(p), HasSubstr("nothing is predicted"));
  p = predictions();
  p.cases[0].rows[TensorCores::kHopper].pop_back();
  EXPECT_THAT(why(p), HasSubstr("16 rows are predicted, not 17"));
}

TEST(PredictedBits, AreReadAsTheyWereWritten) {
  const Predictions p = predictions();
  const std::string text = print_predictions(p);
  const Predictions read = parse_predictions("p.txt", text);
  EXPECT_EQ(read.made_from, p.made_from);
  ASSERT_EQ(read.cases.size(), 1u);
  EXPECT_EQ(read.cases[0].name, p.cases[0].name);
  EXPECT_EQ(read.cases[0].inputs, p.cases[0].inputs);
  EXPECT_EQ(read.cases[0].rows, p.cases[0].rows);
  EXPECT_EQ(print_predictions(read), text);
}

TEST(PredictedBits, BrokenFilesAreRefusedWithTheLine) {
  const auto refused = [](const std::string& text) -> std::string {
    try {
      (void)parse_predictions("p.txt", text);
    } catch (const base::Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string head = "made-from x\ncase 0123456789abcdef a b\n";
  EXPECT_EQ(refused(head), "");
  EXPECT_THAT(refused("case 0123456789abcdef a\n"), HasSubstr("what it was made from"));
  EXPECT_THAT(refused("made-from x\ncase 0123 a\n"), HasSubstr("p.txt: line 2: '0123'"));
  EXPECT_THAT(refused(head + "both 0 0123456789abcdef 00000001 00000002 00000003\n"),
              HasSubstr("line 3: the line ends too early"));
  EXPECT_THAT(refused(head + "both 1 0123456789abcdef 00000001 00000002 00000003 00000004\n"),
              HasSubstr("row 0 is expected"));
  EXPECT_THAT(refused(head + "volta 0 0123456789abcdef 00000001 00000002 00000003 00000004\n"),
              HasSubstr("'volta'"));
  EXPECT_THAT(refused("made-from x\nboth 0 0123456789abcdef 00000001\n"),
              HasSubstr("before the first case"));
}

// The file that gpu_report has: every case by both models, of as many rows as the cases have.
TEST(PredictedBits, TheFileHasEveryCase) {
  ASSERT_EQ(embedded_predictions().size(), 1u);
  const base::EmbeddedFile& file = embedded_predictions().front();
  const Predictions all = parse_predictions(file.name, file.text);
  const std::vector<BitCase> cases = bit_cases(true);
  ASSERT_EQ(all.cases.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(all.cases[i].name, cases[i].name);
    for (const TensorCores how : {TensorCores::kHopper, TensorCores::kAmpere})
      EXPECT_EQ(all.cases[i].rows.at(how).size(), static_cast<size_t>(cases[i].most_rows()));
  }
}

}  // namespace
}  // namespace evalrun::engine::gpu_report
