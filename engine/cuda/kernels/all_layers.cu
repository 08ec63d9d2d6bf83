#include <algorithm>
#include <numeric>

#include "engine/cuda/kernels/all_layers.h"
#include "engine/cuda/kernels/chunk_parts.h"
#include "engine/cuda/kernels/grid_barrier.h"
#include "engine/cuda/kernels/merge_parts.h"
#include "engine/cuda/kernels/narrow_parts.h"
#include "engine/cuda/kernels/row_parts.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kThreads = kProductThreads, kWarps = kProductWarps;
constexpr int kHalves = kThreads / kChunkThreads;  // of a block, an item of keys each
constexpr int kNormRows = 4;                       // whose norms are found together
constexpr int kNormEach = kMostLayerWidth / kThreads;
static_assert(kThreads == kNormThreads);

// Sums of a warp for one tile, floats.
template <int NT>
constexpr int kSliceSums = NT * 8 * kSumStride;

// Rows of a norm's results in shared memory, in blocks of 32: an odd number, so that the rows which
// a quarter of a warp reads at once are in different banks.
EVALRUN_DEVICE constexpr int row_blocks(int blocks) { return blocks | 1; }

// Where things lie in shared memory, in bytes. What a norm leaves and the sums of products are
// where attention has its results: phases do not meet.
struct SharedPlan {
  int ring = 0, layers = 0, rows = 0, items = 0, inputs = 0, sums = 0, bytes = 0;
};
template <WeightStorage S, int NT, int D>
EVALRUN_DEVICE constexpr SharedPlan shared_plan(int d, int item_tiles) {
  SharedPlan p;
  p.layers = kWarps * NarrowShape<S>::kBytes;
  p.rows = p.layers + 2 * static_cast<int>(sizeof(LayerRef));
  p.items = p.rows + NT * 8 * static_cast<int>(sizeof(StepRow));
  p.inputs = (p.items + 2 * kHalves * static_cast<int>(sizeof(AttentionItem)) + 127) / 128 * 128;
  p.sums = p.inputs + NT * 8 * row_blocks((d + kBlock - 1) / kBlock) * kBlock * 2;
  const int sums = item_tiles * kWarps * kSliceSums<NT> * 4;
  const int lanes = kNormRows * kThreads * 4;  // of norms, before there are sums
  const int products = p.sums + (sums > lanes ? sums : lanes);
  const int chunks = p.inputs + kHalves * static_cast<int>(chunk_shared_bytes(D));
  const int links = p.inputs + kWarps * kMostMergeBatch * 16;
  p.bytes = products > chunks ? products : chunks;
  p.bytes = p.bytes > links ? p.bytes : links;
  return p;
}

// What a thread block has of it.
struct Places {
  unsigned char* shared;
  SharedPlan at;
  template <typename T>
  __device__ __forceinline__ T* in(int place) const {
    return reinterpret_cast<T*>(shared + place);
  }
};

// A line of global memory to the L2; nobody waits for it.
__device__ __forceinline__ void bring_to_l2(const void* p) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
  (void)p;
#endif
}
// A slice of a tile, lines of codes by the lanes of a warp.
template <WeightStorage S>
__device__ __forceinline__ void bring_slice_to_l2(const MatrixRef& w, int tile, const Slice& part,
                                                  int lane) {
  constexpr int kLine = 128;
  if constexpr (S == WeightStorage::kBf16) {
    const auto* from = reinterpret_cast<const unsigned char*>(
        bf16_weights(w, tile * kTile + lane % kTile, part.first, 0));
#pragma unroll 1
    for (int b = lane / kTile * kLine; b < (part.last - part.first) * kBlock * 2;
         b += kWarp / kTile * kLine)
      bring_to_l2(from + b);
  } else {
    constexpr int kBytes = LaneWeights<S>::kCodeBytes;
    const unsigned char* from = w.codes + block_index(w, tile, part.first) * kBytes;
#pragma unroll 1
    for (int b = lane * kLine; b < (part.last - part.first) * kBytes; b += kWarp * kLine)
      bring_to_l2(from + b);
  }
}

