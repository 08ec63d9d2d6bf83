// Trained weights of a drafter (Medusa, EAGLE, Falcon, a distilled draft): one safetensors file in
// the layout of docs/adapters.md, or a folder or file as the papers' authors publish them, whose
// tensor names are translated. Memory-mapped; every tensor is checked when it is read.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/base/json_fields.h"
#include "engine/formats/safetensors.h"
#include "engine/model/model.h"

namespace evalrun::methods {

class Adapter {
 public:
  // PATH: a .safetensors file, or a folder as published (config.json and medusa_lm_head or model
  // .safetensors). Throws data_error (file, tensor or field, remedy) and, for pickled weights,
  // usage_error that names scripts/convert-adapter.
  static std::shared_ptr<const Adapter> open(const std::string& path);

  const std::string& path() const { return path_; }      // of the weights
  const std::string& method() const { return method_; }  // "medusa", "eagle", "eagle3", ...
  bool published() const { return published_; }          // another project's layout
  const std::string& target_name() const { return target_name_; }
  const std::string& target_hash() const { return target_hash_; }  // "" when published
  const nlohmann::json& config() const { return config_; }
  // Paths of the tree found on held-out answers, best first, and how often all of a path comes
  // true; empty without one.
  const std::vector<std::string>& tree_paths() const { return tree_paths_; }
  const std::vector<double>& tree_gains() const { return tree_gains_; }
  // How it was trained, as the training states it: an object with text, updates, tokens, batch,
  // recipe and optimiser (docs/adapters.md, "Budget"). Null when the file states nothing.
  const nlohmann::json& budget() const { return budget_; }
  // Prompts of evaluation sets that stood in the text of the training, by set, as the training
  // states it (docs/adapters.md, "Overlap"). Sets without any are left out. Empty when the file
  // states nothing.
  const std::map<std::string, int64_t>& overlap() const { return overlap_; }
  // SHA-256 of the weights file: part of an arm's key.
  std::string content_hash() const;

 private:
  friend class AdapterReader;
  struct Entry {
    const engine::SafeTensor* tensor = nullptr;
    std::string name;  // as in the file, for messages
  };
  void read_own();
  void read_published(const std::string& folder);
  void add(const std::string& own_name, const engine::SafeTensor& tensor);

  std::string path_, method_, target_name_, target_hash_;
  bool published_ = false;
  nlohmann::json config_, budget_;
  std::map<std::string, int64_t> overlap_;
  std::vector<std::string> tree_paths_;
  std::vector<double> tree_gains_;
  std::shared_ptr<const engine::SafeTensors> file_;
  std::map<std::string, Entry> entries_;  // by our name
};

// Reads tensors by our names and remembers which: finish() refuses those nobody asked for.
class AdapterReader {
 public:
  // Throws usage_error when the adapter is of another method, or when it does not fit the target:
  // other widths, or (unless any_target) another model's hash.
  AdapterReader(const Adapter& adapter, const std::string& method, const engine::Model& target,
                bool any_target);
  bool has(const std::string& name) const { return adapter_.entries_.contains(name); }
  // Rounded to the storage. `in` = -1 takes what the file has.
  engine::WeightMatrix matrix(const std::string& name, int out, int in,
                              engine::WeightStorage storage);
  // A matrix whose inputs are `parts` blocks of equal width and unequal size: divides each block's
  // weights by scale[b], for inputs that are multiplied by it, so that one scale per row of inputs
  // (integer formats) serves all of them. The last block keeps its size.
  engine::WeightMatrix balanced_matrix(const std::string& name, int out, int in,
                                       engine::WeightStorage storage, int parts,
                                       std::vector<float>& scale);
  std::vector<float> vector(const std::string& name, int size);
  std::vector<float> optional_vector(const std::string& name, int size) {
    return has(name) ? vector(name, size) : std::vector<float>();
  }
  const std::string& path() const { return adapter_.path(); }
  int rows(const std::string& name) const;  // 0 when it does not exist
  // Ids the drafter can propose, ascending; empty = all of the target's.
  std::vector<int32_t> draft_vocabulary();
  // Those rows of the target's output matrix (all, shared, when ids is empty and the storage is the
  // target's), or the adapter's own head of that name.
  std::shared_ptr<const engine::WeightMatrix> head(const std::string& name,
                                                   const std::vector<int32_t>& ids,
                                                   engine::WeightStorage storage);
  int integer(const std::string& key, int lowest, int highest) const;
  int integer(const std::string& key, int lowest, int highest, int fallback) const;
  double number(const std::string& key, double fallback) const;
  // Three layer numbers 0..n_layers.
  std::vector<int> layers(const std::string& key, std::vector<int> fallback, int n_layers) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  void finish() const;
  [[noreturn]] void fail(const std::string& where, const std::string& what,
                         const std::string& hint = {}) const;

 private:
  const Adapter::Entry& entry(const std::string& name);
  engine::WeightMatrix read_matrix(const std::string& name, int out, int in,
                                   engine::WeightStorage storage, std::vector<float>* scale);
  std::vector<float> row_values(const Adapter::Entry& e, const engine::SafeTensor* scale, int row,
                                int in) const;

  const Adapter& adapter_;
  const engine::Model& target_;
  std::set<std::string> used_;
};

// The adapter of parameter adapter=VALUE: a path (with a slash or an extension), the name of a file
// (falcon-k3), or auto: a file named like the method. Names are looked for in $EVALRUN_ADAPTERS,
// $EVALRUN_HOME/adapters and among those that come with the program, of this method, that were
// trained for this target. Throws usage_error with the way to get one.
std::shared_ptr<const Adapter> find_adapter(const std::string& method, const std::string& value,
                                            const engine::Model& target);

}  // namespace evalrun::methods
