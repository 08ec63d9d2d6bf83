// Whole runs with servers among the arms, which answer in memory: what is asked, what is stored,
// what ends a run and what does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "reports/figures/report.h"
#include "reports/gate/gate_output.h"
#include "results/endpoint_queries.h"
#include "runners/measure/endpoint_visit.h"
#include "runners/measure/runner.h"
#include "tests/endpoints/memory_server.h"
#include "tests/runners/fakes.h"
#include "tests/runners/stored_rows.h"
#include "tests/temp_folder.h"

namespace evalrun::runners {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class EndpointRun : public ::testing::Test {
 protected:
  EndpointRun() : store_(folder_.file("run.db")) {
    prompts({R"({"id": "a", "turns": ["one", "and two"]})", R"({"id": "b", "turns": ["three"]})"});
    request_.suite.endpoints = {parse_endpoint("plain=http://127.0.0.1:1,api=llama", "test"),
                                parse_endpoint("spec=http://127.0.0.1:2,api=llama", "test")};
    request_.suite.aa = false;
    request_.suite.max_new = 17;
    request_.suite.warmup = 0;
    request_.target = tests::tiny_model(512);
    request_.session.n_threads = 1;
    request_.connect = [this](const EndpointSpec& spec, const EndpointTools&) {
      return std::make_unique<tests::MemoryEndpoint>(spec, servers_[spec.name]);
    };
    for (const char* name : {"plain", "spec"})
      servers_[name].answer = [](const EndpointRequest&) {
        return tests::fake_reply("abcdef", {1, 2, 3});
      };
  }
  void prompts(const std::vector<std::string>& lines) {
    const std::string file = folder_.file("prompts.jsonl");
    std::ofstream out(file);
    for (const std::string& line : lines) out << line << "\n";
    request_.suite.tasks = {{.task = "jsonl:" + file}};
  }
  // One prompt of one turn, one server.
  void alone() {
    prompts({R"({"id": "a", "turns": ["one"]})"});
    request_.suite.endpoints.resize(1);
  }
  RunOutcome run() {
    complete_suite(request_.suite, "test");
    return run_suite(request_, store_, clock_, {});
  }
  base::Error error_of_run() {
    try {
      run();
    } catch (const base::Error& e) {
      return e;
    }
    ADD_FAILURE() << "no error";
    return base::usage_error("none");
  }
  std::vector<std::string> rows(const std::string& sql) const { return stored_rows(store_, sql); }

