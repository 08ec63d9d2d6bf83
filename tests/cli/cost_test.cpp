// evalrun cost: the shape of what it prints, and what it refuses. No test looks at a time.
#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

class Cost : public CommandTest {
 protected:
  ProgramResult cost(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"cost", "-m", tiny_model(), "--rounds", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

void expect_table(const json& table, const std::vector<int>& rows) {
  for (const char* key :
       {"model",           "shape",        "shape_source", "weights",          "layers",
        "distinct_layers", "dtype",        "isa",          "threads",          "context",
        "bytes",           "rounds",       "rows",         "weight_bytes",     "kv_bytes_per_token",
        "workspace_bytes", "tokens_per_s", "floor_ms",     "floor_share",      "bandwidth_gb_s",
        "pingpong_ns",     "placement",    "prefill",      "weight_placement", "weight_copy_bytes",
        "sequences"})
    EXPECT_TRUE(table.contains(key)) << key;
  ASSERT_EQ(table["rows"].size(), rows.size());
  const double first = table["rows"][0]["ms"];
  for (size_t i = 0; i < rows.size(); ++i) {
    const json& row = table["rows"][i];
    EXPECT_EQ(row["rows"], rows[i]);
    EXPECT_DOUBLE_EQ(row["ratio"].get<double>(), row["ms"].get<double>() / first);
    EXPECT_LE(row["q1_ms"], row["ms"]);
    EXPECT_GE(row["q3_ms"], row["ms"]);
    for (const char* phase : {"weights", "attention", "norms", "head", "waits"})
      EXPECT_GE(row["phases"][phase], 0) << phase;
  }
  EXPECT_NEAR(table["floor_ms"].get<double>(),
              table["bytes"].get<double>() / table["bandwidth_gb_s"].get<double>() / 1e6,
              1e-9 * table["floor_ms"].get<double>());
}

TEST_F(Cost, JsonOfOneFormat) {
  const ProgramResult result = cost({"--rows", "8,3", "--context", "70", "--prefill", "9,5", "-t",
                                     "1", "--dtype", "f32", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json table = json::parse(result.out);
  expect_table(table, {1, 3, 8});
  EXPECT_EQ(table["dtype"], "f32");
  EXPECT_TRUE(table["shape"].is_null());
  EXPECT_TRUE(table["shape_source"].is_null());
  EXPECT_EQ(table["weights"], "model");
  EXPECT_EQ(table["distinct_layers"], table["layers"]);
  EXPECT_EQ(table["threads"], 1);
  EXPECT_TRUE(table["pingpong_ns"].is_null()) << "one thread has nobody to talk to";
  EXPECT_EQ(table["context"], 70);
  EXPECT_EQ(table["rounds"], 2);
  ASSERT_EQ(table["prefill"].size(), 2u);
  EXPECT_EQ(table["prefill"][0]["tokens"], 5);
  EXPECT_GT(table["prefill"][1]["tokens_per_s"], 0);
  EXPECT_EQ(result.err, "") << "progress belongs on a terminal";
}

TEST_F(Cost, SeveralFormatsAtOnce) {
  const ProgramResult result =
      cost({"--rows", "2", "--dtype", "f32,f32", "--prefill", "0", "--isa", "reference", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json formats = json::parse(result.out)["formats"];
  ASSERT_EQ(formats.size(), 2u);
  for (const json& table : formats) {
    expect_table(table, {1, 2});
    EXPECT_EQ(table["isa"], "reference");
    EXPECT_TRUE(table["prefill"].empty());
  }
}

// Twice the keys and values, once the weights.
TEST_F(Cost, ATableForEachNumberOfSequences) {
  const ProgramResult result = cost({"--sequences", "1,2", "--rows", "3", "--context", "70",
                                     "--prefill", "0", "--dtype", "f32", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json tables = json::parse(result.out)["formats"];
  ASSERT_EQ(tables.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const json& table = tables[i];
    expect_table(table, {1, 3});
    EXPECT_EQ(table["sequences"], i + 1);
    EXPECT_EQ(table["context"], 70);
    EXPECT_NEAR(table["tokens_per_s"].get<double>() * table["rows"][0]["ms"].get<double>(),
                1e3 * static_cast<double>(i + 1), 1e-6);
  }
  EXPECT_EQ(tables[1]["bytes"].get<int64_t>() - tables[0]["bytes"].get<int64_t>(),
            70 * tables[0]["kv_bytes_per_token"].get<int64_t>());
  const ProgramResult text = cost({"--sequences", "64", "--prefill", "0", "--dtype", "f32"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  for (const char* part : {"context 256 of each of 64 sequences", "\n *rows each", "\n *16 "})
    EXPECT_THAT(text.out, ::testing::ContainsRegex(part));
  EXPECT_THAT(text.out, ::testing::Not(::testing::ContainsRegex("\n *24 "))) << "1536 rows";
}

TEST_F(Cost, TableForPeople) {
  const ProgramResult result = cost({"--rows", "1,4", "--prefill", "16", "--dtype", "f32"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"T(n)/T(1)", "quartiles", "attention", "floor", "T(1) reaches", "tok/s",
                           "prompt of 16 tokens", "f32", "memory: "})
    EXPECT_THAT(result.out, HasSubstr(part));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("random weights")));
}

TEST_F(Cost, ManyRowsBehindALongContext) {
  // The tiny model's context is 4096: both limits are within reach.
  const ProgramResult result =
      cost({"--rows", "1024", "--context", "4096", "--prefill", "0", "--dtype", "f32", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_table(json::parse(result.out), {1, 1024});
}

TEST_F(Cost, BadInput) {
  expect_refused(cost({"--rows", "0"}), 2, "--rows");
  expect_refused(cost({"--rows", "1025"}), 2, "1024");
  expect_refused(cost({"--sequences", "0"}), 2, "--sequences");
  expect_refused(cost({"--sequences", "65"}), 2, "--sequences");
  const ProgramResult rows = cost({"--sequences", "1,64", "--rows", "17,2"});
  expect_refused(rows, 2, "--rows 17 of each of 64 sequences are 1088 rows");
  EXPECT_THAT(rows.err, HasSubstr("--rows 16 or fewer --sequences"));
  expect_refused(cost({"--rows", "eight"}), 2, "eight");
  expect_refused(cost({"--context", "0"}), 2, "--context");
  expect_refused(cost({"--context", "4097", "--dtype", "f32"}), 2, "1 to 4096 tokens");
  expect_refused(cost({"--prefill", "5000", "--dtype", "f32"}), 2, "--prefill");
  expect_refused(cost({"--dtype", "int9"}), 2, "int8-fast");
  expect_refused(cost({"--dtype", "f32,q5"}), 2, "q5");
  expect_refused(cost({"--isa", "mmx"}), 2, "reference");
}

// --shape: a config.json of a few kilobytes of weights, so that nothing takes time.
class CostShape : public CommandTest {
 protected:
  void SetUp() override { write_shape("Tiny-Shape/config.json", json::object()); }
  void write_shape(const std::string& file, const json& changes) {
    json config = {{"model_type", "qwen3"},    {"hidden_size", 64},
                   {"intermediate_size", 96},  {"num_hidden_layers", 5},
                   {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                   {"head_dim", 32},           {"vocab_size", 333},
                   {"rms_norm_eps", 1e-6},     {"max_position_embeddings", 700},
                   {"rope_theta", 1000000},    {"tie_word_embeddings", true}};
    config.update(changes);
    folder_.write(file, config.dump());
  }
  ProgramResult cost(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"cost", "--rounds", "2", "--rows", "4", "-t", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

TEST_F(CostShape, SaysThatItsWeightsAreRandom) {
  const ProgramResult result =
      cost({"--shape", "Tiny-Shape/config.json", "--dtype", "q4,auto", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json formats = json::parse(result.out)["formats"];
  ASSERT_EQ(formats.size(), 2u);
  for (const json& table : formats) {
    expect_table(table, {1, 4});
    EXPECT_EQ(table["model"], "shape:Tiny-Shape");
    EXPECT_EQ(table["shape"], "Tiny-Shape");
    EXPECT_EQ(table["shape_source"], "Tiny-Shape/config.json");
    EXPECT_EQ(table["weights"], "random");
    EXPECT_EQ(table["layers"], 5);
    EXPECT_EQ(table["distinct_layers"], 5) << "all of them are smaller than the caches";
    EXPECT_EQ(table["context"], 256);
    EXPECT_EQ(table["prefill"][0]["tokens"], 512);
    EXPECT_EQ(table["kv_bytes_per_token"], 2 * 5 * 2 * 32 * 2) << "k and v of two heads in bf16";
  }
  EXPECT_EQ(formats[0]["dtype"], "q4");
  EXPECT_EQ(formats[1]["dtype"], "int8") << "auto has no file to ask";
  EXPECT_LT(formats[0]["weight_bytes"], formats[1]["weight_bytes"]);
}

TEST_F(CostShape, TextForPeople) {
  const ProgramResult result = cost({"--shape", "Tiny-Shape", "--dtype", "bf16"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"shape:Tiny-Shape", "random weights, all 5 layers distinct",
                           "Tiny-Shape/config.json", "memory: ", "T(n)/T(1)"})
    EXPECT_THAT(result.out, HasSubstr(part));
}

TEST_F(CostShape, SeveralSequences) {
  const ProgramResult result =
      cost({"--shape", "Tiny-Shape", "--dtype", "q4", "--sequences", "8", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json table = json::parse(result.out);
  expect_table(table, {1, 4});
  EXPECT_EQ(table["sequences"], 8);
  EXPECT_EQ(table["shape"], "Tiny-Shape");
}

TEST_F(CostShape, BadInput) {
  expect_refused(cost({"--shape", "Tiny-Shape", "-m", tiny_model()}), 2, "--shape");
  expect_refused(cost({"--shape", "Tiny-Shape", "--chat-template", "chatml"}), 2, "--shape");
  expect_refused(cost({"--shape", "llama-3-8"}), 2, "did you mean 'llama-3-8b'");
  expect_refused(cost({"--shape", tiny_gguf()}), 2, "-m ");
  expect_refused(cost({"--shape", "Tiny-Shape", "--dtype", "int9"}), 2, "int8-fast");
  expect_refused(cost({"--shape", "Tiny-Shape", "--dtype", "q4,stored"}), 2,
                 "--dtype stored: a shape has no file");
  expect_refused(cost({"--shape", "Tiny-Shape", "--context", "701"}), 2, "1 to 700 tokens");
  expect_refused(cost({"--shape", "Tiny-Shape", "--kv-dtype", "int9"}), 2, "int9");
  write_shape("other.json", {{"model_type", "gemma"}});
  expect_refused(cost({"--shape", "other.json"}), 7, "unknown architecture 'gemma'");
  write_shape("typing.json", {{"num_hidden_layer", 7}});
  expect_refused(cost({"--shape", "typing.json"}), 7, "did you mean 'num_hidden_layers'?");
}

// Petabytes: said before anything is allocated, and with what would fit instead.
TEST_F(CostShape, WhatDoesNotFitIsRefused) {
  write_shape("huge.json", {{"hidden_size", 1 << 19},
                            {"intermediate_size", 1 << 20},
                            {"num_hidden_layers", 4000},
                            {"vocab_size", 1 << 20}});
  const ProgramResult result = cost({"--shape", "huge.json", "--dtype", "q4"});
  expect_refused(result, 7, "shape:huge: as q4 a model of this shape needs ");
  for (const char* part : {"of memory are free", "too few", "huge fits in no format",
                           "as q4 fit smollm2-135m", "for keys and values of 512 tokens"})
    EXPECT_THAT(result.err, HasSubstr(part));
  EXPECT_THAT(cost({"--shape", "huge.json", "--dtype", "q4", "--sequences", "1,8"}).err,
              HasSubstr("for keys and values of 8 sequences of 512 tokens"));
}

// A name that is right but not for this processor is told apart from one nobody knows.
TEST_F(Cost, KnownPathsOfOtherProcessors) {
  for (const json& isa : json::parse(run({"list", "isas", "--json"}).out)) {
    const std::string name = isa["name"];
    if (isa["available"].get<bool>()) continue;
    const ProgramResult result = cost({"--isa", name});
    expect_refused(result, 2, "this processor cannot run");
    EXPECT_THAT(result.err, HasSubstr(isa["needs"].get<std::string>()));
    EXPECT_THAT(result.err, HasSubstr("available here: "));
  }
}

}  // namespace
}  // namespace evalrun::tests
