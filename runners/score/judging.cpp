#include "runners/score/judging.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <tuple>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "results/generation_queries.h"

namespace evalrun::runners {
namespace {

using evaluators::JudgedConversation;
using evaluators::JudgePrompts;
using evaluators::PairVerdict;

constexpr size_t kJudgedTurns = 2;  // there are no prompts for more

std::string hash_of(const std::vector<std::string>& texts) {
  return base::sha256_hex(
      nlohmann::json(texts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::vector<std::string> first_turns(const std::vector<std::string>& answers, size_t turn) {
  return {answers.begin(), answers.begin() + static_cast<std::ptrdiff_t>(turn) + 1};
}

JudgedConversation without_answers(JudgedConversation talk) {
  for (std::string& answer : talk.answers) answer.clear();
  return talk;
}

// "81" of "mt_bench/81": the official number, by which reference answers are found.
std::string question_id(const std::string& prompt) { return prompt.substr(prompt.rfind('/') + 1); }

void keep_turns(std::vector<std::string>& turns, size_t n) {
  if (turns.size() > n) turns.resize(n);
}

}  // namespace

std::vector<StoredAnswer> stored_answers(const results::ResultStore& store, int64_t run_id,
                                         const std::string& task, const JudgePrompts& prompts) {
  std::vector<StoredAnswer> answers;
  for (results::AnswerRow& row : results::answers(store, run_id)) {
    if (row.task.substr(0, row.task.find_first_of("[:")) != task) continue;
    StoredAnswer& answer = answers.emplace_back();
    answer.task = std::move(row.task);
    answer.generation_id = row.generation_id;
    answer.arm = std::move(row.arm);
    answer.role = std::move(row.role);
    answer.prompt_id = row.prompt_id;
    answer.group = std::move(row.group);
    answer.prompt = std::move(row.prompt);
    answer.category = std::move(row.category);
    answer.talk.questions = std::move(row.questions);
    answer.sample = row.sample;
  }
  for (StoredAnswer& answer : answers) {
    answer.talk.answers = results::turn_texts(store, answer.generation_id);
    const size_t n =
        std::min({answer.talk.questions.size(), answer.talk.answers.size(), kJudgedTurns});
    keep_turns(answer.talk.questions, n);
    keep_turns(answer.talk.answers, n);
    // Only MT-Bench's own numbers mean its questions.
    if (task == "mt_bench" || answer.category == "mt_bench")
      answer.talk.references = prompts.references(question_id(answer.prompt));
  }
  return answers;
}

std::string JudgeQuestion::id() const {
  return key.prompt_hash.substr(0, 16) + "-" + key.answer_hash.substr(0, 16);
}

JudgeQuestion grade_question(const JudgePrompts& prompts, const std::string& judge,
                             const JudgedConversation& talk, size_t turn) {
  JudgeQuestion question;
  question.request = prompts.single(talk, turn);
  const evaluators::JudgeRequest bare = prompts.single(without_answers(talk), turn);
  question.key = {judge, hash_of({bare.system, bare.user}),
                  hash_of(first_turns(talk.answers, turn))};
  return question;
}

JudgeQuestion pair_question(const JudgePrompts& prompts, const std::string& judge,
                            const JudgedConversation& a, const JudgedConversation& b, size_t turn) {
  JudgeQuestion question;
  question.request = prompts.pair(a, b.answers, turn);
  const JudgedConversation bare_b = without_answers(b);
  const evaluators::JudgeRequest bare = prompts.pair(without_answers(a), bare_b.answers, turn);
  std::vector<std::string> answers = first_turns(a.answers, turn);
  for (const std::string& answer : first_turns(b.answers, turn)) answers.push_back(answer);
  question.key = {judge, hash_of({bare.system, bare.user}), hash_of(answers)};
  return question;
}

AskOutcome ask_missing(const std::vector<JudgeQuestion>& questions, evaluators::JudgeClient& client,
                       results::JudgeReplies& cache, const AskOptions& options) {
  AskOutcome outcome;
  std::vector<const JudgeQuestion*> pending;
  std::set<std::pair<std::string, std::string>> seen;
  for (const JudgeQuestion& q : questions)
    if (seen.emplace(q.key.prompt_hash, q.key.answer_hash).second) {
      ++outcome.questions;
      if (cache.find(q.key))
        ++outcome.cached;
      else
        pending.push_back(&q);
    }

  const auto begin = std::chrono::steady_clock::now();
  const auto out_of_time = [&] {
    return options.max_time_s > 0 &&
           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() >=
               options.max_time_s;
  };
  std::atomic<size_t> next = 0;
  std::atomic<bool> end = false;
  std::mutex mutex;  // guards everything below
  int done = 0, in_vain = 0;
  std::exception_ptr failure;
  const auto finish = [&](AskStatus status) {
    if (outcome.status == AskStatus::kComplete) outcome.status = status;
    end = true;
  };
  const auto work = [&] {
    while (!end) {
      if ((options.stop && options.stop()) || out_of_time()) {
        const std::scoped_lock lock(mutex);
        finish(out_of_time() ? AskStatus::kOutOfTime : AskStatus::kInterrupted);
        return;
      }
      const size_t i = next++;
      if (i >= pending.size()) return;
      try {
        const evaluators::JudgeReply reply = client.ask(pending[i]->id(), pending[i]->request);
        if (reply.answered) cache.add(pending[i]->key, reply.text);
        const std::scoped_lock lock(mutex);
        ++done;
        if (reply.answered) {
          ++outcome.answered;
          in_vain = 0;
        } else {
          outcome.problem = reply.problem;
          if (options.stop && options.stop())
            finish(AskStatus::kInterrupted);
          else if (reply.hopeless || (!reply.refused && ++in_vain >= options.give_up_after))
            finish(AskStatus::kGaveUp);
        }
        if (options.on_progress) options.on_progress(done, static_cast<int>(pending.size()));
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!failure) failure = std::current_exception();
        end = true;
        return;
      }
    }
  };
  std::vector<std::thread> threads;
  const size_t n = std::min(pending.size(), static_cast<size_t>(std::max(1, options.jobs)));
  for (size_t t = 0; t < n; ++t) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  outcome.unanswered = static_cast<int>(pending.size()) - outcome.answered;
  if (outcome.unanswered > 0 && outcome.status == AskStatus::kComplete && !outcome.problem.empty())
    outcome.status = AskStatus::kGaveUp;
  return outcome;
}

GradedAnswer grade(const StoredAnswer& answer, const JudgePrompts& prompts,
                   const std::string& judge, const results::JudgeReplies& cache) {
  GradedAnswer graded;
  graded.answer = &answer;
  for (size_t turn = 0; turn < answer.talk.answers.size(); ++turn) {
    const std::optional<std::string> reply =
        cache.find(grade_question(prompts, judge, answer.talk, turn).key);
    graded.complete = graded.complete && reply.has_value();
    graded.grades.push_back(reply ? evaluators::parse_grade(*reply) : std::nullopt);
  }
  return graded;
}

results::ScoreRecord score_of(const GradedAnswer& graded, const std::string& model) {
  results::ScoreRecord score;
  score.evaluator = "mt_bench_judge";
  score.version = "single-v1:" + model;
  double sum = 0;
  int n = 0;
  nlohmann::json grades = nlohmann::json::array();
  for (size_t turn = 0; turn < graded.grades.size(); ++turn) {
    const std::optional<double>& grade = graded.grades[turn];
    grades.push_back(grade ? nlohmann::json(*grade) : nlohmann::json());
    if (grade) {
      sum += *grade;
      ++n;
      score.extracted += fmt::format("{}{}", score.extracted.empty() ? "" : " ", *grade);
    } else {
      score.detail +=
          fmt::format("{}turn {} has no rating", score.detail.empty() ? "" : ", ", turn + 1);
    }
  }
  if (n > 0)
    score.value = sum / n;
  else
    score.status = "no rating";
  score.facts = nlohmann::json{{"grades", grades}}.dump();
  return score;
}

std::vector<AnswerPair> pair_answers(const std::vector<StoredAnswer>& a, const std::string& arm_a,
                                     const std::vector<StoredAnswer>& b, const std::string& arm_b) {
  // Task and prompt: two forms of a prompt are two questions.
  std::map<std::tuple<std::string, std::string, int>, const StoredAnswer*> partners;
  for (const StoredAnswer& answer : b)
    if (answer.arm == arm_b) partners[{answer.task, answer.prompt, answer.sample}] = &answer;
  std::vector<AnswerPair> pairs;
  for (const StoredAnswer& answer : a) {
    if (answer.arm != arm_a) continue;
    const auto it = partners.find({answer.task, answer.prompt, answer.sample});
    if (it != partners.end() && it->second->talk.questions == answer.talk.questions &&
        it->second->talk.answers.size() == answer.talk.answers.size())
      pairs.push_back({&answer, it->second});
  }
  return pairs;
}

std::vector<JudgeQuestion> questions_of(const AnswerPair& pair, const JudgePrompts& prompts,
                                        const std::string& judge) {
  std::vector<JudgeQuestion> questions;
  for (size_t turn = 0; turn < pair.a->talk.answers.size(); ++turn) {
    if (first_turns(pair.a->talk.answers, turn) == first_turns(pair.b->talk.answers, turn))
      continue;
    questions.push_back(pair_question(prompts, judge, pair.a->talk, pair.b->talk, turn));
    questions.push_back(pair_question(prompts, judge, pair.b->talk, pair.a->talk, turn));
  }
  return questions;
}

std::vector<JudgedPair> judge_pair(const AnswerPair& pair, const JudgePrompts& prompts,
                                   const std::string& judge, const results::JudgeReplies& cache) {
  std::vector<JudgedPair> judged;
  for (size_t turn = 0; turn < pair.a->talk.answers.size(); ++turn) {
    JudgedPair j;
    j.prompt = pair.a->prompt;
    j.category = pair.a->category;
    j.sample = pair.a->sample;
    j.turn = turn;
    if (first_turns(pair.a->talk.answers, turn) == first_turns(pair.b->talk.answers, turn)) {
      j.identical = true;
      j.verdict = PairVerdict::kTie;
    } else {
      const auto straight =
          cache.find(pair_question(prompts, judge, pair.a->talk, pair.b->talk, turn).key);
      const auto swapped =
          cache.find(pair_question(prompts, judge, pair.b->talk, pair.a->talk, turn).key);
      j.complete = straight && swapped;
      if (j.complete)
        j.verdict = evaluators::combine_orders(evaluators::parse_pair_verdict(*straight),
                                               evaluators::parse_pair_verdict(*swapped));
    }
    judged.push_back(j);
  }
  return judged;
}

}  // namespace evalrun::runners
