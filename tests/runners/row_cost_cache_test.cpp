// The cached T(n) table of a run: keys, round trips through the file, broken files, no right to
// write; and how a run hands the table to its methods.
#include "runners/machine/row_cost_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "engine/base/text.h"
#include "runners/measure/runner.h"
#include "tests/runners/fakes.h"
#include "tests/scoped_variable.h"
#include "tests/temp_folder.h"

namespace evalrun::runners {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

engine::SessionOptions session_of(const std::string& isa = "reference", int threads = 1) {
  engine::SessionOptions o;
  o.isa = isa, o.n_threads = threads;
  return o;
}

class RowCostCache : public ::testing::Test {
 protected:
  RowCostRequest request() const { return {tests::tiny_model(512), session_of(), file(), 1}; }
  std::string file() const { return folder_.file("home/row-cost.json"); }
  void write(const std::string& text) const { folder_.write("home/row-cost.json", text); }
  nlohmann::json read() const { return nlohmann::json::parse(base::read_file(file())); }
  const tests::TempFolder folder_;
};

TEST(RowCostKey, EverythingThatMovesATableIsInIt) {
  const auto model = tests::tiny_model(256);
  const auto key = [&](const engine::SessionOptions& session, const std::string& cpu = "cpu",
                       const std::string& placement = "near") {
    return row_cost_key(*model, session, cpu, placement);
  };
  engine::SessionOptions uncached = session_of();
  uncached.kv_cache = false;
  engine::SessionOptions batch = session_of();
  batch.n_sequences = 8;
  const auto other_format = tests::tiny_model(256, model->hash(), engine::WeightFormat::kInt8);
  const std::set<std::string> keys = {
      key(session_of()),
      key(session_of("avx2")),
      key(session_of("reference", 2)),
      key(uncached),
      key(batch),
      key(session_of(), "another"),
      key(session_of(), "cpu", "far"),
      row_cost_key(*tests::tiny_model(256, "h2"), session_of(), "cpu", "near"),
      row_cost_key(*other_format, session_of(), "cpu", "near"),
  };
  EXPECT_EQ(keys.size(), 9u);
  EXPECT_EQ(key(session_of()), key(session_of()));
  EXPECT_EQ(row_cost_key(*tests::tiny_model(256, ""), session_of(), "cpu", "near"), "");
}

TEST(RowCostKey, WhereThreadsAndWeightsAreIsInIt) {
  const auto model = tests::tiny_model(256);
  for (const char* variable : {"EVALRUN_NUMA", "EVALRUN_PIN"}) {
    const std::string before = row_cost_key(*model, session_of(), "cpu", "near");
    const tests::ScopedVariable other(variable, "another");
    EXPECT_NE(row_cost_key(*model, session_of(), "cpu", "near"), before) << variable;
  }
}

TEST(RowCostKey, Placement) {
  EXPECT_EQ(placement_class(0, 1), "one");
  EXPECT_EQ(placement_class(110, 2), "near");
  EXPECT_EQ(placement_class(420, 2), "far");
}

TEST(RowCostJson, RoundTrip) {
  engine::RowCostTable table;
  table.context = 256, table.bytes = 1234567, table.rounds = 7;
  table.rows = {{1, 2.5, 2.25, 2.75, {1, 0.5, 0.25, 0.5, 0.25}}, {4, 5, 4.5, 5.5, {}}};
  const nlohmann::json json = to_json(table);
  EXPECT_EQ(json["rows"][1]["ratio"], 2.0);
  const auto back = row_cost_from_json(json);
  ASSERT_TRUE(back);
  EXPECT_EQ(nlohmann::json(to_json(*back)), json);
  EXPECT_FALSE(json.contains("shape")) << "a model's";
  table.shape = "llama-2-7b";
  EXPECT_EQ(row_cost_from_json(to_json(table))->shape, "llama-2-7b");
  table.sequences = 8;
  EXPECT_EQ(row_cost_from_json(to_json(table))->sequences, 8);
  nlohmann::json old = json;
  old.erase("sequences");
  EXPECT_EQ(row_cost_from_json(old)->sequences, 1);
  const auto refused = [&](const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json broken = json;
    change(broken);
    return !row_cost_from_json(broken).has_value();
  };
  EXPECT_TRUE(refused([](nlohmann::json& j) { j = nlohmann::json::array(); }));
  EXPECT_TRUE(refused([](nlohmann::json& j) { j.erase("context"); }));
  EXPECT_TRUE(refused([](nlohmann::json& j) { j["context"] = "256"; }));
  EXPECT_TRUE(refused([](nlohmann::json& j) { j["sequences"] = 0; }));
  EXPECT_TRUE(refused([](nlohmann::json& j) { j["rows"].clear(); }));
  EXPECT_TRUE(refused([](nlohmann::json& j) { j["rows"][0]["rows"] = 2; }));
  EXPECT_TRUE(refused([](nlohmann::json& j) { j["rows"][1]["rows"] = 1; }));
  EXPECT_TRUE(refused([](nlohmann::json& j) { j["rows"][1]["ms"] = -1.0; }));
  EXPECT_TRUE(refused([](nlohmann::json& j) { j["rows"][1].erase("phases"); }));
}

TEST_F(RowCostCache, MeasuredOnceThenRead) {
  const MeasuredRowCost first = obtain_row_cost(request());
  ASSERT_FALSE(first.table.empty()) << first.problem;
  EXPECT_FALSE(first.cached);
  EXPECT_EQ(first.problem, "");
  EXPECT_EQ(first.table.rows.back().rows, 64) << "the limit of ten seconds is far away";
  const MeasuredRowCost second = obtain_row_cost(request());
  EXPECT_TRUE(second.cached);
  EXPECT_EQ(nlohmann::json(to_json(second.table)), nlohmann::json(to_json(first.table)));
  // Another model beside it, in the same file.
  RowCostRequest other = request();
  other.model = tests::tiny_model(512, "h2");
  EXPECT_FALSE(obtain_row_cost(other).cached);
  EXPECT_TRUE(obtain_row_cost(other).cached);
  EXPECT_TRUE(obtain_row_cost(request()).cached);
  EXPECT_EQ(read()["tables"].size(), 2u);
}

TEST_F(RowCostCache, EveryBatchHasATableOfItsOwn) {
  RowCostRequest batches = request();
  batches.batches = {1, 2, 64};
  const MeasuredRowCost first = obtain_row_cost(batches);
  EXPECT_EQ(first.problem, "");
  EXPECT_FALSE(first.cached);
  ASSERT_EQ(first.batches.size(), 2u) << "batch 1 is the table itself";
  EXPECT_EQ(first.table.sequences, 1);
  EXPECT_EQ(first.of_batch(1).sequences, 1);
  for (const int sequences : {2, 64}) {
    const engine::RowCostTable& table = first.batches.at(sequences);
    EXPECT_EQ(table.sequences, sequences);
    EXPECT_LE(table.rows.back().rows * sequences, engine::kMaxRows);
    EXPECT_EQ(nlohmann::json(to_json(first.of_batch(sequences))), nlohmann::json(to_json(table)));
  }
  EXPECT_DOUBLE_EQ(first.of_batch(4).ms(3), first.table.ms(12)) << "nobody asked for it";
  const MeasuredRowCost second = obtain_row_cost(batches);
  EXPECT_TRUE(second.cached);
  for (const int sequences : {1, 2, 64})
    EXPECT_EQ(nlohmann::json(to_json(second.of_batch(sequences))),
              nlohmann::json(to_json(first.of_batch(sequences))));
  batches.batches = {1, 3};
  EXPECT_FALSE(obtain_row_cost(batches).cached) << "that of 3 is not";
  EXPECT_TRUE(obtain_row_cost(request()).cached);
  EXPECT_EQ(read()["tables"].size(), 4u);
}

// Without one, that of one sequence has to do.
TEST_F(RowCostCache, ABatchThatCannotBeMeasuredFallsBack) {
  RowCostRequest batches = request();
  batches.batches = {2};
  obtain_row_cost(batches);
  // Of one row count, as where a forward takes seconds.
  nlohmann::json cache = read();
  for (auto& [key, table] : cache["tables"].items())
    if (table["sequences"] == 2)
      table["rows"].erase(table["rows"].begin() + 1, table["rows"].end());
  write(cache.dump());
  const MeasuredRowCost found = obtain_row_cost(batches);
  EXPECT_TRUE(found.batches.empty());
  EXPECT_THAT(found.problem, HasSubstr("T(n) of 2 sequences: more than one row of each"));
  EXPECT_DOUBLE_EQ(found.of_batch(2).ratio(4), found.table.ms(8) / found.table.ms(2));
  // Somebody else's, under its key.
  for (auto& [key, table] : cache["tables"].items()) table["sequences"] = 5;
  write(cache.dump());
  const MeasuredRowCost again = obtain_row_cost(batches);
  EXPECT_FALSE(again.cached);
  EXPECT_EQ(again.table.sequences, 1);
  EXPECT_EQ(again.batches.at(2).sequences, 2);
}

// Whoever copied one there: a run's model is not a shape.
TEST_F(RowCostCache, ATableOfAShapeIsNotTaken) {
  obtain_row_cost(request());
  nlohmann::json cache = read();
  for (auto& [key, table] : cache["tables"].items()) table["shape"] = "llama-2-7b";
  write(cache.dump());
  const MeasuredRowCost again = obtain_row_cost(request());
  EXPECT_FALSE(again.cached);
  EXPECT_EQ(again.table.shape, "");
  EXPECT_TRUE(obtain_row_cost(request()).cached) << "measured anew, and stored";
}

TEST_F(RowCostCache, APlanReadsTheFileAndWritesNone) {
  RowCostRequest plan = request();
  plan.keep = false;
  const MeasuredRowCost measured = obtain_row_cost(plan);
  EXPECT_FALSE(measured.table.empty()) << measured.problem;
  EXPECT_FALSE(measured.cached);
  EXPECT_FALSE(fs::exists(file()));
  obtain_row_cost(request());
  EXPECT_TRUE(obtain_row_cost(plan).cached);
}

TEST_F(RowCostCache, BrokenFilesAreWrittenAnew) {
  for (const char* text : {"", "no JSON", "[]", R"({"version": 99, "tables": {}})",
                           R"({"version": 1})", R"({"version": 1, "tables": 3})"}) {
    SCOPED_TRACE(text);
    write(text);
    const MeasuredRowCost found = obtain_row_cost(request());
    EXPECT_FALSE(found.table.empty());
    EXPECT_FALSE(found.cached);
    EXPECT_THAT(found.problem, HasSubstr("row-cost.json"));
    EXPECT_TRUE(obtain_row_cost(request()).cached);
  }
}

TEST_F(RowCostCache, ABrokenTableCostsOnlyItself) {
  RowCostRequest other = request();
  other.model = tests::tiny_model(512, "h2");
  obtain_row_cost(request());
  obtain_row_cost(other);
  nlohmann::json json = read();
  for (auto& [key, table] : json["tables"].items())
    if (key.starts_with("h1 ")) table["rows"][0]["ms"] = "fast";
  write(json.dump());
  EXPECT_TRUE(obtain_row_cost(other).cached);
  const MeasuredRowCost again = obtain_row_cost(request());
  EXPECT_FALSE(again.cached);
  EXPECT_FALSE(again.table.empty());
  EXPECT_TRUE(obtain_row_cost(request()).cached);
}

TEST_F(RowCostCache, OldTablesGo) {
  obtain_row_cost(request());
  nlohmann::json json = read();
  for (int i = 0; i < 80; ++i)
    json["tables"]["old " + std::to_string(i)] = {{"measured", "2020-01-01T00:00:00Z"}};
  write(json.dump());
  RowCostRequest other = request();
  other.model = tests::tiny_model(512, "h2");
  obtain_row_cost(other);
  EXPECT_EQ(read()["tables"].size(), 64u);
  EXPECT_TRUE(obtain_row_cost(request()).cached);
  EXPECT_TRUE(obtain_row_cost(other).cached);
}

TEST_F(RowCostCache, NoRightToWriteIsNoFailure) {
  // A file where the folder should be: nobody can write below it, not even root.
  folder_.write("home", "a file");
  const MeasuredRowCost found = obtain_row_cost(request());
  EXPECT_FALSE(found.table.empty());
  EXPECT_NE(found.problem, "");
}

TEST_F(RowCostCache, WhatCannotBeMeasuredIsNoFailure) {
  RowCostRequest impossible = request();
  impossible.session.isa = "no such path";
  const MeasuredRowCost found = obtain_row_cost(impossible);
  EXPECT_TRUE(found.table.empty());
  EXPECT_THAT(found.problem, HasSubstr("no such path"));
}

TEST_F(RowCostCache, ASmallContextStillHasATable) {
  RowCostRequest small = request();
  small.model = tests::tiny_model(16);
  const MeasuredRowCost found = obtain_row_cost(small);
  ASSERT_FALSE(found.table.empty()) << found.problem;
  EXPECT_EQ(found.table.context, 1);
}

// Methods are built anew for the run, and find the table then.
TEST_F(RowCostCache, MethodsAreHandedTheTable) {
  PlanRequest plan_request;
  plan_request.suite.tasks = {{.task = "samples/chat", .limit = 1}};
  plan_request.suite.methods = {"ar"};
  plan_request.suite.max_new = 4;
  plan_request.target = tests::tiny_model(2048);
  plan_request.session = session_of();
  complete_suite(plan_request.suite, "test");
  const RunPlan plan = make_plan(plan_request);
  EXPECT_TRUE(plan.row_cost->table.empty()) << "a plan measures nothing";
  RunnerOptions options;
  measure_row_cost(plan_request, plan, options);
  EXPECT_TRUE(plan.row_cost->table.empty()) << "nobody asked for one";
  options.row_cost_seconds = 0.001;
  options.row_cost_cache = file();
  measure_row_cost(plan_request, plan, options);
  EXPECT_FALSE(plan.row_cost->table.empty()) << plan.row_cost->problem;
  EXPECT_NE(plan.arms[0].build(), nullptr);
  const RunPlan again = make_plan(plan_request);
  measure_row_cost(plan_request, again, options);
  EXPECT_TRUE(again.row_cost->cached);
  options.row_cost_seconds = 1;
  plan_request.suite.tasks[0].limit = 2;
  plan_request.suite.batches.sizes = {1, 2};
  complete_suite(plan_request.suite, "test");
  const RunPlan batches = make_plan(plan_request);
  measure_row_cost(plan_request, batches, options);
  EXPECT_EQ(batches.row_cost->batches.at(2).sequences, 2) << batches.row_cost->problem;
}

}  // namespace
}  // namespace evalrun::runners
