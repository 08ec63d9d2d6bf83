#include "evaluators/judge/judge.h"

#include <re2/re2.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "datasets/json_lines.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::evaluators {

namespace {

using base::ObjectReader;

constexpr const char* kRemedy = "fetch the official file: `evalrun data fetch mt_bench`";
constexpr std::array<const char*, 8> kNames = {
    "single-v1", "single-v1-multi-turn", "single-math-v1", "single-math-v1-multi-turn",
    "pair-v2",   "pair-v2-multi-turn",   "pair-math-v1",   "pair-math-v1-multi-turn"};

// Fields a template may name, by the place it is used in.
std::map<std::string, std::string> field_names(const std::string& name) {
  const bool pair = name.starts_with("pair"), multi = name.ends_with("multi-turn");
  std::map<std::string, std::string> fields;
  const auto add = [&](const std::string& field) { fields[field] = ""; };
  if (multi) {
    add("question_1");
    add("question_2");
    for (const char* side :
         pair ? std::vector<const char*>{"_a", "_b"} : std::vector<const char*>{""})
      for (const char* turn : {"_1", "_2"}) add(fmt::format("answer{}{}", side, turn));
  } else {
    add("question");
    if (pair) {
      add("answer_a");
      add("answer_b");
    } else {
      add("answer");
    }
  }
  if (name.find("math") != std::string::npos) {
    add("ref_answer_1");
    if (multi) add("ref_answer_2");
  }
  return fields;
}

std::string template_name(bool pair, bool with_reference, size_t turn) {
  return fmt::format("{}{}",
                     pair ? (with_reference ? "pair-math-v1" : "pair-v2")
                          : (with_reference ? "single-math-v1" : "single-v1"),
                     turn > 0 ? "-multi-turn" : "");
}

void check_conversation(const JudgedConversation& c, size_t turn) {
  EVALRUN_CHECK(turn < 2 && c.questions.size() > turn && c.answers.size() > turn,
                "turn {} of {} questions, {} answers", turn, c.questions.size(), c.answers.size());
}

// What single and pair prompts share.
std::map<std::string, std::string> shared_values(const JudgedConversation& c, size_t turn) {
  std::map<std::string, std::string> values;
  if (turn == 0) {
    values["question"] = c.questions[0];
  } else {
    values["question_1"] = c.questions[0];
    values["question_2"] = c.questions[1];
  }
  for (size_t i = 0; i < c.references.size() && i <= turn; ++i)
    values[fmt::format("ref_answer_{}", i + 1)] = c.references[i];
  return values;
}

}  // namespace

std::string fill_template(const std::string& text, const std::map<std::string, std::string>& values,
                          const std::string& where) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '{') {
      out += text[at++];
      continue;
    }
    const size_t close = text.find('}', at);
    const std::string name =
        close == std::string::npos ? text.substr(at + 1, 20) : text.substr(at + 1, close - at - 1);
    const auto value = values.find(name);
    if (close == std::string::npos || value == values.end())
      throw base::data_error(where, "prompt_template",
                             fmt::format("names a field '{}' that it cannot have", name), kRemedy);
    out += value->second;
    at = close + 1;
  }
  return out;
}

JudgePrompts JudgePrompts::load(const std::string& folder) {
  const auto path = [&](const char* name) {
    return (std::filesystem::path(folder) / name).string();
  };
  for (const char* name : {"judge_prompts.jsonl", "reference_answer/gpt-4.jsonl"})
    if (!std::filesystem::exists(path(name)))
      throw base::data_error(path(name), "", "not found; the judge needs it", kRemedy);
  return parse(base::read_file(path("judge_prompts.jsonl")),
               base::read_file(path("reference_answer/gpt-4.jsonl")), folder);
}

