#include "engine/cache_memory.h"

#include <algorithm>
#include <limits>

#include "engine/backend.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/cache_blocks.h"
#include "engine/devices.h"
#include "engine/model/assemble.h"

namespace evalrun::engine {

namespace {

bool room_for_all(const SessionOptions& o) {
  return o.pool_tokens == 0 || o.pool_tokens >= int64_t{o.max_tokens} * o.n_sequences;
}

double kv_bytes_per_token(const ModelConfig& c, const SessionOptions& o) {
  const double per_value = o.kv_dtype == "f32"    ? 4
                           : o.kv_dtype == "bf16" ? 2
                           : o.kv_dtype == "int4" ? 0.5 + 4.0 / c.head_dim
                                                  : 1 + 4.0 / c.head_dim;
  return 2.0 * c.n_layers * c.kv_dim() * per_value;
}

}  // namespace

int64_t pool_blocks(const SessionOptions& o) {
  return room_for_all(o) ? o.n_sequences * blocks_of(o.max_tokens) : blocks_of(o.pool_tokens);
}

int64_t pool_positions(const SessionOptions& o) {
  return room_for_all(o) && o.n_sequences == 1 ? o.max_tokens : pool_blocks(o) * kCacheBlock;
}

double cache_bytes_for(const ModelConfig& c, const SessionOptions& o) {
  return static_cast<double>(pool_positions(o)) * kv_bytes_per_token(c, o) +
         static_cast<double>(o.max_tokens) * c.head_dim * sizeof(float);
}

double prefill_bytes_for(const ModelConfig& c, const SessionOptions& o) {
  const int rows = std::min(kMaxRows, o.n_sequences * std::min(kPrefillChunk, o.max_tokens));
  const int input = c.input_width();
  // A row of engine/cpu/workspace.h: residual stream (two with paired input), a sublayer's input,
  // rotated queries; outputs of products and attention.
  const int values = (c.paired_input ? 2 : 1) * c.d_model + std::max(input, c.q_dim()) + c.q_dim() +
                     2 * c.q_dim() + 2 * c.kv_dim() + c.d_model + 2 * c.d_ffn;
  // Rounded for a product (engine/cpu/prepared_rows.h): a byte a value, and up to 3.5 beside it.
  constexpr double kRounded = 4.5;
  return rows * (sizeof(float) * static_cast<double>(values) +
                 kRounded * std::max({input, c.q_dim(), c.d_ffn}) + kv_bytes_per_token(c, o));
}

double feature_bytes_for(const ModelConfig& c, const SessionOptions& o, const FeatureSet& set) {
  const double streams = (set.hidden ? 1.0 : 0.0) + static_cast<double>(set.residual_layers.size());
  return streams * sizeof(float) * c.d_model * o.max_tokens * o.n_sequences;
}

double session_bytes_for(const Model& model, const SessionOptions& o) {
  if (is_gpu(o.device)) return cuda_session_bytes(model, o);
  return cache_bytes_for(model.config(), o) + prefill_bytes_for(model.config(), o);
}

double missing_weight_bytes(const Model& model, const SessionOptions& o) {
  return is_gpu(o.device) ? cuda_missing_weights(model, o) : 0;
}

double free_device_bytes(const std::string& device) {
  return is_gpu(device) ? cuda_free_bytes(device) : static_cast<double>(available_memory_bytes());
}

void check_cache_memory(const Model& model, const SessionOptions& o) {
  const double needed = cache_bytes_for(model.config(), o);
  const double available = static_cast<double>(available_memory_bytes());
  const bool pool = o.pool_tokens != 0;
  if (needed > available)
    throw base::data_error(
        model.path(), "KV cache",
        fmt::format("{} need {}, {} are free: {} too few",
                    pool ? fmt::format("{} tokens of {} sequences", o.pool_tokens, o.n_sequences)
                         : fmt::format("{} tokens x {} sequences", o.max_tokens, o.n_sequences),
                    base::format_bytes(needed), base::format_bytes(available),
                    base::format_bytes(needed - available)),
        pool ? "lower pool_tokens"
             : "lower the context length (prompt + max_new) or the number of sequences");
  const int64_t positions = pool_positions(o);
  if (positions > std::numeric_limits<int32_t>::max())
    throw base::usage_error(
        fmt::format("a KV cache of {} positions for all sequences; {} are possible", positions,
                    std::numeric_limits<int32_t>::max()),
        "a shorter context, fewer sequences, or a smaller pool_tokens");
}

}  // namespace evalrun::engine
