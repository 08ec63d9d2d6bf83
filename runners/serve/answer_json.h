// Answers as OpenAI's API has them: one document, or a stream of chunks.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runners/serve/answer_text.h"
#include "runners/serve/job.h"

namespace evalrun::runners {

// One request's answer. Text comes from the ids alone, so that a stream and a document of the same
// answer have the same text.
class AnswerJson {
 public:
  // `number` makes the id; `created`: seconds since 1970. Request and model must outlive the
  // object.
  AnswerJson(const CompletionRequest& request, const ServedModel& served, std::string method,
             int64_t number, int64_t created);

  // Of a stream: what is to be sent now, JSON without the frame of an event. With log-probabilities
  // a choice's chunks come when it has ended, since they are computed then.
  std::vector<std::string> chunks(const StepTokens& step);
  std::vector<std::string> chunks(const ChoiceEnd& end);
  std::vector<std::string> chunks(const JobEnd& end) const;

  // Of a document: takes all events in turn, then gives it.
  void add(const StepTokens& step);
  void add(const ChoiceEnd& end);
  std::string document(const JobEnd& end) const;

 private:
  using Json = nlohmann::ordered_json;
  struct Choice {
    AnswerText text;
    std::string whole = {};             // text so far, without the prompt
    std::vector<int32_t> ids = {};      // of the answer
    std::vector<StepTokens> kept = {};  // steps whose chunks wait for log-probabilities
    std::optional<ChoiceEnd> end = {};
    bool begun = false;  // a chunk was made
  };

  Json frame(const char* kind) const;
  Json usage(const AnswerCounts& counts) const;
  Json about(const JobEnd& end) const;
  Json logprobs(std::span<const TokenScore> scores, int32_t before) const;
  Json choice_json(size_t number) const;
  std::string chunk(int number, const std::string& text, std::span<const int32_t> ids,
                    const Json& scores, const Json& finish);
  Choice& choice(int number) { return choices_[static_cast<size_t>(number)]; }

  const CompletionRequest& request_;
  const ServedModel& served_;
  const engine::Tokenizer& tokenizer_;
  const std::string method_;
  const int64_t number_, created_;
  std::vector<Choice> choices_;
};

}  // namespace evalrun::runners
