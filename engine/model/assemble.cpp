#include "engine/model/assemble.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "engine/base/error.h"

namespace evalrun::engine {
namespace {

constexpr const char* kIncomplete = "the file is incomplete or for another model; get it again";

[[noreturn]] void tensor_error(const std::string& file, const std::string& name,
                               const std::string& what, std::string hint = kIncomplete) {
  throw base::data_error(file, fmt::format("tensor '{}'", name), what, std::move(hint));
}

// Runs work(i) for i in 0..n-1 on several threads; rethrows the error of the lowest i that failed.
template <typename Work>
void parallel_for(int n_threads, size_t n, const Work& work) {
  std::atomic<size_t> next{0}, failed{n};
  std::exception_ptr error;
  std::mutex mutex;
  const auto run = [&] {
    for (size_t i = next++; i < n && i < failed; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) {
          failed = i;
          error = std::current_exception();
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < n_threads; ++t) threads.emplace_back(run);
  run();
  for (std::thread& t : threads) t.join();
  if (error) std::rethrow_exception(error);
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
  if (t.dtype == DType::kI32 || t.dtype == DType::kI64)
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

void check_finite(const SourceTensor& t, const TensorSlot& slot, int row,
                  std::span<const float> v) {
  for (size_t i = 0; i < v.size(); ++i)
    if ((std::bit_cast<uint32_t>(v[i]) & 0x7F800000u) == 0x7F800000u)
      tensor_error(t.file, slot.name, fmt::format("value [{}, {}] is not a finite number", row, i),
                   "the weights are damaged or overflow their type; get the model again");
}

// Where a slot's values go.
struct Destination {
  WeightMatrix* matrix = nullptr;
  std::vector<float>* vector = nullptr;
};

Destination layer_destination(LayerWeights& w, Role role) {
  switch (role) {
    case Role::kAttnNorm:
      return {nullptr, &w.attn_norm};
    case Role::kQ:
      return {&w.q, nullptr};
    case Role::kK:
      return {&w.k, nullptr};
    case Role::kV:
      return {&w.v, nullptr};
    case Role::kO:
      return {&w.o, nullptr};
    case Role::kQBias:
      return {nullptr, &w.q_bias};
    case Role::kKBias:
      return {nullptr, &w.k_bias};
    case Role::kVBias:
      return {nullptr, &w.v_bias};
    case Role::kOBias:
      return {nullptr, &w.o_bias};
    case Role::kQNorm:
      return {nullptr, &w.q_norm};
    case Role::kKNorm:
      return {nullptr, &w.k_norm};
    case Role::kFfnNorm:
      return {nullptr, &w.ffn_norm};
    case Role::kGate:
      return {&w.gate, nullptr};
    case Role::kUp:
      return {&w.up, nullptr};
    case Role::kDown:
      return {&w.down, nullptr};
    case Role::kGateBias:
      return {nullptr, &w.gate_bias};
    case Role::kUpBias:
      return {nullptr, &w.up_bias};
    case Role::kDownBias:
      return {nullptr, &w.down_bias};
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
    check_finite(source, slot, 0, stored);
    task.to.vector->resize(stored.size());
    for (int o = 0; o < slot.rows; ++o)
      (*task.to.vector)[static_cast<size_t>(o)] =
          stored[static_cast<size_t>(source_row(permuted, head_dim, o))];
    return;
  }
  std::vector<float> row(static_cast<size_t>(slot.cols));
  const auto row_bytes = static_cast<size_t>(bytes_of(source.dtype, slot.cols));
  const int end = std::min(slot.rows, task.first_row + WeightMatrix::kPanel);
  for (int o = task.first_row; o < end; ++o) {
    const int from = source_row(permuted, head_dim, o);
    const auto stored = source.bytes.subspan(static_cast<size_t>(from) * row_bytes, row_bytes);
    dequantize(source.dtype, stored, row);
    check_finite(source, slot, from, row);
    if (WeightMatrix::keeps_exactly(task.to.matrix->storage(), source.dtype))
      task.to.matrix->set_row_exactly(o, source.dtype, stored);
    else
      task.to.matrix->set_row(o, row);
  }
}

// What --dtype auto means for these files.
WeightFormat resolve(WeightFormat format, const SourceModel& source,
                     const std::vector<TensorSlot>& slots) {
  if (format != WeightFormat::kAuto) return format;
  for (const TensorSlot& s : slots)
    if (s.role == Role::kGate)
      return WeightMatrix::keeps_exactly(WeightStorage::kQ4Group, source.tensors.at(s.name).dtype)
                 ? WeightFormat::kQ4
                 : WeightFormat::kInt8;
  return WeightFormat::kInt8;
}

WeightStorage storage_of(const WeightFormatSpec& spec, Role role) {
  return role == Role::kEmbedding ? spec.embedding : role == Role::kHead ? spec.head : spec.layers;
}

void check_memory(const std::string& path, const std::vector<TensorSlot>& slots,
                  const WeightFormatSpec& spec) {
  int64_t needed = 0;
  for (const TensorSlot& s : slots)
    needed += s.cols == 0 ? s.rows * int64_t{sizeof(float)}
                          : static_cast<int64_t>(
                                WeightMatrix::bytes_for(storage_of(spec, s.role), s.rows, s.cols));
  const int64_t available = available_memory_bytes();
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  if (needed > available)
    throw base::data_error(
        path, "",
        fmt::format("the weights need {:.2f} GiB of memory as {}, but only {:.2f} GiB are free",
                    static_cast<double>(needed) / kGiB, spec.name,
                    static_cast<double>(available) / kGiB),
        "choose a smaller --dtype or model, or free memory");
}

}  // namespace

void assemble(const SourceModel& source, int n_threads, ModelParts& parts) {
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
  const WeightFormatSpec& spec = spec_of(parts.format);
  check_memory(source.path, slots, spec);

  for (const auto& [name, tensor] : source.tensors)
    if (tensor.mapping != nullptr) tensor.mapping->prefetch(tensor.bytes);

  auto embedding = std::make_shared<WeightMatrix>(), head = std::make_shared<WeightMatrix>();
  std::vector<std::shared_ptr<LayerWeights>> layers;
  for (int i = 0; i < config.n_layers; ++i) layers.push_back(std::make_shared<LayerWeights>());
  std::vector<Destination> to(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    const TensorSlot& slot = slots[i];
    if (slot.role == Role::kEmbedding)
      to[i] = {embedding.get(), nullptr};
    else if (slot.role == Role::kHead)
      to[i] = {head.get(), nullptr};
    else if (slot.role == Role::kFinalNorm)
      to[i] = {nullptr, &parts.final_norm};
    else
      to[i] = layer_destination(*layers[static_cast<size_t>(slot.layer)], slot.role);
  }
  // Allocation clears the memory, which takes as long as filling it: spread over threads as well.
  parallel_for(n_threads, slots.size(), [&](size_t i) {
    if (to[i].matrix != nullptr)
      *to[i].matrix = WeightMatrix(storage_of(spec, slots[i].role), slots[i].rows, slots[i].cols);
  });
  std::vector<Task> tasks;
  for (size_t i = 0; i < slots.size(); ++i) {
    const SourceTensor& tensor = source.tensors.at(slots[i].name);
    const int last = to[i].matrix != nullptr ? slots[i].rows : 1;
    for (int row = 0; row < last; row += WeightMatrix::kPanel)
      tasks.push_back({&slots[i], &tensor, to[i], row});
  }
  parallel_for(n_threads, tasks.size(),
               [&](size_t i) { run_task(tasks[i], source, config.head_dim); });

  parts.layers.assign(layers.begin(), layers.end());
  parts.embedding = embedding;
  if (!config.tied_head)
    parts.head = head;
  else if (spec.head == spec.embedding)
    parts.head = embedding;
  else
    parts.head = std::make_shared<const WeightMatrix>(embedding->converted(spec.head));
  // The file's pages are of no more use; what stays is our copy.
  for (const auto& [name, tensor] : source.tensors)
    if (tensor.mapping != nullptr) tensor.mapping->release(tensor.bytes);
}

}  // namespace evalrun::engine
