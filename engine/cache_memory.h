// How much memory the caches of a session take.
#pragma once
#include <cstdint>

#include "engine/model/model.h"
#include "engine/session_options.h"

namespace evalrun::engine {

// Blocks of all sequences together (engine/cache_blocks.h).
int64_t pool_blocks(const SessionOptions& options);
// Their positions. One sequence alone always has its blocks in order, so the last one need not be
// whole.
int64_t pool_positions(const SessionOptions& options);

// Bytes that keys and values of such a session take, and its rotary tables. Of resolved options.
double cache_bytes_for(const ModelConfig& config, const SessionOptions& options);

// Refuses caches this machine cannot hold, before anything is allocated: data_error, and
// usage_error for more positions than can be counted.
void check_cache_memory(const Model& model, const SessionOptions& options);

}  // namespace evalrun::engine
