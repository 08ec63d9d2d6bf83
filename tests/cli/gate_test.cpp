// evalrun check: every exit code by planting its cause.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Times of a tiny model on a busy machine vary by tens of percent; where speed is not what a test
// is about, only a collapse would matter.
constexpr const char* kWideMargin = "80%";

class Gate : public CommandTest {
 protected:
  void SetUp() override {
    write_prompts(folder_, 6);
    folder_.write("suite.json",
                  R"({"name": "tiny", "methods": ["ar", "pld"], "tasks": ["jsonl:prompts.jsonl"],
                      "max_new": 32, "repeats": 2, "warmup": 1, "ignore_eos": true})");
  }
  void save_baseline() {
    const ProgramResult result =
        run({"run", "suite.json", "-m", tiny_model(), "--db", "r.db", "-t", "1"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    ASSERT_EQ(run({"baseline", "save", "main", "--db", "r.db"}).exit_code, 0);
  }
  ProgramResult check(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"check", "--db", "r.db"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  void execute(const std::string& sql) { change_stored(folder_.file("r.db"), sql); }
  ProgramResult self_test(const std::string& fault) {
    return check({"--self-test", fault, "-m", tiny_model(), "-t", "1", "--suite", "suite.json"});
  }
};

TEST_F(Gate, ADeviceFaultEndsTheMeasuring) {
  const ProgramResult result = self_test("device-fault");
  EXPECT_EQ(result.exit_code, 8) << result.err;
  EXPECT_THAT(result.err, HasSubstr("device none: a planted fault, in step 3"));
  EXPECT_THAT(result.err, HasSubstr("run the same command again"));
}

TEST_F(Gate, MissingBaseline) {
  const ProgramResult result = check({"--verdict", "v.json"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, HasSubstr("no baseline 'main'"));
  EXPECT_EQ(json::parse(folder_.read("v.json"))["exit_code"], 3);
  EXPECT_EQ(check({"--allow-missing-baseline"}).exit_code, 0);
  EXPECT_EQ(check({"--fail-on", "regression,correctness"}).exit_code, 0);
  expect_refused(check({"--fail-on", "regresion"}), 2, "regression");
  expect_refused(check({"--max-regression", "lots"}), 2, "--max-regression");
}

TEST_F(Gate, StoredAndMeasured) {
  save_baseline();
  const ProgramResult stored = check({"run:1", "--json"});
  EXPECT_EQ(stored.exit_code, 0) << stored.err << stored.out;
  EXPECT_EQ(json::parse(stored.out)["class"], "ok");
  // Measured now with the baseline's own suite, model and settings, into a run of its own.
  const ProgramResult measured = check({"--max-regression", kWideMargin, "--verdict", "v.json"});
  EXPECT_EQ(measured.exit_code, 0) << measured.err << measured.out;
  EXPECT_EQ(std::count(measured.out.begin(), measured.out.end(), '\n'), 1) << measured.out;
  const json verdict = json::parse(folder_.read("v.json"));
  EXPECT_EQ(verdict["exit_code"], 0);
  EXPECT_GE(verdict["run"], 2);
  EXPECT_GE(count_stored(folder_.file("r.db")), 2 * 36);
  // Another model cannot be compared with the baseline.
  const ProgramResult other =
      check({"-m", EVALRUN_TEST_DATA "/models/tiny-draft", "--max-extra-runs", "0"});
  EXPECT_EQ(other.exit_code, 3) << other.err << other.out;
}

// Each engine option: a run with it is restored by `check`, another value is refused.
struct EngineOption {
  std::string name, value, other;
};
void PrintTo(const EngineOption& option, std::ostream* os) { *os << option.name; }

class GateEngineMode : public Gate, public ::testing::WithParamInterface<EngineOption> {};

TEST_P(GateEngineMode, IsTheBaselines) {
  const auto& [name, value, other] = GetParam();
  std::vector<std::string> words = {"run", "suite.json", "-m", tiny_model(), "--db", "r.db"};
  words.insert(words.end(), {name, value});
  const ProgramResult measured = run(words);
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  ASSERT_EQ(run({"baseline", "save", "main", "--db", "r.db"}).exit_code, 0);
  const std::vector<std::string> wide = {"--max-regression", kWideMargin, "--max-extra-runs", "0"};
  const ProgramResult same = check(wide);
  EXPECT_EQ(same.exit_code, 0) << same.err << same.out;
  const int before = count_stored(folder_.file("r.db"));
  EXPECT_EQ(before, 2 * 36) << "as many generations as the baseline has";
  const ProgramResult changed = check({name, other, "--max-extra-runs", "0"});
  EXPECT_EQ(changed.exit_code, 3) << changed.err << changed.out;
  for (const std::string& part : {name, value, other, std::string("leave ") + name + " out"})
    EXPECT_THAT(changed.err, HasSubstr(part));
  EXPECT_EQ(count_stored(folder_.file("r.db")), before) << "nothing is measured";
}

INSTANTIATE_TEST_SUITE_P(Options, GateEngineMode,
                         ::testing::Values(EngineOption{"--dtype", "f32", "bf16"},
                                           EngineOption{"--kv-dtype", "int8", "bf16"},
                                           EngineOption{"--chat-template", "zephyr", "vicuna"},
                                           EngineOption{"--isa", "portable", "reference"},
                                           EngineOption{"--device", "cpu", "cuda"},
                                           EngineOption{"--threads", "1", "2"}),
                         [](const auto& option) {
                           std::string name = option.param.name.substr(2);
                           std::erase(name, '-');
                           return name;
                         });

TEST_F(Gate, OptionsOfAnotherModeAreRefused) {
  save_baseline();
  const int before = count_stored(folder_.file("r.db"));
  for (const char* option : {"--suite", "--limit", "-r", "-n"})
    expect_refused(check({option, "3"}), 2, "stored baseline");
  expect_refused(check({"--sessions", "3"}), 2, "--against");
  for (const char* option : {"-m", "--draft", "--dtype", "--kv-dtype", "--device", "--data-root"})
    expect_refused(check({"run:1", option, "."}), 2, "measures nothing");
  expect_refused(check({"--against", "other", "--baseline", "main"}), 2, "--baseline");
  expect_refused(check({"--self-test", "--baseline", "main"}), 2, "--baseline");
  expect_refused(check({"--self-test", "--fail-on", "regression"}), 2, "--fail-on");
  expect_refused(check({"--self-test", "miscount", "--suite", "ci", "--baseline", "main"}), 2,
                 "--baseline");
  EXPECT_EQ(count_stored(folder_.file("r.db")), before);
}

TEST_F(Gate, ADifferingSettingIsNamed) {
  save_baseline();
  ASSERT_EQ(run({"run", "suite.json", "-m", tiny_model(), "--db", "r.db", "-t", "1", "--kv-dtype",
                 "int8"})
                .exit_code,
            0);
  const ProgramResult result = check({"latest"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.out + result.err, HasSubstr("ar: kv_dtype was not set, is int8"));
  EXPECT_THAT(result.out + result.err, ::testing::Not(HasSubstr("{\"")));
}

TEST_F(Gate, PlantedFaultsTurnItRed) {
  // Without a stored baseline one is measured first, undisturbed.
  const ProgramResult wrong = self_test("wrong-accept");
  EXPECT_EQ(wrong.exit_code, 5) << wrong.err << wrong.out;
  save_baseline();
  const int before = count_stored(folder_.file("r.db"));
  const ProgramResult miscount = self_test("miscount");
  EXPECT_EQ(miscount.exit_code, 5) << miscount.err << miscount.out;
  // Three times as slow: far outside of what other processes do to interleaved arms.
  const ProgramResult slow = self_test("slow:200%");
  EXPECT_EQ(slow.exit_code, 1) << slow.err << slow.out;
  EXPECT_THAT(slow.out, HasSubstr("regression"));
  EXPECT_EQ(count_stored(folder_.file("r.db")), before) << "planted rows stay out of the database";
  expect_refused(self_test("slow"), 2, "slow:10%");
  // Plain decoding three times as slow: the speedup rises, which is no improvement.
  const ProgramResult plain = self_test("ar-slow:200%");
  EXPECT_EQ(plain.exit_code, 1) << plain.err << plain.out;
  EXPECT_THAT(plain.out, HasSubstr("AR slower"));
  expect_refused(self_test("wrong-acept"), 2, "wrong-accept");
  expect_refused(self_test("ar-slow:none%"), 2, "slow:none%");
  expect_refused(check({"--max-quality-loss", "much"}), 2, "--max-quality-loss");
  expect_refused(check({"run:1", "--self-test"}), 2, "RUN");
}

TEST_F(Gate, AgainstAnotherBuild) {
  // The other build: this one, in a file of its own. Speed of a tiny model is not what is tested.
  const std::string other = folder_.write_program(
      "other-evalrun", std::string("#!/bin/sh\necho started >> '") + folder_.file("log") +
                           "'\nexec " EVALRUN_PROGRAM " \"$@\"\n");
  const auto against = [&](const std::string& program, std::vector<std::string> more) {
    more.insert(more.end(), {"--against", program, "--suite", "suite.json", "-m", tiny_model(),
                             "-t", "1", "--sessions", "2", "-r", "1", "--max-extra-runs", "0"});
    return check(more);
  };
  const ProgramResult same =
      against(other, {"--max-regression", kWideMargin, "--verdict", "v.json"});
  EXPECT_EQ(same.exit_code, 0) << same.err << same.out;
  EXPECT_THAT(same.out, HasSubstr("2 sessions of each build, in lock step"));
  EXPECT_EQ(folder_.read("log"), "started\nstarted\n");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("r.db")));
  const json verdict = json::parse(folder_.read("v.json"));
  EXPECT_EQ(verdict["baseline"], other);
  EXPECT_EQ(verdict["class"], "ok");
  EXPECT_EQ(verdict["way"], "lock-step");
  EXPECT_EQ(verdict["sessions"], 2);
  std::set<std::string> sessions, speeds;
  for (const json& v : verdict["verdicts"])
    if (v["metric"] == "tok_s" || v["metric"] == "speed")
      speeds.insert(v["method"].get<std::string>() + " " + v["metric"].get<std::string>());
  EXPECT_THAT(speeds, ElementsAre("ar tok_s", "pld speed", "pld tok_s"));
  for (const json& v : verdict["verdicts"])
    if (const auto reason = v["reason"].get<std::string>(); v["metric"] == "environment")
      sessions.insert(reason.substr(0, reason.find(':')));
  EXPECT_THAT(sessions, ElementsAre("session 1, other build", "session 1, this build",
                                    "session 2, other build", "session 2, this build"));
  // A build of other tokens: its answers are shorter.
  folder_.write_program("other-evalrun", "#!/bin/sh\nexec " EVALRUN_PROGRAM " \"$@\" -n 16\n");
  const ProgramResult different = against(other, {});
  EXPECT_EQ(different.exit_code, 3) << different.err << different.out;
  folder_.write_program("other-evalrun", "#!/bin/sh\necho 'out of luck' >&2\nexit 7\n");
  const ProgramResult failing = against(other, {});
  expect_refused(failing, 7, "out of luck");
  EXPECT_THAT(failing.err, HasSubstr("other-evalrun"));
  folder_.write_program("other-evalrun", "#!/bin/sh\necho 'device cuda:0: lost' >&2\nexit 8\n");
  expect_refused(against(other, {}), 8, "cuda:0: lost");
  expect_refused(against("no/such/evalrun", {}), 2, "no/such/evalrun");
  expect_refused(against(other, {"run:1"}), 2, "--against");
}

// A build from before lock step refuses the option; then whole sessions take turns.
TEST_F(Gate, AgainstABuildThatCannotTakeTurns) {
  const std::string old = folder_.write_program(
      "old-evalrun",
      "#!/bin/sh\nfor word in \"$@\"; do\n  case $word in --lock-step*)\n    echo \"error: The "
      "following argument was not expected: --lock-step\" >&2; exit 2;;\n  esac\ndone\n"
      "exec " EVALRUN_PROGRAM " \"$@\"\n");
  const std::vector<std::string> words = {"--against",
                                          old,
                                          "--suite",
                                          "suite.json",
                                          "-m",
                                          tiny_model(),
                                          "-t",
                                          "1",
                                          "--sessions",
                                          "2",
                                          "-r",
                                          "1",
                                          "--max-extra-runs",
                                          "0",
                                          "--max-regression",
                                          "80%",
                                          "--json"};
  const ProgramResult result = check(words);
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_EQ(json::parse(result.out)["way"], "turns");
  EXPECT_EQ(json::parse(result.out)["sessions"], 2);
  EXPECT_THAT(result.err, HasSubstr("old-evalrun is older and cannot be told when to measure"));
  std::vector<std::string> planted = words;
  planted.insert(planted.end(), {"--self-test", "slow:50%"});
  expect_refused(check(planted), 2, "--lock-step");
}

// Both builds are loaded at once and take turns; a fault in this one is found by its arm.
TEST_F(Gate, LockStepFindsWhatAStoredBaselineCannot) {
  const auto planted = [&](const std::string& fault) {
    const ProgramResult result =
        check({"--against", EVALRUN_PROGRAM, "--self-test", fault, "--suite", "suite.json", "-m",
               tiny_model(), "-t", "1", "--json"});
    EXPECT_EQ(result.exit_code, fault == "wrong-accept" ? 5 : 1) << result.err;
    std::set<std::string> found;
    const json verdict = json::parse(result.out);
    for (const json& v : verdict["verdicts"])
      if (v["outcome"] == "regression")
        found.insert(v["method"].get<std::string>() + " " + v["metric"].get<std::string>());
    return found;
  };
  // Three times as slow: beyond what other processes do to neighbours in time.
  EXPECT_THAT(planted("slow:200%"), ::testing::IsSupersetOf({"pld speed", "pld tok_s"}));
  EXPECT_THAT(planted("ar-slow:200%"), ::testing::Contains("ar tok_s"));
  EXPECT_THAT(planted("all-slow:200%"), ::testing::IsSupersetOf({"ar tok_s", "pld tok_s"}));
  planted("wrong-accept");
  expect_refused(check({"--against", EVALRUN_PROGRAM, "--self-test"}), 2, "FAULT");
  expect_refused(check({"--against", EVALRUN_PROGRAM, "--self-test", "slow"}), 2, "slow:10%");
}

TEST_F(Gate, BatchesAreNotMeasuredInTurns) {
  folder_.write("batches.json", R"({"methods": ["pld"], "tasks": ["jsonl:prompts.jsonl"],
                                    "batch": [1, 2]})");
  expect_refused(
      check({"--against", EVALRUN_PROGRAM, "--suite", "batches.json", "-m", tiny_model()}), 2,
      "its batches of 2 cannot be measured in turns");
}

TEST_F(Gate, AChoiceIsNotComparedBetweenBuilds) {
  folder_.write("auto.json", R"({"methods": ["auto", "pld"], "tasks": ["jsonl:prompts.jsonl"]})");
  const std::vector<std::string> suite = {"--suite", "auto.json", "-m", tiny_model()};
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--against", EVALRUN_PROGRAM},
        std::vector<std::string>{"--self-test"},
        std::vector<std::string>{"--self-test", "slow:10%"}}) {
    std::vector<std::string> arguments = words;
    arguments.insert(arguments.end(), suite.begin(), suite.end());
    expect_refused(check(arguments), 2, "auto.json has method auto");
  }
}

