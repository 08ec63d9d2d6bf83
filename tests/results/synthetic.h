// A result store filled without an engine: fixed tokens, steps and times, so that every metric can
// be worked out by hand.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "results/store.h"
#include "tests/temp_folder.h"

namespace evalrun::tests {

// One arm of a synthetic run. Times per step in nanoseconds.
struct SyntheticArm {
  std::string label = "ar";
  std::string method = "ar";
  std::string role = "baseline";
  std::string lossless = "both";
  std::vector<int> accepted = {0};  // accepted tokens per step, repeated in a cycle
  int depth = 0;                    // drafted per step
  int64_t draft_ns = 0, verify_ns = 9'900'000, commit_ns = 0, other_ns = 100'000;
  double temperature = 0;
  std::string fault;
  std::string model_hash = "cafe";
  std::string device = "cpu";
  std::map<std::string, std::string> settings;
  int batch = 1;
};

struct SyntheticRun {
  std::string key = "run";
  std::string label = "synthetic";
  std::string commit = "0123456789ab";
  std::map<std::string, std::string> environment = {{"cpu", "Some CPU"}};
  std::vector<std::string> tasks = {"gsm8k"};
  int prompts_per_task = 4;
  int repeats = 1, samples = 1;
  int tokens = 33;  // of the first prompt; the i-th has 4 i more
  std::string isa = "avx512";
  int threads = 2;
  std::vector<SyntheticArm> arms;
  // Last touch on a generation before it is stored: noise, changed tokens, miscounting, failure.
  std::function<void(results::GenerationRecord&, const SyntheticArm&, int prompt, int repeat,
                     int sample)>
      change;
};

// AR, its A/A twin and "pld:k=4" (accepts 3, 1, 0, 2 in turn of 4 drafted; steps take 12 ms).
std::vector<SyntheticArm> usual_arms();
// After them "ar_tuned" (steps of 8 ms) and "space" (as pld), which decode another model.
std::vector<SyntheticArm> arms_with_a_tuned_target();

results::ArmRecord arm_record(const SyntheticRun& run, const SyntheticArm& arm);
results::PromptRecord prompt_record(const std::string& task, int i);
// Tokens depend on prompt and sample only: every arm and repeat emits the same.
results::GenerationRecord generation(const SyntheticRun& run, const SyntheticArm& arm, int prompt,
                                     int repeat, int sample);
// Stores everything, finishes the run, returns its id.
int64_t fill(results::ResultStore& store, const SyntheticRun& run);
// Takes the layout back to what that version wrote (without its views); the next writer migrates
// it.
void to_version_7(results::ResultStore& store);
// Takes tallies away; after to_version_10() as development builds wrote that version at first.
void without_tallies(results::ResultStore& store);
void to_version_12(results::ResultStore& store);
void to_version_11(results::ResultStore& store);
void to_version_10(results::ResultStore& store);
void to_version_8(results::ResultStore& store);
void to_version_9(results::ResultStore& store);
void to_version_6(results::ResultStore& store);
void to_version_5(results::ResultStore& store);
void to_version_2(results::ResultStore& store);

}  // namespace evalrun::tests
