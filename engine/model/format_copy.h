// A model's weights once more, in another format beside the one that it computes with: what a
// target drafts with that drafts for itself in fewer bits.
#pragma once
#include <memory>

#include "engine/model/model.h"

namespace evalrun::engine {

// Bits of a layer's weight without its share of scales: 32, 16, 8 or 4. `format`: not kAuto; 8 of
// kStored, which says what a model's file has (below).
int weight_bits(WeightFormat format);
// The same of a model; as kStored those that most of its weights have in the file.
int weight_bits(const Model& model);

// `model` in one of the rounded_formats(). It is made when it is first asked for and then kept with
// `model`, so that all who ask have one copy, and none is left when `model` goes. It comes from the
// model's file, as load_model() would read it, with its cache of converted weights and its errors;
// a model without a file (made-up) is rounded anew from what it has in memory. The tokenizer is
// `model`'s own. All matrices are the copy's: one block of memory holds them (assemble()), in
// storages that the model has others of.
// `n_threads`: of the first who asks, as in LoadOptions. data_error when the file is another one by
// now.
std::shared_ptr<const Model> copy_in_format(const Model& model, WeightFormat format, int n_threads);

}  // namespace evalrun::engine
