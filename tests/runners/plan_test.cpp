// Plans over a tiny model: prompts, keys, lengths, refusals.
#include "runners/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/devices.h"
#include "runners/plan/estimate.h"
#include "tests/methods/support/adapters.h"
#include "tests/methods/support/fake_session.h"
#include "tests/runners/small_plans.h"

namespace evalrun::runners {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Conversation, LaterTurnsHoldTheModelsAnswers) {
  const auto model = tests::tiny_model(256);
  const Conversation conversation(*model);
  datasets::Prompt prompt;
  prompt.turns = {"one", "two"};
  EXPECT_EQ(conversation.render(prompt, {}), "U:one A:");
  EXPECT_EQ(conversation.render(prompt, {"first"}), "U:one A:first U:two A:");
  prompt.chat = false;
  EXPECT_EQ(conversation.render(prompt, {}), "one");
  EXPECT_EQ(conversation.render(prompt, {"first"}), "onefirsttwo");
}

TEST(Conversation, APromptCanNameItsTemplate) {
  const auto model = tests::tiny_model(256);
  const Conversation conversation(*model);
  datasets::Prompt prompt;
  prompt.turns = {"one", "two"};
  prompt.chat_template = "chatml";
  const std::string later = conversation.render(prompt, {"first"});
  EXPECT_THAT(later, HasSubstr("<|im_start|>user\ntwo<|im_end|>"));
  EXPECT_THAT(later, HasSubstr("first"));
  // Also where the model has no template.
  const tests::ByteTokenizer tokenizer;
  EXPECT_EQ(Conversation(tokenizer, nullptr, "none").render(prompt, {"first"}), later);
  // Raw text has no template.
  prompt.chat = false;
  EXPECT_EQ(conversation.render(prompt, {}), "one");
}

TEST(Conversation, AChatPromptNeedsATemplate) {
  const tests::ByteTokenizer tokenizer;
  const Conversation conversation(tokenizer, nullptr, "unknown Jinja");
  datasets::Prompt prompt;
  prompt.turns = {"one"};
  try {
    conversation.render(prompt, {});
    FAIL() << "no error";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("unknown Jinja"), HasSubstr("--chat-template")));
  }
}

TEST(Conversation, CommonPrefix) {
  const std::vector<int32_t> a = {1, 2, 3}, b = {1, 2, 4, 5};
  EXPECT_EQ(common_prefix(a, b), 2);
  EXPECT_EQ(common_prefix(b, a), 2);
  EXPECT_EQ(common_prefix(a, a), 3);
  EXPECT_EQ(common_prefix({}, a), 0);
}

TEST(Plan, ArmsPromptsAndCapacity) {
  const RunPlan plan = make_plan(request_for(two_prompts()));
  ASSERT_EQ(plan.arms.size(), 3u);
  EXPECT_EQ(plan.arms[0].record.label, "ar");
  EXPECT_EQ(plan.arms[0].record.role, "baseline");
  EXPECT_EQ(plan.arms[1].record.label, "ar (A/A)");
  EXPECT_EQ(plan.arms[1].record.role, "aa");
  EXPECT_EQ(plan.arms[2].record.method, "pld");
  EXPECT_EQ(plan.arms[2].record.role, "method");
  EXPECT_EQ(plan.arms[2].record.model_hash, "h1");
  EXPECT_EQ(plan.arms[2].record.isa, "reference");
  EXPECT_EQ(plan.arms[2].record.max_new, 8);
  EXPECT_GT(plan.arms[2].record.weight_bytes, 0);
  ASSERT_EQ(plan.prompts.size(), 2u);
  EXPECT_EQ(plan.prompts[0].record.id, "a");
  EXPECT_EQ(plan.prompts[0].record.rendered_hash, base::sha256_hex("U:one A:"));
  EXPECT_EQ(plan.prompts[0].first_turn_tokens, 8);
  // "U:one A: U:and two A:" is 21 tokens with an empty answer.
  EXPECT_EQ(plan.prompts[0].least_tokens, 21 + 8);
  EXPECT_EQ(plan.prompts[0].most_tokens, 21 + 16);
  EXPECT_EQ(plan.capacity, 256);  // the whole context: less than the answer and room for 256 rows
  EXPECT_EQ(plan.schedule.size(), 6u);
  EXPECT_EQ(plan.run.suite_json, to_json(plan.suite).dump(2));
  EXPECT_EQ(plan.run.environment.at("model_hash"), "h1");
}