// One product of the phase at hand: `items` of up to `of_item` tiles, which thread blocks take in
// turns.
template <WeightStorage S, int NT>
struct LayerProduct {
  const MatrixRef& w;
  int items;
  unsigned char* ring;  // of this warp

  // The weights that this block needs first; nothing of them depends on the step. `tile_of(item,
  // i)`: tile i of an item, -1 where it has fewer.
  template <typename TileOf>
  __device__ __forceinline__ void ask(const TileOf& tile_of) const {
    const int item = static_cast<int>(blockIdx.x), after = item + static_cast<int>(gridDim.x);
    if (item >= items) return;
    ask_tile(tile_of(item, 0));
    // The ring has room for one tile; the one after it is near at least.
    int next = tile_of(item, 1);
    if (next < 0 && after < items) next = tile_of(after, 0);
    if (next < 0) return;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    bring_slice_to_l2<S>(w, next, slice_of(w.blocks, warp), static_cast<int>(threadIdx.x) % kWarp);
  }
  __device__ __forceinline__ void ask_tile(int tile) const {
    const int warp = static_cast<int>(threadIdx.x) / kWarp,
              lane = static_cast<int>(threadIdx.x) % kWarp;
    const Slice part = slice_of(w.blocks, warp);
    typename NarrowShape<S>::Stream weights(w, tile, part.first, lane);
    fetch_first_stages<S>(weights, part, lane, ring);
  }

  // ask() is done. Inputs: rows `stride` blocks apart. For each item `meanwhile(item)` is what to
  // load beside them, finish(item, that) what becomes of its sums, [tile][slice] in shared memory.
  template <typename TileOf, typename Meanwhile, typename Finish>
  __device__ __forceinline__ void run(int of_item, const TileOf& tile_of, const uint4* x,
                                      int stride, int n, float* sums, const Meanwhile& meanwhile,
                                      const Finish& finish) const {
    const int warp = static_cast<int>(threadIdx.x) / kWarp,
              lane = static_cast<int>(threadIdx.x) % kWarp;
    const Slice part = slice_of(w.blocks, warp);
#pragma unroll 1
    for (int item = static_cast<int>(blockIdx.x); item < items;) {
      const int next_item = item + static_cast<int>(gridDim.x);
      const auto before = meanwhile(item);
#pragma unroll 1
      for (int i = 0, tile = tile_of(item, 0); tile >= 0; ++i) {
        typename NarrowShape<S>::Stream weights(w, tile, part.first + NarrowShape<S>::kAhead, lane);
        float acc[NT][4];
        sum_fetched_slice<S, NT>(weights, part, x, stride, 0, n, lane, ring, acc);
        tile = i + 1 < of_item ? tile_of(item, i + 1) : -1;
        if (tile >= 0)
          ask_tile(tile);
        else if (next_item < items)
          ask_tile(tile_of(next_item, 0));
        float* to = sums + (i * kWarps + warp) * kSliceSums<NT>;
#pragma unroll
        for (int j = 0; j < NT; ++j) store_sums(to, acc[j], 8 * j, lane);
      }
      __syncthreads();
      finish(item, before);
      item = next_item;
      if (item < items) __syncthreads();  // before the next one's take their places
    }
  }
};

// As finish() begins: output o's sum with the scale of its channel and its bias.
template <WeightStorage S>
__device__ __forceinline__ float finished_sum(const MatrixRef& w, const float* bias, int o,
                                              float sum) {
  if constexpr (S == WeightStorage::kInt8Channel)
    sum = sum * in_global(reinterpret_cast<const float*>(w.scales))[o];
  return bias != nullptr ? sum + bias[o] : sum;
}

// Of a tile's sums: output o of a row.
template <int NT>
__device__ __forceinline__ float tile_sum(const float* sums, int tile, int row, int o) {
  return sum_slices(sums + tile * kWarps * kSliceSums<NT>, kSliceSums<NT>, sum_at(row, o));
}

