// The judge: prompts, replies, a server that answers in every way servers do, and the cache.
#include "evaluators/judge/judge.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "evaluators/judge/judge_client.h"
#include "results/judge_replies.h"
#include "runners/machine/environment.h"
#include "runners/score/judging.h"
#include "tests/evaluators/judge_files.h"
#include "tests/results/synthetic.h"

namespace evalrun::tests {
namespace {

using namespace evaluators;
using runners::AskStatus;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

JudgePrompts prompts() {
  return JudgePrompts::parse(judge_prompts_file(), judge_references_file(), "mt");
}

std::string data_error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const base::Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(base::ExitCode::kData));
    return e.what();
  }
  return "no error";
}

// ---- prompts and replies -----------------------------------------------------------------------

TEST(JudgePromptsTest, TheRightPromptForEveryPlace) {
  const JudgePrompts p = prompts();
  const JudgedConversation plain = {{"q1", "q2"}, {"a1", "a2"}, {}};
  JudgedConversation math = plain;
  math.references = p.references("101");
  EXPECT_THAT(math.references, ElementsAre("r1", "r2"));
  EXPECT_TRUE(p.references("81").empty());
  EXPECT_EQ(p.single(plain, 0).system, "be a judge");
  EXPECT_EQ(p.single(plain, 0).user, "grade: q1 / a1");
  EXPECT_EQ(p.single(plain, 1).user, "grade 2: q1 / a1 / q2 / a2");
  EXPECT_EQ(p.single(math, 0).user, "grade with r1: q1 / a1");
  EXPECT_EQ(p.single(math, 1).user, "grade 2 with r1, r2: q1 / a1 / q2 / a2");
  EXPECT_EQ(p.pair(plain, {"b1", "b2"}, 0).user, "pair: q1 / a1 / b1");
  EXPECT_EQ(p.pair(plain, {"b1", "b2"}, 1).user, "pair 2: q1 / q2 / a1 / a2 / b1 / b2");
  std::string name;
  EXPECT_EQ(p.pair(math, {"b1", "b2"}, 0, &name).user, "pair with r1: q1 / a1 / b1");
  EXPECT_EQ(name, "pair-math-v1");
  EXPECT_EQ(p.pair(math, {"b1", "b2"}, 1).user, "pair 2 with r1, r2: q1 / q2 / a1 / a2 / b1 / b2");
}

TEST(JudgePromptsTest, BracesInAnswersStayText) {
  const JudgedConversation talk = {{"what is {answer}?"}, {"int f() { return {question}; }"}, {}};
  EXPECT_EQ(prompts().single(talk, 0).user,
            "grade: what is {answer}? / int f() { return {question}; }");
}

TEST(JudgePromptsTest, RefusesFilesThatAreNotTheOfficialOnes) {
  const std::string good = judge_prompts_file(), references = judge_references_file();
  const auto refused = [&](const std::string& text, const std::string& refs) {
    return data_error_of([&] { JudgePrompts::parse(text, refs, "mt"); });
  };
  EXPECT_THAT(refused(good.substr(good.find('\n') + 1), references),
              AllOf(HasSubstr("no prompt 'single-v1'"), HasSubstr("data fetch mt_bench")));
  std::string wrong = good;
  wrong.replace(wrong.find("{answer}"), 8, "{anwser}");
  EXPECT_THAT(refused(wrong, references), AllOf(HasSubstr("line 1"), HasSubstr("'anwser'")));
  EXPECT_THAT(refused(good + good, references), HasSubstr("used before"));
  EXPECT_THAT(refused("{}", references), HasSubstr("'name'"));
  EXPECT_THAT(refused(good, R"({"question_id":1,"choices":[]})"), HasSubstr("'choices'"));
  EXPECT_THAT(refused(good, R"({"question_id":1,"choices":[{"turns":[1]}]})"), HasSubstr("turns"));
  EXPECT_THAT(data_error_of([] { JudgePrompts::load("no-such-folder"); }), HasSubstr("not found"));
}

