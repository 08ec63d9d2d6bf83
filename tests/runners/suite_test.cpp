#include "runners/plan/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "datasets/dataset.h"
#include "engine/base/error.h"
#include "evaluators/evaluator.h"
#include "methods/registration.h"
#include "tests/temp_folder.h"

namespace evalrun::runners {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The message of the usage error that reading (and completing) the text ends in.
std::string error_of(const std::string& text) {
  try {
    Suite suite = parse_suite(text, "mine.json");
    complete_suite(suite, "mine.json");
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage) << e.what();
    return e.what();
  }
  return "no error";
}

TEST(Suite, TemperatureCanBeAList) {
  const Suite s = parse_suite(R"({"tasks": ["samples"], "temperature": [0.5, 1, 0]})", "f.json");
  EXPECT_THAT(s.temperatures, ElementsAre(0.5, 1, 0));
  EXPECT_EQ(s.sampling.temperature, 0.5);
  EXPECT_EQ(to_json(s)["temperature"], nlohmann::json({0.5, 1, 0}));
  for (const char* wrong : {"[]", "[1, 1]", "[\"hot\"]", "\"hot\"", "true"})
    EXPECT_THAT(error_of(fmt::format(R"({{"tasks": ["samples"], "temperature": {}}})", wrong)),
                HasSubstr("temperature"));
  EXPECT_THAT(error_of(R"({"tasks": ["samples"], "temperature": [1, 101]})"), HasSubstr("101"));
}

TEST(Suite, ReadsEveryField) {
  const Suite s = parse_suite(R"({
    "name": "n", "summary": "s", "methods": ["pld:k=4"], "aa": false,
    "tasks": ["gsm8k", {"task": "mt_bench", "limit": 0.5, "max_new": 256,
                        "chat_template": "vicuna"}],
    "max_new": 32, "limit": 7, "max_turns": 1, "repeats": 3, "samples": 2, "temperature": 0.7,
    "top_k": 40, "top_p": 0.9, "seed": 18446744073709551615, "warmup": 2, "warmup_limit_s": 1.5,
    "order": "random", "replay": true, "ignore_eos": true, "kv_cache": false, "evaluators": ["gsm8k_strict"]})",
                              "f.json");
  EXPECT_EQ(s.name, "n");
  EXPECT_EQ(s.summary, "s");
  EXPECT_THAT(s.methods, ElementsAre("pld:k=4"));
  EXPECT_FALSE(s.aa);
  EXPECT_THAT(s.tasks,
              ElementsAre(TaskSpec{"gsm8k", 0, 0}, TaskSpec{"mt_bench", 0.5, 256, "vicuna"}));
  EXPECT_EQ(s.max_new, 32);
  EXPECT_EQ(s.limit, 7);
  EXPECT_EQ(s.max_turns, 1);
  EXPECT_EQ(s.repeats, 3);
  EXPECT_EQ(s.samples, 2);
  EXPECT_EQ(s.sampling, (engine::SamplingParams{0.7, 40, 0.9}));
  EXPECT_EQ(s.seed, 18446744073709551615ull);
  EXPECT_EQ(s.warmup, 2);
  EXPECT_EQ(s.warmup_limit_s, 1.5);
  EXPECT_EQ(s.order, Order::kRandom);
  EXPECT_TRUE(s.replay);
  EXPECT_TRUE(s.ignore_eos);
  EXPECT_FALSE(s.kv_cache);
  EXPECT_TRUE(s.evaluate);
  EXPECT_THAT(s.evaluators, ElementsAre("gsm8k_strict"));
}

std::string spelled(const std::string& method) { return methods::parse_method(method).canonical(); }

TEST(Suite, BracesAreExpandedWhenItIsCompleted) {
  Suite s = parse_suite(R"({"tasks": ["samples"], "methods": ["sps:draft=layers:4,k={1,3}", "ar",
                            "pld:k={2..4..2}"]})",
                        "mine.json");
  complete_suite(s, "mine.json");
  EXPECT_THAT(s.methods, ElementsAre("ar", spelled("sps:draft=layers:4,k=1"),
                                     spelled("sps:draft=layers:4,k=3"), spelled("pld:k=2"),
                                     spelled("pld:k=4")));
}