// A product whose sums go the usual way, an item a tile.
template <WeightStorage S, int NT>
__device__ __forceinline__ void run_plain(const LayerProduct<S, NT>& product, const uint4* x,
                                          int stride, int n, float* sums, const Epilogue& out) {
  const int r = static_cast<int>(threadIdx.x) / kTile, o = static_cast<int>(threadIdx.x) % kTile;
  static_assert(NT * 8 * kTile <= kThreads);
  product.run(
      1, [](int item, int i) { return i == 0 ? item : -1; }, x, stride, n, sums,
      [&](int tile) { return r < n ? sum_before(out, r, tile * kTile + o) : 0.0f; },
      [&](int tile, float before) {
        if (r >= n || (out.activated != nullptr && o >= 8)) return;
        MatrixRef w = product.w;
        w.scales = in_global(w.scales);
        finish<S>(w, out, r, tile * kTile + o, tile_sum<NT>(sums, 0, r, o),
                  out.activated != nullptr ? tile_sum<NT>(sums, 0, r, o + 8) : 0.0f, before);
      });
}

// x / rms * weights of all rows, rounded, to shared memory. `weight`: of this thread's columns.
__device__ __forceinline__ void norm_to_shared(const LayersJob& job,
                                               const float (&weight)[kNormEach], int blocks,
                                               uint16_t* to, float* lanes) {
  const int thread = static_cast<int>(threadIdx.x), stride = row_blocks(blocks) * kBlock;
#pragma unroll 1
  for (int first = 0; first < job.n; first += kNormRows) {
    float value[kNormRows][kNormEach];
#pragma unroll
    for (int r = 0; r < kNormRows; ++r)
      load_columns(job.x + row_at(first + r, job.d, 0), first + r < job.n ? job.d : 0, thread,
                   value[r]);
#pragma unroll
    for (int r = 0; r < kNormRows; ++r) lanes[r * kThreads + thread] = sum_of_squares(value[r]);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kNormRows; ++r) {
      if (first + r >= job.n) break;
      const float scale = cpu::rms_scale(tree_sum_of_warp(lanes + r * kThreads), job.d, job.eps);
#pragma unroll
      for (int u = 0; u < kNormEach; ++u) {
        const int j = u * kThreads + thread;
        if (j < job.d)
          to[row_at(first + r, stride, j)] = float_to_bf16(normed(value[r][u], scale, weight[u]));
      }
      if (const int j = job.d + thread; j < blocks * kBlock) to[row_at(first + r, stride, j)] = 0;
    }
    __syncthreads();
  }
}

// An item of q, k or v: which, and which heads.
struct HeadsOfItem {
  int part, at;  // 0, 1, 2; item of that part
  int heads, first_tile;
};
__device__ __forceinline__ int part_tiles(const LayersJob& job, int part) {
  const int heads = part == 0 ? job.attention.heads : job.attention.kv_heads;
  return (heads * job.attention.head_dim + kTile - 1) / kTile;
}
__device__ __forceinline__ HeadsOfItem heads_of(const LayersJob& job, int item) {
  HeadsOfItem h;
  h.part = item < job.heads.q ? 0 : item < job.heads.q + job.heads.kv ? 1 : 2;
  h.at = item - (h.part > 0 ? job.heads.q : 0) - (h.part > 1 ? job.heads.kv : 0);
  h.heads = h.part == 0 ? job.attention.heads : job.attention.kv_heads;
  h.first_tile = (h.part > 0 ? part_tiles(job, 0) : 0) + (h.part > 1 ? part_tiles(job, 1) : 0);
  return h;
}
__device__ __forceinline__ int head_tile(const LayersJob& job, int item, int i) {
  const HeadsOfItem h = heads_of(job, item);
  const HeadItems& cut = job.heads;
  if (i >= cut.tiles) return -1;
  if (cut.per_head > 0)
    return h.first_tile + h.at / cut.per_head * (job.attention.head_dim / kTile) +
           h.at % cut.per_head + i * cut.apart;
  const int tile = h.at * cut.tiles + i;
  return tile < part_tiles(job, h.part) ? h.first_tile + tile : -1;
}

