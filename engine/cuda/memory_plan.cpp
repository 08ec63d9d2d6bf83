#include "engine/cuda/memory_plan.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <vector>

#include "engine/backend.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/cuda/dense.h"
#include "engine/cuda/device_model.h"
#include "engine/cuda/kernels/answers.h"
#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/device_matrix.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/kernels/step_record.h"
#include "engine/cuda/kv_memory.h"
#include "engine/cuda/runtime/check.h"
#include "engine/forward_plan.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kRows = kPlannedRows;
static_assert(kRows >= kSplitRows);
// methods/decode_batch.cpp cuts prompts of a continuous batch there.
static_assert(kPromptChunk == 4 * kPrefillChunk);

size_t floats(int rows, int width) {
  return static_cast<size_t>(rows) * static_cast<size_t>(width) * sizeof(float);
}

// Attention's work list after a full context. A tile of queries shares the chunks in the cache;
// rows of a step have two more each of their own.
void set_items(StepShape& s, int chunks, const ModelConfig& c) {
  const PromptTiles tiles = prompt_tiles_of(s.rows, c.n_heads / c.n_kv_heads);
  int64_t items = int64_t{tiles.n} * chunks;
  if (s.direct) {
    // Only where their partial results are few; those of a tile's last rows, which may be missing.
    const int64_t floats = partial_floats(tiles.rows, c.n_heads, 1, head_stride_for(c.head_dim));
    items = std::min(items,
                     (static_cast<int64_t>(kMostPromptPartial) / floats + chunks) * tiles.of_rows);
  } else {
    items += int64_t{2} * s.rows * tiles.of_rows;
  }
  // A context that long fits nowhere.
  s.items = rounded_size(std::min(items, int64_t{1} << 28), 32);
  s.items_windowed = c.sliding_window > 0 ? s.items : 0;
}

}  // namespace

PlannedShapes planned_shapes(const ModelConfig& c, int max_tokens, bool bf16) {
  PlannedShapes p;
  const int chunks = (max_tokens + kChunk - 1) / kChunk;
  p.prefill.rows = std::min(kPromptChunk, max_tokens);
  p.prefill.direct = true;
  p.step.rows = p.step.logits = p.step.hidden = p.step.answers = kRows, p.step.draws = true;
  p.step.visible = rounded_size(kRows * (kRows + 1) / 2, 64);
  for (StepShape* s : {&p.prefill, &p.step}) {
    s->slots = rounded_size(chunks, 8);
    if (bf16) set_items(*s, chunks, c);
  }
  p.answers.rows = kRows, p.answers.n_logits = c.n_logits();
  p.answers.n_best = std::min(kMostBest, c.n_logits());
  p.answers.tasks = true, p.answers.rejection_tests = kTrials;
  return p;
}

namespace {

// DeviceModel::missing_bytes() of a model of this shape.
size_t missing_bytes(const ModelConfig& c, const WeightFormatSpec& format) {
  struct Part {
    int out, in;
  };
  size_t missing = 0, largest = 0;
  const auto need = [&](WeightStorage storage, std::initializer_list<Part> parts, int times) {
    size_t raw = 0;
    for (const Part& p : parts) {
      missing += static_cast<size_t>(times) * DeviceMatrix::bytes_for(storage, p.out, p.in);
      raw += WeightMatrix::bytes_for(storage, p.out, p.in);
    }
    largest = std::max(largest, raw);
  };
  need(format.layers,
       {{c.q_dim(), c.input_width()}, {c.kv_dim(), c.input_width()}, {c.kv_dim(), c.input_width()}},
       c.n_layers);
  need(format.layers, {{c.d_model, c.q_dim()}}, c.n_layers);
  need(format.layers, {{c.d_ffn, c.d_model}, {c.d_ffn, c.d_model}}, c.n_layers);
  need(format.layers, {{c.d_model, c.d_ffn}}, c.n_layers);
  need(format.head, {{c.n_logits(), c.d_model}}, 1);
  if (!c.tied_head || format.head != format.embedding)
    need(format.embedding, {{c.vocab_size, c.d_model}}, 1);
  return missing + largest;
}

// `storages`: of the layers, as devices have them.
MemoryPlan plan(const ModelConfig& c, std::span<const WeightStorage> storages, WeightStorage head,
                const SessionOptions& o, int head_stride, size_t missing_weights) {
  const bool bf16 = storages[0] != WeightStorage::kF32;
  MemoryPlan plan;
  plan.weights = missing_weights + floats(o.max_tokens, c.head_dim);  // with rotary tables
  const KvType type = kv_type_of(o, bf16);
  plan.caches = KvMemory::bytes_for(c, o.n_sequences, o.max_tokens, type, head_stride);

  const PlannedShapes shapes = planned_shapes(c, o.max_tokens, bf16);
  const int rows = rounded_size(std::max(shapes.prefill.rows, shapes.step.rows), 16);
  const auto inputs = [&](int n, int width) {
    return bf16 ? floats(n, padded_to(width, kBlock)) / 2 : floats(n, width);
  };
  const int qkv = padded_to(c.q_dim(), kTile) + 2 * padded_to(c.kv_dim(), kTile);
  // Gate and up may be a matrix each where storages differ.
  const int gate_up =
      storages.size() > 1 ? 2 * padded_to(c.d_ffn, kTile) : padded_to(2 * c.d_ffn, kTile);
  const int widest = std::max({qkv, gate_up, padded_to(c.d_model, kTile)});
  const int vocab = c.n_logits();

  size_t& b = plan.buffers;
  b += std::max(record_bytes(shapes.prefill), record_bytes(shapes.step));
  b += floats(rows, c.d_model) * (c.paired_input ? 2 : 1);
  b += inputs(rows, std::max(c.input_width(), c.d_model)) + inputs(rows, c.q_dim()) +
       inputs(rows, c.d_ffn);
  b += floats(rows, widest);                   // sums
  b += inputs(rows, c.n_heads * head_stride);  // queries
  const auto quarters = [](WeightStorage of, int width, int n) {
    const auto g = product_geometry(of, padded_to(width, kTile) / kTile, kAnyBlocks, n);
    return g.workspace_bytes + g.counter_bytes;
  };
  size_t most = quarters(head, vocab, kRows);
  for (const WeightStorage s : storages) most = std::max(most, quarters(s, widest, rows));
  b += most;
  b += 2 * floats(kRows, vocab) + inputs(kRows, c.d_model) + floats(kRows, c.d_model);
  b += (answer_workspace(shapes.answers) + static_cast<size_t>(kRows * shapes.answers.stride())) *
       sizeof(uint64_t);
  // Keys and values of the step's rows; which of them are committed.
  b += kRows * sizeof(CommitRow);
  b += size_t{2} * kRows * static_cast<size_t>(c.n_layers) * static_cast<size_t>(c.n_kv_heads) *
       kv_line_bytes(type, head_stride);
  if (!bf16) return plan;
  const auto partial = [&](int n, int slots) {
    return partial_floats(rounded_size(n, 16), c.n_heads, slots, head_stride);
  };
  b += std::max(partial(shapes.step.rows, shapes.step.slots),
                std::min(partial(shapes.prefill.rows, shapes.prefill.slots), kMostPromptPartial)) *
       sizeof(float);
  // Prefill by cuBLAS: its sums, weights unpacked to bfloat16.
  b += Dense::kWorkspaceBytes + floats(rows, widest);
  if (storages.size() > 1 || storages[0] != WeightStorage::kBf16) {
    const auto unpacked = [](int outputs, int width) {
      return floats(padded_to(outputs, kTile), padded_to(width, kBlock)) / 2;
    };
    b += std::max({unpacked(qkv, std::max(c.input_width(), c.d_model)),
                   unpacked(c.d_model, c.q_dim()), unpacked(2 * c.d_ffn, c.d_model),
                   unpacked(c.d_model, c.d_ffn)});
  }
  return plan;
}

}  // namespace