TEST(Suite, PromptsInPlaceOfASuiteAreNamed) {
  const tests::TempFolder folder;
  folder.write("mine.jsonl", "{\"prompt\": \"x\"}\n");
  try {
    load_suite(folder.file("mine.jsonl"));
    FAIL();
  } catch (const base::Error& e) {
    EXPECT_THAT(e.message(), HasSubstr("prompts are not a suite"));
    EXPECT_THAT(e.hint(), HasSubstr("--tasks " + folder.file("mine.jsonl")));
  }
}

TEST(Suite, ModelsAreSplitIntoRunsOfOne) {
  Suite s = parse_suite(R"({"tasks": ["samples"], "models": ["default", "b.gguf"]})", "f.json");
  complete_suite(s, "f.json");
  const std::vector<Suite> runs = one_per_model(s);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_THAT(runs[1].models, ElementsAre("b.gguf"));
  EXPECT_EQ(to_json(runs[1])["models"], nlohmann::json({"b.gguf"}));
  EXPECT_EQ(to_json(parse_suite(to_json(s).dump(), "stored")), to_json(s));
  // Without the field a suite is one run, and its stored form, and so its key, what it was.
  s.models.clear();
  EXPECT_EQ(one_per_model(s).size(), 1u);
  EXPECT_FALSE(to_json(s).contains("models"));
}

TEST(Suite, TheStoredFormReadsBackAsTheSameSuite) {
  Suite s = parse_suite(R"({"tasks": ["gsm8k", {"task": "samples", "limit": 5}], "warmup": 3,
                            "evaluators": "none", "order": "sequential", "top_k": 5})",
                        "f.json");
  complete_suite(s, "f.json");
  const nlohmann::json stored = to_json(s);
  EXPECT_EQ(to_json(parse_suite(stored.dump(), "stored")), stored);
}

TEST(Suite, ATaskCanNameATemplate) {
  Suite s = parse_suite(R"({"tasks": [{"task": "samples/chat", "chat_template": "llama2-full"},
                                      "samples/math"]})",
                        "f.json");
  complete_suite(s, "f.json");
  const nlohmann::json stored = to_json(s);
  EXPECT_EQ(stored["tasks"][0]["chat_template"], "llama2-full");
  EXPECT_FALSE(stored["tasks"][1].contains("chat_template")) << "other suites keep their keys";
  EXPECT_EQ(to_json(parse_suite(stored.dump(), "stored")), stored);
  EXPECT_THAT(error_of(R"({"tasks": [{"task": "samples", "chat_template": "lama2"}]})"),
              AllOf(HasSubstr("mine.json"), HasSubstr("'tasks[0].chat_template' is 'lama2'"),
                    HasSubstr("did you mean 'llama2'"), HasSubstr("--chat-template FILE")));
  EXPECT_THAT(error_of(R"({"tasks": [{"task": "samples", "chat_template": "mine.jinja"}]})"),
              HasSubstr("no named template"));
  EXPECT_THAT(error_of(R"({"tasks": [{"task": "samples", "chat_template": 3}]})"),
              HasSubstr("tasks[0].chat_template"));
  EXPECT_THAT(error_of(R"({"tasks": [{"task": "samples", "template": "llama2"}]})"),
              HasSubstr("'tasks[0].template'"));
}

// ---- Batches ------------------------------------------------------------------------------------

