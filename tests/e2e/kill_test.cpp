// kill -9 in the middle of suites: single prompts, batches.
#include <gtest/gtest.h>

#include "tests/e2e/kill_and_resume.h"
#include "tests/e2e/program.h"
#include "tests/sample.h"

namespace evalrun::tests {
namespace {

constexpr int kPrompts = 120, kMaxNew = 48;

// Other moments in every run, which together meet more of them than the same 200 did each time; a
// loss that one kill in twenty shows is seen by 95 runs of a hundred. Half a second each.
TEST(Kill, AtRandomMomentsLosesNothing) {
  kill_and_resume({run_arguments(kMaxNew), kPrompts * 3,  // AR, A/A, PLD
                   test_everything() ? 200 : 60});
}

// What has ended of a batch stays, and what has not is decoded again.
TEST(Kill, InTheMiddleOfABatchLosesNothing) {
  for (const char* mode : {"static", "continuous"})
    kill_and_resume({run_arguments(kMaxNew, {"--batch", "1,4", "--batch-mode", mode}),
                     size_t{kPrompts} * 3 * 2, test_everything() ? 100 : 15});
}

}  // namespace
}  // namespace evalrun::tests