TEST(JudgePromptsTest, TheOfficialFiles) {
  const char* shared = std::getenv("EVALRUN_SHARED");
  const std::string folder = std::string(shared != nullptr ? shared : "") + "/data/mt_bench";
  if (!std::filesystem::exists(folder + "/judge_prompts.jsonl"))
    GTEST_SKIP() << "no golden data (EVALRUN_SHARED/data)";
  const JudgePrompts p = JudgePrompts::load(folder);
  int with_references = 0;
  for (int id = 81; id <= 160; ++id) with_references += !p.references(std::to_string(id)).empty();
  EXPECT_EQ(with_references, 30);
  const JudgedConversation talk = {
      {"QUESTION1", "QUESTION2"}, {"ANSWER1", "ANSWER2"}, p.references("101")};
  EXPECT_THAT(p.single(talk, 1).user, AllOf(HasSubstr("QUESTION2"), HasSubstr("ANSWER2"),
                                            HasSubstr("Reference answer:"), Not(HasSubstr("{"))));
  EXPECT_THAT(p.pair(talk, {"B1", "B2"}, 0).user, AllOf(HasSubstr("ANSWER1"), HasSubstr("B1")));
}

TEST(Replies, Grades) {
  EXPECT_EQ(parse_grade("Good. Rating: [[7]]"), 7);
  EXPECT_EQ(parse_grade("[[8.5]] or [[3]]"), 8.5);
  EXPECT_EQ(parse_grade("see [2], but rating [[9]]"), 9) << "double brackets come first";
  EXPECT_EQ(parse_grade("Rating: [6]"), 6);
  for (const char* none : {"", "seven", "[[ 7 ]]", "[[rating]]", "[[0]]", "[[11]]", "[[]]", "[[7"})
    EXPECT_EQ(parse_grade(none), std::nullopt) << none;
  EXPECT_EQ(parse_grade(std::string(1 << 20, '[') + "[[5]]"), 5);
}

TEST(Replies, PairsInBothOrders) {
  using V = PairVerdict;
  EXPECT_EQ(parse_pair_verdict("so [[A]]"), V::kFirst);
  EXPECT_EQ(parse_pair_verdict("[[B]]"), V::kSecond);
  EXPECT_EQ(parse_pair_verdict("[[C]]"), V::kTie);
  EXPECT_EQ(parse_pair_verdict("[A]"), V::kNone);
  EXPECT_EQ(combine_orders(V::kFirst, V::kSecond), V::kFirst);
  EXPECT_EQ(combine_orders(V::kSecond, V::kFirst), V::kSecond);
  EXPECT_EQ(combine_orders(V::kFirst, V::kFirst), V::kTie) << "whoever stands first: no verdict";
  EXPECT_EQ(combine_orders(V::kFirst, V::kTie), V::kTie);
  EXPECT_EQ(combine_orders(V::kTie, V::kTie), V::kTie);
  EXPECT_EQ(combine_orders(V::kNone, V::kFirst), V::kNone);
}

TEST(Replies, BodiesOfAnyKind) {
  std::string problem;
  EXPECT_EQ(parse_chat_completion(R"({"choices":[{"message":{"content":"x"}}]})", &problem), "x");
  EXPECT_EQ(problem, "");
  for (const char* body : {"", "{}", "[]", "3", "<html>", R"({"choices":[]})", R"({"choices":3})",
                           R"({"choices":[{}]})", R"({"choices":[{"message":null}]})",
                           R"({"choices":[{"message":{"content":null}}]})", "\xff\xfe"}) {
    EXPECT_EQ(parse_chat_completion(body, &problem), "") << body;
    EXPECT_NE(problem, "") << body;
  }
  const std::string good = R"({"choices":[{"message":{"content":"[[5]]"}}]})";
  for (uint64_t seed = 0; seed < 500; ++seed) {
    base::Rng rng(seed);
    std::string body = good;
    for (int i = 0; i < 3; ++i) body[rng.below(body.size())] = static_cast<char>(rng.below(256));
    parse_grade(parse_chat_completion(body, &problem));
  }
}

// ---- the server --------------------------------------------------------------------------------

