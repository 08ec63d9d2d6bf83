#include "runners/serve/tokenizer_routes.h"

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "engine/base/utf8.h"
#include "engine/tokenizer/tokenizer.h"
#include "runners/serve/body_fields.h"

namespace evalrun::runners {
namespace {

using InfoJson = nlohmann::ordered_json;

std::string written(const InfoJson& value) {
  return value.dump(-1, ' ', false, InfoJson::error_handler_t::replace);
}

}  // namespace

std::string tokenize_answer(std::string_view body, const ServedModel& served) {
  const BodyFields fields(body);
  check_served_model(fields, served);
  if (fields.find("messages") != nullptr)
    refuse_field("messages", "is not supported here; give the text as \"prompt\"");
  const BodyJson& prompt = fields.required("prompt");
  if (!prompt.is_string())
    refuse_field("prompt", fmt::format("must be a text, not {}", prompt.type_name()));
  const engine::Tokenizer& tokenizer = *served.model->tokenizer();
  const std::vector<int32_t> ids = tokenizer.encode(
      prompt.get<std::string>(), {.add_special = fields.flag("add_special_tokens", true)});
  InfoJson answer = {{"count", ids.size()}, {"max_model_len", served.context}, {"tokens", ids}};
  answer["token_strs"] = nullptr;
  if (fields.flag("return_token_strs")) {
    answer["token_strs"] = InfoJson::array();
    for (const int32_t id : ids)
      answer["token_strs"].push_back(base::utf8_repair(tokenizer.token_bytes(id)));
  }
  return written(answer);
}

std::string detokenize_answer(std::string_view body, const ServedModel& served) {
  const BodyFields fields(body);
  check_served_model(fields, served);
  const BodyJson& tokens = fields.required("tokens");
  if (!tokens.is_array())
    refuse_field("tokens", fmt::format("must be a list of token ids, not {}", tokens.type_name()));
  const std::vector<int32_t> ids = ids_of(tokens, "tokens", served.model->config().vocab_size);
  InfoJson answer;
  answer["prompt"] = served.model->tokenizer()->decode(ids);
  return written(answer);
}

std::string tokenizer_info(const ServedModel& served) {
  const engine::Tokenizer& tokenizer = *served.model->tokenizer();
  InfoJson info = {{"tokenizer_class", "evalrun"}, {"bos_token", nullptr}, {"eos_token", nullptr}};
  if (const auto bos = tokenizer.bos_id())
    info["bos_token"] = base::utf8_repair(tokenizer.token_bytes(*bos));
  if (!tokenizer.stop_ids().empty())
    info["eos_token"] = base::utf8_repair(tokenizer.token_bytes(tokenizer.stop_ids().front()));
  info["vocab_size"] = tokenizer.vocab_size();
  info["model_max_length"] = served.context;
  return written(info);
}

}  // namespace evalrun::runners