TEST_F(Gate, AChildThatIsKilledOrHangsIsNamed) {
  // The second process of the other build dies in the middle of its work.
  const std::string other = folder_.write_program(
      "dying-evalrun", "#!/bin/sh\necho lock-step 2 9 1\nread a\necho done\nread b\nkill -9 $$\n");
  const ProgramResult result = check({"--against", other, "--suite", "suite.json", "-m",
                                      tiny_model(), "-t", "1", "--sessions", "2"});
  expect_refused(result, 7, "was killed by signal 9");
  EXPECT_THAT(result.err, HasSubstr("dying-evalrun"));
  EXPECT_THAT(result.err, HasSubstr("other build, session 1, in visit 1 of 9"));
}

TEST_F(Gate, CtrlCInLockStepEndsBothBuilds) {
  const std::string other = folder_.write_program(
      "slow-evalrun", std::string("#!/bin/sh\necho $$ > '") + folder_.file("pid") +
                          "'\necho lock-step 2 9 1\nread a\nexec sleep 600\n");
  Child child(folder_, evalrun_command({"check", "--against", other, "--suite", "suite.json", "-m",
                                        tiny_model(), "-t", "1"}));
  for (int i = 0; i < 200 && !std::filesystem::exists(folder_.file("pid")); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  child.send(SIGINT);
  EXPECT_EQ(child.wait(), 130);
  const pid_t pid = std::stoi(folder_.read("pid"));
  EXPECT_NE(::kill(pid, 0), 0) << "the other build's process still runs";
}

TEST_F(Gate, BaselinesOfSeveralSessionsKnowTheirSpread) {
  save_baseline();
  const ProgramResult one = check({"--plan"});
  EXPECT_EQ(one.exit_code, 4) << one.err;
  EXPECT_THAT(one.out, HasSubstr("1 session\n"));
  EXPECT_THAT(one.out, HasSubstr("use --against"));
  expect_refused(run({"baseline", "save", "other", "--add", "--db", "r.db"}), 2, "--add");
  expect_refused(run({"baseline", "save", "main", "--add", "--from", "1", "--db", "r.db"}), 2,
                 "already");
  for (int i = 2; i <= 3; ++i) {
    ASSERT_EQ(
        run({"run", "suite.json", "-m", tiny_model(), "--db", "r.db", "-t", "1", "--no-resume"})
            .exit_code,
        0);
    const ProgramResult added = run({"baseline", "save", "main", "--add", "--db", "r.db"});
    ASSERT_EQ(added.exit_code, 0) << added.err;
    EXPECT_THAT(added.out, HasSubstr(fmt::format("'main', session {}", i)));
  }
  const ProgramResult planned = check({"--plan", "--json", "--max-regression", kWideMargin});
  const json plan = json::parse(planned.out);
  EXPECT_EQ(plan["sessions"], 3);
  EXPECT_EQ(plan["history"], 3);
  EXPECT_GT(plan["session_spread"], 0);
  EXPECT_GE(plan["detectable"], 0.8);
  EXPECT_EQ(planned.exit_code, plan["able"] == true ? 0 : 4);
  const ProgramResult judged = check({"run:1", "--max-regression", "99%", "--json"});
  EXPECT_EQ(judged.exit_code, 0) << judged.err << judged.out;
  // All of them travel, and go.
  ASSERT_EQ(run({"baseline", "export", "main", "main.db", "--db", "r.db"}).exit_code, 0);
  ASSERT_EQ(run({"baseline", "import", "main.db", "--as", "far", "--db", "new.db"}).exit_code, 0);
  EXPECT_THAT(run({"baseline", "list", "--db", "new.db"}).out, HasSubstr("far#3"));
  ASSERT_EQ(run({"baseline", "rm", "far", "--db", "new.db"}).exit_code, 0);
  EXPECT_THAT(run({"baseline", "list", "--db", "new.db"}).out, Not(HasSubstr("far")));
  expect_refused(check({"--plan", "run:1"}), 2, "--plan");
}

TEST_F(Gate, TheOtherBuildMeasuresWhatIsAskedFor) {
  const std::string other =
      folder_.write_program("other-evalrun", "#!/bin/sh\necho \"$@\" > log\nexit 7\n");
  const auto words_for = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--against", other, "--suite", "suite.json", "-m", tiny_model()});
    expect_refused(check(more), 7, "other-evalrun");
    return folder_.read("log");
  };
  const std::string usual = "run suite.json -q -m " + tiny_model();
  EXPECT_THAT(words_for({}), ::testing::AllOf(HasSubstr(usual), Not(HasSubstr("--device"))));
  const std::string draft = EVALRUN_TEST_DATA "/models/tiny-draft";
  EXPECT_THAT(words_for({"--draft",
                         draft,
                         "--device",
                         "cpu",
                         "--dtype",
                         "f32",
                         "--isa",
                         "reference",
                         "--reproducible",
                         "one-isa",
                         "--kv-dtype",
                         "bf16",
                         "--chat-template",
                         "zephyr",
                         "--data-root",
                         ".",
                         "-t",
                         "1",
                         "-r",
                         "3",
                         "-n",
                         "9",
                         "--limit",
                         "2"}),
              HasSubstr(usual + " --draft " + draft +
                        " --device cpu --dtype f32 --isa reference --bits one-isa --kv-dtype bf16 "
                        "--chat-template zephyr -t 1 --data-root . -r 3 -n 9 --limit 2"));
}

