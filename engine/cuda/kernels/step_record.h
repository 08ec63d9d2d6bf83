// What one forward is about, as the GPU gets it: one block of memory, copied at the start of a
// step. Built on the host from a ForwardPlan (engine/forward_plan.h); host code, tested by itself.
//
// Launch shapes depend on sizes rounded up (StepShape), contents on the step, so that a captured
// graph serves all steps of one shape.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cuda/kernels/answers.h"
#include "engine/forward_plan.h"

namespace evalrun::engine::cuda {

constexpr int kChunk = 128;   // logical positions of an attention chunk; borders are absolute
constexpr int kSegment = 32;  // positions a warp takes of it
constexpr int kQueries = 16;  // (row, head) pairs of a tile

struct alignas(16) StepRow {
  int32_t token, embedding;  // embedding >= 0: row of the uploaded embeddings
  int32_t position;
  int32_t sequence;
  // These four are loaded as one. Logical keys [first, length) are seen; first > 0 under a sliding
  // window.
  int32_t first;
  int32_t first_windowed;  // the same in layers with a window
  int32_t cached;          // keys below this come from the cache, others from rows of the request
  int32_t length;
  int32_t
      visible;     // where its list of rows starts: key j is row visible_rows[visible + j - cached]
  int32_t prefix;  // sees the prefix bank
  int32_t low_rank;
};

// One chunk of keys for up to 16 queries of one key head. All that keys' addresses depend on is
// here, so that they do not wait for the row.
struct alignas(16) AttentionItem {
  enum Kind : int32_t {
    kShared,  // every key of the chunk is in the cache: several rows at once
    kOwn,     // one row, whose last keys are rows of the request
    kPrefix,  // the prefix bank, one row
  };
  int32_t kind = kShared;
  int32_t row = 0;  // first row; query q0 + i is head (q0 + i) % group of row + (q0 + i) / group
  int32_t q0 = 0, queries = 0;  // no queries: behind the list's end
  int32_t chunk = 0;            // keys [128 chunk, 128 chunk + 128)
  int32_t slot = 0;             // where its partial result goes among the row's
  int32_t limit = 0;       // keys below come from the cache (kPrefix: the bank), others are rows
  int32_t only_head = -1;  // kPrefix with banks per query head: this head of the group
  int32_t sequence = 0;    // of its rows
  int32_t first = 0, length = 0;  // none of its rows sees keys outside of [first, length)
  int32_t visible = 0;            // kOwn: the row's
};

struct StepHeader {
  int32_t rows;    // to be computed
  int32_t kept;    // rows of earlier forwards that stay: row i is scratch row kept + i
  int32_t direct;  // prefill: keys and values go to the cache at once
  int32_t n_items, n_items_windowed;
};

// Sizes that decide about launches, rounded up.
struct StepShape {
  int rows = 0;
  int logits = 0, hidden = 0, answers = 0;
  bool draws = false;              // some of the rows that want answers want a draw
  bool tasks = false;              // or have a distribution's task
  int rejection_tests = 0;         // room for this many
  int more_draws = 0;              // of any task
  int children = 0, uniforms = 0;  // lists of the tasks
  int visible = 0;                 // ints of the lists
  int items = 0, items_windowed = 0;
  int slots = 0;  // partial results per row and head
  bool direct = false, kv_only = false;
  bool at_once = false;  // rows of a prompt, attended to without items
};

// Where things lie in the block, in bytes.
struct StepLayout {
  size_t header = 0, rows = 0, visible = 0, logit_rows = 0, hidden_rows = 0, answer_rows = 0,
         uniforms = 0, tasks = 0, children = 0, further = 0, items = 0, items_windowed = 0,
         bytes = 0;
};
StepLayout layout_of(const StepShape& shape);
size_t record_bytes(const StepShape& shape);  // its buffer

struct StepOptions {
  int group = 1;           // query heads per key head
  int sliding_window = 0;  // 0: none
  bool items = true;       // false: the f32 path, which needs no list
  bool at_once = false;    // nor does this one, attends_at_once()
  int prefix_length = 0;
  bool prefix_per_head = false;
};

class StepRecord {
 public:
  // Of a plan and the request it was made from (without rows in prefill chunks).
  void build(const ForwardPlan& plan, const ForwardRequest& request, const StepOptions& options);
  const StepShape& shape() const { return shape_; }
  const StepHeader& header() const { return header_; }
  std::span<const StepRow> rows() const { return rows_; }
  // Of a row that wants answers, counted among them.
  AnswerTask task(int answer) const {
    return tasks_.empty() ? AnswerTask{} : tasks_[static_cast<size_t>(answer)];
  }
  std::span<const AttentionItem> items() const { return items_; }
  std::span<const AttentionItem> items_windowed() const { return items_windowed_; }
  // Into a block of layout_of(shape()).bytes.
  void write(const ForwardPlan& plan, unsigned char* block) const;

 private:
  void add_items(const StepOptions& o, bool windowed, std::vector<AttentionItem>& items) const;
  StepShape shape_;
  StepHeader header_{};
  std::vector<StepRow> rows_;
  void add_tasks(const ForwardPlan& plan, const ForwardRequest& request);
  std::vector<double> uniforms_;   // of the rows that want answers; < 0: no draw
  std::vector<AnswerTask> tasks_;  // the same
  std::vector<int32_t> children_;
  std::vector<double> further_;
  std::vector<AttentionItem> items_, items_windowed_;
};

constexpr int kTrials = 16;  // room for at least this many; each takes a mass for every token

// The next power of two, at least `least`: how sizes are rounded.
int rounded_size(int64_t n, int least);

}  // namespace evalrun::engine::cuda