  tests::TempFolder folder_;
  tests::MemoryServers servers_;
  PlanRequest request_;
  results::ResultStore store_;
  base::SteadyClock clock_;
};

TEST_F(EndpointRun, StoresTokensAndTheTimesOfPieces) {
  alone();
  EXPECT_EQ(run().failed, 0);
  // Six letters and the stop token, which came with the last byte.
  EXPECT_THAT(rows("SELECT n_tokens, emitted, prefill_ns, decode_ns, stop, text FROM turn"),
              ElementsAre("7 6 1000000 3000000 stop_token abcdef"));
  EXPECT_THAT(rows("SELECT emitted, verify_ns FROM step ORDER BY idx"),
              ElementsAre("2 1000000", "3 1000000", "1 1000000"));
  EXPECT_THAT(rows("SELECT first_token_ns, total_ns, attempts, drafted IS NULL, arrivals FROM "
                   "endpoint_turn"),
              ElementsAre("1000000 4000000 1 1 "
                          "[[1000000,1],[2000000,2],[3000000,3],[4000000,1]]"));
  EXPECT_THAT(rows("SELECT * FROM v_accounting"), ElementsAre());
}

TEST_F(EndpointRun, ASpeculatedFirstPieceIsTheFirstTokenAndAStep) {
  alone();
  servers_["plain"].answer = [](const EndpointRequest&) {
    return tests::fake_reply("abcdef", {4, 2});
  };
  EXPECT_EQ(run().failed, 0);
  EXPECT_THAT(rows("SELECT prefill_ns, decode_ns FROM turn"), ElementsAre("1000000 2000000"));
  EXPECT_THAT(rows("SELECT emitted, verify_ns FROM step ORDER BY idx"),
              ElementsAre("3 0", "2 1000000", "1 1000000"));
}

TEST_F(EndpointRun, CountsTokensOfTextPieces) {
  alone();
  servers_["plain"].abilities = {};
  servers_["plain"].answer = [](const EndpointRequest& request) {
    EXPECT_EQ(request.prompt_text, "U:one A:");
    EndpointReply reply = tests::fake_reply("abcdef", {1, 2, 3});
    reply.ids.clear();
    for (EndpointArrival& arrival : reply.arrivals) arrival.tokens = 0;
    return reply;
  };
  EXPECT_EQ(run().failed, 0);
  EXPECT_THAT(rows("SELECT n_tokens, prefill_ns, decode_ns, text FROM turn"),
              ElementsAre("7 1000000 3000000 abcdef"));
  EXPECT_THAT(rows("SELECT emitted FROM step ORDER BY idx"), ElementsAre("2", "3", "1"));
  EXPECT_THAT(rows("SELECT json_extract(settings, '$.tokens') FROM arm"), ElementsAre("from text"));
}

TEST_F(EndpointRun, AsksWithTheRunsLimitsSeedsAndEarlierAnswers) {
  request_.suite.endpoints.resize(1);
  request_.suite.sampling.temperature = 0.5;
  EXPECT_EQ(run().failed, 0);
  const std::vector<EndpointRequest>& asked = servers_["plain"].requests;
  ASSERT_THAT(asked, SizeIs(3));
  const auto second = std::find_if(asked.begin(), asked.end(), [](const EndpointRequest& r) {
    return r.prompt_text == "U:one A:abcdef U:and two A:";
  });
  ASSERT_NE(second, asked.end()) << "the server's own first answer is in the second prompt";
  EXPECT_EQ(second->prompt_ids.size(), second->prompt_text.size()) << "bytes are tokens";
  EXPECT_EQ(second->max_new, 17);
  EXPECT_EQ(second->sampling.temperature, 0.5);
  EXPECT_NE(second->seed, asked.front().seed);
}

TEST_F(EndpointRun, CutsAsEvalrunsOwnAnswersAreCut) {
  prompts({R"({"id": "a", "turns": ["one"], "stop": ["de"]})"});
  request_.suite.endpoints.resize(1);
  servers_["plain"].answer = [](const EndpointRequest& request) {
    EXPECT_THAT(request.stop_texts, ElementsAre("de"));
    EndpointReply reply = tests::fake_reply("abcdefgh", {1, 2, 3, 2});
    reply.counts.accepted = 4, reply.counts.drafted = 6;
    return reply;
  };
  EXPECT_EQ(run().failed, 0);
  // "f" came with "e": the time is that of its piece, the token is not kept.
  EXPECT_THAT(rows("SELECT n_tokens, decode_ns, stop, text FROM turn"),
              ElementsAre("5 2000000 stop_string abcde"));
  EXPECT_THAT(rows("SELECT target_steps IS NULL, accepted FROM endpoint_turn"), ElementsAre("1 4"))
      << "drafts after the cut are among them";
}

TEST_F(EndpointRun, AnAnswerThatIgnoresTheLimitIsCut) {
  alone();
  request_.suite.max_new = 4;
  EXPECT_EQ(run().failed, 0);
  EXPECT_THAT(rows("SELECT n_tokens, decode_ns, stop FROM turn"), ElementsAre("4 2000000 limit"));
}

TEST_F(EndpointRun, TauComesFromTheServersCounts) {
  for (auto& [name, server] : servers_)
    server.answer = [speculates = name == "spec"](const EndpointRequest&) {
      EndpointReply reply = tests::fake_reply("abcdef", {1, 2, 3});
      if (speculates) reply.counts.drafted = 8, reply.counts.accepted = 4;
      return reply;
    };
  const RunOutcome outcome = run();
  const reports::Report report = reports::build_report(store_, outcome.run_id, {});
  ASSERT_THAT(report.rows, SizeIs(2));
  const reports::ReportRow &plain = report.rows[0], &spec = report.rows[1];
  EXPECT_EQ(plain.arm.role, "baseline");
  EXPECT_FALSE(plain.acceptance.tau) << "it does not count";
  EXPECT_FALSE(plain.acceptance.alpha_draft);
  ASSERT_TRUE(spec.acceptance.tau);
  EXPECT_DOUBLE_EQ(*spec.acceptance.tau, 3) << "six tokens after the first, four accepted";
  EXPECT_DOUBLE_EQ(*spec.acceptance.alpha_draft, 0.5);
  EXPECT_FALSE(spec.acceptance.rows_per_step);
  EXPECT_FALSE(spec.acceptance.no_draft);
  EXPECT_NEAR(*spec.speed.speedup, 1, 1e-9);
  EXPECT_DOUBLE_EQ(*spec.same_tokens.share, 1);
  EXPECT_FALSE(spec.ranking);
  EXPECT_EQ(spec.arm.model, "served");
}

TEST_F(EndpointRun, TauNeedsTheCountsOfEveryAnswer) {
  alone();
  request_.suite.samples = 2;
  request_.suite.sampling.temperature = 1;
  int asked = 0;
  servers_["plain"].answer = [&](const EndpointRequest&) {
    EndpointReply reply = tests::fake_reply("abcdef", {1, 2, 3});
    if (asked++ == 0) reply.counts.drafted = 8, reply.counts.accepted = 4;
    return reply;
  };
  const reports::Report report = reports::build_report(store_, run().run_id, {});
  EXPECT_FALSE(report.rows[0].acceptance.tau);
}

TEST_F(EndpointRun, AFailedRequestIsAFailedRow) {
  servers_["spec"].answer = [](const EndpointRequest& request) {
    if (request.prompt_text.starts_with("U:three"))
      return tests::fake_fault(EndpointFault::kTimeout, "http://127.0.0.1:2: no byte for 60 s");
    EndpointReply reply = tests::fake_reply("abcdef", {6});
    reply.attempts = 3;
    return reply;
  };
  const RunOutcome outcome = run();
  EXPECT_EQ(outcome.measured, 4);
  EXPECT_EQ(outcome.failed, 1);
  EXPECT_THAT(rows("SELECT status FROM generation WHERE status <> 'ok'"),
              ElementsAre(AllOf(HasSubstr("failed: "), HasSubstr("no byte for 60 s"))));
  const auto arm = std::stoll(rows("SELECT id FROM arm WHERE label = 'spec'").at(0));
  EXPECT_EQ(results::endpoint_totals(store_, outcome.run_id).at(arm).retries, 4) << "two turns";
  EXPECT_EQ(run().measured, 0) << "failures are results";
}

TEST_F(EndpointRun, AServerThatIsGoneEndsTheRunWhichGoesOnLater) {
  int left = 2;
  const auto sound = servers_["spec"].answer;
  servers_["spec"].answer = [&](const EndpointRequest& request) {
    return left-- > 0
               ? sound(request)
               : tests::fake_fault(EndpointFault::kDown, "http://127.0.0.1:2: nobody listens");
  };
  request_.suite.repeats = 2;
  const base::Error e = error_of_run();
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.message(), AllOf(HasSubstr("arm spec"), HasSubstr("http://127.0.0.1:2: nobody"),
                                 HasSubstr("of 8 generations are stored")));
  EXPECT_THAT(e.hint(), HasSubstr("run the same command again"));
  EXPECT_THAT(rows("SELECT count(*) FROM generation WHERE status <> 'ok'"), ElementsAre("0"));
  const int stored = std::stoi(rows("SELECT count(*) FROM generation").at(0));
  EXPECT_GT(stored, 0);
  servers_["spec"].answer = sound;
  const RunOutcome outcome = run();
  EXPECT_EQ(outcome.stored_before, stored);
  EXPECT_EQ(outcome.measured, 8 - stored);
  EXPECT_EQ(outcome.status, RunStatus::kComplete);
}