// What `auto` resolved to is what is stored: a run of one format is never resumed with another.
TEST(Plan, TheFormatIsTheModelsOwn) {
  PlanRequest request = request_for(two_prompts());
  const RunPlan plan = make_plan(request);
  EXPECT_EQ(plan.arms[0].record.dtype, "f32");
  request.target = tests::tiny_model(256, "h1", engine::WeightFormat::kInt8);
  const RunPlan other = make_plan(request);
  EXPECT_EQ(other.arms[0].record.dtype, "int8");
  EXPECT_NE(other.arms[0].record.key, plan.arms[0].record.key);
  EXPECT_NE(other.run.key, plan.run.key);
  EXPECT_LT(other.arms[0].record.weight_bytes, plan.arms[0].record.weight_bytes);
}

TEST(Plan, AnArmSaysWhyItsStepsMayVary) {
  PlanRequest request = request_for(two_prompts());
  request.suite.methods = {"ar", "pld:adaptive=true", "self_draft:persist=true"};
  const RunPlan plan = make_plan(request);
  EXPECT_FALSE(plan.arms[0].record.settings.contains("steps"));
  EXPECT_EQ(plan.arms[plan.arms.size() - 2].record.settings.at("steps"), "follow the machine");
  EXPECT_EQ(plan.arms.back().record.settings.at("steps"), "carry state");
}

TEST(Plan, TheDraftModelsFormatIsASettingOfItsOwn) {
  PlanRequest request = request_for(two_prompts());
  request.suite.methods = {"ar", "sps"};
  request.draft = tests::tiny_model(256, "d");
  const RunPlan plan = make_plan(request);
  EXPECT_EQ(plan.arms.back().record.settings.at("draft_dtype"), "f32");
  EXPECT_FALSE(plan.arms.front().record.settings.contains("draft_dtype"));
}

// Bits as if the target were from a file.
std::shared_ptr<const engine::Model> from_a_file_of(int bits) {
  engine::ModelParts parts = tests::tiny_model(256)->parts();
  parts.stored_bits = bits;
  return engine::Model::create(std::move(parts));
}

TEST(Plan, ATargetThatDraftsForItselfSaysHowAndWhetherThatFlattersIt) {
  PlanRequest request = request_for(two_prompts());
  request.suite.methods = {"ar", "sps", "sps:draft=self", "sps:draft=self,draft_dtype=int8"};
  request.suite.aa = false;
  request.draft = tests::tiny_model(256, "d");
  // Bits of the file, and whether the copies in 4 and in 8 bits hold no less.
  for (const auto& [bits, q4, int8] :
       {std::tuple{0, false, false}, {4, true, true}, {8, false, true}, {16, false, false}}) {
    request.target = from_a_file_of(bits);
    const RunPlan plan = make_plan(request);
    ASSERT_EQ(plan.arms.size(), 4u);
    const results::ArmRecord &with_file = plan.arms[1].record, &in_q4 = plan.arms[2].record,
                             &in_int8 = plan.arms[3].record;
    EXPECT_EQ(with_file.draft_hash, "d");
    EXPECT_EQ(in_q4.draft_hash, "") << "another method's draft model";
    EXPECT_EQ(with_file.settings.at("draft_dtype"), "f32");
    EXPECT_EQ(in_q4.settings.at("draft_dtype"), "q4");
    EXPECT_EQ(in_int8.settings.at("draft_dtype"), "int8");
    EXPECT_NE(in_q4.key, in_int8.key);
    EXPECT_FALSE(with_file.settings.contains("flatters")) << bits;
    EXPECT_EQ(in_q4.settings.contains("flatters"), q4) << bits;
    EXPECT_EQ(in_int8.settings.contains("flatters"), int8) << bits;
    EXPECT_GT(in_q4.extra_parameter_bytes, 0);
    EXPECT_LT(in_q4.extra_parameter_bytes, in_int8.extra_parameter_bytes);
    if (q4) {
      EXPECT_EQ(in_q4.settings.at("flatters"), "target's weights are 4-bit");
    }
  }
}

TEST(Plan, DefaultsOfTheEngineAreStoredResolved) {
  PlanRequest request = request_for(two_prompts());
  request.session = {};
  const RunPlan plan = make_plan(request);
  EXPECT_EQ(plan.arms[0].record.isa, engine::available_isas().front());
  EXPECT_EQ(plan.arms[0].record.threads, engine::allowed_cores());
}