MemoryPlan plan_memory(const Model& model, const SessionOptions& o, int head_stride,
                       size_t missing_weights) {
  std::vector<WeightStorage> storages;
  for (int l = 0; l < model.config().n_layers; ++l) {
    const LayerWeights& w = model.layer(l);
    for (const WeightMatrix* m : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down})
      if (const WeightStorage s = with_offsets(m->storage());
          std::ranges::find(storages, s) == storages.end())
        storages.push_back(s);
  }
  return plan(model.config(), storages, with_offsets(model.head().storage()), o, head_stride,
              missing_weights);
}

MemoryPlan plan_memory(const ModelConfig& c, WeightFormat format, const SessionOptions& o) {
  const WeightFormatSpec& spec = spec_of(format);
  const bool bf16 = spec.layers != WeightStorage::kF32;
  return plan(c, {&spec.layers, 1}, spec.head, o, bf16 ? head_stride_for(c.head_dim) : c.head_dim,
              missing_bytes(c, spec));
}

int device_index(const std::string& device) {
  const size_t colon = device.find(':');
  return colon == std::string::npos ? 0 : std::atoi(device.c_str() + colon + 1);
}

void check_memory(const MemoryPlan& plan, const Model& model, const SessionOptions& o) {
  size_t free = 0, total = 0;
  EVALRUN_CUDA(cudaMemGetInfo(&free, &total));
  if (plan.total() <= free) return;
  throw base::data_error(
      model.path(), "GPU memory",
      fmt::format(
          "needs {} ({} of weights, {} for {} tokens x {} sequences, {} to compute in), {} of {} "
          "are free: {} too few",
          base::format_bytes(plan.total()), base::format_bytes(plan.weights),
          base::format_bytes(plan.caches), o.max_tokens, o.n_sequences,
          base::format_bytes(plan.buffers), base::format_bytes(free), base::format_bytes(total),
          base::format_bytes(plan.total() - free)),
      "a smaller weight format (--dtype int8 or q4), bytes for keys and values (--kv-dtype int8 "
      "or fp8), a shorter context (prompt + max_new), or a larger GPU");
}

}  // namespace evalrun::engine::cuda

namespace evalrun::engine {

double cuda_session_bytes(const Model& model, const SessionOptions& o) {
  const ModelConfig& c = model.config();
  const bool bf16 = model.layer(0).q.storage() != WeightStorage::kF32;
  const int stride = bf16 ? cuda::head_stride_for(c.head_dim) : c.head_dim;
  const cuda::MemoryPlan plan = cuda::plan_memory(model, o, stride, 0);
  return static_cast<double>(plan.total() - plan.driver);
}

double cuda_missing_weights(const Model& model, const SessionOptions& o) {
  return static_cast<double>(cuda::DeviceModel::missing_bytes(model, cuda::device_index(o.device)));
}

double cuda_free_bytes(const std::string& device) {
  EVALRUN_CUDA(cudaSetDevice(cuda::device_index(device)));
  size_t free = 0, total = 0;
  EVALRUN_CUDA(cudaMemGetInfo(&free, &total));
  return static_cast<double>(free - std::min(free, cuda::MemoryPlan().driver));
}

}  // namespace evalrun::engine