// Pairs of dimensions that a thread rotates.
constexpr int kPairsEach = (kMostItemTiles * kTile / 2 * kMostLayerRows + kThreads - 1) / kThreads;
struct Rotation {
  float cos[kPairsEach], sin[kPairsEach];
};
// A pair of an item: its row and head, dimensions d and d + half, whose sums are outputs a and b of
// the item's tiles.
struct RotatedPair {
  int row, head, d, a, b;
  bool there;
};
__device__ __forceinline__ RotatedPair pair_of(const LayersJob& job, const HeadsOfItem& h, int i) {
  const int pairs = job.heads.tiles * kTile / 2, hd = job.attention.head_dim, half = hd / 2;
  RotatedPair p;
  p.row = i / pairs;
  const int of_row = i % pairs;
  if (job.heads.per_head > 0) {
    p.head = h.at / job.heads.per_head;
    p.d = h.at % job.heads.per_head * kTile + of_row;
    p.a = of_row, p.b = kTile + of_row;
  } else {
    p.head = h.at * (job.heads.tiles * kTile / hd) + of_row / half;
    p.d = of_row % half;
    p.a = of_row / half * hd + p.d, p.b = p.a + half;
  }
  p.there = p.row < job.n && p.head < h.heads;
  return p;
}

// Queries, keys and values of the rows of this step.
template <WeightStorage S, int NT, int D>
__device__ __forceinline__ void run_heads(const LayersJob& job, const LayerProduct<S, NT>& product,
                                          const float* bias, const StepRow* rows, int kept,
                                          const KeyValues& step, const uint4* x, int stride,
                                          float* sums) {
  const int thread = static_cast<int>(threadIdx.x), hd = job.attention.head_dim, half = hd / 2;
  const auto tile_of = [&](int item, int i) { return head_tile(job, item, i); };
  product.run(
      job.heads.tiles, tile_of, x, stride, job.n, sums,
      [&](int item) {
        const HeadsOfItem h = heads_of(job, item);
        Rotation r;
#pragma unroll
        for (int u = 0; u < kPairsEach; ++u) {
          const RotatedPair p = pair_of(job, h, u * kThreads + thread);
          const bool rotated = p.there && h.part < 2;
          const size_t at = rotated ? row_at(rows[p.row].position, half, p.d) : 0;
          r.cos[u] = rotated ? job.cos[at] : 0.0f, r.sin[u] = rotated ? job.sin[at] : 0.0f;
        }
        return r;
      },
      [&](int item, const Rotation& rotation) {
        const HeadsOfItem h = heads_of(job, item);
        const auto head_at = [&](int row, int head) {
          return h.part == 0
                     ? query_head(const_cast<void*>(job.attention.q), h.heads, D, true, row, head)
                     : key_head(h.part == 1 ? step.k : step.v, step.capacity, D, true, head,
                                kept + row);
        };
#pragma unroll
        for (int u = 0; u < kPairsEach; ++u) {
          const RotatedPair p = pair_of(job, h, u * kThreads + thread);
          if (!p.there) continue;
          const auto output = [&](int o) {
            return finished_sum<S>(product.w, bias, tile_of(item, o / kTile) * kTile + o % kTile,
                                   tile_sum<NT>(sums, o / kTile, p.row, o % kTile));
          };
          const float a = output(p.a), b = output(p.b);
          const RotatedHead to = head_at(p.row, p.head);
          if (h.part == 2)
            to.store(p.d, half, a, b);
          else
            to.store_rotated(p.d, half, a, b, rotation.cos[u], rotation.sin[u]);
        }
        // Behind queries of a head that is narrower than its place.
        const int gap = D - hd;
        if (h.part > 0 || gap == 0 || (job.heads.per_head > 0 && h.at % job.heads.per_head > 0))
          return;
        const int per_item = job.heads.per_head > 0 ? 1 : job.heads.tiles * kTile / hd;
        const int first = job.heads.per_head > 0 ? h.at / job.heads.per_head : h.at * per_item;
        for (int i = thread; i < job.n * per_item * gap; i += kThreads) {
          const int head = first + i / gap % per_item;
          if (head >= h.heads) continue;
          const RotatedHead to = head_at(i / gap / per_item, head);
          to.store_one(hd + i % gap, 0.0f);
        }
      });
}

