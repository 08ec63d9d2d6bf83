// Events as llama-server streams them.
#pragma once
#include <string>

namespace evalrun::tests {

// A piece, and the last event. `text` stands between quotes as it is.
inline std::string llama_piece(const std::string& text, const std::string& ids, int total) {
  return R"({"index":0,"content":")" + text + R"(","tokens":[)" + ids +
         R"(],"stop":false,"id_slot":0,"tokens_predicted":)" + std::to_string(total) +
         R"(,"tokens_evaluated":3})";
}
inline std::string llama_last(int total, const std::string& stop = "limit",
                              const std::string& drafts = "") {
  const std::string n = std::to_string(total);
  return R"({"content":"","tokens":[],"stop":true,"model":"m.gguf","tokens_predicted":)" + n +
         R"(,"tokens_evaluated":3,"truncated":false,"stop_type":")" + stop +
         R"(","timings":{"cache_n":1,"prompt_n":2,"prompt_ms":12.5,"predicted_n":)" + n +
         R"(,"predicted_ms":50.25)" + drafts + "}}";
}

}  // namespace evalrun::tests
