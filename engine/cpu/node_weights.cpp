#include "engine/cpu/node_weights.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/model/assemble.h"

namespace evalrun::engine::cpu {
namespace {

constexpr double kAutoShare = 0.5;  // of a node's free memory that copies may take unasked
constexpr const char* kSys = "/sys/devices/system";

// Copies of parts of models, by part and node, for as long as some model has them.
template <typename Part>
class KnownCopies {
 public:
  std::shared_ptr<const Part> find(const std::shared_ptr<const Part>& part, int node) const {
    const auto it = known_.find({part.get(), node});
    // Another part may lie by now where a former one was.
    if (it == known_.end() || it->second.part.lock() != part) return nullptr;
    return it->second.copy.lock();
  }
  void keep(const std::shared_ptr<const Part>& part, int node,
            const std::shared_ptr<const Part>& copy) {
    std::erase_if(known_, [](const auto& k) { return k.second.copy.expired(); });
    known_[{part.get(), node}] = {part, copy};
  }

 private:
  struct Entry {
    std::weak_ptr<const Part> part, copy;
  };
  std::map<std::pair<const Part*, int>, Entry> known_;
};

struct Known {
  std::mutex mutex;  // of these, and of Model::on_nodes()
  KnownCopies<LayerWeights> layers;
  KnownCopies<WeightMatrix> heads;
};
Known& known() {
  static Known all;
  return all;
}

// A model on a node: its parts, and the matrices among them that are still to be filled.
struct NodeCopy {
  ModelParts parts;
  std::vector<const WeightMatrix*> from;
  std::vector<WeightMatrix*> to;

