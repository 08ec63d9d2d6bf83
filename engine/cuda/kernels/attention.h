// Softmax attention of the rows of a forward over the KV cache, the prefix bank and each other.
//
// The rule of the CPU (docs/architecture.md, "Numerics"): keys are taken in chunks of 128 absolute
// logical positions. A chunk is four segments of 32, each with a maximum and sums of its own,
// merged in order; chunks are merged in order. So it does not matter which keys are in the cache
// and which are rows of a tree, or how many rows look at a chunk at once: a row's bits are its own.
//
// bfloat16 path: scores and weighted values on the tensor cores (float32 sums), probabilities
// rounded to bfloat16 before both of their uses. float32 path (f32 weights): one chain per score
// and per value, the CPU's bits.
//
// A cache of bytes has a scale per position and head. On the bfloat16 path the numbers that codes
// stand for enter the tensor cores, exactly; a score is multiplied with its key's scale after them,
// a probability with its value's scale before them, rounded to bfloat16 again. On the float32 path
// a number is multiplied with its scale first, as on the CPU.
#pragma once
#include <cuda_runtime.h>

#include "engine/cuda/kernels/key_values.h"
#include "engine/cuda/kernels/step_record.h"

namespace evalrun::engine::cuda {

struct AttentionArguments {
  const StepRow* rows = nullptr;
  const int32_t* visible = nullptr;
  const AttentionItem* items = nullptr;
  int max_items = 0;  // launched, a power of two; those behind the list's end have no queries
  bool windowed = false;
  KeyValues cache, step, prefix;
  int n_rows = 0, heads = 0, kv_heads = 0, prefix_heads = 0, head_dim = 0, head_stride = 0;
  int prefix_length = 0;
  int slots = 0;
  int merge_batch = 0;       // set by attend_bf16(), up to 32
  bool at_once = false;      // rows of a prompt, without items and partial results
  const void* q = nullptr;   // [rows][heads][head_stride] (float32: [rows][heads * head_dim])
  float* partial = nullptr;  // partial_floats()
  void* out = nullptr;  // [rows][out_stride] heads side by side, bfloat16 (float32: [rows][..])
  int out_stride = 0;
};

// head_dim rounded up to what kernels are made for; 0 = too large (over 256).
int head_stride_for(int head_dim);
size_t partial_floats(int rows, int heads, int slots, int head_stride);

// Rows of a prompt can also be attended to a tile of queries a warp, from the first key to the last
// with running sums (bfloat16 path): the same bits without partial results, whose memory grows as
// rows x heads x context. Worth its while where there are tiles enough to fill a GPU without
// splitting the context; and wherever those would be too large.
struct PromptTiles {
  int rows;     // of a tile; a row with more than 16 heads a key head has `of_rows` tiles
  int of_rows;  // tiles
  int n;        // of all rows, for one key head
};
constexpr PromptTiles prompt_tiles_of(int n_rows, int group) {
  const int rows = group < kQueries ? kQueries / group : 1;
  const int of_rows = (rows * group + kQueries - 1) / kQueries;
  return {rows, of_rows, (n_rows + rows - 1) / rows * of_rows};
}
constexpr size_t kMostPromptPartial = (size_t{64} << 20) / sizeof(float);  // floats
constexpr int kSplitRows = 64;  // or of so few rows: as a step's, for which there is room
// `keys`: of the row with most of them.
bool attends_at_once(int rows, int keys, int heads, int kv_heads, int head_stride);
// Over all key heads. Changes no bits; tests change it.
int& enough_prompt_tiles();

// Chunks of a row whose factors are found together, 32 at most. Changes no bits; tests change it.
int& merge_batch();
// Once per device, before the first launch: allows the shared memory large heads need.
void prepare_attention();
void attend_bf16(const AttentionArguments& a, cudaStream_t stream);
// The same of a cache in bytes of this type.
void attend_bytes(const AttentionArguments& a, KvType type, cudaStream_t stream);
// With queries of float32; `type`: of the cache, float32 or bytes.
void attend_f32(const AttentionArguments& a, KvType type, cudaStream_t stream);

}  // namespace evalrun::engine::cuda
