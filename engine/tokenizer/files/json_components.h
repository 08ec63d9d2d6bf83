// The normalizer, pre-tokenizer, decoder and post-processor objects of a tokenizer.json. A
// component or setting that we do not know is a data_error that names file and field: guessing
// would give wrong ids.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/pipeline_tokenizer.h"
#include "engine/tokenizer/pre_tokenizer.h"

namespace evalrun::engine {

// `component`: the value of the field of that name, null included (null: nothing is done).
Normalizer read_json_normalizer(const nlohmann::json& component, const std::string& file);
PreTokenizer read_json_pre_tokenizer(const nlohmann::json& component, const std::string& file);
// A missing decoder is an error: Hugging Face then joins tokens by spaces, which no model here
// means.
DecodePlan read_json_decoder(const nlohmann::json& component, const std::string& file);

struct JsonTemplate {
  std::vector<int32_t> before, after;  // ids around a single text
};
JsonTemplate read_json_post_processor(const nlohmann::json& component, const std::string& file);

}  // namespace evalrun::engine