  size_t missing_bytes() const {
    size_t bytes = 0;
    for (const WeightMatrix* w : from) bytes += w->size();
    return bytes;
  }
};

NodeCopy plan_copy(const Model& model, int node) {
  NodeCopy copy{model.parts(), {}, {}};
  for (std::shared_ptr<const LayerWeights>& layer : copy.parts.layers) {
    std::shared_ptr<const LayerWeights> there = known().layers.find(layer, node);
    if (there == nullptr) {
      const auto made = std::make_shared<LayerWeights>(layer->without_matrices());
      for (const WeightMatrix* w : layer->matrices()) copy.from.push_back(w);
      for (WeightMatrix* w : made->matrices()) copy.to.push_back(w);
      known().layers.keep(layer, node, made);
      there = made;
    }
    layer = there;
  }
  // Of a table of embeddings a step reads a few rows: it has no copy unless it is the head, too.
  std::shared_ptr<const WeightMatrix> head = known().heads.find(model.shared_head(), node);
  if (head == nullptr) {
    const auto made = std::make_shared<WeightMatrix>();
    copy.from.push_back(&model.head());
    copy.to.push_back(made.get());
    known().heads.keep(model.shared_head(), node, made);
    head = made;
  }
  copy.parts.head = head;
  if (model.shared_embedding() == model.shared_head()) copy.parts.embedding = head;
  return copy;
}

// By the node's own threads: pages come from the node whose thread touches them first.
void fill(const NodeCopy& copy, int node, const Places& places, ThreadPool& pool) {
  std::vector<int> fillers;
  for (int t = 0; t < pool.size(); ++t)
    if (places.node[static_cast<size_t>(t)] == node) fillers.push_back(t);
  std::vector<WeightMatrix> made = allocate_like(copy.from);
  pool.run([&](int thread) {
    const auto at = std::find(fillers.begin(), fillers.end(), thread);
    if (at == fillers.end()) return;
    const auto rank = static_cast<size_t>(at - fillers.begin());
    for (size_t i = 0; i < made.size(); ++i) {
      const WeightMatrix& w = *copy.from[i];
      const auto panels = static_cast<size_t>(w.panels());
      const size_t begin = panels * rank / fillers.size() * w.panel_bytes(),
                   end = panels * (rank + 1) / fillers.size() * w.panel_bytes();
      std::memcpy(made[i].mutable_bytes().data() + begin, w.bytes().data() + begin, end - begin);
    }
  });
  for (size_t i = 0; i < made.size(); ++i) *copy.to[i] = std::move(made[i]);
}

// Why these copies do not fit into that share of the free memory; "" = they do.
std::string lacks_room(const std::map<int, NodeCopy>& copies, const Places& places, double share) {
  const auto text = [](auto bytes) { return base::format_bytes(static_cast<double>(bytes)); };
  size_t all = 0;
  for (const auto& [node, copy] : copies) {
    const size_t bytes = copy.missing_bytes();
    const int64_t available = places.made_up()
                                  ? places.made_up_free_bytes.at(static_cast<size_t>(node))
                                  : free_bytes_of_node(node, kSys);
    if (static_cast<double>(bytes) > share * static_cast<double>(available))
      return fmt::format("a copy of the weights for NUMA node {} takes {}, and {} are free there",
                         node, text(bytes), text(available));
    all += bytes;
  }
  const int64_t available = available_memory_bytes();
  if (static_cast<double>(all) > share * static_cast<double>(available))
    return fmt::format("copies of the weights for other NUMA nodes take {}, and {} are free",
                       text(all), text(available));
  return {};
}

// What copies have, each once: a model may use a layer several times.
std::vector<const WeightMatrix*> copied_matrices(const Model& model) {
  std::set<const LayerWeights*> layers;
  std::vector<const WeightMatrix*> matrices{&model.head()};
  for (int l = 0; l < model.config().n_layers; ++l)
    if (layers.insert(&model.layer(l)).second)
      for (const WeightMatrix* w : model.layer(l).matrices()) matrices.push_back(w);
  return matrices;
}

}  // namespace

NodeWeights::NodeWeights(std::shared_ptr<const Model> model, ThreadPool& pool)
    : model_(std::move(model)),
      places_(pool.places()),
      of_(static_cast<size_t>(pool.size()), model_.get()) {
  const Choice choice = chosen();
  const std::vector<int> nodes = places_.nodes();
  placement_.nodes = static_cast<int>(nodes.size());
  if (nodes.size() == 1) return;
  if (choice == Choice::kOff) {
    placement_.how = "off";
    return;
  }
  if (!places_.made_up()) spread_over_ = nodes;
  if (choice != Choice::kInterleave && copy(nodes, pool, choice == Choice::kCopy)) {
    placement_.how = "copy";
  } else {
    placement_.how = "interleave";
    place(*model_, nodes);
  }
}

NodeWeights::Choice NodeWeights::chosen() {
  constexpr std::pair<std::string_view, Choice> kChoices[] = {{"auto", Choice::kAuto},
                                                              {"copy", Choice::kCopy},
                                                              {"interleave", Choice::kInterleave},
                                                              {"off", Choice::kOff}};
  const char* text = std::getenv("EVALRUN_NUMA");
  if (text == nullptr || *text == '\0') return Choice::kAuto;
  for (const auto& [name, choice] : kChoices)
    if (name == text) return choice;
  throw base::usage_error(fmt::format("EVALRUN_NUMA is '{}', which places no weights", text),
                          "set it to auto, copy, interleave or off");
}

bool NodeWeights::copy(std::span<const int> nodes, ThreadPool& pool, bool demanded) {
  const std::span<const int> others = nodes.subspan(1);
  const std::lock_guard lock(known().mutex);
  auto& there = model_->on_nodes();
  std::map<int, NodeCopy> lacking;
  for (const int node : others)
    if (!there.contains(node)) lacking.emplace(node, plan_copy(*model_, node));
  if (const std::string why = lacks_room(lacking, places_, demanded ? 1 : kAutoShare);
      !why.empty()) {
    if (demanded)
      throw base::data_error(model_->path(), "EVALRUN_NUMA=copy", why,
                             "set EVALRUN_NUMA=interleave, choose a smaller --dtype or model, or "
                             "free memory");
    return false;
  }
  for (auto& [node, plan] : lacking) {
    fill(plan, node, places_, pool);
    there[node] = Model::create(std::move(plan.parts));
  }
  place(*model_, nodes.first(1));
  for (const int node : others) {
    const Model& copy_there = *there.at(node);
    place(copy_there, {&node, 1});
    for (size_t t = 0; t < of_.size(); ++t)
      if (places_.node[t] == node) of_[t] = &copy_there;
    for (const WeightMatrix* w : copied_matrices(copy_there)) placement_.copy_bytes += w->size();
  }
  return true;
}

void NodeWeights::place(const Model& model, std::span<const int> nodes) {
  if (places_.made_up()) return;
  for (const WeightMatrix* w : copied_matrices(model)) {
    std::string why = move_pages_to(w->bytes(), nodes);
    if (why.empty()) continue;
    placement_.refusal = std::move(why);
    return;
  }
}

}  // namespace evalrun::engine::cpu
