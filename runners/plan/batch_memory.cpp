#include "runners/plan/batch_memory.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/cache_memory.h"
#include "engine/devices.h"

namespace evalrun::runners {
namespace {

// Bytes that a plan needs whose largest batch is another one.
struct BatchNeeds {
  double models = 0, features = 0, methods = 0;
  double weights = 0;  // of both, on a GPU
  const PlannedArm* most = nullptr;
  double of_most = 0;
  double total() const { return models + features + methods + weights; }
};

// The tokens of one model whose features are kept, over the arms that decode it. One arm after the
// other has them kept, in the same memory.
struct KeptStreams {
  int hidden = 0, residual = 0;  // times sequences
};

// What an arm drafts with that other arms may have, too: a second model, or the target's weights in
// another format. "" = nothing.
std::string shared_draft(const results::ArmRecord& arm) {
  const auto format = arm.settings.find("draft_dtype");
  if (format == arm.settings.end()) return "";
  return fmt::format("{}\n{}", arm.draft.empty() ? arm.model_hash : arm.draft, format->second);
}

class BatchCounter {
 public:
  BatchCounter(const RunPlan& plan, const engine::SessionOptions& session)
      : plan_(plan), session_(session), on_gpu_(engine::is_gpu(session.device)) {}

  BatchNeeds needs(int largest) const {
    BatchNeeds all;
    add_methods(largest, all);
    add_models(largest, all);
    return all;
  }

 private:
  // Its batch where the largest is `largest`; 0 = it is left out.
  int size_of(const PlannedArm& arm, int largest) const {
    const int batch = arm.record.batch;
    if (batch == plan_.suite.batches.largest()) return largest;
    return batch < largest ? batch : 0;
  }

  void add_methods(int largest, BatchNeeds& all) const {
    std::set<std::string> drafts;  // models that all arms share
    for (const PlannedArm& arm : plan_.arms) {
      const int size = size_of(arm, largest);
      if (size == 0) continue;
      double bytes = arm.kept.bytes.empty() ? 0 : arm.kept.bytes[static_cast<size_t>(size) - 1];
      all.methods += bytes;
      const std::string draft = shared_draft(arm.record);
      if (on_gpu_ && (draft.empty() || drafts.insert(draft).second)) {
        all.weights += arm.kept.weights;
        bytes += arm.kept.weights;
      }
      if (bytes <= all.of_most) continue;
      all.most = &arm;
      all.of_most = bytes;
    }
  }

  void add_models(int largest, BatchNeeds& all) const {
    std::map<const engine::Model*, KeptStreams> models;
    for (const PlannedArm& arm : plan_.arms) {
      const int size = size_of(arm, largest);
      KeptStreams& kept = models[arm.model.get()];
      if (arm.kept.features.hidden) kept.hidden = std::max(kept.hidden, size);
      const auto layers = static_cast<int>(arm.kept.features.residual_layers.size());
      kept.residual = std::max(kept.residual, size * layers);
    }
    for (const auto& [model, kept] : models) {
      engine::SessionOptions options = engine::resolve_options(session_, model->format());
      options.n_sequences = largest;
      all.models += engine::session_bytes_for(*model, options);
      all.weights += engine::missing_weight_bytes(*model, options);
      if (on_gpu_) continue;
      options.n_sequences = kept.hidden + kept.residual;
      all.features += engine::feature_bytes_for(model->config(), options,
                                                {.hidden = true, .residual_layers = {}});
    }
  }

  const RunPlan& plan_;
  const engine::SessionOptions& session_;
  const bool on_gpu_;
};

std::string parts_of(const BatchNeeds& needs) {
  std::string text =
      fmt::format("{} of keys and values and to compute in", base::format_bytes(needs.models));
  if (needs.weights > 0) text += fmt::format(", {} of weights", base::format_bytes(needs.weights));
  if (needs.features > 0)
    text += fmt::format(", {} of features that drafters read", base::format_bytes(needs.features));
  if (needs.methods > 0) text += fmt::format(", {} of drafters", base::format_bytes(needs.methods));
  if (needs.most != nullptr)
    text += fmt::format("; '{}' asks for most, {}", needs.most->record.label,
                        base::format_bytes(needs.of_most));
  return text;
}

// "; not counted is what grows with texts: at most 302 MB of 'pia:persist=true', ..." or "".
std::string what_is_not_counted(const RunPlan& plan) {
  std::vector<std::string> arms;
  for (const PlannedArm& arm : plan.arms)
    if (const std::string text = grown_text(arm); !text.empty()) arms.push_back(text);
  if (arms.empty()) return "";
  return fmt::format("; not counted is what grows with texts: {}", fmt::join(arms, ", "));
}

}  // namespace

std::string grown_text(const PlannedArm& arm) {
  if (!arm.kept.complete)
    return fmt::format("'{}' cannot say beforehand how much", arm.record.label);
  if (arm.kept.grown <= 0) return "";
  return fmt::format("at most {} of '{}'", base::format_bytes(arm.kept.grown), arm.record.label);
}

KeptByArm kept_by(const methods::DecodingMethod& of_one, int batch, int capacity) {
  methods::KeptMemory said;
  of_one.add_kept(said);
  KeptByArm kept;
  kept.features = of_one.needs();
  kept.complete = said.complete;
  kept.grown = said.grown.most(batch, capacity);
  if (said.complete || !said.sessions.empty())
    kept.weights = static_cast<double>(of_one.extra_parameter_bytes()) - said.on_host;
  for (int n = 1; n <= batch; ++n) {
    double bytes = said.bytes_per_slot * n;
    for (const engine::Session* session : said.sessions) {
      engine::SessionOptions options = session->options();
      options.n_sequences = n;
      bytes += engine::session_bytes_for(session->model(), options);
    }
    kept.bytes.push_back(bytes);
  }
  return kept;
}

void check_batch_memory(const RunPlan& plan, const engine::SessionOptions& session,
                        double available_bytes) {
  if (plan.suite.batches.one()) return;
  const BatchCounter counter(plan, session);
  const int largest = plan.suite.batches.largest();
  const BatchNeeds needs = counter.needs(largest);
  if (needs.total() <= available_bytes) return;
  int fits = largest - 1;
  while (fits > 0 && counter.needs(fits).total() > available_bytes) --fits;
  throw base::usage_error(
      fmt::format("batch {} needs {} for sequences of {} tokens ({}), {} of {} are free: {}{}",
                  largest, base::format_bytes(needs.total()), plan.capacity, parts_of(needs),
                  base::format_bytes(available_bytes),
                  engine::is_gpu(session.device) ? "GPU memory" : "memory",
                  fits > 0 ? fmt::format("batch {} fits", fits) : "not even one sequence fits",
                  what_is_not_counted(plan)),
      fmt::format("smaller or fewer sizes (--batch), fewer methods (--methods), shorter answers "
                  "(-n/--max-new) or prompts (--limit), or {}",
                  engine::is_gpu(session.device)
                      ? "smaller weights or keys and values (--dtype int8, --kv-dtype int8)"
                      : "bytes for keys and values (--kv-dtype int8)"));
}

}  // namespace evalrun::runners
