// The largest step of methods, counted by hand. That no step has more rows: lossless_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "methods/faults.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::largest_step_test {
namespace {

using methods::LargestStep;
using testing::ElementsAre;
using testing::IsEmpty;

LargestStep largest_of(const std::string& spec) {
  return build_method(spec, small_model(1))->largest_step();
}
int rows_of(const std::string& spec) { return largest_of(spec).rows; }

TEST(LargestStep, RootAndDraftOfLookups) {
  EXPECT_EQ(rows_of("ar"), 1);
  EXPECT_EQ(rows_of("pad"), 1);
  EXPECT_EQ(rows_of("pld"), 11);
  EXPECT_EQ(rows_of("pld:match=recent,candidates=3,k=4"), 13);
  EXPECT_EQ(rows_of("pia:decoding_length=20"), 20) << "the root included";
  EXPECT_EQ(rows_of("suffix"), 64) << "63 tokens match at most";
  EXPECT_EQ(rows_of("suffix:alpha=4"), 65) << "as many nodes as there may be";
  EXPECT_EQ(rows_of("suffix:alpha=0.5,depth=9"), 5);
  EXPECT_EQ(rows_of("sam"), 16);
  EXPECT_EQ(rows_of("ngram_mod"), 65);
  EXPECT_EQ(rows_of("recycling"), 81) << "as its paper says, and the root";
  EXPECT_EQ(rows_of("recycling:tree=0+1+00"), 4);
  EXPECT_EQ(rows_of("recycling:tree=auto"), 81);
  EXPECT_EQ(rows_of("jacobi:n=6"), 7);
  EXPECT_EQ(rows_of("logitspec:nodes=20"), 20) << "the root included";
  EXPECT_EQ(rows_of("stand:nodes=30"), 31);
  EXPECT_EQ(rows_of("oracle:k=7"), 8);
  EXPECT_THAT(largest_of("pld").draft_rows, IsEmpty());
}

// A window of four rows of W tokens, and G grams of four.
TEST(LargestStep, WindowAndGramsOfLookahead) {
  EXPECT_EQ(rows_of("lookahead:window=15,ngram=5,guesses=15"), 120) << "as its paper says";
  EXPECT_EQ(rows_of("lookahead:window=7,ngram=5,guesses=7"), 56);
  // A narrow window is largest on the way: seven tokens in one row, 2 x 6, 3 x 5, 4 x 4, ... 7 x 1.
  EXPECT_EQ(rows_of("lookahead:window=1,ngram=8,guesses=1"), 16 + 7);
}

TEST(LargestStep, BranchesAndGramsOfSelfDraft) {
  // The staircase: 10 columns of 2 tokens, 9 of 3, 8 of 4, 7 of 5, 6 of 6. 10 grams of 4.
  EXPECT_EQ(rows_of("self_draft"), 1 + 36 + 40);
  // Many pads: 9 columns of 8 or 8 of 9 are more than the last 7 of 10.
  EXPECT_EQ(rows_of("self_draft:branches=7,length=4,pad=8,gram=3"), 1 + 72 + 30);
  EXPECT_EQ(rows_of("self_draft:geometry=paper,branches=3,length=4,gram=3,capacity=5"),
            1 + 12 + 15);
  EXPECT_EQ(rows_of("self_draft:context=false"), 1) << "no corpus either";
}

TEST(LargestStep, ForwardsOfADraftModel) {
  const LargestStep step = largest_of("sps:k=4,draft=layers:1");
  EXPECT_EQ(step.rows, 5);
  EXPECT_THAT(step.draft_rows, ElementsAre(1, 1, 1, 1));
  EXPECT_GT(step.draft_cost, 0.5) << "half of the layers, and the head";
  EXPECT_LT(step.draft_cost, 1);
  EXPECT_EQ(rows_of("sps:k=4,draft=layers:1,schedule=heuristic,k_max=9"), 10);
  EXPECT_EQ(rows_of("self_spec:k=12"), 13);
  const LargestStep paths = largest_of("sps:k=4,draft=layers:1,verify=gbv,paths=3");
  EXPECT_EQ(paths.rows, 13);
  EXPECT_EQ(paths.draft_rows.size(), 10u) << "the root's, and three of each path";
}

TEST(LargestStep, WhatIsAdaptiveHasALimit) {
  const LargestStep step = largest_of("pld:adaptive=true");
  EXPECT_EQ(step.rows, 11);
  EXPECT_DOUBLE_EQ(step.limit, 1.03);
  EXPECT_EQ(largest_of("pld").limit, 0);
}

TEST(LargestStep, APlantedFaultHidesNothing) {
  const auto method = methods::plant_fault(build_method("pld", small_model(1)), "slow:10%");
  EXPECT_EQ(method->largest_step().rows, 11);
}

}  // namespace
}  // namespace evalrun::tests::largest_step_test
