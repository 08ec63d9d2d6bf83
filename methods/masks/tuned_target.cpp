#include "methods/masks/tuned_target.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/devices.h"
#include "engine/model/low_rank.h"
#include "engine/tokenizer/tokenizer.h"
#include "methods/masks/mask_weights.h"

namespace evalrun::methods {
namespace {

using engine::Model;

// Made once, kept while somebody uses it: by the model it was made from and what was done to it.
// The original is held, too, so that its address is not another's.
std::shared_ptr<const Model> shared_variant(
    const std::shared_ptr<const Model>& target, const std::string& change,
    base::FunctionRef<std::shared_ptr<const Model>()> make) {
  static std::mutex mutex;
  static std::map<std::pair<const Model*, std::string>, std::weak_ptr<const Model>> made;
  const std::lock_guard lock(mutex);
  std::weak_ptr<const Model>& slot = made[{target.get(), change}];
  if (std::shared_ptr<const Model> known = slot.lock()) return known;
  struct Held {
    std::shared_ptr<const Model> original, variant;
  };
  auto held = std::make_shared<Held>(Held{target, make()});
  std::shared_ptr<const Model> variant(held, held->variant.get());
  slot = variant;
  return variant;
}

}  // namespace

Parameters<TunedOptions> tuned_target_parameters() {
  return Parameters<TunedOptions>{}
      .add(weights_parameters(), &TunedOptions::adapter)
      .add("mask_id", &TunedOptions::mask_id, {-1, 1 << 30},
           "id of the mask in a checkpoint that has it in its vocabulary (then no adapter "
           "is read); -1 = none");
}

std::shared_ptr<const Model> tuned_by_options(const TunedOptions& options,
                                              const MethodBuildContext& context) {
  if (options.in_vocabulary()) return without_mask_ids(options.mask_id, context);
  return tuned_target(options.adapter.adapter, options.adapter.any_target, context);
}

std::map<std::string, std::string> tuned_target_file(const TunedOptions& options,
                                                     const MethodBuildContext& context) {
  if (options.in_vocabulary()) return {};
  return adapter_file("space", options.adapter, context);
}

std::shared_ptr<const Model> tuned_target(const std::string& value, bool any_target,
                                          const MethodBuildContext& context) {
  const std::shared_ptr<const Adapter> adapter = find_adapter("space", value, *context.target);
  AdapterReader reader(*adapter, "space", *context.target, any_target);
  if (reader.has("full.0.q") || reader.text("train", "lora") == "full")
    reader.fail("tensors", "are a whole tuned model, which is no adapter",
                "write it as a folder (scripts/train merge) and give that with -m");
  if (!reader.has("lora.0.q.a")) return nullptr;
  const std::string file = adapter->content_hash();
  return shared_variant(context.target, file, [&] {
    const engine::LowRankDelta delta =
        read_low_rank(reader, context.target->config(), engine::WeightStorage::kF32);
    return merge_low_rank(*context.target, delta,
                          fmt::format("{} tuned by {:.8}", context.target->config().name, file),
                          base::sha256_hex(context.target->hash() + " " + file),
                          engine::allowed_cores());
  });
}

std::shared_ptr<const Model> without_mask_ids(int mask_id, const MethodBuildContext& context) {
  const Model& target = *context.target;
  const engine::ModelConfig& c = target.config();
  const std::string hint =
      "give the id that the checkpoint trained as its mask: it comes after all text";
  if (mask_id >= c.vocab_size)
    throw base::usage_error(
        fmt::format("space: mask_id={}, but {} has {} ids", mask_id, c.name, c.vocab_size), hint);
  if (const engine::Tokenizer* tokenizer = target.tokenizer(); tokenizer != nullptr) {
    const std::vector<int32_t>& stops = tokenizer->stop_ids();
    for (int32_t id = mask_id; id < tokenizer->vocab_size(); ++id) {
      const bool stop = std::find(stops.begin(), stops.end(), id) != stops.end();
      if (tokenizer->is_special(id) && !stop) continue;
      throw base::usage_error(
          fmt::format("space: mask_id={}, but id {} of {} is {} ('{}')", mask_id, id, c.name,
                      stop ? "a stop token" : "text", tokenizer->token_bytes(id)),
          hint);
    }
  }
  if (mask_id >= c.n_logits()) return context.target;
  return shared_variant(context.target, fmt::format("mask_id={}", mask_id), [&] {
    engine::ModelParts parts = target.parts();
    parts.head = std::make_shared<const engine::WeightMatrix>(target.head().first_rows(mask_id));
    parts.config.head_size = mask_id;
    parts.config.name = fmt::format("{} without ids from {}", c.name, mask_id);
    if (!parts.hash.empty()) parts.hash += fmt::format("-mask{}", mask_id);
    return Model::create(std::move(parts));
  });
}

}  // namespace evalrun::methods
