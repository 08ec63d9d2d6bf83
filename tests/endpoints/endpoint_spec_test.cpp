#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "runners/endpoints/endpoint.h"
#include "tests/scoped_variable.h"

namespace evalrun::runners {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string endpoint_error(const std::string& text) {
  try {
    parse_endpoint(text, "--endpoint");
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ExitCode::kUsage) << error.what();
    return error.what();
  }
  return "no error";
}

std::string making_error(const std::string& text) {
  base::SteadyClock clock;
  try {
    make_endpoint(parse_endpoint(text, "--endpoint"), {clock});
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ExitCode::kUsage) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(EndpointSpec, ReadsWhatToStringWrites) {
  const EndpointSpec all = parse_endpoint(
      " fast.v2-b = https://example.org:8443/ , "
      "api=vllm,model=org/m-1,key-env=MY_KEY,cache=kept,settle=1.5,start=0",
      "--endpoint");
  EXPECT_EQ(all.name, "fast.v2-b");
  EXPECT_EQ(all.url, "https://example.org:8443");
  EXPECT_EQ(all.api, "vllm");
  EXPECT_EQ(all.model, "org/m-1");
  EXPECT_EQ(all.key_env, "MY_KEY");
  EXPECT_EQ(all.cache, EndpointSpec::Cache::kKept);
  EXPECT_EQ(all.settle_s, 1.5);
  EXPECT_EQ(all.start_s, 0.0);
  EXPECT_EQ(to_string(all),
            "fast.v2-b=https://example.org:8443,api=vllm,model=org/m-1,key-env=MY_KEY,cache=kept,"
            "settle=1.5,start=0");
  EXPECT_EQ(parse_endpoint(to_string(all), ""), all);

  const EndpointSpec least = parse_endpoint("plain=http://127.0.0.1:8080", "--endpoint");
  EXPECT_EQ(least.api, "openai");
  EXPECT_EQ(least.cache, EndpointSpec::Cache::kOff);
  EXPECT_EQ(to_string(least), "plain=http://127.0.0.1:8080,api=openai");
  EXPECT_EQ(parse_endpoint(to_string(least), ""), least);

  const EndpointSpec declared = parse_endpoint("a=http://b:1,cache=declared-off", "");
  EXPECT_EQ(declared.cache, EndpointSpec::Cache::kDeclaredOff);
  EXPECT_EQ(parse_endpoint(to_string(declared), ""), declared);
}

TEST(EndpointSpec, ErrorsNameTheFieldAndWhatIsAllowed) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"", "expected NAME=URL"},
      {"http://127.0.0.1:8080", "expected NAME=URL"},
      {"http://127.0.0.1:8080,api=llama", "expected NAME=URL"},
      {"=http://127.0.0.1:8080", "a name has letters"},
      {"a b=http://127.0.0.1:8080", "a name has letters"},
      {"a=127.0.0.1:8080", "endpoint a"},
      {"a=ftp://127.0.0.1", "endpoint a"},
      {"a=http://", "scheme, host and port alone"},
      {"a=http://h:1/v1", "adds the path"},
      {"a=http://h:1?x=1", "adds the path"},
      {"a=http://h:1,apy=llama", "did you mean 'api'"},
      {"a=http://h:1,api=lama", "did you mean 'llama'"},
      {"a=http://h:1,api=llama,api=llama", "given twice"},
      {"a=http://h:1,api", "expected key=value"},
      {"a=http://h:1,model=", "model has no value"},
      {"a=http://h:1,cache=of", "off, declared-off, kept"},
      {"a=http://h:1,settle=-1", "settle must be 0 to 600 seconds, found '-1'"},
      {"a=http://h:1,settle=601", "settle must be 0 to 600 seconds"},
      {"a=http://h:1,settle=soon", "found 'soon'"},
      {"a=http://h:1,settle=nan", "found 'nan'"},
      {"a=http://h:1,start=-1", "start must be 0 to 600 seconds, found '-1'"},
      {"a=http://h:1,", "expected key=value"},
  };
  for (const auto& [text, part] : wrong) EXPECT_THAT(endpoint_error(text), HasSubstr(part)) << text;
  EXPECT_THAT(endpoint_error("a=http://h:1,apy=llama"), HasSubstr("--endpoint"));
}