// ---- what CI systems read ----

struct JunitCase {
  std::string name, state, type, text;
};
struct Junit {
  std::string suite, tests, failures, skipped;
  std::map<std::string, std::string> properties;
  std::vector<JunitCase> cases;
  const JunitCase& operator[](const std::string& name) const {
    for (const JunitCase& c : cases)
      if (c.name == name) return c;
    throw std::runtime_error("no case " + name);
  }
};

class GateInCi : public Gate {
 protected:
  // As a parser that is not ours reads the file.
  Junit junit(const std::string& file) {
    const ProgramResult result = run_command_in(folder_, {"python3", "-c", R"(
import json, sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
(suite,) = root
assert root.tag == "testsuites" and suite.tag == "testsuite", root
assert float(suite.get("time")) >= 0
cases = []
for case in suite.iter("testcase"):
    (mark,) = list(case) or [tree.Element("passed")]
    cases.append([case.get("name"), mark.tag, mark.get("type", ""),
                  mark.get("message") or mark.text or ""])
properties = {p.get("name"): p.get("value") for p in suite.iter("property")}
print(json.dumps([suite.get("name"), [suite.get(k) for k in ("tests", "failures", "skipped")],
                  properties, cases]))
)",
                                                          file});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const json all = json::parse(result.out);
    Junit read{all[0], all[1][0], all[1][1], all[1][2], all[2], {}};
    for (const json& c : all[3]) read.cases.push_back({c[0], c[1], c[2], c[3]});
    return read;
  }
  ProgramResult check_in_job(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"check", "--db", "r.db", "--github"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<std::string> command = {"env", "GITHUB_STEP_SUMMARY=summary.md"};
    for (const std::string& word : evalrun_command(arguments)) command.push_back(word);
    return run_command_in(folder_, command);
  }
};

