// A language model as judge, by the convention of MT-Bench (Zheng et al. 2023; FastChat's
// llm_judge): official prompts and reference answers in, grades and verdicts out. Text only; who
// answers is evaluators/judge/judge_client.h.
//
// Grades: 1 to 10, one per turn. A later turn is graded with the whole conversation in view, by a
// prompt of its own; questions with reference answers (math, reasoning, coding) by prompts that
// show them. Pairs: both orders are asked, and a pair counts only when both agree.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::evaluators {

// What is sent to a judge.
struct JudgeRequest {
  std::string system, user;
};

// One prompt of judge_prompts.jsonl.
struct JudgeTemplate {
  std::string name;  // "single-v1", "pair-math-v1-multi-turn"
  std::string system, text;
};

// Question and answers, one each per turn. `references` is empty when the question has none.
struct JudgedConversation {
  std::vector<std::string> questions, answers, references;
};

class JudgePrompts {
 public:
  // Folder of the official files below the data root: judge_prompts.jsonl (FastChat's, all eight
  // prompts) and reference_answer/gpt-4.jsonl. Throws data_error (file, line, field, remedy).
  static JudgePrompts load(const std::string& folder);
  // From the texts of the two files; `file` names them in messages. For tests.
  static JudgePrompts parse(std::string_view prompts, std::string_view references,
                            const std::string& file);

  // Reference answers of a question ("81"), one per turn; empty when it has none.
  const std::vector<std::string>& references(const std::string& question_id) const;

  // Grading turn 0 or 1. `name` of the prompt used goes to *name.
  JudgeRequest single(const JudgedConversation& c, size_t turn, std::string* name = nullptr) const;
  // Comparing two answers to the same questions; a is shown first.
  JudgeRequest pair(const JudgedConversation& a, const std::vector<std::string>& answers_b,
                    size_t turn, std::string* name = nullptr) const;

 private:
  const JudgeTemplate& get(const std::string& name) const;
  std::map<std::string, JudgeTemplate> templates_;
  std::map<std::string, std::vector<std::string>> references_;
};

// The first [[number]], else the first [number]; nothing when there is none or it lies outside 1 to
// 10 (FastChat has -1 for no grade, and no range).
std::optional<double> parse_grade(std::string_view reply);

enum class PairVerdict { kFirst, kSecond, kTie, kNone };
// [[A]], [[B]] or [[C]], looked for in this order as FastChat does; kNone when none occurs.
PairVerdict parse_pair_verdict(std::string_view reply);

// Of the two orders: `straight` with a first, `swapped` with b first. Agreement, else a tie;
// kNone when one of them gave no verdict. kFirst means a.
PairVerdict combine_orders(PairVerdict straight, PairVerdict swapped);

// Fills "{name}" in one pass, so that braces in what is filled in stay text. Throws data_error for
// a field that `values` has not.
std::string fill_template(const std::string& text, const std::map<std::string, std::string>& values,
                          const std::string& where);

}  // namespace evalrun::evaluators
