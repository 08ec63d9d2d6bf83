// config.json of a Hugging Face folder as a ModelConfig. Written by hand or by transformers 4
// and 5.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "engine/model/config.h"
#include "engine/model/families.h"

namespace evalrun::engine {

// Throws data_error naming the field for what is missing, of another type, or not supported (other
// activations, rope variants, quantised checkpoints). Keys that do not change the forward pass are
// ignored: published files hold dozens of them.
ModelConfig read_hf_config(const nlohmann::json& config, const std::string& file);

// The same where no weights follow, whose shapes would show a slip of the pen: a key that is
// neither read nor known to change nothing throws data_error, too, with the nearest key that is
// read.
ModelConfig read_hf_shape(const nlohmann::json& config, const std::string& file);

}  // namespace evalrun::engine