JudgePrompts JudgePrompts::parse(std::string_view prompts, std::string_view references,
                                 const std::string& file) {
  JudgePrompts all;
  const std::string prompt_file = file + "/judge_prompts.jsonl";
  datasets::for_each_json_record(
      prompts, prompt_file, [&](const datasets::JsonLine& at, ObjectReader& reader) {
        JudgeTemplate t;
        t.name = reader.required<std::string>("name");
        t.system = reader.required<std::string>("system_prompt");
        t.text = reader.required<std::string>("prompt_template");
        const std::string where = fmt::format("{}: {}", prompt_file, at.place());
        // A field that cannot be filled is found here, not after an hour of judging.
        fill_template(t.text, field_names(t.name), where);
        if (!all.templates_.emplace(t.name, t).second)
          reader.fail("name", fmt::format("'{}' was used before", t.name), kRemedy);
      });
  for (const char* name : kNames)
    if (!all.templates_.contains(name))
      throw base::data_error(prompt_file, "", fmt::format("has no prompt '{}'", name), kRemedy);

  const std::string reference_file = file + "/reference_answer/gpt-4.jsonl";
  datasets::for_each_json_record(
      references, reference_file, [&](const datasets::JsonLine& at, ObjectReader& reader) {
        const int id = reader.required<int>("question_id");
        const auto* choices = reader.raw("choices");
        if (choices == nullptr || !choices->is_array() || choices->empty())
          reader.fail("choices", "must be a list with one answer", kRemedy);
        ObjectReader choice(choices->front(), fmt::format("{}: {}", reference_file, at.place()),
                            "choices[0]");
        const auto turns = choice.required<std::vector<std::string>>("turns");
        if (!all.references_.emplace(std::to_string(id), turns).second)
          reader.fail("question_id", fmt::format("{} was used before", id), kRemedy);
      });
  return all;
}

const std::vector<std::string>& JudgePrompts::references(const std::string& question_id) const {
  static const std::vector<std::string> kNone;
  const auto it = references_.find(question_id);
  return it == references_.end() ? kNone : it->second;
}

const JudgeTemplate& JudgePrompts::get(const std::string& name) const {
  const auto it = templates_.find(name);
  EVALRUN_CHECK(it != templates_.end(), "no judge prompt '{}'", name);
  return it->second;
}

JudgeRequest JudgePrompts::single(const JudgedConversation& c, size_t turn,
                                  std::string* name) const {
  check_conversation(c, turn);
  const JudgeTemplate& t = get(template_name(false, c.references.size() > turn, turn));
  std::map<std::string, std::string> values = shared_values(c, turn);
  if (turn == 0) {
    values["answer"] = c.answers[0];
  } else {
    values["answer_1"] = c.answers[0];
    values["answer_2"] = c.answers[1];
  }
  if (name != nullptr) *name = t.name;
  return {t.system, fill_template(t.text, values, t.name)};
}

JudgeRequest JudgePrompts::pair(const JudgedConversation& a,
                                const std::vector<std::string>& answers_b, size_t turn,
                                std::string* name) const {
  check_conversation(a, turn);
  EVALRUN_CHECK(answers_b.size() > turn);
  const JudgeTemplate& t = get(template_name(true, a.references.size() > turn, turn));
  std::map<std::string, std::string> values = shared_values(a, turn);
  if (turn == 0) {
    values["answer_a"] = a.answers[0];
    values["answer_b"] = answers_b[0];
  } else {
    for (size_t i = 0; i < 2; ++i) {
      values[fmt::format("answer_a_{}", i + 1)] = a.answers[i];
      values[fmt::format("answer_b_{}", i + 1)] = answers_b[i];
    }
  }
  if (name != nullptr) *name = t.name;
  return {t.system, fill_template(t.text, values, t.name)};
}

std::optional<double> parse_grade(std::string_view reply) {
  static const RE2 kDouble(R"(\[\[(\d+\.?\d*)\]\])"), kSingle(R"(\[(\d+\.?\d*)\])");
  std::string number;
  if (!RE2::PartialMatch(reply, kDouble, &number) && !RE2::PartialMatch(reply, kSingle, &number))
    return std::nullopt;
  const double grade = std::strtod(number.c_str(), nullptr);
  if (!(grade >= 1 && grade <= 10)) return std::nullopt;
  return grade;
}

PairVerdict parse_pair_verdict(std::string_view reply) {
  if (reply.find("[[A]]") != std::string_view::npos) return PairVerdict::kFirst;
  if (reply.find("[[B]]") != std::string_view::npos) return PairVerdict::kSecond;
  if (reply.find("[[C]]") != std::string_view::npos) return PairVerdict::kTie;
  return PairVerdict::kNone;
}

PairVerdict combine_orders(PairVerdict straight, PairVerdict swapped) {
  if (straight == PairVerdict::kNone || swapped == PairVerdict::kNone) return PairVerdict::kNone;
  const PairVerdict turned = swapped == PairVerdict::kFirst    ? PairVerdict::kSecond
                             : swapped == PairVerdict::kSecond ? PairVerdict::kFirst
                                                               : PairVerdict::kTie;
  return straight == turned ? straight : PairVerdict::kTie;
}

}  // namespace evalrun::evaluators