TEST(Plan, BuiltInSuitesAreAsLargeAsPromised) {
  for (const auto& [name, prompts, kinds] :
       {std::tuple{"quick", 30u, 6u}, std::tuple{"ci", 24u, 4u}}) {
    PlanRequest request;
    request.suite = load_suite(name);
    request.target = tests::tiny_model(8192);
    complete_suite(request.suite, name);
    const RunPlan plan = make_plan(request);
    std::set<std::string> categories;
    for (const PlannedPrompt& p : plan.prompts) {
      categories.insert(p.record.category);
      EXPECT_EQ(p.max_new, 64);
    }
    EXPECT_EQ(plan.prompts.size(), prompts) << name;
    EXPECT_EQ(categories.size(), kinds) << name;
    EXPECT_EQ(plan.arms.size(), name == std::string("quick") ? 4u : 3u);
  }
}

TEST(Plan, OptionalMethodsThatLackSomethingAreLeftOut) {
  PlanRequest request = request_for(two_prompts());
  request.suite.optional_methods = {"sps:k=3", "pld:k=3", "rest:datastore=none-of-this-name"};
  complete_suite(request.suite, "test");
  const size_t arms = make_plan(request_for(two_prompts())).arms.size();
  const RunPlan plan = make_plan(request);
  ASSERT_EQ(plan.arms.size(), arms + 1);
  EXPECT_EQ(plan.arms.back().record.label, "pld:k=3");
  ASSERT_EQ(plan.left_out.size(), 2u);
  EXPECT_THAT(plan.left_out[0], AllOf(HasSubstr("sps:k=3"), HasSubstr("no draft model was given")));
  EXPECT_THAT(plan.left_out[1], HasSubstr("none-of-this-name"));
}

TEST(Plan, ATunedTargetBringsItsPlainDecodingOnce) {
  const auto target = tests::tiny_model(256);
  const auto adapter = [&](const std::string& kind) {
    const std::string path = folder().file(kind + ".safetensors");
    tests::random_adapter(kind, *target, 7).write(path);
    return "adapter=" + path;
  };
  const std::string tuned = adapter("space_tuned"), unchanged = adapter("space");
  std::vector<std::string> optional;
  const auto plan_of = [&](const std::vector<std::string>& methods) {
    PlanRequest request = request_for(two_prompts());
    request.target = target;
    request.suite.methods = methods;
    request.suite.optional_methods = optional;
    request.suite.aa = false;
    complete_suite(request.suite, "test");
    return make_plan(request);
  };
  const auto names = [](const RunPlan& plan) {
    std::vector<std::string> list;
    for (const PlannedArm& arm : plan.arms) list.push_back(arm.record.method);
    return list;
  };
  const RunPlan plan = plan_of({"pld", "space:k=2," + tuned, "space:k=1," + tuned});
  ASSERT_THAT(names(plan), ElementsAre("ar", "pld", "ar_tuned", "space", "space"));
  EXPECT_EQ(plan.arms[0].model, target);
  EXPECT_EQ(plan.arms[1].model, target);
  EXPECT_EQ(plan.arms[1].record.model_hash, "h1");
  const PlannedArm& plain = plan.arms[2];
  EXPECT_NE(plain.model, target);
  EXPECT_EQ(plain.record.role, "method");
  EXPECT_EQ(plain.record.model, plain.model->config().name);
  EXPECT_THAT(plain.record.model, HasSubstr("tiny tuned by"));
  EXPECT_NE(plain.record.model_hash, "h1");
  EXPECT_EQ(plain.record.weight_bytes, static_cast<int64_t>(plain.model->weight_bytes()));
  for (const size_t i : {3u, 4u}) {
    EXPECT_EQ(plan.arms[i].model, plain.model);
    EXPECT_EQ(plan.arms[i].record.model_hash, plain.record.model_hash);
  }
  // What the user lists is not added a second time, wherever it stands.
  const std::string listed = "ar_tuned:" + tuned, space = "space:k=2," + tuned;
  EXPECT_THAT(names(plan_of({listed, space})), ElementsAre("ar", "ar_tuned", "space"));
  EXPECT_THAT(names(plan_of({space, "pld", listed})),
              ElementsAre("ar", "ar_tuned", "space", "pld"));
  EXPECT_THAT(names(plan_of({listed})), ElementsAre("ar", "ar_tuned"));
  // An adapter that leaves the target as it is.
  const RunPlan same = plan_of({"space:" + unchanged});
  EXPECT_THAT(names(same), ElementsAre("ar", "space"));
  EXPECT_EQ(same.arms[1].model, target);
  // One that cannot be measured leaves nothing behind.
  optional = {"space:k=64," + tuned};
  const RunPlan without = plan_of({"pld"});
  EXPECT_THAT(names(without), ElementsAre("ar", "pld"));
  EXPECT_EQ(without.left_out.size(), 1u);
}

