// evalrun list and evalrun data.
#include <algorithm>
#include <map>
#include <regex>

#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Listing = CommandTest;

TEST_F(Listing, EveryKindHasTheCommonKeys) {
  for (const char* kind : {"methods", "tasks", "evaluators", "suites", "models", "runs", "metrics",
                           "tables", "templates", "formats", "shapes", "isas"}) {
    SCOPED_TRACE(kind);
    const ProgramResult result = run({"list", kind, "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json array = json::parse(result.out);
    ASSERT_TRUE(array.is_array());
    if (std::string(kind) != "runs") {
      EXPECT_FALSE(array.empty());
    }
    for (const json& entry : array)
      for (const char* key : {"name", "lossless", "available", "needs", "params"})
        EXPECT_TRUE(entry.contains(key)) << key << " in " << entry;
    const ProgramResult table = run({"list", kind});
    EXPECT_EQ(table.exit_code, 0) << table.err;
    EXPECT_FALSE(table.out.empty());
  }
}

TEST_F(Listing, SuitesOfPapersOnRequest) {
  const std::string own = run({"list", "suites"}).out;
  EXPECT_THAT(own, ::testing::AllOf(HasSubstr("\nquick "), HasSubstr("list suites --papers")));
  EXPECT_THAT(own, ::testing::Not(HasSubstr("\npaper-bita ")));
  const std::string papers = run({"list", "suites", "--papers"}).out;
  EXPECT_THAT(papers, ::testing::AllOf(HasSubstr("\npaper-bita "), HasSubstr("\nsd-pad ")));
  EXPECT_THAT(papers, ::testing::Not(HasSubstr("\nquick ")));
  std::map<std::string, bool> paper;
  for (const json& suite : json::parse(run({"list", "suites", "--json"}).out))
    paper[suite["name"]] = suite["paper"];
  EXPECT_FALSE(paper.at("quick"));
  EXPECT_TRUE(paper.at("paper-bita"));
  EXPECT_EQ(run({"run", "paper-bita", "--plan", "--data-root", "."}).err.find("unknown suite"),
            std::string::npos);
}

TEST_F(Listing, MethodsSayWhatTheyKeepAndTake) {
  std::vector<std::string> names;
  for (const json& method : json::parse(run({"list", "methods", "--json"}).out)) {
    names.push_back(method["name"]);
    EXPECT_THAT((std::vector<std::string>{"none", "greedy", "both"}),
                ::testing::Contains(method["lossless"].get<std::string>()));
    for (const json& p : method["params"])
      for (const char* key : {"name", "default", "type", "description"})
        EXPECT_TRUE(p.contains(key)) << method["name"] << "." << key;
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"ar", "pld", "sps"}));
}