TEST(Suite, BatchesAreReadSortedAndStored) {
  Suite s = parse_suite(R"({"tasks": ["samples"], "batch": [8, 1, 2], "batch_mode": "continuous",
                            "wave": 16})",
                        "f.json");
  complete_suite(s, "f.json");
  EXPECT_THAT(s.batches.sizes, ElementsAre(1, 2, 8));
  EXPECT_EQ(s.batches.mode, methods::BatchMode::kContinuous);
  EXPECT_EQ(s.batches.wave_size(), 16);
  EXPECT_EQ(s.batches.largest(), 8);
  const nlohmann::json stored = to_json(s);
  EXPECT_EQ(stored["batch"], nlohmann::json({1, 2, 8}));
  EXPECT_EQ(stored["batch_mode"], "continuous");
  EXPECT_EQ(stored["wave"], 16);
  EXPECT_EQ(to_json(parse_suite(stored.dump(), "stored")), stored);
  EXPECT_EQ(describe_batches(s.batches), "batches of 1, 2 and 8 (continuous), waves of 16 prompts");
}

TEST(Suite, WithoutBatchesNothingOfThemIsStored) {
  for (const char* text :
       {R"({"tasks": ["samples"]})", R"({"tasks": ["samples"], "batch": [1]})",
        R"({"tasks": ["samples"], "batch": [1], "batch_mode": "static", "wave": 0})"}) {
    Suite s = parse_suite(text, "f.json");
    complete_suite(s, "f.json");
    EXPECT_TRUE(s.batches.one());
    EXPECT_EQ(s.batches.wave_size(), 1);
    for (const char* field : {"batch", "batch_mode", "wave"})
      EXPECT_FALSE(to_json(s).contains(field)) << field << ": suites keep their keys";
  }
  // A wave changes the order of a run, and so its key.
  Suite s = parse_suite(R"({"tasks": ["samples"], "wave": 5})", "f.json");
  complete_suite(s, "f.json");
  EXPECT_EQ(s.batches.wave_size(), 5);
  EXPECT_EQ(to_json(s)["wave"], 5);
  EXPECT_EQ(describe_batches(s.batches), "batches of 1, waves of 5 prompts");
}

TEST(Suite, AWaveIsAsLongAsItsBatchesNeed) {
  const auto wave = [](std::vector<int> sizes, methods::BatchMode mode, int given) {
    return Batches{.sizes = std::move(sizes), .mode = mode, .wave = given}.wave_size();
  };
  EXPECT_EQ(wave({1}, methods::BatchMode::kStatic, 0), 1);
  EXPECT_EQ(wave({1, 4, 16}, methods::BatchMode::kStatic, 0), 16);
  EXPECT_EQ(wave({1, 4, 16}, methods::BatchMode::kContinuous, 0), 64);
  EXPECT_EQ(wave({4}, methods::BatchMode::kContinuous, 8), 8);
}

TEST(Suite, WrongBatchesAreRefused) {
  const auto error = [](const std::string& fields) {
    return error_of(R"({"tasks": ["samples"], )" + fields + "}");
  };
  const std::string list = "'batch' must be a list of whole numbers from 1 to 64";
  for (const char* wrong : {"4", "[]", "[0]", "[-1]", "[65]", "[1.5]", "[\"4\"]", "[true]", "null",
                            "[18446744073709551615]"})
    EXPECT_THAT(error(fmt::format("\"batch\": {}", wrong)),
                AllOf(HasSubstr("mine.json"), HasSubstr(list)))
        << wrong;
  EXPECT_THAT(error(R"("batch": [2, 4, 2])"),
              AllOf(HasSubstr("mine.json"), HasSubstr("'batch' lists 2 twice")));
  EXPECT_THAT(error(R"("batch": [2], "batch_mode": "contiguous")"),
              AllOf(HasSubstr("mine.json"), HasSubstr("'batch_mode'"), HasSubstr("contiguous"),
                    HasSubstr("did you mean 'continuous'")));
  EXPECT_THAT(error(R"("batch": [2], "batch_mode": 3)"), HasSubstr("'batch_mode'"));
  EXPECT_THAT(error(R"("batch_mode": "continuous")"),
              AllOf(HasSubstr("'batch_mode' is 'continuous'"), HasSubstr("no batch is above 1"),
                    HasSubstr("--batch 1,4")));
  EXPECT_THAT(error(R"("wave": -1)"), AllOf(HasSubstr("mine.json"), HasSubstr("'wave' is -1")));
  EXPECT_THAT(error(R"("wave": "4")"), HasSubstr("'wave' must be an integer"));
  EXPECT_THAT(error(R"("batch": [1, 4, 6], "wave": 8)"),
              AllOf(HasSubstr("'wave': 8 prompts are no whole number of batches of 6"),
                    HasSubstr("--wave 12")));
  EXPECT_THAT(
      error(R"("batch": [2, 3])"),
      AllOf(HasSubstr("3 prompts are no whole number of batches of 2"), HasSubstr("\"wave\": 6")));
  EXPECT_EQ(error(R"("batch": [2, 3], "wave": 6)"), "no error");
  EXPECT_THAT(error(R"("batch": [31, 37, 41, 43, 47], "wave": 31)"), HasSubstr("--batch 1,2,4,8"));
  EXPECT_THAT(error(R"("batches": [2])"), AllOf(HasSubstr("'batches'"), HasSubstr("'batch'")));
}

