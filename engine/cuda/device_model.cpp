#include "engine/cuda/device_model.h"

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/cuda/dense.h"

namespace evalrun::engine::cuda {

size_t DeviceModel::add(std::span<const float> values) {
  const size_t at = host_.size();
  host_.insert(host_.end(), values.begin(), values.end());
  host_.resize((host_.size() + 3) / 4 * 4);
  return at;
}
std::optional<size_t> DeviceModel::add_if(const std::vector<float>& values) {
  return values.empty() ? std::nullopt : std::optional(add(values));
}
std::optional<size_t> DeviceModel::add_bias(
    const JointMatrix& m, std::initializer_list<const std::vector<float>*> parts) {
  std::vector<float> all(static_cast<size_t>(m.outputs()));
  bool any = false;
  size_t i = 0;
  for (const std::vector<float>* part : parts) {
    for (size_t j = 0; j < part->size(); ++j) {
      const size_t to = m.joint() == Joint::kTurns ? j / 8 * kTile + j % 8 : j;
      all[static_cast<size_t>(m.part(i)) + to] = (*part)[j];
    }
    any = any || !part->empty();
    ++i;
  }
  return any ? std::optional(add(all)) : std::nullopt;
}

void DeviceModel::look_at(const JointMatrix& m) {
  widest_ = std::max(widest_, m.outputs());
  for (const JointMatrix::Piece& piece : m.pieces()) {
    if (std::ranges::find(storages_, piece.matrix->storage()) == storages_.end())
      storages_.push_back(piece.matrix->storage());
    most_unpacked_ = std::max(most_unpacked_, Dense::unpacked_bytes(piece.matrix->ref()));
  }
}

DeviceModel::DeviceModel(const Model& model, int device, int max_tokens, cudaStream_t stream) {
  // Addresses are known once all vectors are: places first.
  std::vector<std::pair<const float**, size_t>> places;
  const auto place = [&](const float*& pointer, std::optional<size_t> at) {
    pointer = nullptr;
    if (at) places.emplace_back(&pointer, *at);
  };
  Upload upload;
  const int n_layers = model.config().n_layers;
  layers_.resize(static_cast<size_t>(n_layers));
  for (int l = 0; l < n_layers; ++l) {
    const LayerWeights& w = model.layer(l);
    DeviceLayer& layer = layers_[static_cast<size_t>(l)];
    const auto join = [&](std::initializer_list<const WeightMatrix*> parts, Joint joint) {
      JointMatrix m(device, {parts.begin(), parts.size()}, joint, stream, upload);
      look_at(m);
      return m;
    };
    layer.qkv = join({&w.q, &w.k, &w.v}, Joint::kBehind);
    layer.o = join({&w.o}, Joint::kBehind);
    layer.gate_up = join({&w.gate, &w.up}, Joint::kTurns);
    layer.down = join({&w.down}, Joint::kBehind);
    place(layer.attn_norm, add_if(w.attn_norm));
    place(layer.embed_norm, add_if(w.embed_norm));
    place(layer.q_norm, add_if(w.q_norm));
    place(layer.k_norm, add_if(w.k_norm));
    place(layer.ffn_norm, add_if(w.ffn_norm));
    place(layer.qkv_bias, add_bias(layer.qkv, {&w.q_bias, &w.k_bias, &w.v_bias}));
    place(layer.o_bias, add_bias(layer.o, {&w.o_bias}));
    place(layer.gate_up_bias, add_bias(layer.gate_up, {&w.gate_bias, &w.up_bias}));
    place(layer.down_bias, add_bias(layer.down, {&w.down_bias}));
  }
  head_ = MatrixStore::get(device, model.head(), stream, &upload);
  embedding_ = MatrixStore::get(device, model.embedding(), stream, &upload);
  place(final_norm_, add_if(model.final_norm()));
  const RopeTable rope = make_rope_table(model.config(), max_tokens);
  place(cos_, add(rope.cos));
  place(sin_, add(rope.sin));
  vectors_ = DeviceBuffer(host_.size() * sizeof(float));
  vectors_.upload(host_.data(), host_.size() * sizeof(float));
  for (const auto& [pointer, at] : places) *pointer = vectors_.as<float>() + at;
  host_ = {};
}

size_t DeviceModel::missing_bytes(const Model& model, int device) {
  size_t missing = 0, largest = 0;
  std::set<const void*> seen;  // layers may be one object several times over
  const auto need = [&](std::initializer_list<const WeightMatrix*> parts,
                        Joint joint = Joint::kBehind) {
    for (const JointMatrix::Parts& piece :
         JointMatrix::pieces_of({parts.begin(), parts.size()}, joint)) {
      if (!seen.insert(piece[0]->bytes().data()).second) continue;
      const size_t bytes = MatrixStore::missing(device, piece);
      missing += bytes;
      size_t raw = 0;
      for (const WeightMatrix* w : piece)
        raw += WeightMatrix::bytes_for(with_offsets(w->storage()), w->out(), w->in());
      if (bytes > 0) largest = std::max(largest, raw);
    }
  };
  for (int l = 0; l < model.config().n_layers; ++l) {
    const LayerWeights& w = model.layer(l);
    need({&w.q, &w.k, &w.v});
    need({&w.o});
    need({&w.gate, &w.up}, Joint::kTurns);
    need({&w.down});
  }
  need({&model.head()});
  need({&model.embedding()});  // the head itself, where they are tied
  return missing + largest;
}

const DeviceLowRank& LowRankStore::get(const LowRankDelta& delta, int device, cudaStream_t stream) {
  using Factors = std::vector<const LowRankFactor*>;
  const auto groups = [](const LowRankLayer& l) {
    return std::array<Factors, DeviceLowRank::kCount>{
        {{&l.q, &l.k, &l.v}, {&l.o}, {&l.gate, &l.up}, {&l.down}}};
  };
  // An adapter is where its first factor's weights are.
  const LowRankFactor* first = nullptr;
  for (const LowRankLayer& l : delta.layers)
    for (const Factors& factors : groups(l))
      for (const LowRankFactor* f : factors)
        if (first == nullptr && !f->empty()) first = f;
  const std::byte* data = first == nullptr ? nullptr : first->a.bytes().data();
  DeviceLowRank& entry = entries_[data];
  if (entry.id != 0 && (first == nullptr || !entry.host.expired()) &&
      entry.layers.size() == delta.layers.size())
    return entry;
  entry = {};  // and so it stays where memory runs out on the way
  DeviceLowRank made;
  if (first != nullptr) made.storage = first->a.storage();
  for (const LowRankLayer& l : delta.layers) {
    auto& to = made.layers.emplace_back();
    const auto list = groups(l);
    for (size_t g = 0; g < list.size(); ++g) {
      DeviceLowRank::Group& group = to[g];
      std::vector<const WeightMatrix*> a;
      for (const LowRankFactor* f : list[g]) {
        DeviceLowRank::Part& part = group.parts.emplace_back();
        if (f->empty()) continue;
        EVALRUN_CHECK(f->a.storage() == made.storage, "an adapter of several storages");
        part.b = MatrixStore::get(device, f->b, stream);
        part.scale = f->scale, part.rank = f->rank();
        part.inner_at = static_cast<int>(a.size());  // for now: which A
        a.push_back(&f->a);
      }
      if (a.empty()) continue;
      group.a = MatrixStore::get(device, a, Joint::kBehind, stream);
      for (DeviceLowRank::Part& part : group.parts)
        part.inner_at = group.a->part(static_cast<size_t>(part.inner_at));
      made.widest = std::max(made.widest, group.a->outputs());
    }
  }
  made.id = ++next_id_;
  if (first != nullptr) made.host = first->a.owner();
  return entry = std::move(made);
}

}  // namespace evalrun::engine::cuda