// A server that was started again listens at another port. A machine is something else.
TEST_F(EndpointRun, TheSameServerAtAnotherPortGoesOn) {
  int left = 2;
  const auto sound = servers_["spec"].answer;
  servers_["spec"].answer = [&](const EndpointRequest& request) {
    return left-- > 0 ? sound(request) : tests::fake_fault(EndpointFault::kDown, "down");
  };
  error_of_run();
  const int stored = std::stoi(rows("SELECT count(*) FROM generation").at(0));
  servers_["spec"].answer = sound;
  request_.suite.endpoints[1] = parse_endpoint("spec=http://127.0.0.1:777,api=llama", "test");
  EXPECT_EQ(run().stored_before, stored);
  EXPECT_THAT(rows("SELECT value FROM environment WHERE name = 'endpoint.spec.host'"),
              ElementsAre("this machine"));
  request_.suite.endpoints[1] = parse_endpoint("spec=http://gpu7:8080,api=llama", "test");
  EXPECT_EQ(run().stored_before, 0);
  EXPECT_THAT(rows("SELECT value FROM environment WHERE name = 'endpoint.spec.host' "
                   "ORDER BY run_id"),
              ElementsAre("this machine", "gpu7"));
}

TEST_F(EndpointRun, ARefusedKeyEndsTheRunAndARefusedPromptDoesNot) {
  alone();
  servers_["plain"].answer = [](const EndpointRequest&) {
    return tests::fake_fault(EndpointFault::kRefused, "http://127.0.0.1:1: 401", 401);
  };
  EXPECT_EQ(error_of_run().code(), base::ExitCode::kData);
  servers_["plain"].answer = [](const EndpointRequest&) {
    return tests::fake_fault(EndpointFault::kRefused, "http://127.0.0.1:1: 400", 400);
  };
  EXPECT_EQ(run().failed, 1);
}

