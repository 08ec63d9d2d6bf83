// Servers as a suite names them, and what makes one the same server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "runners/endpoints/endpoint.h"
#include "runners/plan/suite.h"

namespace evalrun::runners {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// What a suite refuses.
std::string suite_refusal(Suite suite) {
  try {
    complete_suite(suite, "mine.json");
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    return e.what();
  }
  return "";
}

TEST(EndpointSuite, WhatServersCannotIsRefusedWithTheReason) {
  Suite sound = parse_suite(
      R"({"tasks": ["samples"], "endpoints": ["a=http://127.0.0.1:1,api=llama"]})", "mine.json");
  EXPECT_EQ(suite_refusal(sound), "");
  Suite s = sound;
  s.batches.sizes = {1, 4};
  EXPECT_THAT(suite_refusal(s), AllOf(HasSubstr("mine.json: field 'batch' of 4 with endpoints"),
                                      HasSubstr("its own choice")));
  s = sound, s.replay = true;
  EXPECT_THAT(suite_refusal(s), HasSubstr("field 'replay' with endpoints"));
  s = sound, s.methods = {"oracle:alpha=0.8,k=3"};
  EXPECT_THAT(suite_refusal(s), HasSubstr("synthetic acceptance"));
  s = sound, s.endpoints.push_back(s.endpoints[0]);
  EXPECT_THAT(suite_refusal(s), HasSubstr("two endpoints are named a"));
  s = sound, s.endpoints[0].name = "pld", s.methods = {"pld"};
  EXPECT_THAT(suite_refusal(s), HasSubstr("pld is the name of an endpoint and of a method"));
  s = sound, s.baseline = "b";
  EXPECT_THAT(suite_refusal(s), AllOf(HasSubstr("'baseline'"), HasSubstr("no arm of this run")));
  s = sound, s.baseline = "a", s.endpoints.clear();
  EXPECT_THAT(suite_refusal(s), HasSubstr("there are no endpoints"));
}

TEST(EndpointSuite, ReadsStringsAndObjectsAndKeepsOtherKeys) {
  Suite s = parse_suite(R"({"tasks": ["samples"], "baseline": "b", "endpoints": [
      "a=http://127.0.0.1:1,api=llama",
      {"name": "b", "url": "http://127.0.0.1:2", "api": "llama", "cache": "kept"}]})",
                        "mine.json");
  complete_suite(s, "mine.json");
  ASSERT_THAT(s.endpoints, SizeIs(2));
  EXPECT_EQ(s.endpoints[1].url, "http://127.0.0.1:2");
  EXPECT_EQ(s.endpoints[1].cache, EndpointSpec::Cache::kKept);
  EXPECT_TRUE(s.methods.empty()) << "no `ar` is put first";
  const nlohmann::json stored = to_json(s);
  EXPECT_EQ(to_json(parse_suite(stored.dump(), "stored")), stored);
  Suite without = parse_suite(R"({"tasks": ["samples"]})", "mine.json");
  complete_suite(without, "mine.json");
  for (const char* key : {"endpoints", "baseline"}) EXPECT_FALSE(to_json(without).contains(key));
  for (const char* bad :
       {R"({"endpoints": "a=http://127.0.0.1:1"})", R"({"endpoints": [{"name": "a"}]})",
        R"({"endpoints": [{"name": "a", "url": "http://127.0.0.1:1", "adress": "x"}]})",
        R"({"endpoints": [{"name": "a", "url": "http://127.0.0.1:1,api=vllm"}]})"})
    EXPECT_THROW(parse_suite(bad, "mine.json"), base::Error) << bad;
}

TEST(EndpointHost, IsTheMachineAndNotThePort) {
  const auto host = [](const char* url) {
    return host_of(parse_endpoint(fmt::format("a={}", url), "test"));
  };
  for (const char* here : {"http://127.0.0.1:8101", "http://localhost", "http://[::1]:80"})
    EXPECT_EQ(host(here), "this machine") << here;
  EXPECT_EQ(host("http://gpu7:8080"), "gpu7");
  EXPECT_EQ(host("https://models.example.org"), "models.example.org");
  EXPECT_EQ(host("http://[2001:db8::7]:80"), "[2001:db8::7]");
  EXPECT_EQ(host("http://[2001:db8::7]"), "[2001:db8::7]");
}

}  // namespace
}  // namespace evalrun::runners