// What is made for one sequence.
TEST(Suite, BatchesAreRefusedWhereOneSequenceIsDecoded) {
  const auto error = [](const std::string& fields) {
    return error_of(R"({"tasks": ["samples"], )" + fields + "}");
  };
  EXPECT_THAT(error(R"("batch": [1, 2], "replay": true)"),
              AllOf(HasSubstr("mine.json"), HasSubstr("'replay' with batches of 2"),
                    HasSubstr("--batch 1")));
  EXPECT_THAT(error(R"("batch": [4], "kv_cache": false)"),
              AllOf(HasSubstr("mine.json"), HasSubstr("'kv_cache' with batches of 4"),
                    HasSubstr("--no-kv-cache")));
  EXPECT_EQ(error(R"("batch": [1], "kv_cache": false)"), "no error");
}

TEST(Suite, TheSuitesOfBatchesHaveSizesUpToThirtyTwo) {
  for (const char* name : {"batch", "space-batch"}) {
    Suite s = load_suite(name);
    complete_suite(s, name);
    EXPECT_THAT(s.batches.sizes, ElementsAre(1, 2, 4, 8, 16, 32)) << name;
    EXPECT_GE(s.limit, 32) << name << ": a batch must be full";
  }
  // Everything without training that `training-free` has.
  const Suite all = load_suite("training-free"), batch = load_suite("batch");
  EXPECT_EQ(batch.methods, all.methods);
  for (const std::string& method : all.optional_methods)
    EXPECT_THAT(batch.optional_methods, ::testing::Contains(method));
}

TEST(Suite, ArIsPutInFrontAndNamesBecomeCanonical) {
  Suite s = parse_suite(R"({"methods": ["pld:k=4", "ar"], "tasks": ["samples"]})", "f.json");
  complete_suite(s, "f.json");
  ASSERT_EQ(s.methods.size(), 2u);
  EXPECT_EQ(s.methods[0], "ar");
  EXPECT_THAT(s.methods[1], HasSubstr("k=4"));
  EXPECT_THAT(s.methods[1], HasSubstr("ngram="));  // defaults are written out
}

