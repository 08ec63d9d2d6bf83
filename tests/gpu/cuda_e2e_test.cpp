// Whole commands on the emulated GPU: `evalrun` with the CUDA engine's kernels run on the CPU. What
// a real GPU does when it works, and what the program does when it fails or is too small.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/stored_run.h"
#include "tests/sample.h"

namespace evalrun::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kPrompts = 2, kMaxNew = 8;

// Variables of ours do not reach the program but through `env`.
ProgramResult evalrun_with(const TempFolder& folder, const std::vector<std::string>& variables,
                           const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"env"};
  command.insert(command.end(), variables.begin(), variables.end());
  const std::vector<std::string> program = evalrun_command(arguments);
  command.insert(command.end(), program.begin(), program.end());
  return run_command_in(folder, command);
}

std::vector<std::string> run_on(const std::string& device, const std::string& methods,
                                const std::vector<std::string>& more = {},
                                const std::string& db = "r.db") {
  std::vector<std::string> arguments = {"run",
                                        "-m",
                                        tiny_model(),
                                        "--db",
                                        db,
                                        "--tasks",
                                        "jsonl:prompts.jsonl",
                                        "--methods",
                                        methods,
                                        "-n",
                                        std::to_string(kMaxNew),
                                        "-w",
                                        "0",
                                        "--ignore-eos",
                                        "--device",
                                        device};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

json rows_of(const TempFolder& folder) {
  const ProgramResult report = run_evalrun(folder, {"report", "--db", "r.db", "--format", "json"});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  return json::parse(report.out);
}

TEST(OnCuda, MethodsDecodeWhatPlainDecodingDoes) {
  // What methods decode in either is shown by methods_test.cpp; this is the command.
  for (const std::string& dtype : sample(std::vector<std::string>{"bf16", "q4"}, 1)) {
    TempFolder folder;
    write_prompts(folder, kPrompts);
    const ProgramResult result = run_evalrun(
        folder, run_on("cuda", "ar,pld,lookahead,sps:draft=layers:1", {"--dtype", dtype}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json rows = rows_of(folder);
    ASSERT_EQ(rows.size(), 5u);  // with plain decoding against itself
    for (const json& row : rows) {
      EXPECT_EQ(row["device"], "cuda:0");
      EXPECT_EQ(row["isa"], "sm_80");
      EXPECT_EQ(row["dtype"], dtype);
      EXPECT_EQ(row["identical_share"].get<double>(), 1.0) << row["method"];
      EXPECT_EQ(row["emitted"].get<double>(), kPrompts * (kMaxNew - 1)) << row["method"];
    }
    const std::string db = folder.file("r.db");
    EXPECT_EQ(query_value(db, "SELECT count(*) FROM v_accounting"), "0");
    EXPECT_EQ(query_value(db, "SELECT value FROM environment WHERE name = 'cublas'"), "13.0.0");
    EXPECT_EQ(query_value(db, "SELECT value FROM environment WHERE name = 'cuda_path'"),
              "portable");
    EXPECT_EQ(check_integrity(db), "ok");
  }
}

// What the GPU did is stored with every generation and stands in the report; the stand-in for NVML
// moves its counter by 1.5 J a call, twice a generation.
TEST(OnCuda, TimesAndEnergyOfTheGpuAreReported) {
  TempFolder folder;
  write_prompts(folder, kPrompts);
  const ProgramResult result =
      evalrun_with(folder, {std::string("EVALRUN_NVML=") + EVALRUN_FAKE_NVML},
                   run_on("cuda", "ar,sps:draft=layers:1"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string db = folder.file("r.db");
  const auto value = [&](const std::string& what, const std::string& arm) {
    return query_value(db, "SELECT " + what +
                               " FROM v_gpu g JOIN arm a ON a.id = g.arm_id WHERE a.label = '" +
                               arm + "'");
  };
  const std::string sps = "sps:draft=layers:1";
  EXPECT_EQ(value("min(verify_ns) > 0 AND min(commit_ns) > 0 AND max(draft_ns) = 0", "ar"), "1");
  EXPECT_EQ(value("min(draft_ns) > 0 AND min(verify_ns) > 0", sps), "1");
  EXPECT_EQ(value("max(busy_share) BETWEEN 0.01 AND 1", sps), "1");
  EXPECT_EQ(query_value(db, "SELECT min(prefill_ns) > 0 FROM gpu"), "1");
  for (const json& row : rows_of(folder)) {
    EXPECT_NEAR(row["joules_per_token"].get<double>(), 1.5 / kMaxNew, 1e-9);
    EXPECT_GT(row["gpu_verify_ms"].get<double>(), 0);
    EXPECT_GT(row["gpu_busy"].get<double>(), 0);
    if (row["method"] == sps) {
      EXPECT_NEAR(row["energy_gain"].get<double>(), 1, 1e-9);
    }
  }
  const ProgramResult text = run_evalrun(folder, {"report", "--db", "r.db"});
  EXPECT_THAT(text.out, HasSubstr("energy gain"));
}

// float32 on the device has the CPU's bits, so the same answers.
TEST(OnCuda, Float32GivesTheAnswersOfTheCpu) {
  StoredRun stored[2];
  for (const int i : {0, 1}) {
    TempFolder folder;
    write_prompts(folder, kPrompts);
    const ProgramResult result = run_evalrun(
        folder, run_on(i == 0 ? "cpu" : "cuda:0", "ar,pld", {"--dtype", "f32", "-t", "1"}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    stored[i] = read_stored(folder.file("r.db"));
  }
  ASSERT_EQ(stored[0].size(), stored[1].size());
  ASSERT_GE(stored[0].size(), 2u * kPrompts);
  auto on_device = stored[1].begin();
  for (const auto& [cell, on_cpu] : stored[0]) {
    EXPECT_EQ(on_device->first.prompt, cell.prompt);
    EXPECT_TRUE(on_device->second.same_output(on_cpu)) << cell.arm << ", " << cell.prompt;
    ++on_device;
  }
}

// A run draws drafts and tries them on the device. An audit has the host do both, and says so.
TEST(OnCuda, DrawnDraftsAreAuditedOnTheHost) {
  const TempFolder folder;
  write_prompts(folder, kPrompts);
  const ProgramResult result = run_evalrun(folder, {"verify",
                                                    "-m",
                                                    tiny_model(),
                                                    "--device",
                                                    "cuda",
                                                    "--dtype",
                                                    "bf16",
                                                    "--methods",
                                                    "sps:draft=layers:1,k=3",
                                                    "--parts",
                                                    "sampled",
                                                    "--tasks",
                                                    "jsonl:prompts.jsonl",
                                                    "-n",
                                                    "16",
                                                    "--answers",
                                                    "1",
                                                    "--db",
                                                    "r.db",
                                                    "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  const json certificate = json::parse(result.out)[0];
  EXPECT_EQ(certificate["arm"]["device"], "cuda:0");
  EXPECT_EQ(certificate["grades"]["sampling"], "decisions audited");
  EXPECT_EQ(certificate["proven"], "sampling T=1: decisions audited on the host");
  const json& sampled = certificate["sampled"];
  EXPECT_EQ(sampled["equal"], kPrompts);
  EXPECT_EQ(sampled["on_host"], true);
  EXPECT_GT(sampled["refused"].get<int>(), 0);
  EXPECT_EQ(sampled["plain_decoding"]["equal"], kPrompts);
  EXPECT_EQ(sampled["plain_decoding"]["on_host"], false);
}

TEST(OnCuda, DoctorListsTheDevice) {
  const TempFolder folder;
  const ProgramResult result = run_evalrun(folder, {"doctor"});
  EXPECT_THAT(result.out, HasSubstr("cuda:0"));
  EXPECT_THAT(result.out, HasSubstr("emulated device, compute 8.0"));
  EXPECT_THAT(result.out, HasSubstr("products: portable"));
  const ProgramResult watched = evalrun_with(
      folder, {std::string("EVALRUN_NVML=") + EVALRUN_FAKE_NVML}, {"doctor", "--json"});
  EXPECT_THAT(watched.out, HasSubstr("SM 1410 of 1980 MHz"));
  EXPECT_THAT(watched.out, HasSubstr("312 of 700 W"));
}

// EVALRUN_CUDA_PATH.
TEST(OnCuda, HoppersKernelsAreTakenByAHopperThatIsTold) {
  const TempFolder folder;
  write_prompts(folder, kPrompts);
  const std::string hopper = "EVALRUN_CUDA_PATH=hopper", capable = "CUDA_EMULATOR_CAPABILITY=90";
  const auto command = run_on("cuda", "ar,pld", {"--dtype", "bf16"});
  const ProgramResult result = evalrun_with(folder, {hopper, capable}, command);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string db = folder.file("r.db");
  EXPECT_EQ(query_value(db, "SELECT value FROM environment WHERE name = 'cuda_path'"), "hopper");
  for (const json& row : rows_of(folder))
    EXPECT_EQ(row["identical_share"].get<double>(), 1.0) << row["method"];
  EXPECT_THAT(evalrun_with(folder, {hopper, capable}, {"doctor"}).out,
              HasSubstr("products: hopper"));

  const ProgramResult refused = evalrun_with(folder, {hopper}, command);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("EVALRUN_CUDA_PATH=hopper needs compute capability 9.0, and this one has "
                        "8.0"));
  EXPECT_THAT(refused.err, HasSubstr("EVALRUN_CUDA_PATH=portable, or without it, works"));
  EXPECT_THAT(evalrun_with(folder, {hopper, "COLUMNS=0"}, {"doctor"}).out,
              HasSubstr("cannot be used: EVALRUN_CUDA_PATH=hopper needs"));
  const ProgramResult unknown = evalrun_with(folder, {"EVALRUN_CUDA_PATH=blackwell"}, command);
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("portable, hopper or persistent"));
}

TEST(OnCuda, LayersByOneKernelAreAPathOfEveryGpu) {
  const TempFolder folder;
  write_prompts(folder, kPrompts);
  const std::string persistent = "EVALRUN_CUDA_PATH=persistent",
                    few = "CUDA_EMULATOR_MULTIPROCESSORS=2";
  const ProgramResult result =
      evalrun_with(folder, {persistent, few}, run_on("cuda", "ar,pld", {"--dtype", "bf16"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(
      query_value(folder.file("r.db"), "SELECT value FROM environment WHERE name = 'cuda_path'"),
      "persistent");
  for (const json& row : rows_of(folder))
    EXPECT_EQ(row["identical_share"].get<double>(), 1.0) << row["method"];
  EXPECT_THAT(result.err, Not(HasSubstr("warning: EVALRUN_CUDA_PATH")));

  const ProgramResult bytes = evalrun_with(
      folder, {persistent, few}, run_on("cuda", "ar", {"--dtype", "bf16", "--kv-dtype", "int8"}));
  ASSERT_EQ(bytes.exit_code, 0) << bytes.err;
  EXPECT_THAT(bytes.err, HasSubstr("goes by separate launches, as it has keys and values that"));
}

TEST(OnCuda, AnotherDeviceIsRefusedWithTheList) {
  const TempFolder folder;
  write_prompts(folder, 1);
  const ProgramResult result = run_evalrun(folder, run_on("cuda:7", "ar"));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("device 'cuda:7' cannot be used: there is no such GPU"));
  EXPECT_THAT(result.err, HasSubstr("devices here: cpu, cuda, cuda:0"));
}

TEST(OnCuda, CostMeasuresForwards) {
  const TempFolder folder;
  const ProgramResult result =
      run_evalrun(folder, {"cost", "-m", tiny_model(), "--device", "cuda", "--rounds", "2",
                           "--rows", "3", "--context", "20", "--prefill", "9", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json table = json::parse(result.out);
  EXPECT_EQ(table["isa"], "sm_80");
  ASSERT_EQ(table["rows"].size(), 2u);
  // Timed as decoding runs, by whole graphs: no phases.
  for (const json& row : table["rows"]) {
    EXPECT_GT(row["ms"].get<double>(), 0);
    EXPECT_EQ(row["phases"]["weights"].get<double>(), 0);
  }
  ASSERT_EQ(table["prefill"].size(), 1u);
}

// --- a GPU too small, a GPU that fails -----------------------------------------------------------

TEST(OnCuda, TooLittleMemoryIsRefusedWithWhatIsNeeded) {
  const TempFolder folder;
  write_prompts(folder, 1);
  const ProgramResult result =
      evalrun_with(folder, {"CUDA_EMULATOR_MEMORY=100000"}, run_on("cuda", "ar"));
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_THAT(result.err, HasSubstr("GPU memory: needs "));
  EXPECT_THAT(result.err, HasSubstr("B are free"));
  EXPECT_THAT(result.err, HasSubstr("hint: a smaller weight format"));
  EXPECT_EQ(count_stored(folder.file("r.db")), 0);
}

// Before anything is measured, and with the device's memory, not this machine's.
TEST(OnCuda, ABatchThatDoesNotFitIsRefused) {
  const TempFolder folder;
  write_prompts(folder, 2);
  const ProgramResult result = evalrun_with(folder, {"CUDA_EMULATOR_MEMORY=100000"},
                                            run_on("cuda", "ar,pld", {"--batch", "1,2"}));
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("batch 2 needs "));
  EXPECT_THAT(result.err, HasSubstr("of GPU memory are free: not even one sequence fits"));
  EXPECT_THAT(result.err, HasSubstr("--dtype int8"));
  const ProgramResult fits =
      run_evalrun(folder, run_on("cuda", "ar,sps:draft=layers:1", {"--batch", "1,2", "--plan"}));
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
}

TEST(OnCuda, AFaultEndsTheRunAndTheSameCommandGoesOn) {
  const auto command = [](const std::string& db) {
    return run_on("cuda", "ar,pld", {"--dtype", "bf16"}, db);
  };
  const TempFolder undisturbed;
  write_prompts(undisturbed, kPrompts);
  const ProgramResult reference = run_evalrun(undisturbed, command("r.db"));
  ASSERT_EQ(reference.exit_code, 0) << reference.err;
  const StoredRun expected = read_stored(undisturbed.file("r.db"));

  const TempFolder folder;
  write_prompts(folder, kPrompts);
  // T(n) is measured by the clock, in nobody knows how many calls: a run before leaves its table.
  ASSERT_EQ(run_evalrun(folder, run_on("cuda", "ar", {"--dtype", "bf16"})).exit_code, 0);
  StoredRun half;
  std::string name, db;
  for (int call = 200; half.empty(); call += 150) {
    name = fmt::format("{}.db", call), db = folder.file(name);
    const ProgramResult failed =
        evalrun_with(folder, {fmt::format("CUDA_EMULATOR_FAIL={}:sticky", call)}, command(name));
    ASSERT_EQ(failed.exit_code, 8) << "call " << call << ": " << failed.err;
    EXPECT_THAT(failed.err, HasSubstr("device cuda:0: emulated, in "));   // what
    EXPECT_THAT(failed.err, HasSubstr("(cudaErrorIllegalAddress) at "));  // where
    EXPECT_THAT(failed.err, HasSubstr("hint: run the same command again"));
    if (count_stored(db) > 0) half = read_stored(db);
  }
  ASSERT_LT(half.size(), expected.size());
  EXPECT_EQ(check_integrity(db), "ok");

  const ProgramResult resumed = run_evalrun(folder, command(name));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const StoredRun whole = read_stored(db);
  ASSERT_EQ(whole.size(), expected.size());
  for (const auto& [cell, generation] : half)
    EXPECT_EQ(whole.at(cell), generation) << cell.prompt << ": changed by the resume";
  for (const auto& [cell, generation] : whole)
    EXPECT_TRUE(generation.same_output(expected.at(cell))) << cell.arm << " " << cell.prompt;
  EXPECT_EQ(query_value(db, "SELECT count(*) FROM run"), "1");
}

}  // namespace
}  // namespace evalrun::tests