// A long path is no name. What it takes to tell two files apart is one.
TEST(Plan, LabelsHoldAsMuchOfAPathAsTheyNeed) {
  PlanRequest request = request_for(two_prompts());
  std::vector<std::string> methods;
  for (const char* place : {"here/v1", "there/v1", "there/v2"}) {
    std::filesystem::create_directories(folder().file(place));
    for (const char* name : {"heads.safetensors", "other.safetensors"}) {
      if (place != std::string("there/v2") && name[0] == 'o') continue;
      const std::string path = folder().file(std::string(place) + "/" + name);
      tests::random_adapter("medusa", *request.target, 7).write(path);
      methods.push_back("medusa:adapter=" + path);
    }
  }
  request.suite.methods = methods;
  request.suite.aa = false;
  request.faults["medusa:adapter=other.safetensors"] = "slow:10%";
  complete_suite(request.suite, "test");
  const RunPlan plan = make_plan(request);
  std::vector<std::string> labels;
  for (const PlannedArm& arm : plan.arms) labels.push_back(arm.record.label);
  EXPECT_THAT(labels, ElementsAre("ar", "medusa:adapter=here/v1/heads.safetensors",
                                  "medusa:adapter=there/v1/heads.safetensors",
                                  "medusa:adapter=there/v2/heads.safetensors",
                                  "medusa:adapter=other.safetensors"));
  EXPECT_THAT(plan.arms[1].record.params, HasSubstr("adapter=" + folder().path()));
  EXPECT_NE(plan.arms[1].record.key, plan.arms[2].record.key);
  EXPECT_EQ(plan.arms[1].fault, "");
  EXPECT_EQ(plan.arms.back().fault, "slow:10%");
}

// A speedup compares arms that differ in the method alone.
TEST(Plan, AllArmsShareOneEngineMode) {
  const auto target = tests::tiny_model(256);
  const std::string adapter = folder().file("tuned.safetensors");
  tests::random_adapter("space_tuned", *target, 7).write(adapter);
  PlanRequest request = request_for(two_prompts());
  request.target = target;
  request.session.n_threads = 2;
  request.session.kv_dtype = "int8";
  request.suite.kv_cache = false;
  request.suite.replay = true;
  request.suite.methods = {"pld", "lookahead", "sps:draft=layers:1",
                           "space:adapter=" + adapter + ",k=2"};
  complete_suite(request.suite, "test");
  const RunPlan plan = make_plan(request);
  ASSERT_EQ(plan.arms.size(), 7u);
  const auto mode = [](const results::ArmRecord& r) {
    return fmt::format("{} {} {} {} {} {} {} {}", r.dtype, r.isa, r.device, r.threads, r.batch,
                       r.kv_cache, r.settings.at("kv_dtype"), r.settings.at("replay"));
  };
  for (const PlannedArm& arm : plan.arms)
    EXPECT_EQ(mode(arm.record), "f32 reference cpu 2 1 false int8 reference") << arm.record.label;
}

// Two tasks of one run, each with its template and its length.
TEST(Plan, ATaskHasItsTemplateAndLength) {
  const std::string first = two_prompts();
  const std::string second =
      write_prompts("other.jsonl", {R"({"id": "c", "turns": ["one", "and two"]})"});
  PlanRequest request = request_for(first);
  request.suite.tasks.push_back({.task = second, .max_new = 4, .chat_template = "chatml"});
  complete_suite(request.suite, "test");
  const RunPlan plan = make_plan(request);
  ASSERT_EQ(plan.prompts.size(), 3u);
  EXPECT_EQ(plan.prompts[0].record.rendered, "U:one A:");
  EXPECT_EQ(plan.prompts[0].max_new, 8);
  EXPECT_THAT(plan.prompts[2].record.rendered, HasSubstr("<|im_start|>user\none<|im_end|>"));
  EXPECT_EQ(plan.prompts[2].prompt.chat_template, "chatml");
  EXPECT_EQ(plan.prompts[2].max_new, 4);
  const auto& settings = plan.arms[2].record.settings;
  const std::string task = request.suite.tasks[1].task;
  EXPECT_EQ(settings.at("chat_template"), "letters");
  EXPECT_EQ(settings.at("chat_template." + task), "chatml");
  EXPECT_EQ(settings.at("max_new." + task), "4");
  // Arms of another template are other arms, although the first task's prompts are the same.
  request.suite.tasks[1].chat_template = "zephyr";
  const RunPlan other = make_plan(request);
  EXPECT_NE(plan.arms[0].record.key, other.arms[0].record.key);
  EXPECT_EQ(plan.prompts[0].record.key, other.prompts[0].record.key);
  EXPECT_NE(plan.prompts[2].record.key, other.prompts[2].record.key);
}