TEST_F(Listing, TheDocumentOfTheMethodsIsCurrent) {
  const ProgramResult result = run({"list", "methods", "--markdown"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(base::read_file(EVALRUN_SOURCE_DIR "/docs/methods.md") == result.out)
      << "docs/methods.md is not what the registry says. Write it anew, in the source folder:\n"
         "  build/release/bin/evalrun list methods --markdown > docs/methods.md";
  for (const json& method : json::parse(run({"list", "methods", "--json"}).out)) {
    const std::string name = method["name"];
    EXPECT_THAT(result.out, HasSubstr("\n## " + name + "\n"));
    for (const json& p : method["params"])
      EXPECT_THAT(result.out, HasSubstr("| `" + p["name"].get<std::string>() + "` |")) << name;
  }
  expect_refused(run({"list", "tasks", "--markdown"}), 2, "list methods --markdown");
}

// A page of measurements either has the methods of today, or says that it is stale.
TEST_F(Listing, MeasurementsAreDatedAndTheStaleOnesSaySo) {
  const std::string docs = EVALRUN_SOURCE_DIR "/docs/";
  const std::string overview = base::read_file(docs + "README.md");
  const std::regex row(
      R"(\| \[([a-z-]+\.md)\]\([^)]*\)[^|]*\| (\d{4}-\d\d-\d\d) \| (none|version (\d+)) \| `([^`]+)` \|)");
  const json methods = json::parse(run({"list", "methods", "--json"}).out);
  int pages = 0;
  for (std::sregex_iterator it(overview.begin(), overview.end(), row), end; it != end; ++it) {
    ++pages;
    const std::string name = (*it)[1], page = base::read_file(docs + name);
    EXPECT_THAT(page, HasSubstr((*it)[2].str())) << name << " has another date";
    EXPECT_THAT(page, HasSubstr((*it)[5].str())) << name << " names no such command";
    if ((*it)[4].str().empty()) continue;
    for (const json& m : methods) {
      const std::string method = m["name"];
      if (page.find("`" + method) == page.npos) continue;
      if (std::stoi(m["version"].get<std::string>()) > std::stoi((*it)[4])) {
        EXPECT_THAT(page, ContainsRegex("[*][*]Stale[.][*][*][^*]*`" + method + "`"))
            << name << ": " << method << " has version " << m["version"] << " today";
      }
    }
  }
  EXPECT_EQ(pages, 11) << "rows of the table of measurements in docs/README.md";
}

TEST_F(Listing, TasksKnowTheirFiles) {
  const auto available = [&](const std::vector<std::string>& more, const std::string& name) {
    std::vector<std::string> arguments = {"list", "tasks", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    for (const json& task : json::parse(run(arguments).out))
      if (task["name"] == name) return task["available"].get<bool>();
    ADD_FAILURE() << "no task " << name;
    return false;
  };
  EXPECT_TRUE(available({}, "samples"));
  EXPECT_FALSE(available({}, "gsm8k"));
  std::filesystem::create_directories(folder_.file("data/gsm8k"));
  folder_.write("data/gsm8k/test.jsonl", "");
  EXPECT_TRUE(available({"--data-root", "data"}, "gsm8k"));
}

TEST_F(Listing, TheModelThatIsNotThere) {
  const json models = json::parse(run({"list", "models", "--json"}).out);
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0]["available"], false);
  EXPECT_THAT(models[0]["needs"].get<std::string>(), HasSubstr("evalrun data model"));
}

TEST_F(Listing, ShapesWithTheirMemory) {
  const json shapes = json::parse(run({"list", "shapes", "--json"}).out);
  const auto found = std::find_if(shapes.begin(), shapes.end(),
                                  [](const json& s) { return s["name"] == "llama-2-7b"; });
  ASSERT_NE(found, shapes.end());
  EXPECT_EQ((*found)["parameters"], 6738415616);
  EXPECT_EQ((*found)["layers"], 32);
  EXPECT_EQ((*found)["ffn"], 11008);
  EXPECT_EQ((*found)["tied"], false);
  EXPECT_EQ((*found)["norm_eps"], 1e-5);
  const json memory = (*found)["memory"];
  // Two bytes a parameter, and norms of four: 65 of them, 4,096 wide.
  EXPECT_EQ(memory["bf16"], 6738415616 * 2 + 65 * 4096 * 2);
  EXPECT_GT(memory["bf16"], memory["int8"]);
  EXPECT_GT(memory["int8"], memory["q4"]);
  EXPECT_FALSE(memory.contains("stored")) << "that is what a file has";
  EXPECT_TRUE(shapes[0]["available"].get<bool>()) << "the smallest one";
  const std::string table = run({"list", "shapes"}).out;
  EXPECT_THAT(table, ContainsRegex("llama-2-7b +32 +4096 +32 +32 +11008 +32000 +[0-9.]+ GB"));
}

TEST_F(Listing, ThePathThatIsTaken) {
  const auto chosen = [&](const std::string& isa) {
    const ProgramResult result =
        isa.empty() ? run({"list", "isas", "--json"})
                    : run_command_in(folder_, {"sh", "-c",
                                               "EVALRUN_ISA=" + isa + " " +
                                                   evalrun_command({"list", "isas", "--json"})[0] +
                                                   " list isas --json"});
    std::string name;
    int n = 0;
    for (const json& entry : json::parse(result.out))
      if (entry["chosen"].get<bool>()) name = entry["name"], ++n;
    EXPECT_LE(n, 1);
    return name;
  };
  const json first = json::parse(run({"list", "isas", "--json"}).out)[0];
  EXPECT_EQ(chosen(""), first["name"]);
  EXPECT_EQ(chosen("reference"), "reference");
  EXPECT_EQ(chosen("mmx"), "") << "a path nobody has is not taken";
}

TEST_F(Listing, UnknownKind) { expect_refused(run({"list", "metods"}), 2, "methods"); }

TEST_F(Listing, DataFiles) {
  const ProgramResult list = run({"data", "list", "--json"});
  ASSERT_EQ(list.exit_code, 0) << list.err;
  bool gsm8k = false;
  for (const json& file : json::parse(list.out)) {
    gsm8k = gsm8k || file["dataset"] == "gsm8k";
    EXPECT_EQ(file["present"], false);
  }
  EXPECT_TRUE(gsm8k);
  expect_refused(run({"data", "verify"}), 2, "data root");
  expect_refused(run({"data", "fetch", "gms8k", "--data-root", "."}), 2, "gsm8k");
  expect_refused(run({"data", "verify", "gms8k", "--data-root", "."}), 2, "gsm8k");
  expect_refused(run({"data"}), 2, "subcommand");
}

TEST_F(Listing, VerifyTellsWhatIsWrong) {
  EXPECT_EQ(run({"data", "verify", "--data-root", "."}).exit_code, 0) << "nothing is needed";
  EXPECT_EQ(run({"data", "verify", "mt_bench", "--data-root", "."}).exit_code, 7)
      << "what is asked for must be there";
  // The official size with other bytes.
  std::filesystem::create_directories(folder_.file("mt_bench"));
  int64_t bytes = 0;
  for (const json& file : json::parse(run({"data", "list", "--json"}).out))
    if (file["path"] == "mt_bench/question.jsonl") bytes = file["bytes"];
  ASSERT_GT(bytes, 0);
  folder_.write("mt_bench/question.jsonl", std::string(static_cast<size_t>(bytes), 'x'));
  const ProgramResult result = run({"data", "verify", "--data-root", "."});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.out, HasSubstr("ERROR"));
  const ProgramResult document = run({"data", "verify", "mt_bench", "--data-root", ".", "--json"});
  EXPECT_EQ(document.exit_code, 7);
  bool told = false;
  for (const json& file : json::parse(document.out)) {
    EXPECT_EQ(file["dataset"], "mt_bench");
    if (file["path"] == "mt_bench/question.jsonl")
      told = file["ok"] == false && file["bytes"] == bytes;
  }
  EXPECT_TRUE(told) << document.out;
}

