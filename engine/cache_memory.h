// How much memory sessions take, before there are any.
#pragma once
#include <cstdint>
#include <string>

#include "engine/model/model.h"
#include "engine/rows.h"
#include "engine/session_options.h"

namespace evalrun::engine {

// Blocks of all sequences together (engine/cache_blocks.h).
int64_t pool_blocks(const SessionOptions& options);
// Their positions. One sequence alone always has its blocks in order, so the last one need not be
// whole.
int64_t pool_positions(const SessionOptions& options);

// Bytes that keys and values of such a session take, and its rotary tables. Of resolved options.
double cache_bytes_for(const ModelConfig& config, const SessionOptions& options);

// Bytes of activations, and of keys and values that are not committed yet, of the largest forward
// in which prompts of all sequences are read together (Session::prefill). An estimate, of a CPU.
double prefill_bytes_for(const ModelConfig& config, const SessionOptions& options);
// Bytes of the features that such a session keeps of full sequences, in this machine's memory
// whatever computes.
double feature_bytes_for(const ModelConfig& config, const SessionOptions& options,
                         const FeatureSet& set);

// Bytes that such a session takes of its device, weights left out: both of the above but features,
// or what a GPU's backend plans. Of resolved options, like the next two.
double session_bytes_for(const Model& model, const SessionOptions& options);
// Of the model's weights those that are yet to be brought to a GPU; 0 on the CPU, which has them.
double missing_weight_bytes(const Model& model, const SessionOptions& options);
// Free memory of the device: of this machine, or of a GPU.
double free_device_bytes(const std::string& device);

// Refuses caches this machine cannot hold, before anything is allocated: data_error, and
// usage_error for more positions than can be counted.
void check_cache_memory(const Model& model, const SessionOptions& options);

}  // namespace evalrun::engine