// Chunks of keys, half a thread block each; one at a time while there are blocks for all.
template <int D>
__device__ __forceinline__ void run_chunks(const AttentionArguments& a, int n_items,
                                           AttentionItem* items, unsigned char* shared) {
  const int half = static_cast<int>(threadIdx.x) / kChunkThreads,
            thread = static_cast<int>(threadIdx.x) % kChunkThreads;
  const int all = n_items * a.kv_heads, blocks = static_cast<int>(gridDim.x);
#pragma unroll 1
  for (int first = static_cast<int>(blockIdx.x); first < all; first += kHalves * blocks) {
    const int mine = first + half * blocks;
    // The first ones stay from layer to layer; others come after them.
    AttentionItem* from = items + half;
    if (first >= blocks) {
      from += kHalves;
      if (mine < all && thread < static_cast<int>(sizeof(AttentionItem) / 16))
        reinterpret_cast<uint4*>(from)[thread] =
            reinterpret_cast<const uint4*>(a.items + mine / a.kv_heads)[thread];
      __syncthreads();  // also before this one's results take the places of the last one's
    }
    AttentionItem item;
    if (mine < all) item = *from;
    attend_item<D, uint16_t>(a, item, mine % a.kv_heads, thread,
                             shared + half * chunk_shared_bytes(D));
  }
}

// Chunks to rows: a warp is one head of one row.
template <int D>
__device__ __forceinline__ void run_merge(const AttentionArguments& a, float4* links) {
  static_assert(merge_threads(D) == kWarp);
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int blocks = static_cast<int>(gridDim.x);
#pragma unroll 1
  for (int i = warp * blocks + static_cast<int>(blockIdx.x); i < a.n_rows * a.heads;
       i += kWarps * blocks) {
    merge_head<D>(a, kMostMergeBatch, i / a.heads, i % a.heads, lane,
                  links + warp * kMostMergeBatch);
    __syncwarp();  // before the next one's links take their places
  }
}

// Of up to kThreads words.
template <typename T>
__device__ __forceinline__ void copy_to_shared(T* to, const T* from, int n) {
  static_assert(sizeof(T) % 16 == 0);
  auto* words = reinterpret_cast<uint4*>(to);
  const auto* source = reinterpret_cast<const uint4*>(from);
  if (const int i = static_cast<int>(threadIdx.x); i < n * static_cast<int>(sizeof(T) / 16))
    words[i] = source[i];
}
__device__ __forceinline__ void* moved(void* p, size_t bytes) {
  return static_cast<unsigned char*>(p) + bytes;
}