TEST(Suite, ErrorsNameFileAndFieldAndWhatIsKnown) {
  EXPECT_THAT(error_of(R"({"repeat": 3})"),
              AllOf(HasSubstr("mine.json"), HasSubstr("'repeat'"), HasSubstr("'repeats'")));
  EXPECT_THAT(error_of(R"({"tasks": [{"task": "gsm8k", "limits": 3}]})"),
              AllOf(HasSubstr("tasks[0].limits"), HasSubstr("'limit'")));
  EXPECT_THAT(error_of(R"({"repeats": "3"})"), HasSubstr("'repeats' must be an integer"));
  EXPECT_THAT(error_of(R"({"aa": 1})"), HasSubstr("'aa' must be true or false"));
  EXPECT_THAT(error_of(R"({"order": "interleave"})"), HasSubstr("interleaved"));
  EXPECT_THAT(error_of(R"({"warmup": "some"})"), HasSubstr("'warmup'"));
  EXPECT_THAT(error_of(R"({"methods": "pld"})"), HasSubstr("'methods' must be a list"));
  EXPECT_THAT(error_of(R"({"models": "default"})"), HasSubstr("'models' must be a list"));
  EXPECT_THAT(error_of(R"({"tasks": ["samples"], "models": ["a", "b", "a"]})"),
              HasSubstr("'models' lists a twice"));
  EXPECT_THAT(error_of(R"({"tasks": ["samples"], "models": ["a", ""]})"),
              HasSubstr("'models[1]' is empty"));
  EXPECT_THAT(error_of(R"({"seed": -1})"), HasSubstr("'seed' is out of range"));
  EXPECT_THAT(error_of("{"), AllOf(HasSubstr("mine.json"), HasSubstr("line 1")));
  EXPECT_THAT(error_of("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(error_of(R"({"tasks": ["samples"], "methods": ["plt"]})"),
              AllOf(HasSubstr("mine.json"), HasSubstr("'methods'"), HasSubstr("'pld'")));
  EXPECT_THAT(error_of(R"({"tasks": ["samples"], "methods": ["pld", "pld:k=10"]})"),
              HasSubstr("twice"));
  EXPECT_THAT(error_of(R"({"tasks": ["samples"], "methods": ["pld:k={4..6}", "pld:k=5"]})"),
              AllOf(HasSubstr("k=5"), HasSubstr("twice")));
  EXPECT_THAT(error_of(R"({"tasks": ["samples"], "methods": ["pld:k={4..6"]})"),
              AllOf(HasSubstr("mine.json"), HasSubstr("'methods'"), HasSubstr("pld:k={4..6")));
  EXPECT_THAT(
      error_of(
          R"({"tasks": ["samples"], "methods": ["pld:k={1..600}", "pld:ngram=2,k={1..600}"]})"),
      HasSubstr("more than 1000"));
  EXPECT_THAT(error_of(R"({"methods": ["pld"]})"), HasSubstr("no data sets"));
  EXPECT_THAT(error_of(R"({"tasks": ["samples", "samples"]})"), HasSubstr("twice"));
  EXPECT_THAT(error_of(R"({"tasks": ["samples"], "repeats": 0})"), HasSubstr("repeats"));
  EXPECT_THAT(error_of(R"({"tasks": ["samples"], "limit": 2.5})"), HasSubstr("limit"));
  EXPECT_THAT(error_of(R"({"tasks": ["samples"], "top_p": 0})"), HasSubstr("top_p"));
  EXPECT_THAT(error_of(R"({"tasks": ["samples"], "evaluators": ["gsm8k_strickt"]})"),
              HasSubstr("gsm8k_strict"));
  EXPECT_THAT(error_of(R"({"tasks": ["samples"], "replay": true, "temperature": 0.5})"),
              AllOf(HasSubstr("mine.json"), HasSubstr("'replay'"), HasSubstr("temperature 0")));
  EXPECT_EQ(error_of(R"({"tasks": ["samples"], "replay": true})"), "no error");
  for (const char* greedy : {"", R"(, "temperature": 0)", R"(, "temperature": [0])"})
    EXPECT_THAT(error_of(fmt::format(R"({{"tasks": ["samples"], "sampler": "gumbel"{}}})", greedy)),
                AllOf(HasSubstr("mine.json"), HasSubstr("'sampler' is 'gumbel' with temperature 0"),
                      HasSubstr("--sampler inverse")));
  for (const char* sampled : {R"("temperature": 0.5)", R"("temperature": [0, 0.5])"})
    EXPECT_EQ(
        error_of(fmt::format(R"({{"tasks": ["samples"], "sampler": "gumbel", {}}})", sampled)),
        "no error");
  EXPECT_EQ(error_of(R"({"tasks": ["samples"], "sampler": "inverse"})"), "no error");
  EXPECT_EQ(error_of(R"({"tasks": ["samples"]})"), "no error");
}

TEST(Suite, PlantedFaultsAreRefused) {
  EXPECT_THAT(error_of(R"({"faults": {"pld": "slow:10%"}})"), HasSubstr("check --self-test"));
  for (const char* fault : {"slow:10%", "wrong-accept", "miscount"})
    EXPECT_THAT(error_of(R"({"tasks": ["samples"], "methods": [")" + std::string(fault) + "\"]}"),
                HasSubstr("planted fault"));
}

TEST(Suite, BuiltInSuitesAreSoundAndLargeEnough) {
  std::vector<std::string> names;
  bool papers = false;  // last
  for (const BuiltinSuite& builtin : builtin_suites()) {
    names.push_back(builtin.name);
    EXPECT_TRUE(builtin.paper || !papers) << builtin.name;
    papers = builtin.paper;
    EXPECT_EQ(builtin.paper, builtin.name.starts_with("paper-") ||
                                 builtin.name.starts_with("sd-") ||
                                 builtin.name.starts_with("space-"))
        << builtin.name;
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"quick", "ci", "training-free", "paper-self-draft",
                                              "sd-pad", "cache-mismatch", "batch", "space-batch",
                                              "paper-recycling", "paper-suffix", "paper-stand"}));
  for (const std::string& name : names) {
    Suite s = load_suite(name);
    EXPECT_EQ(s.name, name);
    EXPECT_FALSE(s.summary.empty());
    complete_suite(s, name);  // methods, parameters and data sets are known
    if (name != "quick" && name != "ci") continue;
    EXPECT_TRUE(s.aa);
    EXPECT_EQ(s.max_new, 64);
  }
  EXPECT_EQ(load_suite("ci").repeats, 3);
}