TEST_F(GateInCi, JunitOfAVerdict) {
  save_baseline();
  ASSERT_EQ(check({"run:1", "--junit", "ok.xml"}).exit_code, 0);
  const Junit ok = junit("ok.xml");
  EXPECT_EQ(ok.suite, "evalrun check");
  EXPECT_EQ(ok.failures + ok.skipped, "00");
  EXPECT_EQ(ok.tests, std::to_string(ok.cases.size()));
  EXPECT_EQ(ok["tokens pld"].state, "system-out");
  EXPECT_EQ(ok["tokens pld"].text, "same tokens as the baseline");
  EXPECT_EQ(ok.properties.at("baseline"), "main");
  EXPECT_EQ(ok.properties.at("suite"), "tiny");
  EXPECT_EQ(ok.properties.at("model"), std::filesystem::path(tiny_model()).filename());
  EXPECT_NE(ok.properties.at("commit"), "");

  // A method's tokens are changed in the file.
  execute(
      "UPDATE generation SET tokens_hash = 'x' WHERE arm_id IN (SELECT id FROM arm WHERE "
      "method = 'pld')");
  const ProgramResult wrong = check({"run:1", "--junit", "wrong.xml"});
  EXPECT_EQ(wrong.exit_code, 5) << wrong.out;
  const JunitCase lossless = junit("wrong.xml")["lossless pld"];
  EXPECT_EQ(lossless.state + " " + lossless.type, "failure correctness");
  EXPECT_THAT(lossless.text, HasSubstr("tokens differ from plain decoding"));
  // A class that is no failure here is a warning there.
  ASSERT_EQ(check({"run:1", "--junit", "wrong.xml", "--fail-on", "regression"}).exit_code, 0);
  EXPECT_EQ(junit("wrong.xml")["lossless pld"].state, "skipped");
}