TEST(Plan, MaxTurnsCutsConversations) {
  PlanRequest request = request_for(two_prompts());
  request.suite.max_turns = 1;
  const RunPlan plan = make_plan(request);
  EXPECT_THAT(plan.prompts[0].record.turns, ElementsAre("one"));
  EXPECT_NE(plan.run.key, make_plan(request_for(two_prompts())).run.key);
}

TEST(Plan, APromptLongerThanTheContextIsNamedOrSkipped) {
  const std::string task = write_prompts(
      "long.jsonl", {R"({"id": "short", "turns": ["hi"]})",
                     R"({"id": "much", "turns": [")" + std::string(250, 'x') + "\"]}"});
  PlanRequest request = request_for(task);
  try {
    make_plan(request);
    FAIL() << "no error";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("much"), HasSubstr("256"), HasSubstr("--skip-long")));
  }
  request.skip_long = true;
  const RunPlan plan = make_plan(request);
  ASSERT_EQ(plan.prompts.size(), 1u);
  ASSERT_EQ(plan.skipped.size(), 1u);
  EXPECT_THAT(plan.skipped[0], HasSubstr("much"));
}

TEST(Plan, RefusesWhatCannotBeMeasured) {
  const auto error_of = [](PlanRequest request) {
    try {
      make_plan(request);
    } catch (const base::Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  PlanRequest request = request_for(two_prompts());
  request.suite.tasks = {{.task = "samples/cat"}};
  EXPECT_THAT(error_of(request), HasSubstr("samples/chat"));
  request = request_for(two_prompts());
  request.suite.evaluators = {"gsm8k_strict"};
  EXPECT_THAT(error_of(request), HasSubstr("fits none of the data sets"));
  request = request_for("samples/math");
  request.target = tests::tiny_model(4096);
  request.suite.tasks.push_back({.task = "samples"});
  EXPECT_THAT(error_of(request), HasSubstr("listed twice"));
  request = request_for(two_prompts());
  request.suite.methods.push_back("sps");  // no second model
  EXPECT_THAT(error_of(request), HasSubstr("--draft"));
}

// What is said of an answer alone fits every data set, what is said of a reference one that has
// any.
TEST(Plan, EvaluatorsFitWhatTheyNeed) {
  PlanRequest request = request_for(two_prompts());
  request.suite.evaluators = {"repeats", "answer_nll", "rare_tokens"};
  const RunPlan plan = make_plan(request);
  for (const PlannedPrompt& prompt : plan.prompts)
    EXPECT_THAT(prompt.evaluators,
                ElementsAre("repeats@evalrun", "answer_nll@evalrun", "rare_tokens@evalrun"));
  request.suite.evaluators = {"repeats", "reference_nll"};
  EXPECT_THROW(make_plan(request), base::Error) << "there is no reference";
  // A set with evaluators of its own, each of which is for some of its prompts.
  PlanRequest math = request_for("samples/math");
  math.target = tests::tiny_model(4096);
  math.suite.evaluators = {"reference_nll", "gsm8k@evalrun", "repeats"};
  for (const PlannedPrompt& prompt : make_plan(math).prompts)
    EXPECT_THAT(prompt.evaluators,
                ElementsAre("reference_nll@evalrun", "gsm8k@evalrun", "repeats@evalrun"));
  // Those of the set, and more.
  math.suite.evaluators = {"auto", "repeats", "gsm8k@evalrun"};
  complete_suite(math.suite, "test");
  for (const PlannedPrompt& prompt : make_plan(math).prompts)
    EXPECT_THAT(prompt.evaluators, ElementsAre("gsm8k@evalrun", "gsm8k_strict@lm-eval-3",
                                               "gsm8k_flexible@lm-eval-3", "repeats@evalrun"));
  EXPECT_EQ(to_json(math.suite)["evaluators"][0], "auto");
}

TEST(Plan, FaultsReachTheirArmAndTheRunKeyOnly) {
  PlanRequest request = request_for(two_prompts());
  const RunPlan sound = make_plan(request);
  request.faults[sound.arms[2].record.label] = "slow:10%";
  const RunPlan faulty = make_plan(request);
  EXPECT_EQ(faulty.arms[0].fault, "");
  EXPECT_EQ(faulty.arms[2].fault, "slow:10%");
  EXPECT_EQ(faulty.arms[2].record.key, sound.arms[2].record.key);
  EXPECT_NE(faulty.run.key, sound.run.key);
  request.faults["nobody"] = "miscount";
  EXPECT_THROW(make_plan(request), base::InternalError);
}

// ---- Keys ---------------------------------------------------------------------------------------

TEST(Keys, EveryFieldOfAnArmThatChangesAFigureChangesItsKey) {
  using results::ArmRecord;
  const std::vector<std::function<void(ArmRecord&)>> changes = {
      [](ArmRecord& a) { a.method = "x"; },
      [](ArmRecord& a) { a.params = "x"; },
      [](ArmRecord& a) { a.method_version = "x"; },
      [](ArmRecord& a) { a.role = "x"; },
      [](ArmRecord& a) { a.model_hash = "x"; },
      [](ArmRecord& a) { a.draft_hash = "x"; },
      [](ArmRecord& a) { a.dtype = "x"; },
      [](ArmRecord& a) { a.isa = "x"; },
      [](ArmRecord& a) { a.device = "x"; },
      [](ArmRecord& a) { a.threads = 9; },
      [](ArmRecord& a) { a.batch = 9; },
      [](ArmRecord& a) { a.kv_cache = false; },
      [](ArmRecord& a) { a.temperature = 0.5; },
      [](ArmRecord& a) { a.top_p = 0.5; },
      [](ArmRecord& a) { a.top_k = 9; },
      [](ArmRecord& a) { a.max_new = 9; },
      [](ArmRecord& a) { a.ignore_eos = true; },
      [](ArmRecord& a) { a.settings["EVALRUN_X"] = "1"; },
  };
  std::set<std::string> keys = {arm_key({})};
  for (const auto& change : changes) {
    ArmRecord arm;
    change(arm);
    keys.insert(arm_key(arm));
    EXPECT_EQ(arm_key(arm), arm_key(arm));
  }
  EXPECT_EQ(keys.size(), changes.size() + 1);
  // Where the model lies and how much memory it took are no settings.
  ArmRecord same;
  same.label = "x";
  same.model = "x";
  same.draft = "x";
  same.peak_bytes = same.kv_bytes = same.weight_bytes = same.extra_parameter_bytes = 9;
  EXPECT_EQ(arm_key(same), arm_key({}));
}

TEST(Keys, EveryFieldOfAPromptThatChangesAFigureChangesItsKey) {
  using results::PromptRecord;
  const PromptRecord base = {.key = "",
                             .task = "t",
                             .id = "i",
                             .category = "",
                             .language = "",
                             .rendered_hash = "r",
                             .turns = {"1", "2"},
                             .reference = {}};
  datasets::Prompt string, brace, other_template;
  string.stop.strings = {"\ndef"};
  brace.stop.closing_brace = true;
  other_template.chat_template = "chatml";
  std::set<std::string> keys = {prompt_key(base, {}), prompt_key(base, string),
                                prompt_key(base, brace), prompt_key(base, other_template)};
  for (const auto& change : std::vector<std::function<void(PromptRecord&)>>{
           [](PromptRecord& p) { p.task = "x"; },
           [](PromptRecord& p) { p.id = "x"; },
           [](PromptRecord& p) { p.rendered_hash = "x"; },
           [](PromptRecord& p) { p.turns[1] = "x"; },
           [](PromptRecord& p) { p.turns.pop_back(); },
       }) {
    PromptRecord prompt = base;
    change(prompt);
    keys.insert(prompt_key(prompt, {}));
  }
  EXPECT_EQ(keys.size(), 9u);
}

TEST(Keys, EverySuiteFieldAndPartChangesTheRunKey) {
  std::set<std::string> keys = {run_key({}, {})};
  size_t n = 1;
  const auto suite = [&](const std::function<void(Suite&)>& change) {
    Suite s;
    change(s);
    keys.insert(run_key(s, {}));
    ++n;
  };
  const auto part = [&](const std::function<void(RunKeyParts&)>& change) {
    RunKeyParts p;
    change(p);
    keys.insert(run_key({}, p));
    ++n;
  };
  suite([](Suite& s) { s.name = "x"; });
  suite([](Suite& s) { s.methods = {"x"}; });
  suite([](Suite& s) { s.aa = false; });
  suite([](Suite& s) { s.tasks = {{.task = "x"}}; });
  suite([](Suite& s) { s.tasks = {{.task = "x", .limit = 3}}; });
  suite([](Suite& s) { s.tasks = {{.task = "x", .max_new = 3}}; });
  suite([](Suite& s) { s.tasks = {{.task = "x", .chat_template = "chatml"}}; });
  suite([](Suite& s) { s.max_new = 9; });
  suite([](Suite& s) { s.limit = 9; });
  suite([](Suite& s) { s.max_turns = 9; });
  suite([](Suite& s) { s.repeats = 9; });
  suite([](Suite& s) { s.samples = 9; });
  suite([](Suite& s) { s.sampling.temperature = 0.5; });
  suite([](Suite& s) { s.sampling.top_k = 9; });
  suite([](Suite& s) { s.sampling.top_p = 0.5; });
  suite([](Suite& s) { s.seed = 9; });
  suite([](Suite& s) { s.warmup = 9; });
  suite([](Suite& s) { s.warmup_limit_s = 9; });
  suite([](Suite& s) { s.order = Order::kRandom; });
  suite([](Suite& s) { s.batches.sizes = {1, 2}; });
  suite([](Suite& s) { s.batches = {{1, 2}, methods::BatchMode::kContinuous}; });
  suite([](Suite& s) { s.batches.wave = 4; });
  suite([](Suite& s) { s.replay = true; });
  suite([](Suite& s) { s.ignore_eos = true; });
  suite([](Suite& s) { s.kv_cache = false; });
  suite([](Suite& s) { s.evaluate = false; });
  suite([](Suite& s) { s.evaluators = {"x"}; });
  part([](RunKeyParts& p) { p.arm_keys = {"x"}; });
  part([](RunKeyParts& p) { p.prompt_keys = {"x"}; });
  part([](RunKeyParts& p) { p.build = "x"; });
  part([](RunKeyParts& p) { p.machine = "x"; });
  part([](RunKeyParts& p) { p.label = "x"; });
  part([](RunKeyParts& p) { p.nonce = "x"; });
  part([](RunKeyParts& p) { p.faults = {{"x", "y"}}; });
  part([](RunKeyParts& p) { p.evaluator_versions = {{"x", "y"}}; });
  EXPECT_EQ(keys.size(), n);
}

TEST(Keys, PlansRepeatAndFollowTheirInputs) {
  const std::string task = two_prompts();
  const std::string key = make_plan(request_for(task)).run.key;
  EXPECT_EQ(make_plan(request_for(task)).run.key, key);
  std::set<std::string> keys = {key};
  PlanRequest request = request_for(task);
  request.target = tests::tiny_model(256, "another hash");
  keys.insert(make_plan(request).run.key);
  request = request_for(task);
  request.session.n_threads = 2;
  keys.insert(make_plan(request).run.key);
  request = request_for(task);
  request.suite.sampling.temperature = 1;
  keys.insert(make_plan(request).run.key);
  request = request_for(write_prompts("other.jsonl", {R"({"id": "a", "turns": ["two"]})"}));
  keys.insert(make_plan(request).run.key);
  ::setenv("EVALRUN_SOMETHING", "1", 1);
  keys.insert(make_plan(request_for(task)).run.key);
  ::unsetenv("EVALRUN_SOMETHING");
  EXPECT_EQ(keys.size(), 6u);
  // Only where files lie, not what is measured.
  ::setenv("EVALRUN_HOME", "/nowhere", 1);
  EXPECT_EQ(make_plan(request_for(task)).run.key, key);
  ::unsetenv("EVALRUN_HOME");
}

// ---- Estimates ----------------------------------------------------------------------------------

TEST(Estimate, DetectableEffectMatchesTheFormula) {
  // 1 - exp(-2.4865 * 0.03 / sqrt(20)) = 0.016541
  EXPECT_NEAR(minimum_detectable_effect(0.03, 20), 0.016541, 1e-6);
  EXPECT_NEAR(minimum_detectable_effect(0.10, 80), 1 - std::exp(-2.4865 * 0.1 / std::sqrt(80.0)),
              1e-12);
}

TEST(Estimate, CountsEveryTurnArmAndRepeat) {
  RunPlan plan = make_plan(request_for(two_prompts()));
  plan.suite.repeats = 2;
  // Prompt a: 29 tokens before the last answer, 2 * 8 steps. Prompt b ("U:just one question A:"):
  // 22 tokens, 8 steps. 3 arms, 2 repeats.
  const double expected = 6 * ((29 + 22) * 0.5 + 24 * 10.0);
  EXPECT_DOUBLE_EQ(estimate_seconds(plan, {.prefill_s_per_token = 0.5, .step_s = 10.0}), expected);
  plan.suite.replay = true;  // one model's text
  EXPECT_DOUBLE_EQ(estimate_seconds(plan, {.prefill_s_per_token = 0.5, .step_s = 10.0}),
                   expected / 6 * 7);
}

TEST(Estimate, AStepIsPricedByItsForwards) {
  const auto plain_steps = [](const methods::LargestStep& step) {
    return price_of(step, steep_rows()).plain_steps;
  };
  EXPECT_DOUBLE_EQ(plain_steps({.rows = 1}), 1);
  EXPECT_DOUBLE_EQ(plain_steps({.rows = 16}), 8);
  EXPECT_DOUBLE_EQ(plain_steps({.rows = 28}), 14) << "on the line through the last two";
  // Two forwards of a drafter a quarter as large, of one row and of four: 2 + (1 + 2) / 4.
  EXPECT_DOUBLE_EQ(plain_steps({.rows = 4, .draft_cost = 0.25, .draft_rows = {1, 4}}), 2.75);
  EXPECT_DOUBLE_EQ(plain_steps({.rows = 16, .limit = 1.5}), 1.5);
  EXPECT_DOUBLE_EQ(plain_steps({.rows = 4, .limit = 1000}), 2) << "a limit above the price";
  const StepPrice unknown = price_of({}, steep_rows());
  EXPECT_EQ(unknown.rows, 0);
  EXPECT_DOUBLE_EQ(unknown.plain_steps, 1);
  engine::RowCostTable falling = steep_rows();
  falling.rows = {{1, 10, 10, 10, {}}, {4, 8, 8, 8, {}}};
  EXPECT_DOUBLE_EQ(price_of({.rows = 4}, falling).plain_steps, 1) << "more rows cost no less";
}

TEST(Estimate, ArmsOfManyRowsTakeLonger) {
  RunPlan plan = make_plan(request_for(two_prompts()));
  EXPECT_TRUE(step_prices(plan).empty()) << "what rows cost is not known";
  plan.row_cost->table = steep_rows();
  const std::vector<StepPrice> prices = step_prices(plan);
  ASSERT_EQ(prices.size(), 3u);  // ar, ar again, pld of 10 tokens
  EXPECT_EQ(prices[0].rows, 1);
  EXPECT_EQ(prices[1].rows, 1);
  EXPECT_EQ(prices[2].rows, 11);
  EXPECT_DOUBLE_EQ(prices[2].plain_steps, 5.5);  // (20 + 60 * 7 / 12) / 10
  // As in CountsEveryTurnArmAndRepeat: 29 + 22 tokens before the answers, 24 steps.
  const Calibration calibration = {.prefill_s_per_token = 0.5, .step_s = 10.0};
  const double prefill = (29 + 22) * 0.5, plain = 24 * 10.0;
  EXPECT_DOUBLE_EQ(estimate_seconds(plan, calibration, prices),
                   3 * prefill + (1 + 1 + 5.5) * plain);
  EXPECT_DOUBLE_EQ(estimate_seconds(plan, calibration), 3 * (prefill + plain));
  plan.suite.replay = true;  // at plain decoding's speed
  EXPECT_DOUBLE_EQ(estimate_seconds(plan, calibration, prices),
                   4 * prefill + (1 + 1 + 5.5 + 1) * plain);
}

TEST(Estimate, CalibrationTakesTheMedianStep) {
  tests::FakeClock clock;
  int call = 0;
  tests::FakeSession session(256, 100, [&](std::span<const int32_t>, std::span<float>) {
    clock.now += ++call == 1 ? 900 : call == 3 ? 50 : 10;  // a cold step and an outlier
  });
  const std::vector<int32_t> prompt(20, 65);
  const Calibration c = calibrate(session, prompt, clock);
  EXPECT_DOUBLE_EQ(c.step_s, 10e-9);
  EXPECT_EQ(session.length(0), 0);
  EXPECT_THAT(session.prefills, ElementsAre(20));
}

}  // namespace
}  // namespace evalrun::runners