// An evaluator that fits no data set of its suite ends the run before it begins.
TEST(Suite, EvaluatorsOfBuiltInSuitesFitTheirDataSets) {
  for (const BuiltinSuite& builtin : builtin_suites()) {
    const Suite suite = load_suite(builtin.name);
    for (const std::string& name : suite.evaluators) {
      if (name == kOwnEvaluators) continue;
      const evaluators::EvaluatorInfo& wanted = evaluators::find_evaluator(name).info;
      const auto fits = [&](const TaskSpec& task) {
        const std::string set = task.task.substr(0, task.task.find_first_of("[:/"));
        const datasets::DatasetInfo& info = datasets::dataset_registry().get(set).info;
        if (wanted.by_model) return !info.evaluators.empty();  // it has references
        return std::any_of(info.evaluators.begin(), info.evaluators.end(), [&](const auto& id) {
          return evaluators::find_evaluator(id).info.name == wanted.name;
        });
      };
      EXPECT_TRUE(!wanted.needs_reference ||
                  std::any_of(suite.tasks.begin(), suite.tasks.end(), fits))
          << builtin.name << ": " << name;
    }
  }
}

TEST(Suite, FullHoldsEveryMethod) {
  const Suite full = load_suite("full");
  std::set<std::string> measured = {"ar", "ar_tuned"};  // the references, there by themselves
  for (const auto* list : {&full.methods, &full.optional_methods})
    for (const std::string& text : *list) measured.insert(methods::parse_method(text).info->name);
  for (const auto& [name, info] : methods::method_registry().entries())
    // No methods: an ablation of a paper, not lossless; and synthetic acceptance.
    if (name != "pad" && !info.needs_answer) {
      EXPECT_TRUE(measured.contains(name)) << name << " is missing in runners/suites/full.json";
    }
}

TEST(Suite, UnknownNamesAreSuggested) {
  try {
    load_suite("quik");
    FAIL() << "no error";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("'quik'"), HasSubstr("did you mean 'quick'")));
  }
}

TEST(Suite, LoadsAFileAndNamesItAfterTheFile) {
  const tests::TempFolder folder;
  const std::string path =
      folder.write("my_suite.json", R"({"tasks": ["samples/math"], "limit": 2})");
  EXPECT_EQ(load_suite(path).name, "my_suite");
}

}  // namespace
}  // namespace evalrun::runners