TEST_F(GateInCi, JunitWhereNothingWasJudged) {
  const std::string name = "a<b>&\"c'\x01]]>\xff\n\u00e9";
  ASSERT_EQ(check({"--junit", "v.xml", "--baseline", name}).exit_code, 3);
  const Junit missing = junit("v.xml");
  EXPECT_EQ(missing["baseline"].state + " " + missing["baseline"].type, "failure no-baseline");
  EXPECT_EQ(missing.properties.at("baseline"), "a<b>&\"c']]>\uFFFD\n\u00e9");
  ASSERT_EQ(check({"--junit", "v.xml", "--allow-missing-baseline"}).exit_code, 0);
  EXPECT_EQ(junit("v.xml")["baseline"].state, "skipped");
  // An error that ends the check is told, too.
  save_baseline();
  expect_refused(check({"-m", "none.gguf", "--junit", "v.xml"}), 7, "none.gguf");
  const JunitCase failed = junit("v.xml")["measurement"];
  EXPECT_EQ(failed.state + " " + failed.type, "failure error");
  EXPECT_THAT(failed.text, HasSubstr("none.gguf"));
  expect_refused(check({"run:1", "--junit", "no/such/v.xml"}), 7, "no/such/v.xml");
}

TEST_F(GateInCi, JunitOfTheSelfTest) {
  const ProgramResult result =
      check({"--self-test", "--junit", "v.xml", "-m", tiny_model(), "-t", "1", "--suite",
             "suite.json", "--sessions", "2", "--max-extra-runs", "0", "--verdict", "v.json"});
  // Whether a tiny model's slowdown of 5 % shows on a busy machine is not what is tested here.
  const Junit drills = junit("v.xml");
  EXPECT_EQ(drills.suite, "evalrun check --self-test");
  ASSERT_EQ(drills.cases.size(), 7u) << result.err;
  for (const char* certain : {"wrong-accept", "miscount", "missing-baseline"})
    EXPECT_EQ(drills[certain].state, "system-out") << drills[certain].text;
  EXPECT_EQ(result.exit_code, drills.failures == "0" ? 0 : 5);
  // The simulated machines beside the real one.
  std::map<std::string, double> red, undecided;
  for (const json& drill : json::parse(folder_.read("v.json")))
    if (drill.contains("simulated"))
      for (const json& s : drill["simulated"]) {
        const std::string what = drill["drill"].get<std::string>() + ", " +
                                 s["machine"].get<std::string>() + ", " +
                                 s["way"].get<std::string>();
        red[what] = s["called_slower"], undecided[what] = s["inconclusive"];
        EXPECT_LE(red[what] + undecided[what], 1 + 1e-12) << what;
      }
  EXPECT_EQ(red.size(), 2u * 6 * 2);
  EXPECT_GT(undecided.at("slow:5%, quiet virtual machine, stored"), 0.05);
  EXPECT_EQ(undecided.at("unchanged, dedicated, lock-step"), 0);
  EXPECT_GE(red.at("slow:5%, quiet virtual machine, lock-step"), 0.95);
  EXPECT_LE(red.at("unchanged, quiet virtual machine, lock-step"), 0.005);
  EXPECT_LE(red.at("slow:5%, quiet virtual machine, stored"), 0.9);
  EXPECT_THAT(result.out, HasSubstr("simulated machine"));
}

