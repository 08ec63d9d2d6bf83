// What `verify --endpoint` prints about fake servers, and its exit codes.
#include "runners/cli/measure/verify_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/endpoints/token_server.h"

namespace evalrun::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::FakePlace;
using tests::TokenServer;

class VerifyEndpoint : public ::testing::Test {
 protected:
  VerifyEndpoint() {
    plain_.name = "plain";
    speculative_.name = "spec";
    request_.speculative = tests::serve(speculative_);
    request_.plain = tests::serve(plain_);
    request_.prompts = tests::fake_prompts(8);
    request_.seeded = request_.law = false;
    request_.identity.clients = {1, 4};
    request_.identity.max_new = 16;
  }
  std::string text(const runners::EndpointVerification& v) {
    return reports::render(endpoint_document(v), reports::Format::kText, {.width = 0});
  }
  TokenServer plain_, speculative_;
  runners::EndpointVerifyRequest request_;
};

TEST_F(VerifyEndpoint, AnIdenticalServer) {
  const auto v = verify_endpoint(request_);
  EXPECT_EQ(endpoint_exit_code(v), base::ExitCode::kOk);
  EXPECT_THAT(text(v), HasSubstr("spec against plain: identical."));
  EXPECT_THAT(text(v), HasSubstr("4 clients"));
  EXPECT_THAT(text(v), HasSubstr("whether it drafts is not known"));
}

TEST_F(VerifyEndpoint, AStateFault) {
  speculative_.wrong = [](const FakePlace& p) -> std::optional<int32_t> {
    if (p.clients != 4 || p.prompt != 3 || p.index != 5) return std::nullopt;
    return tests::fake_worst(p.logits);
  };
  const auto v = verify_endpoint(request_);
  EXPECT_EQ(endpoint_exit_code(v), base::ExitCode::kCorrectness);
  EXPECT_THAT(text(v), HasSubstr("spec against plain: state fault."));
  EXPECT_THAT(text(v), HasSubstr("fake/3, 4 clients, token 5"));
  EXPECT_THAT(text(v), HasSubstr("only with neighbours"));
}

TEST_F(VerifyEndpoint, WhatCouldNotBeSeen) {
  speculative_.drafted = speculative_.accepted = 0;
  EXPECT_EQ(endpoint_exit_code(verify_endpoint(request_)), base::ExitCode::kInconclusive);
  speculative_.spoil = [](const runners::EndpointRequest&, runners::EndpointReply& reply) {
    reply.fault = runners::EndpointFault::kDown;
    reply.problem = "http://127.0.0.1:1: nobody listens";
  };
  const auto v = verify_endpoint(request_);
  EXPECT_EQ(endpoint_exit_code(v), base::ExitCode::kData);
  EXPECT_THAT(text(v), HasSubstr("nobody listens"));
}

TEST_F(VerifyEndpoint, DrawsAreDescribed) {
  request_.law = request_.seeded = true;
  request_.sampling.draws = 64;
  request_.sampling.max_new = 2;
  request_.sampling.power = false;
  request_.places = 2;
  const std::string shown = text(verify_endpoint(request_));
  EXPECT_THAT(shown, HasSubstr("Equal seeds: 8 of 8"));
  EXPECT_THAT(shown, HasSubstr("Law of 128 draws"));
  EXPECT_THAT(shown, HasSubstr("temperature"));
}

TEST(ClientCounts, BeginWithOneAndHaveNoRepeats) {
  EXPECT_THAT(client_counts({8, 2, 8}, 24), ElementsAre(1, 2, 8));
  EXPECT_THROW(client_counts({8}, 7), base::Error);
}

}  // namespace
}  // namespace evalrun::cli
