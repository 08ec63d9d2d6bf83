#include "engine/model/assemble.h"

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <limits>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/model/parallel_for.h"
#include "engine/model/weight_cache.h"

namespace evalrun::engine {
namespace {

constexpr const char* kIncomplete = "the file is incomplete or for another model; get it again";

[[noreturn]] void tensor_error(const std::string& file, const std::string& name,
                               const std::string& what, std::string hint = kIncomplete) {
  throw base::data_error(file, fmt::format("tensor '{}'", name), what, std::move(hint));
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void check_source(const SourceTensor& t, const TensorSlot& slot) {
  std::vector<int64_t> expected{slot.rows};
  if (slot.cols > 0) expected.push_back(slot.cols);
  if (t.shape != expected)
    tensor_error(
        t.file, slot.name,
        fmt::format("has shape {}, expected {}", shape_text(t.shape), shape_text(expected)),
        "the configuration does not belong to these weights");
  if (t.dtype >= DType::kI32)
    tensor_error(t.file, slot.name,
                 fmt::format("has type {}, which holds no weights", dtype_name(t.dtype)));
}

// Index of the source row that becomes row `o`. GGUF files of the Llama family interleave the two
// halves of each head: stored row 2i + j is row j * half + i.
int source_row(bool permuted, int head_dim, int o) {
  if (!permuted) return o;
  const int half = head_dim / 2, in_head = o % head_dim;
  return o - in_head + 2 * (in_head % half) + in_head / half;
}

// Every value must be a finite number that the storages it goes to can hold.
void check_values(const SourceTensor& t, const TensorSlot& slot, int row, float limit,
                  std::span<const float> v) {
  // Without its sign, a float orders as its bits do; infinities and NaN come after all numbers.
  const auto magnitude = [](float x) { return std::bit_cast<int32_t>(x) & 0x7FFFFFFF; };
  int32_t largest = 0;
  for (const float x : v) largest = std::max(largest, magnitude(x));
  const int32_t allowed = magnitude(limit);
  if (largest <= allowed) return;
  size_t i = 0;
  while (magnitude(v[i]) <= allowed) ++i;
  if (magnitude(v[i]) >= 0x7F800000)
    tensor_error(t.file, slot.name, fmt::format("value [{}, {}] is not a finite number", row, i),
                 "the weights are damaged or overflow their type; get the model again");
  tensor_error(t.file, slot.name,
               fmt::format("value [{}, {}], {}, is too large for this --dtype", row, i, v[i]),
               "choose --dtype bf16 or f32");
}

// Where a slot's values go: into a vector, or into one matrix or two (a tied head whose storage is
// not the embedding's).
struct Destination {
  std::array<WeightMatrix*, 2> matrices = {};
  std::vector<float>* vector = nullptr;
};

Destination layer_destination(LayerWeights& w, Role role) {
  switch (role) {
    case Role::kAttnNorm:
      return {{}, &w.attn_norm};
    case Role::kQ:
      return {{&w.q}, nullptr};
    case Role::kK:
      return {{&w.k}, nullptr};
    case Role::kV:
      return {{&w.v}, nullptr};
    case Role::kO:
      return {{&w.o}, nullptr};
    case Role::kQBias:
      return {{}, &w.q_bias};
    case Role::kKBias:
      return {{}, &w.k_bias};
    case Role::kVBias:
      return {{}, &w.v_bias};
    case Role::kOBias:
      return {{}, &w.o_bias};
    case Role::kQNorm:
      return {{}, &w.q_norm};
    case Role::kKNorm:
      return {{}, &w.k_norm};
    case Role::kFfnNorm:
      return {{}, &w.ffn_norm};
    case Role::kGate:
      return {{&w.gate}, nullptr};
    case Role::kUp:
      return {{&w.up}, nullptr};
    case Role::kDown:
      return {{&w.down}, nullptr};
    case Role::kGateBias:
      return {{}, &w.gate_bias};
    case Role::kUpBias:
      return {{}, &w.up_bias};
    case Role::kDownBias:
      return {{}, &w.down_bias};
    case Role::kEmbedding:
    case Role::kFinalNorm:
    case Role::kHead:
      break;
  }
  EVALRUN_CHECK(false, "role {} is not of a layer", static_cast<int>(role));
  return {};
}

// One unit of work: the rows of one panel, or a whole vector.
struct Task {
  const TensorSlot* slot;
  const SourceTensor* source;
  Destination to;
  int first_row;
};

void run_task(const Task& task, const SourceModel& model, int head_dim) {
  const TensorSlot& slot = *task.slot;
  const SourceTensor& source = *task.source;
  const bool permuted =
      model.permuted_qk && (slot.role == Role::kQ || slot.role == Role::kK ||
                            slot.role == Role::kQBias || slot.role == Role::kKBias);
  if (task.to.vector != nullptr) {
    std::vector<float> stored(static_cast<size_t>(slot.rows));
    dequantize(source.dtype, source.bytes, stored);
    check_values(source, slot, 0, std::numeric_limits<float>::max(), stored);
    task.to.vector->resize(stored.size());
    for (int o = 0; o < slot.rows; ++o)
      (*task.to.vector)[static_cast<size_t>(o)] =
          stored[static_cast<size_t>(source_row(permuted, head_dim, o))];
    return;
  }
  // Rows of a type that is only laid out anew have no value that is infinite or too large while
  // their scales are below 8192.
  constexpr uint16_t kPlainScale = 0x6FFF;
  bool is_copied = true;
  float limit = std::numeric_limits<float>::max();
  for (WeightMatrix* m : task.to.matrices) {
    if (m == nullptr) continue;
    m->clear_panel(task.first_row / WeightMatrix::kPanel);
    limit = std::min(limit, WeightMatrix::largest(m->storage()));
    is_copied = is_copied && WeightMatrix::keeps_exactly(m->storage(), source.dtype);
  }
  std::vector<float> row(static_cast<size_t>(slot.cols));
  const auto row_bytes = static_cast<size_t>(bytes_of(source.dtype, slot.cols));
  const int end = std::min(slot.rows, task.first_row + WeightMatrix::kPanel);
  for (int o = task.first_row; o < end; ++o) {
    const int from = source_row(permuted, head_dim, o);
    const auto stored = source.bytes.subspan(static_cast<size_t>(from) * row_bytes, row_bytes);
    if (!is_copied || largest_scale(source.dtype, stored) > kPlainScale) {
      dequantize(source.dtype, stored, row);
      check_values(source, slot, from, limit, row);
    }
    for (WeightMatrix* m : task.to.matrices) {
      if (m == nullptr) continue;
      if (WeightMatrix::keeps_exactly(m->storage(), source.dtype))
        m->set_row_exactly(o, source.dtype, stored);
      else
        m->set_row(o, row);
    }
  }
}

// What --dtype auto means for these files.
WeightFormat resolve(WeightFormat format, const SourceModel& source,
                     const std::vector<TensorSlot>& slots) {
  if (format != WeightFormat::kAuto) return format;
  const auto type_of = [&](const TensorSlot& s) { return source.tensors.at(s.name).dtype; };
  const auto is_k_layer = [&](const TensorSlot& s) {
    return s.role != Role::kEmbedding && s.role != Role::kHead && k_bits(type_of(s)) != 0;
  };
  if (std::ranges::any_of(slots, is_k_layer)) return WeightFormat::kStored;
  for (const TensorSlot& s : slots)
    if (s.role == Role::kGate)
      return WeightMatrix::keeps_exactly(WeightStorage::kQ4Group, type_of(s)) ? WeightFormat::kQ4
                                                                              : WeightFormat::kInt8;
  return WeightFormat::kInt8;
}

// Bits that most of the layers' weights have in the files.
int bits_of_most(const SourceModel& source, const std::vector<TensorSlot>& slots) {
  std::map<int, int64_t> weights;  // by bits
  for (const TensorSlot& s : slots)
    if (s.cols > 0 && s.role != Role::kEmbedding && s.role != Role::kHead)
      weights[code_bits(source.tensors.at(s.name).dtype)] += int64_t{s.rows} * s.cols;
  const auto most = std::ranges::max_element(
      weights, {}, [](const std::pair<const int, int64_t>& w) { return w.second; });
  return most == weights.end() ? 0 : most->first;
}

WeightStorage storage_of(const WeightFormatSpec& spec, Role role, const SourceTensor& source) {
  const WeightStorage exact = WeightMatrix::storage_of(source.dtype, source.bytes);
  if (spec.format == WeightFormat::kStored) return exact;
  const WeightStorage s = role == Role::kEmbedding ? spec.embedding
                          : role == Role::kHead    ? spec.head
                                                   : spec.layers;
  // Offsets that follow from the scales are not kept.
  return s == with_offsets(exact) ? exact : s;
}

// Matrices of a model in the arena they share, in the order of the slots.
struct PlannedMatrix {
  const TensorSlot* slot;
  Role role;  // the slot's, or kHead for the second matrix a tied embedding fills
  WeightStorage storage;
  size_t offset;
};
struct ArenaPlan {
  std::vector<PlannedMatrix> matrices;
  size_t bytes = 0;
};

ArenaPlan plan_arena(const std::vector<TensorSlot>& slots, const WeightFormatSpec& spec,
                     const SourceModel& source, bool tied_head) {
  ArenaPlan plan;
  const auto add = [&](const TensorSlot& slot, Role role) {
    const WeightStorage storage = storage_of(spec, role, source.tensors.at(slot.name));
    plan.matrices.push_back({&slot, role, storage, plan.bytes});
    plan.bytes += WeightMatrix::bytes_for(storage, slot.rows, slot.cols);
  };
  for (const TensorSlot& s : slots) {
    if (s.cols == 0) continue;
    add(s, s.role);
    if (s.role == Role::kEmbedding && tied_head && spec.head != spec.embedding) add(s, Role::kHead);
  }
  return plan;
}

void check_memory(const std::string& path, const std::vector<TensorSlot>& slots,
                  const WeightFormatSpec& spec, const ArenaPlan& plan) {
  int64_t needed = static_cast<int64_t>(plan.bytes);
  for (const TensorSlot& s : slots)
    if (s.cols == 0) needed += s.rows * int64_t{sizeof(float)};
  const int64_t available = available_memory_bytes();
  if (needed > available)
    throw base::data_error(
        path, "",
        fmt::format("the weights need {} of memory as {}, but only {} are free: {} too few",
                    base::format_bytes(needed), spec.name, base::format_bytes(available),
                    base::format_bytes(needed - available)),
        "choose a smaller --dtype or model, or free memory");
}

// The cache of converted weights holds what took rounding. What is only laid out anew is read as
// fast from the model itself.
bool is_worth_caching(const ArenaPlan& plan, const SourceModel& source,
                      const AssembleOptions& options) {
  return options.use_cache && plan.bytes >= options.cache_from_bytes &&
         std::ranges::any_of(plan.matrices, [&](const PlannedMatrix& m) {
           return m.storage != WeightStorage::kF32 && m.storage != WeightStorage::kBf16 &&
                  !WeightMatrix::keeps_exactly(m.storage, source.tensors.at(m.slot->name).dtype);
         });
}

CachedWeights cached_weights(const ArenaPlan& plan, const WeightFormatSpec& spec,
                             const ModelParts& parts) {
  std::error_code error;
  const std::filesystem::path source = std::filesystem::absolute(parts.path, error);
  CachedWeights cached{parts.hash,
                       std::string(spec.name),
                       {},
                       plan.bytes,
                       error ? parts.path : source.lexically_normal().string()};
  for (const PlannedMatrix& m : plan.matrices)
    cached.matrices.push_back({m.role == m.slot->role ? m.slot->name : m.slot->name + " (head)",
                               m.storage, m.slot->rows, m.slot->cols, m.offset,
                               WeightMatrix::bytes_for(m.storage, m.slot->rows, m.slot->cols)});
  return cached;
}

// The block of memory that holds all matrices. With it lives the hold on the file they came from.
struct Arena {
  std::shared_ptr<std::byte> bytes;
  WeightFileHold file;
};

}  // namespace

void assemble(const SourceModel& source, const AssembleOptions& options, ModelParts& parts) {
  const ModelConfig& config = parts.config;
  const std::vector<TensorSlot> slots = tensor_slots(config, source.naming);

  // Everything about names, shapes and sizes is settled before memory is taken.
  std::map<std::string_view, const TensorSlot*> wanted;
  for (const TensorSlot& slot : slots) {
    const auto it = source.tensors.find(slot.name);
    if (it == source.tensors.end()) tensor_error(source.path, slot.name, "is missing");
    check_source(it->second, slot);
    wanted.emplace(slot.name, &slot);
  }
  for (const auto& [name, tensor] : source.tensors)
    if (!wanted.contains(name) && !is_ignorable(name, source.naming))
      tensor_error(tensor.file, name,
                   fmt::format("is not used by architecture '{}'", config.architecture),
                   "the model is not what its configuration says; results would be wrong");
  parts.format = resolve(parts.format, source, slots);
  parts.stored_bits = bits_of_most(source, slots);
  const WeightFormatSpec& spec = spec_of(parts.format);
  const ArenaPlan plan = plan_arena(slots, spec, source, config.tied_head);
  check_memory(source.path, slots, spec, plan);
  if (options.hash) parts.hash = options.hash();

  std::vector<std::shared_ptr<LayerWeights>> layers;
  for (int i = 0; i < config.n_layers; ++i) layers.push_back(std::make_shared<LayerWeights>());
  const auto destination = [&](const TensorSlot& slot) -> Destination {
    if (slot.role == Role::kFinalNorm) return {{}, &parts.final_norm};
    return layer_destination(*layers[static_cast<size_t>(slot.layer)], slot.role);
  };
  auto embedding = std::make_shared<WeightMatrix>(), head = std::make_shared<WeightMatrix>();
  std::map<const TensorSlot*, Destination> to;
  for (const TensorSlot& slot : slots)
    if (slot.role != Role::kEmbedding && slot.role != Role::kHead)
      to.emplace(&slot, destination(slot));
  // Every matrix is a part of one block of memory, which lives as long as any of them. Its pages
  // are first touched by the thread that fills them.
  const auto arena = std::make_shared<Arena>();
  arena->bytes = allocate_weights(plan.bytes);
  for (const PlannedMatrix& m : plan.matrices) {
    Destination& d = to[m.slot];
    if (m.role == Role::kEmbedding) d.matrices[0] = embedding.get();
    if (m.role == Role::kHead) d.matrices[d.matrices[0] == nullptr ? 0 : 1] = head.get();
    *d.matrices[d.matrices[1] == nullptr ? 0 : 1] =
        WeightMatrix(m.storage, m.slot->rows, m.slot->cols,
                     std::shared_ptr<std::byte>(arena, arena->bytes.get() + m.offset));
  }

  std::optional<WeightCache> cache;
  if (!parts.hash.empty() && is_worth_caching(plan, source, options))
    cache.emplace(cached_weights(plan, spec, parts), options.cache_limit);
  const std::span<std::byte> arena_bytes(arena->bytes.get(), plan.bytes);
  const bool is_cached = cache && cache->read(arena_bytes, options.n_threads);

  std::vector<Task> tasks;
  for (const TensorSlot& slot : slots) {
    const SourceTensor& tensor = source.tensors.at(slot.name);
    const Destination& d = to.at(&slot);
    if (d.vector == nullptr && is_cached) continue;
    if (tensor.mapping != nullptr) tensor.mapping->prefetch(tensor.bytes);
    const int last = d.vector == nullptr ? slot.rows : 1;
    for (int row = 0; row < last; row += WeightMatrix::kPanel)
      tasks.push_back({&slot, &tensor, d, row});
  }
  parallel_for(options.n_threads, tasks.size(),
               [&](size_t i) { run_task(tasks[i], source, config.head_dim); });
  // The file's pages are of no more use; what stays is our copy.
  for (const auto& [name, tensor] : source.tensors)
    if (tensor.mapping != nullptr) tensor.mapping->release(tensor.bytes);
  if (cache && !is_cached) cache->write(arena_bytes, options.n_threads);
  if (cache) arena->file = cache->take_hold();

  parts.layers.assign(layers.begin(), layers.end());
  parts.embedding = embedding;
  parts.head = head->empty() ? embedding : head;
}

}  // namespace evalrun::engine