// Launched without overlap: all that came before has ended when it begins.
template <WeightStorage S, int NT, int D>
__global__ void __launch_bounds__(kThreads, 1) all_layers(LayersJob job) {
  wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp;
  const Places p = {evalrun_shared_memory(), shared_plan<S, NT, D>(job.d, job.heads.tiles)};
  auto* layers = p.template in<LayerRef>(p.at.layers);
  auto* rows = p.template in<StepRow>(p.at.rows);
  auto* items = p.template in<AttentionItem>(p.at.items);
  auto* inputs = p.template in<uint16_t>(p.at.inputs);
  auto* sums = p.template in<float>(p.at.sums);
  unsigned char* ring = p.shared + warp * NarrowShape<S>::kBytes;
  const auto tile_of_heads = [&](int item, int i) { return head_tile(job, item, i); };
  const auto tile_of_item = [](int item, int i) { return i == 0 ? item : -1; };
  const int head_items = job.heads.q + 2 * job.heads.kv;
  const auto product_of = [&](const MatrixRef& w, int n_items) {
    return LayerProduct<S, NT>{w, n_items, ring};
  };

  // What is the same in all layers.
  const int n_items = job.header->n_items, kept = job.header->kept;
  copy_to_shared(layers, job.layers, 1);
  copy_to_shared(rows, job.attention.rows, job.n);
  const int all_chunks = n_items * job.attention.kv_heads;
#pragma unroll
  for (int h = 0; h < kHalves; ++h)
    if (const int i = static_cast<int>(blockIdx.x) + h * static_cast<int>(gridDim.x);
        i < all_chunks)
      copy_to_shared(items + h, job.attention.items + i / job.attention.kv_heads, 1);
  __syncthreads();
  product_of(layers[0].qkv, head_items).ask(tile_of_heads);
  float weight[kNormEach];
  load_columns(in_global(layers[0].attn_norm), job.d, thread, weight);
  AttentionArguments a = job.attention;
  a.rows = rows;
  GridBarrier barrier(job.count);

#pragma unroll 1
  for (int l = 0; l < job.n_layers; ++l) {
    const LayerRef& w = layers[l % 2];
    const LayerRef& next = layers[(l + 1) % 2];
    if (l + 1 < job.n_layers) copy_to_shared(layers + (l + 1) % 2, job.layers + l + 1, 1);
    const size_t cache_at = static_cast<size_t>(l) * job.cache_layer,
                 rows_at = static_cast<size_t>(l) * job.rows_layer;
    a.cache.k = moved(job.attention.cache.k, cache_at);
    a.cache.v = moved(job.attention.cache.v, cache_at);
    a.step.k = moved(job.attention.step.k, rows_at);
    a.step.v = moved(job.attention.step.v, rows_at);
    const int stride = row_blocks(w.qkv.blocks);
    const auto* normed_rows = reinterpret_cast<const uint4*>(inputs);
    if (static_cast<int>(blockIdx.x) < head_items) {
      norm_to_shared(job, weight, w.qkv.blocks, inputs, sums);
      run_heads<S, NT, D>(job, product_of(w.qkv, head_items), in_global(w.qkv_bias), rows, kept,
                          a.step, normed_rows, stride, sums);
    }
    barrier.arrive();
    product_of(w.o, w.o.tiles).ask(tile_of_item);
    barrier.wait();
    run_chunks<D>(a, n_items, items, reinterpret_cast<unsigned char*>(inputs));
    barrier.arrive();
    barrier.wait();
    run_merge<D>(a, reinterpret_cast<float4*>(inputs));
    barrier.arrive();
    load_columns(in_global(w.ffn_norm), job.d, thread, weight);
    barrier.wait();
    Epilogue out;
    out.residual = job.x, out.ldy = out.outputs = job.d, out.bias = in_global(w.o_bias);
    run_plain(product_of(w.o, w.o.tiles), static_cast<const uint4*>(a.out), w.o.blocks, job.n, sums,
              out);
    barrier.arrive();
    product_of(w.gate_up, w.gate_up.tiles).ask(tile_of_item);
    barrier.wait();
    if (static_cast<int>(blockIdx.x) < w.gate_up.tiles) {
      norm_to_shared(job, weight, w.gate_up.blocks, inputs, sums);
      Epilogue turned;
      turned.activated = job.activated.data, turned.ldy = job.activated.stride;
      turned.outputs = job.d_ffn, turned.bias = in_global(w.gate_up_bias);
      run_plain(product_of(w.gate_up, w.gate_up.tiles), normed_rows, stride, job.n, sums, turned);
    }
    barrier.arrive();
    product_of(w.down, w.down.tiles).ask(tile_of_item);
    if (l + 1 < job.n_layers) load_columns(in_global(next.attn_norm), job.d, thread, weight);
    barrier.wait();
    out.bias = in_global(w.down_bias);
    run_plain(product_of(w.down, w.down.tiles), static_cast<const uint4*>(job.activated.data),
              w.down.blocks, job.n, sums, out);
    if (l + 1 == job.n_layers) break;
    barrier.arrive();
    product_of(next.qkv, head_items).ask(tile_of_heads);
    barrier.wait();
  }
}

// --- host ----------------------------------------------------------------------------------------

