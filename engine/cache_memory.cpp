#include "engine/cache_memory.h"

#include <limits>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/cache_blocks.h"
#include "engine/model/assemble.h"

namespace evalrun::engine {

namespace {

bool room_for_all(const SessionOptions& o) {
  return o.pool_tokens == 0 || o.pool_tokens >= int64_t{o.max_tokens} * o.n_sequences;
}

}  // namespace

int64_t pool_blocks(const SessionOptions& o) {
  return room_for_all(o) ? o.n_sequences * blocks_of(o.max_tokens) : blocks_of(o.pool_tokens);
}

int64_t pool_positions(const SessionOptions& o) {
  return room_for_all(o) && o.n_sequences == 1 ? o.max_tokens : pool_blocks(o) * kCacheBlock;
}

double cache_bytes_for(const ModelConfig& c, const SessionOptions& o) {
  const double per_value = o.kv_dtype == "f32"    ? 4
                           : o.kv_dtype == "bf16" ? 2
                                                  : 1 + 4.0 / c.head_dim;
  const double per_token = 2.0 * c.n_layers * c.kv_dim() * per_value;
  return static_cast<double>(pool_positions(o)) * per_token +
         static_cast<double>(o.max_tokens) * c.head_dim * sizeof(float);
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