TEST_F(GateInCi, GithubSummaryAndAnnotations) {
  expect_refused(check({"--github"}), 2, "GITHUB_STEP_SUMMARY");
  expect_refused(check_in_job({"--json"}), 2, "--verdict FILE");
  folder_.write("summary.md", "# An earlier step\n");
  const ProgramResult missing = check_in_job({"--baseline", "50% of\n::error::all"});
  EXPECT_EQ(missing.exit_code, 3) << missing.err;
  EXPECT_THAT(missing.out,
              testing::StartsWith("::error title=evalrun check%3A no-baseline::baseline: "
                                  "check: no baseline '50%25 of%0A::error::all' in r.db%0A"));
  EXPECT_THAT(check_in_job({"--allow-missing-baseline"}).out,
              testing::StartsWith("::warning title="));
  save_baseline();
  const ProgramResult ok = check_in_job({"run:1"});
  EXPECT_EQ(ok.exit_code, 0) << ok.err;
  EXPECT_THAT(ok.out, testing::Not(HasSubstr("::")));
  const std::string summary = folder_.read("summary.md");
  EXPECT_TRUE(summary.starts_with("# An earlier step\n### evalrun check\n\ncheck: no baseline"))
      << summary;
  EXPECT_THAT(summary, HasSubstr("### evalrun check\n\ncheck: ok - "));
  EXPECT_THAT(summary, testing::ContainsRegex("\\| tokens pld +\\| passed +\\| same tokens"));
}

}  // namespace
}  // namespace evalrun::tests
