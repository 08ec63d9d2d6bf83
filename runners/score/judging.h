// Stored answers before a judge: which questions follow from them, asking those nobody asked
// before, and what the verdicts come to. Nothing is measured here; grades join the scores of their
// generations.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "evaluators/judge/judge.h"
#include "evaluators/judge/judge_client.h"
#include "results/judge_replies.h"
#include "results/store.h"

namespace evalrun::runners {

// An answer of a stored run: the first repeat, without failures and planted faults.
struct StoredAnswer {
  int64_t generation_id = 0;
  std::string arm, role;  // label and role of its arm
  int64_t prompt_id = 0;
  std::string task, prompt, category;
  std::string group;  // of prompts that belong together (results::PromptRecord)
  int sample = 0;
  evaluators::JudgedConversation talk;  // at most two turns; references when there are any
};

// Answers of the run to prompts of `tasks` (their name without part and options), in the order of
// prompts and arms.
std::vector<StoredAnswer> stored_answers(const results::ResultStore& store, int64_t run_id,
                                         const std::string& task,
                                         const evaluators::JudgePrompts& prompts);

// One question to a judge. Equal keys are equal questions.
struct JudgeQuestion {
  results::JudgeReplyKey key;
  evaluators::JudgeRequest request;
  std::string id() const;  // of recorded requests and replies
};
JudgeQuestion grade_question(const evaluators::JudgePrompts& prompts, const std::string& judge,
                             const evaluators::JudgedConversation& talk, size_t turn);
JudgeQuestion pair_question(const evaluators::JudgePrompts& prompts, const std::string& judge,
                            const evaluators::JudgedConversation& a,
                            const evaluators::JudgedConversation& b, size_t turn);

struct AskOptions {
  int jobs = 4;           // questions at a time
  double max_time_s = 0;  // of everything; 0 = no limit
  // After this many questions in a row without a reply, nothing more is asked.
  int give_up_after = 4;
  std::function<bool()> stop;  // Ctrl-C; may be empty
  std::function<void(int done, int pending)>
      on_progress;  // from one thread at a time; may be empty
};

enum class AskStatus { kComplete, kInterrupted, kOutOfTime, kGaveUp };

struct AskOutcome {
  AskStatus status = AskStatus::kComplete;
  int questions = 0;    // different ones
  int cached = 0;       // of them answered before
  int answered = 0;     // now
  int unanswered = 0;   // asked in vain, or not any more
  std::string problem;  // of the last one in vain
};

// Asks what the cache does not hold and puts the replies there. Errors of the cache are thrown;
// what was answered before stays.
AskOutcome ask_missing(const std::vector<JudgeQuestion>& questions, evaluators::JudgeClient& client,
                       results::JudgeReplies& cache, const AskOptions& options);

// One grade per turn; nothing where the reply holds none. `complete` is false when a reply is still
// missing.
struct GradedAnswer {
  const StoredAnswer* answer = nullptr;
  std::vector<std::optional<double>> grades;
  bool complete = true;
};
GradedAnswer grade(const StoredAnswer& answer, const evaluators::JudgePrompts& prompts,
                   const std::string& judge, const results::JudgeReplies& cache);
// "mt_bench_judge", version "single-v1:<model>": the mean of its grades.
results::ScoreRecord score_of(const GradedAnswer& graded, const std::string& model);

// Two answers to the same question, one turn of them.
struct JudgedPair {
  std::string prompt, category;
  int sample = 0;
  size_t turn = 0;
  bool identical = false;  // the same text up to this turn: a tie that nobody is asked about
  bool complete = true;
  evaluators::PairVerdict verdict = evaluators::PairVerdict::kNone;  // kFirst: a is better
};
struct AnswerPair {
  const StoredAnswer *a = nullptr, *b = nullptr;
};
// By prompt and sample; answers without a partner, or to other questions, are left out.
std::vector<AnswerPair> pair_answers(const std::vector<StoredAnswer>& a, const std::string& arm_a,
                                     const std::vector<StoredAnswer>& b, const std::string& arm_b);
std::vector<JudgeQuestion> questions_of(const AnswerPair& pair,
                                        const evaluators::JudgePrompts& prompts,
                                        const std::string& judge);
std::vector<JudgedPair> judge_pair(const AnswerPair& pair, const evaluators::JudgePrompts& prompts,
                                   const std::string& judge, const results::JudgeReplies& cache);

}  // namespace evalrun::runners