// run(storage, fragments of eight rows, head stride), all constants.
template <typename Run>
auto of_layers(WeightStorage storage, int rows, int head_stride, const Run& run) {
  return of_plain_storage(storage, [&](auto s) {
    const auto with_rows = [&](auto nt) {
      return head_stride <= 32 ? run(s, nt, std::integral_constant<int, 32>())
                               : run(s, nt, std::integral_constant<int, 64>());
    };
    return rows <= 8 ? with_rows(std::integral_constant<int, 1>())
                     : with_rows(std::integral_constant<int, 2>());
  });
}

constexpr WeightStorage kStorages[] = {WeightStorage::kBf16, WeightStorage::kInt8Channel,
                                       WeightStorage::kInt8Group, WeightStorage::kQ4Group};
}  // namespace

HeadItems head_items(int head_dim, int heads, int kv_heads) {
  HeadItems h;
  if (head_dim % 2 != 0 || head_dim > kMostLayerHead) return h;
  const int half = head_dim / 2;
  if (half % kTile == 0) {
    h.tiles = 2, h.apart = h.per_head = half / kTile;
    h.q = heads * h.per_head, h.kv = kv_heads * h.per_head;
    return h;
  }
  const int whole = std::lcm(head_dim, kTile) / kTile;
  if (whole > kMostItemTiles) return h;
  h.tiles = whole, h.apart = 1;
  const auto cut = [&](int n) { return (n * head_dim + whole * kTile - 1) / (whole * kTile); };
  h.q = cut(heads), h.kv = cut(kv_heads);
  return h;
}

bool takes_matrices(const LayerRef& layer) {
  for (const MatrixRef* m : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down})
    if (m->storage != layer.qkv.storage ||
        int64_t{kTile} * m->tiles * kBlock * m->blocks > kMostLayerWeights)
      return false;
  return std::ranges::find(kStorages, layer.qkv.storage) != std::end(kStorages);
}

int prepare_all_layers() {
  int device = 0;
  cudaDeviceProp properties;
  EVALRUN_CUDA(cudaGetDevice(&device));
  EVALRUN_CUDA(cudaGetDeviceProperties(&properties, device));
  for (const WeightStorage storage : kStorages)
    for (const int rows : {8, kMostLayerRows})
      for (const int stride : {32, kMostLayerHead})
        of_layers(storage, rows, stride, [](auto s, auto nt, auto d) {
          constexpr WeightStorage S = decltype(s)::value;
          constexpr int NT = decltype(nt)::value, D = decltype(d)::value;
          allow_bytes(all_layers<S, NT, D>,
                      shared_plan<S, NT, D>(kMostLayerWidth, kMostItemTiles).bytes);
        });
  return properties.multiProcessorCount;
}

void run_all_layers(const LayersJob& job, cudaStream_t stream) {
  check_argument(job.n >= 1 && job.n <= kMostLayerRows && job.d <= kMostLayerWidth &&
                     job.heads.tiles > 0 && job.heads.tiles <= kMostItemTiles,
                 "a step that all_layers does not take");
  of_layers(job.storage, job.n, job.attention.head_stride, [&](auto s, auto nt, auto d) {
    constexpr WeightStorage S = decltype(s)::value;
    constexpr int NT = decltype(nt)::value, D = decltype(d)::value;
    const auto kernel = all_layers<S, NT, D>;
    const auto bytes = static_cast<size_t>(shared_plan<S, NT, D>(job.d, job.heads.tiles).bytes);
    int fit = 0;
    EVALRUN_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, kernel, kThreads, bytes));
    const int work =
        std::max({job.heads.q + 2 * job.heads.kv, (job.d + kTile - 1) / kTile,
                  (2 * job.d_ffn + kTile - 1) / kTile, job.n * job.attention.heads / kWarps,
                  job.attention.max_items * job.attention.kv_heads / kHalves});
    const int blocks = std::min(fit * job.multiprocessors, work);
    check_argument(blocks > 0, "a device without room for a thread block of all_layers");
    launch_together("all_layers", kernel, dim3(static_cast<unsigned>(blocks)), kThreads, bytes,
                    stream, job);
  });
}

}  // namespace evalrun::engine::cuda
