// verify --endpoint against fake servers: honest ones pass, planted faults of graded size are
// found and named, and hostile servers cost a named error.
#include "runners/verify/endpoints/endpoint_verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "tests/endpoints/token_server.h"

namespace evalrun::runners {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::FakePlace;
using tests::TokenServer;

constexpr int kAnswers = 24;

class EndpointVerify : public ::testing::Test {
 protected:
  EndpointVerify() {
    plain_.name = "plain";
    speculative_.name = "spec";
    speculative_.drafted = 40;
    speculative_.accepted = 31;
    request_.speculative = tests::serve(speculative_);
    request_.plain = tests::serve(plain_);
    request_.prompts = tests::fake_prompts(kAnswers);
    request_.seeded = request_.law = false;
    request_.identity.max_new = 32;
    request_.identity.restart = [&] { ++plain_.restart, ++speculative_.restart; };
    request_.sampling.power = false;
    request_.sampling.simulations = 20'000;
  }
  EndpointVerification verify() { return verify_endpoint(request_); }
  // A wrong token, the least likely one, where `where` says so.
  void plant(std::function<bool(const FakePlace&)> where) {
    speculative_.wrong = [where](const FakePlace& place) -> std::optional<int32_t> {
      if (!where(place)) return std::nullopt;
      return tests::fake_worst(place.logits);
    };
  }
  void noise(double size) {
    plain_.noise = speculative_.noise = size;
    speculative_.salt = 5;
  }
  TokenServer plain_, speculative_;
  EndpointVerifyRequest request_;
};

TEST_F(EndpointVerify, AnHonestServerIsIdentical) {
  request_.identity.restarts = 1;
  const EndpointVerification v = verify();
  EXPECT_EQ(verdict_of(v), EndpointVerdict::kIdentical);
  EXPECT_EQ(v.greedy->answers, kAnswers * 4 * 2);
  EXPECT_EQ(v.greedy->identical, v.greedy->answers);
  EXPECT_EQ(v.greedy->tokens, v.greedy->answers * 32);
  EXPECT_TRUE(v.greedy->by_ids);
  EXPECT_EQ(v.greedy->range.differing, 0);
  EXPECT_GT(v.greedy->range.places, 0);
  EXPECT_EQ(v.greedy->range.bound(), 0);
  EXPECT_EQ(v.greedy->drafted, 40 * kAnswers * 8);
  EXPECT_THAT(reasons_of(v), IsEmpty());
}

// The year's fault: acceptance looks normal, one client sees nothing.
TEST_F(EndpointVerify, OneTokenInOneAnswerAtFourClients) {
  plant([](const FakePlace& p) { return p.clients == 4 && p.prompt == 7 && p.index == 20; });
  const EndpointVerification v = verify();
  EXPECT_EQ(verdict_of(v), EndpointVerdict::kStateFault);
  ASSERT_EQ(v.greedy->divergences.size(), 1u);
  const EndpointDivergence& d = v.greedy->divergences[0];
  EXPECT_EQ(d.prompt, 7u);
  EXPECT_EQ(d.index, 20u);
  EXPECT_EQ(v.greedy->passes[d.pass].clients, 4);
  EXPECT_THAT(d.signs, ElementsAre("only with neighbours"));
  EXPECT_EQ(d.refused, 9);
  EXPECT_EQ(d.gave_it, 0);
  EXPECT_GT(d.asked, 8);
  EXPECT_EQ(d.foreign, 0) << "what follows is what the plain server would give after it";
  ASSERT_EQ(reasons_of(v).size(), 1u);
  EXPECT_THAT(reasons_of(v)[0], HasSubstr("1 of 96 answers: state fault, for example fake/7, 4 "
                                          "clients, token 20"));
}

TEST_F(EndpointVerify, WrongOnlyAfterARestart) {
  request_.identity.restarts = 2;
  plant([](const FakePlace& p) { return p.restart == 1 && p.prompt == 3 && p.index == 10; });
  const EndpointVerification v = verify();
  EXPECT_EQ(verdict_of(v), EndpointVerdict::kStateFault);
  ASSERT_EQ(v.greedy->divergences.size(), 4u) << "at every number of clients";
  for (const EndpointDivergence& d : v.greedy->divergences)
    EXPECT_THAT(d.signs, ElementsAre("only after a restart", "gone after a restart"));
}

TEST_F(EndpointVerify, ADifferenceThatIsAlwaysThereIsNoStateFault) {
  plant([](const FakePlace& p) { return p.prompt == 5 && p.index == 8; });
  const EndpointVerification v = verify();
  EXPECT_EQ(verdict_of(v), EndpointVerdict::kDiffers);
  EXPECT_EQ(v.greedy->count(DivergenceKind::kDiffers), 4);
}

TEST_F(EndpointVerify, OnlyWhereDraftsWereRefused) {
  speculative_.spoil = [](const EndpointRequest& request, EndpointReply& reply) {
    if (request.prompt_ids[0] % 4 != 0) reply.counts.accepted = reply.counts.drafted;
  };
  plant([](const FakePlace& p) { return p.prompt % 4 == 0 && p.index == 9; });
  const EndpointVerification v = verify();
  EXPECT_EQ(verdict_of(v), EndpointVerdict::kStateFault);
  EXPECT_THAT(v.greedy->divergences[0].signs, ElementsAre("only where drafts were refused"));
}

TEST_F(EndpointVerify, GarbageIsNamed) {
  plant([](const FakePlace& p) { return p.prompt == 2 && p.index >= 12; });
  const EndpointVerification v = verify();
  EXPECT_EQ(verdict_of(v), EndpointVerdict::kStateFault);
  EXPECT_THAT(v.greedy->divergences[0].signs, ElementsAre("garbage follows"));
}

TEST_F(EndpointVerify, NearTiesThatThePlainServerShowsItself) {
  noise(0.02);
  const EndpointVerification v = verify();
  EXPECT_EQ(verdict_of(v), EndpointVerdict::kNearTies) << ::testing::PrintToString(reasons_of(v));
  EXPECT_GT(v.greedy->range.differing, 0);
  EXPECT_GT(v.greedy->range.bound(), 0.005);
  EXPECT_LE(v.greedy->range.bound(), 0.04);
  EXPECT_GT(v.greedy->count(DivergenceKind::kNearTie), 0);
}

TEST_F(EndpointVerify, AFaultAmongNearTiesIsFound) {
  noise(0.02);
  plant([](const FakePlace& p) { return p.clients == 8 && p.prompt == 11 && p.index == 0; });
  const EndpointVerification v = verify();
  EXPECT_EQ(verdict_of(v), EndpointVerdict::kStateFault);
  EXPECT_EQ(v.greedy->count(DivergenceKind::kStateFault), 1);
}

// A null of its own: noise of the speculative server alone is no near tie by assumption.
TEST_F(EndpointVerify, NoiseThatThePlainServerDoesNotHaveDiffers) {
  speculative_.noise = 0.3;
  const EndpointVerification v = verify();
  EXPECT_GE(verdict_of(v), EndpointVerdict::kDiffers);
  EXPECT_EQ(v.greedy->range.bound(), 0);
}

TEST_F(EndpointVerify, WithoutLogProbabilitiesADifferenceStaysOpenWherePlainDiffersFromItself) {
  plain_.abilities.log_probs = false;
  noise(0.02);
  plant([](const FakePlace& p) { return p.prompt == 11 && p.index == 0; });
  const EndpointVerification v = verify();
  EXPECT_EQ(verdict_of(v), EndpointVerdict::kUnseen);
  EXPECT_GE(v.greedy->count(DivergenceKind::kOpen), 4);
  noise(0);
  EXPECT_EQ(verdict_of(verify()), EndpointVerdict::kDiffers);
}

TEST_F(EndpointVerify, SpeculationThatNeverBeganShowsNothing) {
  speculative_.drafted = speculative_.accepted = 0;
  const EndpointVerification v = verify();
  EXPECT_EQ(verdict_of(v), EndpointVerdict::kUnseen);
  ASSERT_EQ(reasons_of(v).size(), 1u);
  EXPECT_THAT(reasons_of(v)[0], HasSubstr("drafted nothing"));
}

TEST_F(EndpointVerify, ServersOfText) {
  for (TokenServer* server : {&plain_, &speculative_}) server->abilities = {.log_probs = true};
  const EndpointVerification honest = verify();
  EXPECT_EQ(verdict_of(honest), EndpointVerdict::kIdentical);
  EXPECT_FALSE(honest.greedy->by_ids);
  EXPECT_GT(honest.greedy->range.places, 0);
  plant([](const FakePlace& p) { return p.clients == 2 && p.prompt == 7 && p.index == 20; });
  const EndpointVerification wrong = verify();
  EXPECT_EQ(verdict_of(wrong), EndpointVerdict::kStateFault);
  ASSERT_EQ(wrong.greedy->divergences.size(), 1u);
  EXPECT_EQ(wrong.greedy->divergences[0].index, 20u);
  EXPECT_GT(wrong.greedy->divergences[0].asked, 0);
  EXPECT_TRUE(wrong.greedy->divergences[0].gap.has_value());
}

TEST_F(EndpointVerify, NearTiesOfText) {
  for (TokenServer* server : {&plain_, &speculative_}) server->abilities = {.log_probs = true};
  noise(0.02);
  const EndpointVerification v = verify();
  EXPECT_EQ(verdict_of(v), EndpointVerdict::kNearTies) << ::testing::PrintToString(reasons_of(v));
}

TEST_F(EndpointVerify, AServerInTroubleIsNamedAndWhatWasSeenIsKept) {
  std::atomic<int> asked{0};
  speculative_.spoil = [&](const EndpointRequest&, EndpointReply& reply) {
    if (++asked <= 30) return;
    reply = {};
    reply.fault = EndpointFault::kDown;
    reply.problem = "http://127.0.0.1:1: nobody listens";
  };
  const EndpointVerification v = verify();
  EXPECT_THAT(v.trouble(), HasSubstr("spec: http://127.0.0.1:1"));
  EXPECT_EQ(v.greedy->answers, 30);
  EXPECT_THAT(reasons_of(v), Contains(HasSubstr("nobody listens")));
  EXPECT_LE(asked.load(), 30 + kMostEndpointFailures + 2) << "no more is sent";
}

TEST_F(EndpointVerify, HostileAnswersDoNoHarm) {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const auto inf = std::numeric_limits<double>::infinity();
  const std::vector<std::function<void(EndpointReply&)>> spoilers = {
      [](EndpointReply& r) { r.ids.resize(100'000, 3); },
      [](EndpointReply& r) { r.ids.clear(), r.text.clear(); },
      [](EndpointReply& r) { r.ids.clear(); },
      [](EndpointReply& r) { r.text = "\xff\xfe\x80"; },
      [](EndpointReply& r) {
        for (int32_t& id : r.ids) id = -7;
      },
      [&](EndpointReply& r) {
        r.log_probs.assign(9, {{-1, "", nan}, {3, "x", inf}});
      },
      [](EndpointReply& r) { r.log_probs.assign(200, {}); },
      [](EndpointReply& r) { r.counts.drafted = -5, r.counts.accepted = 1'000'000; }};
  request_.identity.clients = {1, 2};
  request_.seeded = request_.law = true;
  request_.sampling.draws = 8;
  for (size_t i = 0; i < spoilers.size(); ++i)
    for (TokenServer* server : {&plain_, &speculative_}) {
      server->spoil = [&](const EndpointRequest&, EndpointReply& reply) { spoilers[i](reply); };
      const EndpointVerification v = verify();
      EXPECT_FALSE(
          to_json(v).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).empty())
          << i;
      server->spoil = nullptr;
    }
}

TEST_F(EndpointVerify, AnInterruptEndsIt) {
  speculative_.spoil = [](const EndpointRequest&, EndpointReply& reply) {
    reply.fault = EndpointFault::kStopped;
  };
  try {
    verify();
    FAIL();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kInterrupted);
  }
}

TEST_F(EndpointVerify, ARestartThatFailsIsTrouble) {
  request_.identity.restarts = 1;
  request_.identity.restart = [] { throw base::data_error("--restart-command", "", "failed"); };
  const EndpointVerification v = verify();
  EXPECT_THAT(v.trouble(), HasSubstr("--restart-command"));
  EXPECT_EQ(v.greedy->answers, kAnswers * 4);
}

TEST_F(EndpointVerify, WaitsUntilAServerIsReady) {
  class Hours final : public base::Clock {
   public:
    int64_t now_ns() override { return now; }
    int64_t now = 0;
  } clock;
  int checks = 0, pauses = 0;
  plain_.on_check = [&](const auto&) {
    if (++checks < 4) throw base::data_error("http://x", "", "nobody listens");
  };
  const auto pause = [&] { ++pauses, clock.now += 1'000'000'000; };
  wait_until_ready(request_.plain, 10, clock, pause, {});
  EXPECT_EQ(pauses, 3);
  checks = -1000;
  EXPECT_THROW(wait_until_ready(request_.plain, 10, clock, pause, {}), base::Error);
  EXPECT_LE(pauses, 3 + 11);
  EXPECT_THROW(wait_until_ready(request_.plain, 10, clock, pause, [] { return true; }),
               base::Error);
}

// Every key of the JSON is described.
TEST_F(EndpointVerify, JsonIsDocumented) {
  request_.seeded = request_.law = true;
  request_.sampling.draws = 8;
  plant([](const FakePlace& p) { return p.prompt == 5 && p.index == 8; });
  const std::string page = base::read_file(EVALRUN_SOURCE_DIR "/docs/json.md");
  const std::function<void(const nlohmann::ordered_json&)> visit =
      [&](const nlohmann::ordered_json& value) {
        if (value.is_object())
          for (const auto& [key, below] : value.items()) {
            EXPECT_THAT(page,
                        ::testing::AnyOf(HasSubstr("`" + key + "`"), HasSubstr("." + key + "`")));
            visit(below);
          }
        if (value.is_array())
          for (const auto& item : value) visit(item);
      };
  visit(to_json(verify()));
}

TEST(EndpointPrompts, OursAreOfTwoKindsWithNamesOfTheirOwn) {
  std::map<std::string, int> kinds;
  std::set<std::string> ids;
  for (const MadePrompt& p : made_endpoint_prompts()) ++kinds[p.kind], ids.insert(p.id);
  EXPECT_EQ(kinds["repetitive"], 6);
  EXPECT_EQ(kinds["tool call"], 6);
  EXPECT_EQ(ids.size(), 12u);
}

TEST(EndpointAnswers, TextIsComparedByWholeCharacters) {
  const EndpointAnswer a{{}, "na\xc3\xa4"}, b{{}, "na\xc3\xb6"}, c{{}, "na"};
  EXPECT_EQ(common_length(a, b, false), 2u);
  EXPECT_EQ(common_length(a, c, false), 2u);
  EndpointReply reply;
  reply.ids = {4, 5, 2, 2};
  EXPECT_EQ(answer_of(reply, std::vector<int32_t>{2}).ids.size(), 2u);
}

}  // namespace
}  // namespace evalrun::runners