TEST_F(EndpointRun, AnInterruptedRequestIsAskedAgain) {
  alone();
  const auto sound = servers_["plain"].answer;
  servers_["plain"].answer = [](const EndpointRequest&) {
    return tests::fake_fault(EndpointFault::kStopped, "stopped");
  };
  EXPECT_EQ(run().status, RunStatus::kInterrupted);
  EXPECT_THAT(rows("SELECT * FROM generation"), ElementsAre());
  servers_["plain"].answer = sound;
  EXPECT_EQ(run().measured, 1);
}

TEST_F(EndpointRun, AnotherModelThanBeforeIsRefused) {
  servers_["spec"].answer = [](const EndpointRequest&) {
    return tests::fake_fault(EndpointFault::kDown, "down");
  };
  error_of_run();
  servers_["spec"].model = "other";
  const base::Error e = error_of_run();
  EXPECT_EQ(e.code(), base::ExitCode::kData);
  EXPECT_THAT(e.message(), AllOf(HasSubstr("http://127.0.0.1:2"), HasSubstr("'other' now"),
                                 HasSubstr("'served' when")));
}

TEST_F(EndpointRun, TheBaselineIsTheFirstServerOrTheOneNamed) {
  complete_suite(request_.suite, "test");
  EXPECT_EQ(make_plan(request_).arms.at(0).record.label, "plain");
  request_.suite.baseline = "spec";
  request_.suite.aa = true;
  const RunPlan plan = make_plan(request_);
  std::vector<std::string> arms;
  for (const PlannedArm& arm : plan.arms) arms.push_back(arm.record.role + " " + arm.record.label);
  EXPECT_THAT(arms, ElementsAre("baseline spec", "aa spec (A/A)", "method plain"));
  EXPECT_EQ(run().failed, 0);
  EXPECT_THAT(servers_["spec"].requests, SizeIs(6)) << "twice";
  EXPECT_THAT(servers_["plain"].requests, SizeIs(3));
}

