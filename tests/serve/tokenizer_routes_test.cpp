// What the server says of its tokenizer, against the tokenizer.
#include "runners/serve/tokenizer_routes.h"

#include "tests/serve/tiny_server.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

json posted(const TinyServer& server, const std::string& path, const json& body) {
  const net::HttpResponse response = server.post(path, body);
  EXPECT_EQ(response.status, 200) << response.body << response.problem;
  return json::parse(response.body, nullptr, false);
}

TEST(ServeTokenizer, TextsToIdsAndBack) {
  const TinyServer server;
  const engine::Tokenizer& tokenizer = *served_llama()->tokenizer();
  for (const std::string& text :
       {std::string("the cat sat"), std::string("<|im_start|>user\nhi<|im_end|>"),
        std::string("naïve \xF0\x9F\x98\x80"), std::string()}) {
    for (const bool special : {false, true}) {
      const json answer =
          posted(server, "/tokenize", {{"prompt", text}, {"add_special_tokens", special}});
      const std::vector<int32_t> ids = tokenizer.encode(text, {.add_special = special});
      EXPECT_EQ(answer["tokens"], json(ids)) << text;
      EXPECT_EQ(answer["count"], ids.size());
      EXPECT_EQ(answer["max_model_len"], 1024);
      EXPECT_TRUE(answer["token_strs"].is_null());
      EXPECT_EQ(posted(server, "/detokenize", {{"tokens", ids}})["prompt"], tokenizer.decode(ids));
    }
  }
  // As vLLM has it, what the model adds is added where nothing is said.
  EXPECT_EQ(posted(server, "/tokenize", {{"prompt", "cat"}})["tokens"],
            json(tokenizer.encode("cat", {.add_special = true})));
}

TEST(ServeTokenizer, TheTextOfEachToken) {
  const TinyServer server;
  const json answer = posted(server, "/tokenize",
                             {{"prompt", "the cat sat on the mat"}, {"return_token_strs", true}});
  ASSERT_EQ(answer["token_strs"].size(), answer["tokens"].size());
  for (size_t i = 0; i < answer["tokens"].size(); ++i)
    EXPECT_EQ(answer["token_strs"][i],
              served_llama()->tokenizer()->token_bytes(answer["tokens"][i].get<int32_t>()));
}

TEST(ServeTokenizer, WhatBeginsAndEndsATextIsNamed) {
  const TinyServer server;
  const json info = json::parse(server.ask("GET", "/tokenizer_info").body);
  const engine::Tokenizer& tokenizer = *served_llama()->tokenizer();
  EXPECT_EQ(info["eos_token"], tokenizer.token_bytes(tokenizer.stop_ids().front()));
  if (tokenizer.bos_id())
    EXPECT_EQ(info["bos_token"], tokenizer.token_bytes(*tokenizer.bos_id()));
  else
    EXPECT_TRUE(info["bos_token"].is_null());
  EXPECT_EQ(info["vocab_size"], tokenizer.vocab_size());
  EXPECT_EQ(info["model_max_length"], 1024);
}

TEST(ServeTokenizer, WrongBodiesAreRefusedByName) {
  const runners::ServedModel served{"tiny", served_llama(), 256};
  const auto refusal = [&](const char* body, bool back) {
    try {
      back ? runners::detokenize_answer(body, served) : runners::tokenize_answer(body, served);
    } catch (const runners::ApiRefusal& e) {
      return e.error();
    }
    return runners::ApiError{.status = 200, .message = "taken"};
  };
  const std::vector<std::pair<const char*, const char*>> texts = {
      {"{}", "prompt"},
      {R"({"prompt": ["a"]})", "prompt"},
      {R"({"prompt": "a", "add_special_tokens": 1})", "add_special_tokens"},
      {R"({"prompt": "a", "return_token_strs": "yes"})", "return_token_strs"},
      {R"({"messages": [], "prompt": "a"})", "messages"},
  };
  for (const auto& [body, param] : texts) {
    EXPECT_EQ(refusal(body, false).status, 400) << body;
    EXPECT_EQ(refusal(body, false).param, param) << body;
  }
  for (const char* body : {"{}", R"({"tokens": "a"})", R"({"tokens": [1, "a"]})",
                           R"({"tokens": [512]})", R"({"tokens": [-1]})"}) {
    EXPECT_EQ(refusal(body, true).status, 400) << body;
    EXPECT_EQ(refusal(body, true).param, "tokens") << body;
  }
  EXPECT_EQ(refusal(R"({"model": "other", "prompt": "a"})", false).status, 404);
  EXPECT_EQ(refusal(R"({"model": "other", "tokens": [1]})", true).status, 404);
  EXPECT_THAT(refusal("[]", true).message, HasSubstr("the body"));
  const TinyServer server;
  EXPECT_EQ(server.ask("GET", "/tokenize").status, 405);
  EXPECT_EQ(server.ask("POST", "/tokenizer_info", "{}").status, 405);
}

}  // namespace
}  // namespace evalrun::tests
