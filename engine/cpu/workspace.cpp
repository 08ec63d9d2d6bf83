#include "engine/cpu/workspace.h"

#include <algorithm>

#include "engine/cpu/kernels/arith.h"

namespace evalrun::engine::cpu {
namespace {

WeightStorage storage_of_inputs(const Model& model) {
  for (int l = 0; l < model.config().n_layers; ++l) {
    for (const WeightMatrix* m : model.layer(l).matrices())
      if (k_bits(m->storage()) != 0) return m->storage();
  }
  return model.layer(0).q.storage();
}

}  // namespace

Workspace::Workspace(const Model& model, int n_threads)
    : layer_inputs(storage_of_inputs(model)),
      spaces(static_cast<size_t>(n_threads)),
      best(static_cast<size_t>(n_threads)) {}

void Workspace::make_room(const Model& model, const Kernels& kernels, const ForwardPlan& plan,
                          size_t used, size_t residuals) {
  const ModelConfig& c = model.config();
  const auto rows = static_cast<size_t>(plan.n_rows()), d = static_cast<size_t>(c.d_model);
  const int widest = std::max({c.input_width(), c.q_dim(), c.d_ffn});
  for (size_t i = 0; i < used; ++i) {
    Space& s = spaces[i];
    s.x.ensure(rows, d);
    if (c.paired_input) s.e.ensure(rows, d);
    s.h.ensure(rows, static_cast<size_t>(std::max(c.input_width(), c.q_dim())));
    s.queries.ensure(rows, static_cast<size_t>(c.q_dim()));
    s.in.ensure(kernels, layer_inputs, rows, widest);
  }
  q.ensure(rows, static_cast<size_t>(c.q_dim()));
  mixed.ensure(rows, static_cast<size_t>(c.q_dim()));
  k.ensure(rows, static_cast<size_t>(c.kv_dim()));
  v.ensure(rows, static_cast<size_t>(c.kv_dim()));
  y.ensure(rows, d);
  gate.ensure(rows, static_cast<size_t>(c.d_ffn));
  up.ensure(rows, static_cast<size_t>(c.d_ffn));
  hidden.ensure(plan.hidden_rows().size(), d);
  const size_t heads = plan.logit_rows().size() + plan.answer_rows().size();
  head_in.ensure(kernels, model.head().storage(), heads, c.d_model);
  normed.ensure(heads, d);
  logits.ensure(plan.logit_rows().size(), static_cast<size_t>(c.n_logits()));
  if (const size_t top = plan.answer_rows().size(); top > 0) {
    strip_panels = top <= 16 ? 48 : 12;  // so that a strip of logits stays in the cache
    for (Best& b : best) {
      b.logits.ensure(top, static_cast<size_t>(strip_panels) * kLanes);
      b.value.ensure(top, kLanes);
      b.block.ensure(top, kLanes);
    }
  }
  residual.resize(residuals);
  for (Rows& r : residual) r.ensure(rows, d);
}

size_t Workspace::bytes() const {
  size_t sum = head_in.bytes();
  for (const Rows* r : {&q, &k, &v, &mixed, &y, &gate, &up, &hidden, &logits}) sum += r->bytes();
  for (const Rows& r : residual) sum += r.bytes();
  for (const Space& s : spaces)
    sum += s.x.bytes() + s.e.bytes() + s.h.bytes() + s.queries.bytes() + s.in.bytes();
  for (const Best& b : best) sum += b.logits.bytes() + b.value.bytes() + b.block.bytes();
  return sum;
}

}  // namespace evalrun::engine::cpu