TEST_F(EndpointRun, EvalrunsOwnEngineIsOneMoreArm) {
  request_.suite.endpoints.resize(1);
  request_.suite.methods = {"ar", "pld"};
  const RunOutcome outcome = run();
  EXPECT_EQ(outcome.measured, 6);
  EXPECT_EQ(outcome.failed, 0);
  EXPECT_THAT(rows("SELECT role, label, device FROM arm ORDER BY id"),
              ElementsAre("baseline plain server", "method ar cpu", "method pld cpu"));
  EXPECT_THAT(rows("SELECT count(*) FROM generation g JOIN arm a ON a.id = g.arm_id JOIN clock c "
                   "ON c.generation_id = g.id WHERE a.method = 'endpoint'"),
              ElementsAre("0"))
      << "this machine says nothing of a server's";
  const reports::RunData data = reports::load_run(store_, outcome.run_id);
  const auto checks = reports::output_checks(store_, data, reports::Faults::kLeaveOut);
  for (const reports::GateCheck& check : checks)
    EXPECT_EQ(check.outcome, reports::Outcome::kOk) << check.method << ": " << check.reason;
  EXPECT_THAT(checks, Contains(::testing::Field(&reports::GateCheck::method, "pld")))
      << "against ar, not against the server";
  EXPECT_THAT(reports::build_report(store_, outcome.run_id, {}).rows, SizeIs(3));
}

TEST_F(EndpointRun, AMethodMayBeTheBaseline) {
  request_.suite.endpoints.resize(1);
  request_.suite.methods = {"pld", "ar"};
  request_.suite.baseline = "ar";
  EXPECT_EQ(run().failed, 0);
  EXPECT_THAT(rows("SELECT role, label FROM arm ORDER BY id"),
              ElementsAre("baseline ar", "method plain", "method pld"));
}

TEST_F(EndpointRun, OtherPiecesInARepeatAreNoFault) {
  alone();
  request_.suite.repeats = 2;
  int asked = 0;
  servers_["plain"].answer = [&](const EndpointRequest&) {
    return ++asked == 1 ? tests::fake_reply("abcdef", {1, 5}) : tests::fake_reply("abcdex", {6});
  };
  const RunOutcome outcome = run();
  const reports::RunData data = reports::load_run(store_, outcome.run_id);
  for (const reports::GateCheck& check :
       reports::output_checks(store_, data, reports::Faults::kLeaveOut))
    EXPECT_EQ(check.outcome, reports::Outcome::kOk) << check.metric << ": " << check.reason;
}

TEST_F(EndpointRun, WarmsUpEachServerBeforeAnythingIsMeasured) {
  request_.suite.warmup = 2;
  EXPECT_EQ(run().measured, 4);
  EXPECT_THAT(rows("SELECT count(*) FROM turn"), ElementsAre("6"));
  // The first prompt twice (of one turn or of two), then three turns.
  EXPECT_THAT(servers_["plain"].requests.size(), ::testing::AnyOf(5u, 7u));
  EXPECT_EQ(servers_["plain"].requests.size(), servers_["spec"].requests.size());
  EXPECT_EQ(run().measured, 0);
  EXPECT_EQ(servers_["plain"].checks, 1) << "nothing is pending, nobody is asked";
}

// Whatever became of the request: the next server is asked when this one has come to rest.
TEST_F(EndpointRun, EachServerSettlesAfterItsTurns) {
  request_.suite.warmup = 2;
  servers_["spec"].answer = [](const EndpointRequest&) {
    EndpointReply reply;
    reply.fault = EndpointFault::kServerError;
    return reply;
  };
  EXPECT_EQ(run().failed, 2);
  EXPECT_EQ(servers_["plain"].settled, 1 + 2) << "after warming up and after two conversations";
  EXPECT_EQ(servers_["spec"].settled, 1 + 2);
}

TEST_F(EndpointRun, AutomaticWarmUpAsksForShortAnswersAndEnds) {
  alone();
  request_.suite.warmup = -1;
  request_.suite.max_new = 40;
  EXPECT_EQ(run().measured, 1);
  const std::vector<EndpointRequest>& asked = servers_["plain"].requests;
  ASSERT_GE(asked.size(), 2u);
  EXPECT_LE(asked.size(), 6u);
  EXPECT_EQ(asked.front().max_new, 16);
  EXPECT_EQ(asked.back().max_new, 40);
}

TEST_F(EndpointRun, StopTokensCannotBeIgnoredWhereTheApiHasNoWord) {
  servers_["spec"].abilities.ignores_eos = false;
  request_.suite.ignore_eos = true;
  EXPECT_THAT(error_of_run().message(), AllOf(HasSubstr("endpoint spec"), HasSubstr("ignore_eos")));
}

}  // namespace
}  // namespace evalrun::runners