// What looks like a key is not repeated.
TEST(EndpointSpec, SecretsStayOutOfMessages) {
  const std::string secret = "sk-12345-abcdef";
  EXPECT_THAT(endpoint_error("a=http://h:1,key-env=" + secret),
              AllOf(HasSubstr("environment variable"), Not(HasSubstr(secret))));
  EXPECT_THAT(endpoint_error("a=http://h:1,key-env=hf_abcDEF123"),
              AllOf(HasSubstr("environment variable"), Not(HasSubstr("hf_abcDEF123"))));
  EXPECT_THAT(endpoint_error("http://user:" + secret + "@h:1"), Not(HasSubstr(secret)));
  EXPECT_THAT(endpoint_error("a=http://user:" + secret + "@h:1"),
              AllOf(HasSubstr("user or a password"), Not(HasSubstr(secret))));
}

TEST(EndpointSpec, KeysComeFromTheEnvironment) {
  EXPECT_THAT(making_error("a=http://127.0.0.1:1,api=llama,key-env=EVALRUN_TEST_NO_KEY"),
              HasSubstr("EVALRUN_TEST_NO_KEY is not set"));
  const tests::ScopedVariable key("EVALRUN_TEST_KEY", "sk-secret");
  EXPECT_EQ(making_error("a=http://127.0.0.1:1,api=llama,key-env=EVALRUN_TEST_KEY"), "no error");
  EXPECT_THAT(making_error("a=http://example.org:1,api=llama,key-env=EVALRUN_TEST_KEY"),
              AllOf(HasSubstr("unencrypted"), Not(HasSubstr("sk-secret"))));
}

TEST(EndpointSpec, ACacheThatCannotBeSwitchedOffMustBeDeclared) {
  for (const char* api : {"openai", "sglang", "tgi"}) {
    const std::string text = std::string("a=http://127.0.0.1:1,api=") + api;
    EXPECT_THAT(making_error(text), HasSubstr("cache=declared-off")) << api;
    EXPECT_EQ(making_error(text + ",cache=declared-off"), "no error") << api;
    EXPECT_EQ(making_error(text + ",cache=kept"), "no error") << api;
  }
  for (const char* api : {"llama", "vllm"})
    EXPECT_EQ(making_error(std::string("a=http://127.0.0.1:1,api=") + api), "no error") << api;
}

TEST(EndpointSpec, EveryApiCanBeMade) {
  EXPECT_THAT(endpoint_apis(), ElementsAre("llama", "vllm", "openai", "sglang", "tgi"));
  base::SteadyClock clock;
  for (const std::string& api : endpoint_apis()) {
    const auto endpoint =
        make_endpoint(parse_endpoint("a=http://127.0.0.1:1,cache=kept,api=" + api, ""), {clock});
    EXPECT_EQ(endpoint->spec().api, api);
    EXPECT_EQ(endpoint->abilities().verified, api == "llama" || api == "vllm") << api;
    EXPECT_FALSE(endpoint->abilities().ignores_eos && api == "openai");
  }
  EndpointSpec unknown;
  unknown.name = "a";
  unknown.url = "http://127.0.0.1:1";
  unknown.api = "lama";
  EXPECT_THROW(make_endpoint(unknown, {clock}), base::Error);
}

// Nine tokens, five of them drafted and kept: four steps of the target.
TEST(EndpointSpec, StepsOfTheTarget) {
  EndpointCounts counts;
  EXPECT_EQ(target_steps(9, counts), std::nullopt);
  counts.accepted = 5;
  EXPECT_EQ(target_steps(9, counts), 4);
  counts.accepted = 0;
  EXPECT_EQ(target_steps(9, counts), 9);
  EXPECT_EQ(target_steps(0, counts), 0);
  // No answer is made of drafts alone.
  counts.accepted = 9;
  EXPECT_EQ(target_steps(9, counts), std::nullopt);
  counts.accepted = -1;
  EXPECT_EQ(target_steps(9, counts), std::nullopt);
}

TEST(EndpointSpec, FaultsHaveNames) {
  EXPECT_STREQ(to_string(EndpointFault::kNone), "none");
  EXPECT_STREQ(to_string(EndpointFault::kOtherModel), "other model");
  EXPECT_STREQ(to_string(EndpointFault::kStopped), "stopped");
}

}  // namespace
}  // namespace evalrun::runners