TEST_F(Listing, ConvertedWeightsAreListedAndCleared) {
  const auto cache = [&](std::vector<std::string> arguments, const std::string& limit = "5GB") {
    arguments.insert(arguments.begin(), {"data", "cache"});
    std::vector<std::string> command = evalrun_command(std::move(arguments));
    command.insert(command.begin(), {"env", "EVALRUN_HOME=home", "EVALRUN_CACHE_MAX=" + limit});
    return run_command_in(folder_, command);
  };
  EXPECT_THAT(cache({}).out, HasSubstr("0 files of converted weights"));
  std::filesystem::create_directories(folder_.file("home/weights"));
  std::string page = json({{"source", "/models/some.gguf"}}).dump();
  page.resize(4095, ' ');
  for (const char* name : {"aa-int8-2.bin", "aa-q4-2.bin", "bb-q4-2.bin", "bb-q4-2.bin.tmp.1.0"})
    folder_.write(std::string("home/weights/") + name, "weights" + page + "\n");

  const ProgramResult listed = cache({});
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("some.gguf"));
  EXPECT_THAT(listed.out, HasSubstr("left behind"));
  EXPECT_THAT(listed.out, HasSubstr("of at most 5 GB (EVALRUN_CACHE_MAX)"));
  const json all = json::parse(cache({"--json"}).out);
  EXPECT_EQ(all["limit_bytes"], 5000000000);
  EXPECT_EQ(all["bytes"], 4 * 4103);
  ASSERT_EQ(all["files"].size(), 4u);
  EXPECT_EQ(all["files"][0]["source"], "/models/some.gguf");
  EXPECT_EQ(all["files"][0]["format"], "int8");
  EXPECT_EQ(all["files"][0]["model_sha256"], "aa");
  EXPECT_EQ(all["files"][0]["in_use"], false);
  EXPECT_EQ(all["files"][3]["complete"], false);

  expect_refused(cache({"--clear", "cc*"}), 2, "cc*");
  expect_refused(cache({}, "lots"), 2, "EVALRUN_CACHE_MAX is 'lots'");
  const json cleared = json::parse(cache({"--clear", "int8", "--json"}).out);
  ASSERT_EQ(cleared["removed"].size(), 1u);
  EXPECT_EQ(cleared["removed_bytes"], 4103);
  EXPECT_TRUE(cleared["kept"].empty());
  EXPECT_THAT(cache({"--clear", "bb*"}).out, HasSubstr("removed 2 files"));
  EXPECT_EQ(json::parse(cache({"--json"}).out)["files"].size(), 1u);
  EXPECT_THAT(cache({"--clear"}).out, HasSubstr("removed 1 file,"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.file("home/weights")));
}

}  // namespace
}  // namespace evalrun::tests
