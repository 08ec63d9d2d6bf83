#include "methods/model_draft/skip_layers.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/number_range.h"
#include "engine/base/text.h"

namespace evalrun::methods {
namespace {

std::vector<base::NumberRange> parse_list(const std::string& key, const std::string& text) {
  std::vector<base::NumberRange> ranges;
  if (text == "none") return ranges;
  for (const std::string& piece : base::split(text, '+')) {
    const auto range = base::parse_number_range(piece);
    if (!range || range->empty() || range->first < 0)
      throw base::usage_error(
          fmt::format("self_spec: parameter '{}' must be auto, none or a list of layers, found "
                      "'{}'",
                      key, text),
          "write layers and ranges joined by +, for example 8-15+20");
    ranges.push_back(*range);
  }
  return ranges;
}

// The upper half without its last layer; every second of these layers when `sparse`.
std::vector<bool> rule_of_thumb(int n_layers, bool sparse) {
  std::vector<bool> layers(static_cast<size_t>(n_layers));
  const int first = n_layers / 2;
  for (int i = first; i < std::max(n_layers - 1, first + 1); ++i)
    layers[static_cast<size_t>(i)] = !sparse || (i - first) % 2 == 1;
  return layers;
}

std::vector<bool> layers_of(const std::string& key, const std::string& text, bool sparse,
                            const engine::ModelConfig& config) {
  if (text == "auto") return rule_of_thumb(config.n_layers, sparse);
  std::vector<bool> layers(static_cast<size_t>(config.n_layers));
  for (const base::NumberRange& range : parse_list(key, text)) {
    if (range.last >= config.n_layers)
      throw base::usage_error(fmt::format("self_spec: {} names layer {}, but {} has {} layers", key,
                                          range.last, config.name, config.n_layers),
                              "layers are counted from 0");
    for (const int i : range.values()) layers[static_cast<size_t>(i)] = true;
  }
  return layers;
}

int64_t attention_weights(const engine::ModelConfig& c) {
  const auto q = static_cast<int64_t>(c.n_heads) * c.head_dim;
  const auto kv = static_cast<int64_t>(c.n_kv_heads) * c.head_dim;
  return c.d_model * (2 * q + 2 * kv);
}
int64_t mlp_weights(const engine::ModelConfig& c) { return int64_t{3} * c.d_model * c.d_ffn; }

}  // namespace

void check_layer_list(const std::string& key, const std::string& text) {
  if (text != "auto") parse_list(key, text);
}

engine::SkipSet skip_set(const std::string& attention, const std::string& mlp,
                         const engine::ModelConfig& config) {
  engine::SkipSet skip;
  skip.attention = layers_of("attention", attention, false, config);
  skip.mlp = layers_of("mlp", mlp, true, config);
  const auto any = [](const std::vector<bool>& layers) {
    return std::find(layers.begin(), layers.end(), true) != layers.end();
  };
  if (!any(skip.attention) && !any(skip.mlp))
    throw base::usage_error("self_spec: nothing is left out of the draft",
                            "a draft by the whole model costs as much as it saves");
  return skip;
}

std::string to_text(const std::vector<bool>& layers) {
  std::string text;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i]) continue;
    size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1]) ++last;
    if (!text.empty()) text += '+';
    text += last == i ? fmt::format("{}", i) : fmt::format("{}-{}", i, last);
    i = last;
  }
  return text.empty() ? "none" : text;
}

double kept_share(const engine::SkipSet& skip, const engine::ModelConfig& config) {
  const int64_t head = static_cast<int64_t>(config.vocab_size) * config.d_model;
  const int64_t all = head + config.n_layers * (attention_weights(config) + mlp_weights(config));
  int64_t kept = all;
  for (const bool skipped : skip.attention)
    if (skipped) kept -= attention_weights(config);
  for (const bool skipped : skip.mlp)
    if (skipped) kept -= mlp_weights(config);
  return static_cast<double>(kept) / static_cast<double>(all);
}

}  // namespace evalrun::methods