class HttpJudgeTest : public ::testing::Test {
 protected:
  HttpJudgeTest() {
    for (const char* name :
         {"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})
      ::unsetenv(name);
  }
  HttpJudgeOptions options(const std::string& endpoint) {
    HttpJudgeOptions o;
    o.endpoint = endpoint;
    o.model = "judge-1";
    o.retries = 2;
    o.first_wait_s = 0.01;
    o.timeout_s = 5;
    return o;
  }
  JudgeReply ask(HttpJudgeOptions o) {
    return make_http_judge(std::move(o))->ask("id", {"system text", "user \"text\" \xff"});
  }
};

TEST_F(HttpJudgeTest, AsksAsAnOpenAiClientDoes) {
  JudgeServer server([](int, const std::string&) { return completion("Rating: [[7]]"); });
  HttpJudgeOptions o = options(server.endpoint() + "/");
  o.key = "sk-secret";
  const JudgeReply reply = ask(o);
  EXPECT_TRUE(reply.answered);
  EXPECT_EQ(reply.text, "Rating: [[7]]");
  EXPECT_EQ(reply.attempts, 1);
  const std::string request = server.first_request();
  EXPECT_THAT(request,
              AllOf(HasSubstr("POST /v1/chat/completions "),
                    HasSubstr("Authorization: Bearer sk-secret"), HasSubstr(R"("model":"judge-1")"),
                    HasSubstr(R"("temperature":0)"), HasSubstr(R"("max_tokens":2048)"),
                    HasSubstr(R"({"content":"system text","role":"system"})"),
                    HasSubstr(R"(user \"text\")")));
}

TEST_F(HttpJudgeTest, TriesAgainAfter429And5xxAndNonsense) {
  JudgeServer server([](int n, const std::string&) {
    return n == 0   ? http_response(429, "slow down", "Retry-After: 0\r\n")
           : n == 1 ? http_response(503, "")
                    : completion("[[4]]");
  });
  EXPECT_EQ(ask(options(server.endpoint())).text, "[[4]]");
  EXPECT_EQ(server.requests(), 3);

  JudgeServer nonsense([](int, const std::string&) { return http_response(200, "<html>"); });
  const JudgeReply reply = ask(options(nonsense.endpoint()));
  EXPECT_FALSE(reply.answered);
  EXPECT_FALSE(reply.hopeless);
  EXPECT_EQ(reply.attempts, 3);
  EXPECT_THAT(reply.problem, HasSubstr("not JSON"));
}

TEST_F(HttpJudgeTest, WaitsAsLongAsItIsTold) {
  JudgeServer server([](int n, const std::string&) {
    return n == 0 ? http_response(429, "", "retry-after: 1\r\n") : completion("x");
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(ask(options(server.endpoint())).answered);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(950));
}

TEST_F(HttpJudgeTest, AServerThatNeverAnswers) {
  JudgeServer server([](int, const std::string&) { return ""; });
  HttpJudgeOptions o = options(server.endpoint());
  o.timeout_s = 0.2;
  o.retries = 1;
  const auto begin = std::chrono::steady_clock::now();
  const JudgeReply reply = ask(o);
  EXPECT_FALSE(reply.answered);
  EXPECT_EQ(reply.attempts, 2);
  EXPECT_THAT(reply.problem, HasSubstr("time"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(HttpJudgeTest, GivesUpAtOnceWhereTryingAgainIsNoUseAndHidesTheKey) {
  JudgeServer server([](int, const std::string& request) {
    return http_response(401, "wrong key " + request.substr(request.find("Bearer ") + 7, 9) +
                                  std::string(170, 'x') + "sk-secret");
  });
  HttpJudgeOptions o = options(server.endpoint());
  o.key = "sk-secret";
  const JudgeReply reply = ask(o);
  EXPECT_TRUE(reply.hopeless);
  EXPECT_EQ(server.requests(), 1);
  EXPECT_THAT(reply.problem, AllOf(HasSubstr("HTTP 401"), HasSubstr("[key]"), Not(HasSubstr("sk-")),
                                   Not(HasSubstr("secret"))));
}

// A question that is too long is refused each time it is asked; the next one is not.
TEST_F(HttpJudgeTest, ARefusedQuestionIsThatQuestionsAloneAndRepliesNeverHoldTheKey) {
  JudgeServer server([](int n, const std::string&) {
    return n == 0 ? http_response(400, "context_length_exceeded") : completion("[[7]] sk-secret");
  });
  HttpJudgeOptions o = options(server.endpoint());
  o.key = "sk-secret";
  const JudgeReply refused = ask(o);
  EXPECT_TRUE(refused.refused);
  EXPECT_FALSE(refused.hopeless);
  EXPECT_EQ(server.requests(), 1) << "asking the same again is of no use";
  const JudgeReply answered = ask(o);
  EXPECT_TRUE(answered.answered);
  EXPECT_EQ(answered.text, "[[7]] [key]");
}

TEST_F(HttpJudgeTest, NoServerAndHugeRepliesAndRedirects) {
  EXPECT_FALSE(ask(options("http://127.0.0.1:1/v1")).answered);
  JudgeServer huge(
      [](int, const std::string&) { return http_response(200, std::string(5 << 20, 'x')); });
  EXPECT_THAT(ask(options(huge.endpoint())).problem, HasSubstr("more than"));
  JudgeServer other([](int, const std::string&) { return completion("[[9]]"); });
  JudgeServer redirect([&](int, const std::string&) {
    return http_response(302, "", "Location: " + other.endpoint() + "\r\n");
  });
  EXPECT_FALSE(ask(options(redirect.endpoint())).answered);
  EXPECT_EQ(other.requests(), 0) << "the key goes to the named server alone";
}

TEST_F(HttpJudgeTest, OptionsThatMakeNoSense) {
  const auto refused = [&](const std::string& endpoint, const std::string& key) {
    HttpJudgeOptions o = options(endpoint);
    o.key = key;
    try {
      make_http_judge(o);
    } catch (const base::Error& e) {
      EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(base::ExitCode::kUsage));
      EXPECT_THAT(e.what(), Not(HasSubstr("sk-")));
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refused("", ""), HasSubstr("--endpoint"));
  EXPECT_THAT(refused("ftp://x/v1", ""), HasSubstr("no http address"));
  EXPECT_THAT(refused("http://judge.example/v1", "sk-1"), HasSubstr("unencrypted"));
  EXPECT_THAT(refused("http://localhost.example/v1", "sk-1"), HasSubstr("unencrypted"));
  EXPECT_THAT(refused("http://localhost:x@judge.example/v1", "sk-1"), HasSubstr("unencrypted"));
  EXPECT_THAT(refused("https://judge.example/v1", "sk-1\r\nX: y"), HasSubstr("line break"));
  EXPECT_EQ(refused("http://localhost:8000/v1", "sk-1"), "no error");
  EXPECT_EQ(refused("http://judge.example/v1", ""), "no error");
}

TEST(JudgeKey, ComesFromTheEnvironmentAndGoesNowhereElse) {
  ::unsetenv("EVALRUN_JUDGE_KEY");
  ::setenv("OPENAI_API_KEY", "sk-a", 1);
  EXPECT_EQ(judge_key_from_environment(), "sk-a");
  ::setenv("EVALRUN_JUDGE_KEY", "sk-b", 1);
  EXPECT_EQ(judge_key_from_environment(), "sk-b");
  for (const auto& [name, value] : runners::capture_environment())
    EXPECT_THAT(name + value, AllOf(Not(HasSubstr("sk-")), Not(HasSubstr("JUDGE_KEY"))));
  EXPECT_FALSE(runners::figure_variables().contains("EVALRUN_JUDGE_KEY"));
  ::unsetenv("EVALRUN_JUDGE_KEY");
  ::unsetenv("OPENAI_API_KEY");
}

// ---- asking, grades, pairs ---------------------------------------------------------------------

// Replies by a rule, and counts.
class RuleJudge final : public JudgeClient {
 public:
  explicit RuleJudge(std::function<std::string(const JudgeRequest&)> rule)
      : rule_(std::move(rule)) {}
  JudgeReply ask(const std::string&, const JudgeRequest& request) override {
    ++asked;
    JudgeReply reply;
    reply.text = rule_(request);
    reply.answered = !reply.text.empty();
    if (!reply.answered) reply.problem = "no reply by rule";
    return reply;
  }
  std::atomic<int> asked = 0;

 private:
  std::function<std::string(const JudgeRequest&)> rule_;
};

class Judging : public ::testing::Test {
 protected:
  Judging() : store_(folder_.file("r.db")), cache_(folder_.file("home/judge.db")) {
    SyntheticRun run;
    run.arms = usual_arms();
    run.tasks = {"mt_bench"};
    run.change = [](results::GenerationRecord& g, const SyntheticArm& arm, int prompt, int, int) {
      // Two turns; "pld" says the same as "ar" but for its second answer to prompt 3.
      results::TurnRecord turn = g.turns.at(0);
      g.turns = {turn, turn};
      g.texts = {fmt::format("answer {}", prompt), fmt::format("more {}", prompt)};
      if (arm.method == "pld" && prompt == 3) g.texts[1] = "other";
    };
    run_id_ = fill(store_, run);
    store_.execute(
        "UPDATE prompt SET turns = '[\"q1\", \"q2\"]', category = "
        "CASE WHEN name LIKE '%/1' THEN 'math' ELSE 'writing' END");
    store_.execute("UPDATE prompt SET name = 'mt_bench/101' WHERE name = 'mt_bench/1'");
    answers_ = runners::stored_answers(store_, run_id_, "mt_bench", prompts_);
  }
  std::vector<runners::JudgeQuestion> grade_questions() const {
    std::vector<runners::JudgeQuestion> all;
    for (const runners::StoredAnswer& answer : answers_)
      for (size_t turn = 0; turn < answer.talk.answers.size(); ++turn)
        all.push_back(runners::grade_question(prompts_, "j", answer.talk, turn));
    return all;
  }
  JudgePrompts prompts_ = prompts();
  TempFolder folder_;
  results::ResultStore store_;
  results::JudgeReplies cache_;
  int64_t run_id_ = 0;
  std::vector<runners::StoredAnswer> answers_;
};

TEST_F(Judging, AnIdenticalAnswerIsJudgedOnce) {
  ASSERT_EQ(answers_.size(), 12u);  // 3 arms of 4 prompts
  RuleJudge judge([](const JudgeRequest& r) {
    return r.user.find("other") != std::string::npos ? "[[2]]" : "[[7]]";
  });
  const auto first = runners::ask_missing(grade_questions(), judge, cache_, {});
  EXPECT_EQ(first.status, AskStatus::kComplete);
  EXPECT_EQ(first.questions, 9);  // 4 prompts of 2 turns, and the one answer that differs
  EXPECT_EQ(judge.asked, 9);
  const auto again = runners::ask_missing(grade_questions(), judge, cache_, {});
  EXPECT_EQ(again.cached, 9);
  EXPECT_EQ(judge.asked, 9);

  std::map<std::string, std::vector<double>> means;
  for (const runners::StoredAnswer& answer : answers_) {
    const runners::GradedAnswer graded = runners::grade(answer, prompts_, "j", cache_);
    ASSERT_TRUE(graded.complete);
    const results::ScoreRecord score = runners::score_of(graded, "judge-1");
    EXPECT_EQ(score.evaluator, "mt_bench_judge");
    EXPECT_EQ(score.version, "single-v1:judge-1");
    means[answer.arm].push_back(score.value.value());
    store_.put_score(answer.generation_id, score);
    store_.put_score(answer.generation_id, score);  // again: replaced, not doubled
  }
  EXPECT_EQ(means.at("ar"), means.at("ar (A/A)"));
  EXPECT_THAT(means.at("ar"), ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(means.at("pld:k=4"), ElementsAre(7, 7, 7, 4.5));
  std::vector<std::string> stored;
  store_.query("SELECT count(*), sum(value) FROM score WHERE evaluator = 'mt_bench_judge'", {},
               [&](const results::Row& row) {
                 stored = {row.text(0), row.text(1)};
                 return false;
               });
  EXPECT_THAT(stored, ElementsAre("12", "81.5"));
}

TEST_F(Judging, ReferencesGoToTheQuestionsThatHaveThem) {
  for (const runners::StoredAnswer& answer : answers_) {
    const std::string user = runners::grade_question(prompts_, "j", answer.talk, 1).request.user;
    EXPECT_EQ(user.find("with r1, r2") != std::string::npos, answer.prompt == "mt_bench/101");
  }
  EXPECT_TRUE(runners::stored_answers(store_, run_id_, "gsm8k", prompts_).empty());
}

TEST_F(Judging, TheKeyHoldsEverythingTheReplyDependsOn) {
  const JudgedConversation talk = {{"q1", "q2"}, {"a1", "a2"}, {}};
  const auto key = [&](const std::string& judge, const JudgedConversation& t, size_t turn) {
    const auto k = runners::grade_question(prompts_, judge, t, turn).key;
    return k.judge + k.prompt_hash + k.answer_hash;
  };
  std::set<std::string> keys = {key("j", talk, 0), key("j", talk, 1), key("k", talk, 0)};
  JudgedConversation other = talk;
  other.questions[0] = "x";
  keys.insert(key("j", other, 0));
  other = talk;
  other.answers[0] = "x";
  keys.insert(key("j", other, 0));
  keys.insert(key("j", other, 1));
  other = talk;
  other.references = {"r"};
  keys.insert(key("j", other, 0));
  EXPECT_EQ(keys.size(), 7u);
  other = talk;
  other.answers[1] = "x";
  EXPECT_EQ(key("j", other, 0), key("j", talk, 0)) << "the second answer is not in the first turn";
  const JudgedConversation b = {{"q1", "q2"}, {"b1", "b2"}, {}};
  EXPECT_NE(runners::pair_question(prompts_, "j", talk, b, 0).key.answer_hash,
            runners::pair_question(prompts_, "j", b, talk, 0).key.answer_hash);
}

TEST_F(Judging, RepliesWithoutARatingAreCountedNotScored) {
  RuleJudge judge([](const JudgeRequest& r) {
    return r.user.find("/ more 0") != std::string::npos ||
                   r.user.find("answer 2") != std::string::npos
               ? "I cannot say."
               : "[[6]]";
  });
  runners::ask_missing(grade_questions(), judge, cache_, {});
  const auto score = [&](size_t i) {
    return runners::score_of(runners::grade(answers_.at(i), prompts_, "j", cache_), "m");
  };
  EXPECT_EQ(score(0).value, 6);
  EXPECT_EQ(score(0).detail, "turn 2 has no rating");
  EXPECT_EQ(score(0).facts, R"({"grades":[6.0,null]})");
  EXPECT_EQ(score(6).value, std::nullopt);
  EXPECT_EQ(score(6).status, "no rating");
}

TEST_F(Judging, GivesUpOnASilentJudgeAndGoesOnLater) {
  int left = 2;
  RuleJudge judge([&](const JudgeRequest&) { return left-- > 0 ? "[[5]]" : ""; });
  runners::AskOptions options;
  options.jobs = 1;
  const auto outcome = runners::ask_missing(grade_questions(), judge, cache_, options);
  EXPECT_EQ(outcome.status, AskStatus::kGaveUp);
  EXPECT_EQ(outcome.answered, 2);
  EXPECT_EQ(outcome.unanswered, 7);
  EXPECT_EQ(judge.asked, 2 + options.give_up_after);
  EXPECT_EQ(outcome.problem, "no reply by rule");
  EXPECT_FALSE(runners::grade(answers_.back(), prompts_, "j", cache_).complete);
  RuleJudge awake([](const JudgeRequest&) { return "[[5]]"; });
  const auto rest = runners::ask_missing(grade_questions(), awake, cache_, options);
  EXPECT_EQ(rest.status, AskStatus::kComplete);
  EXPECT_EQ(awake.asked, 7);
}

TEST_F(Judging, OneRefusedQuestionDoesNotKeepTheOthersFromBeingAsked) {
  class Refusing final : public JudgeClient {
   public:
    JudgeReply ask(const std::string&, const JudgeRequest&) override {
      JudgeReply reply;
      reply.answered = asked++ > 3;  // more refusals in a row than a silent judge is given
      reply.refused = !reply.answered;
      reply.text = reply.answered ? "[[5]]" : "";
      reply.problem = reply.answered ? "" : "HTTP 400";
      return reply;
    }
    int asked = 0;
  } judge;
  runners::AskOptions options;
  options.jobs = 1;
  options.give_up_after = 2;
  const auto outcome = runners::ask_missing(grade_questions(), judge, cache_, options);
  EXPECT_EQ(judge.asked, 9);
  EXPECT_EQ(outcome.answered, 5);
  EXPECT_EQ(outcome.unanswered, 4);
  EXPECT_EQ(outcome.problem, "HTTP 400");
}

TEST_F(Judging, StopsWhenAskedAndInTime) {
  RuleJudge judge([](const JudgeRequest&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return "[[5]]";
  });
  runners::AskOptions options;
  options.jobs = 2;
  options.stop = [&] { return judge.asked >= 3; };
  const auto stopped = runners::ask_missing(grade_questions(), judge, cache_, options);
  EXPECT_EQ(stopped.status, AskStatus::kInterrupted);
  EXPECT_GE(cache_.size(), 3);
  options.stop = {};
  options.max_time_s = 0.01;
  EXPECT_EQ(runners::ask_missing(grade_questions(), judge, cache_, options).status,
            AskStatus::kOutOfTime);
}

TEST_F(Judging, PairsInBothOrdersAndIdenticalOnesUnasked) {
  const auto pairs = runners::pair_answers(answers_, "pld:k=4", answers_, "ar");
  ASSERT_EQ(pairs.size(), 4u);
  std::vector<runners::JudgeQuestion> questions;
  for (const auto& pair : pairs)
    for (auto& q : runners::questions_of(pair, prompts_, "j")) questions.push_back(q);
  ASSERT_EQ(questions.size(), 2u);  // one turn of one prompt, both orders
  // Prefers "other", wherever it stands.
  RuleJudge judge(
      [](const JudgeRequest& r) { return r.user.ends_with("other") ? "[[B]]" : "[[A]]"; });
  runners::ask_missing(questions, judge, cache_, {});
  int wins = 0, ties = 0, identical = 0;
  for (const auto& pair : pairs)
    for (const auto& judged : runners::judge_pair(pair, prompts_, "j", cache_)) {
      EXPECT_TRUE(judged.complete);
      wins += judged.verdict == PairVerdict::kFirst;
      ties += judged.verdict == PairVerdict::kTie;
      identical += judged.identical;
    }
  EXPECT_EQ(wins, 1);
  EXPECT_EQ(ties, 7);
  EXPECT_EQ(identical, 7);
  for (const auto& judged : runners::judge_pair({pairs[3].b, pairs[3].a}, prompts_, "j", cache_)) {
    if (judged.turn == 1) {
      EXPECT_EQ(judged.verdict, PairVerdict::kSecond) << "seen from the other side";
    }
  }
}

TEST(JudgeRepliesTest, KeepsTheFirstReplyAndRefusesForeignFiles) {
  TempFolder folder;
  {
    results::JudgeReplies cache(folder.file("sub/judge.db"));
    cache.add({"j", "p", "a"}, "first");
    cache.add({"j", "p", "a"}, "second");
    EXPECT_EQ(cache.find({"j", "p", "a"}), "first");
    EXPECT_EQ(cache.find({"k", "p", "a"}), std::nullopt);
  }
  EXPECT_EQ(results::JudgeReplies(folder.file("sub/judge.db")).size(), 1);
  base::write_file_atomic(folder.file("text.db"), std::string(4096, 'x'));
  EXPECT_THAT(data_error_of([&] { results::JudgeReplies cache(folder.file("text.db")); }),
              HasSubstr("text.db"));
}

TEST(RecordedJudge, ByIdAndStrict) {
  TempFolder folder;
  const std::string path = folder.file("replies.jsonl");
  base::write_file_atomic(path, R"({"id":"x-y","reply":"[[3]]"})");
  EXPECT_EQ(make_recorded_judge(path)->ask("x-y", {}).text, "[[3]]");
  EXPECT_FALSE(make_recorded_judge(path)->ask("z", {}).answered);
  base::write_file_atomic(path, "{\"id\":\"x\",\"reply\":3}");
  EXPECT_THAT(data_error_of([&] { make_recorded_judge(path); }),
              AllOf(HasSubstr("line 1"), HasSubstr("'reply'")));
}

}  // namespace
}  // namespace evalrun::tests
