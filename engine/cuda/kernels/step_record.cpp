#include "engine/cuda/kernels/step_record.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/base/error.h"

namespace evalrun::engine::cuda {
int rounded_size(int64_t n, int least) {
  EVALRUN_CHECK(n <= int64_t{1} << 30, "a step of {}", n);
  int size = least;
  while (size < n) size *= 2;
  return size;
}

StepLayout layout_of(const StepShape& s) {
  StepLayout l;
  const auto take = [&](size_t bytes) {
    const size_t at = l.bytes;
    l.bytes += (bytes + 15) / 16 * 16;
    return at;
  };
  const auto ints = [](int n) { return static_cast<size_t>(n) * sizeof(int32_t); };
  l.header = take(sizeof(StepHeader));
  l.rows = take(static_cast<size_t>(s.rows) * sizeof(StepRow));
  l.visible = take(ints(s.visible));
  l.logit_rows = take(ints(s.logits));
  l.hidden_rows = take(ints(s.hidden));
  l.answer_rows = take(ints(s.answers));
  l.uniforms = take(s.draws ? static_cast<size_t>(s.answers) * sizeof(double) : 0);
  l.tasks = take(s.tasks ? static_cast<size_t>(s.answers) * sizeof(AnswerTask) : 0);
  l.children = take(ints(s.children));
  l.further = take(static_cast<size_t>(s.uniforms) * sizeof(double));
  l.items = take(static_cast<size_t>(s.items) * sizeof(AttentionItem));
  l.items_windowed = take(static_cast<size_t>(s.items_windowed) * sizeof(AttentionItem));
  return l;
}

size_t record_bytes(const StepShape& s) {
  return std::bit_ceil(std::max(layout_of(s).bytes, size_t{4096}));
}

void StepRecord::build(const ForwardPlan& plan, const ForwardRequest& request,
                       const StepOptions& o) {
  const bool direct = plan.prefill();
  const auto n = static_cast<size_t>(plan.n_rows());
  rows_.resize(n);
  int prefix_rows = 0;
  for (size_t i = 0; i < n; ++i) {
    const PlanRow& p = plan.rows()[i];
    StepRow& r = rows_[i];
    r.token = p.token, r.embedding = p.embedding, r.position = p.position;
    r.sequence = p.sequence;
    // In a prefill the rows before one are in the cache by the time it looks.
    r.cached = direct ? p.context + p.visible_count : p.context;
    r.length = p.context + p.visible_count;
    r.visible = direct ? 0 : p.visible_begin;
    r.prefix = p.prefix, r.low_rank = p.low_rank;
    r.first = r.first_windowed = 0;
    if (o.sliding_window > 0) {
      const int oldest = p.position - o.sliding_window + 1;
      r.first_windowed = std::clamp(oldest, 0, p.context);
      // Only when no context is left: visible rows are in order of position.
      for (const int32_t row : plan.visible(p))
        r.first_windowed += plan.all_rows()[static_cast<size_t>(row)].position < oldest ? 1 : 0;
    }
    prefix_rows += p.prefix ? 1 : 0;
  }
  header_ = {static_cast<int32_t>(n), plan.n_kept(), direct ? 1 : 0, 0, 0};

  items_.clear(), items_windowed_.clear();
  int slots = 1;
  const bool items = o.items && !o.at_once;
  if (items) {
    add_items(o, false, items_);
    if (o.sliding_window > 0) add_items(o, true, items_windowed_);
    for (const auto* list : {&items_, &items_windowed_})
      for (const AttentionItem& item : *list) slots = std::max(slots, item.slot + 1);
  }
  header_.n_items = static_cast<int32_t>(items_.size());
  header_.n_items_windowed = static_cast<int32_t>(items_windowed_.size());

  shape_ = {};
  shape_.rows = plan.n_rows();
  shape_.logits = static_cast<int>(plan.logit_rows().size());
  shape_.hidden = static_cast<int>(plan.hidden_rows().size());
  shape_.answers = static_cast<int>(plan.answer_rows().size());
  uniforms_.clear();
  for (const int32_t row : plan.answer_rows())
    uniforms_.push_back(request.rows[static_cast<size_t>(row)].uniform);
  for (const double uniform : uniforms_) shape_.draws |= uniform >= 0;
  add_tasks(plan, request);
  shape_.direct = direct, shape_.kv_only = plan.kv_only();
  shape_.at_once = o.at_once;
  int visible = 0;
  if (!direct)
    for (const StepRow& r : rows_) visible = std::max(visible, r.visible + r.length - r.cached);
  shape_.visible = rounded_size(visible, 64);
  shape_.items = items ? rounded_size(header_.n_items, 32) : 0;
  shape_.items_windowed =
      items && o.sliding_window > 0 ? rounded_size(header_.n_items_windowed, 32) : 0;
  shape_.slots = rounded_size(slots, 8);
}

void StepRecord::add_tasks(const ForwardPlan& plan, const ForwardRequest& request) {
  tasks_.clear(), children_.clear(), further_.clear();
  shape_.tasks = !request.distribution_draws.empty() || !request.rejection_tests.empty();
  if (!shape_.tasks) return;
  tasks_.resize(plan.answer_rows().size());
  const auto task_of = [&](int row) -> AnswerTask& {
    const auto rows = plan.answer_rows();
    return tasks_[static_cast<size_t>(std::lower_bound(rows.begin(), rows.end(), row) -
                                      rows.begin())];
  };
  for (const DistributionDraw& d : request.distribution_draws) {
    const auto further = d.uniforms.subspan(1);
    const auto more = static_cast<int32_t>(further.size());
    task_of(d.row) = {AnswerTask::kDraws, d.slot, static_cast<int32_t>(further_.size()), more};
    further_.insert(further_.end(), further.begin(), further.end());
    shape_.more_draws = std::max(shape_.more_draws, more);
  }
  int32_t place = 0;
  for (const RejectionTest& t : request.rejection_tests) {
    task_of(t.row) = {
        request.independent ? AnswerTask::kRejectionRepeating : AnswerTask::kRejection, t.slot,
        static_cast<int32_t>(children_.size()), static_cast<int32_t>(t.children.size()), place++};
    children_.insert(children_.end(), t.children.begin(), t.children.end());
  }
  if (place > 0) shape_.rejection_tests = rounded_size(place, kTrials);
  shape_.children = rounded_size(static_cast<int>(children_.size()), 16);
  shape_.uniforms = rounded_size(static_cast<int>(further_.size()), 16);
}

namespace {
// The prefix bank's chunks for one row, which `item` names.
void add_prefix_items(const StepOptions& o, AttentionItem item, std::vector<AttentionItem>& items) {
  item.kind = AttentionItem::kPrefix;
  item.limit = item.length = o.prefix_length;
  const int step = o.prefix_per_head ? 1 : kQueries;
  for (int c = 0; c < (o.prefix_length + kChunk - 1) / kChunk; ++c)
    for (int q = 0; q < o.group; q += step) {
      item.chunk = item.slot = c;
      item.q0 = q, item.queries = std::min(step, o.group - q);
      item.only_head = o.prefix_per_head ? q : -1;
      items.push_back(item);
    }
}
}  // namespace

void StepRecord::add_items(const StepOptions& o, bool windowed,
                           std::vector<AttentionItem>& items) const {
  const int prefix_chunks = (o.prefix_length + kChunk - 1) / kChunk;
  const auto first_of = [&](const StepRow& r) { return windowed ? r.first_windowed : r.first; };
  const auto add = [&](AttentionItem item, int n_rows) {
    for (int q = 0; q < n_rows * o.group; q += kQueries) {
      item.q0 = q, item.queries = std::min(kQueries, n_rows * o.group - q);
      items.push_back(item);
    }
  };
  const int n = static_cast<int>(rows_.size());
  for (int i = 0; i < n; ++i) {
    const StepRow& r = rows_[static_cast<size_t>(i)];
    AttentionItem item;
    item.row = i, item.sequence = r.sequence;
    if (r.prefix) add_prefix_items(o, item, items);
    // Chunks that end after the cache. In a prefill none do: length == cached.
    item.kind = AttentionItem::kOwn;
    item.first = first_of(r), item.limit = r.cached, item.length = r.length;
    item.visible = r.visible;
    if (r.length > r.cached)
      for (int c = std::max(r.cached, item.first) / kChunk; c <= (r.length - 1) / kChunk; ++c) {
        item.chunk = c, item.slot = prefix_chunks + c;
        add(item, 1);
      }
  }
  // Runs of rows of one sequence share the chunks that all of them find in the cache. A tile holds
  // as many rows as 16 queries take, so that a chunk is looked at only for rows that see it.
  const int tile_rows = std::max(1, kQueries / o.group);
  for (int begin = 0; begin < n;) {
    const int sequence = rows_[static_cast<size_t>(begin)].sequence;
    int end = begin;
    int limit = 0;
    while (end < n && end - begin < tile_rows &&
           rows_[static_cast<size_t>(end)].sequence == sequence)
      limit = std::max(limit, rows_[static_cast<size_t>(end++)].cached);
    int oldest = limit;
    for (int i = begin; i < end; ++i)
      oldest = std::min(oldest, first_of(rows_[static_cast<size_t>(i)]));
    const StepRow& r = rows_[static_cast<size_t>(begin)];
    const bool direct = r.length == r.cached;
    const int chunks = direct ? (limit + kChunk - 1) / kChunk : limit / kChunk;
    AttentionItem item;
    item.row = begin, item.sequence = sequence;
    item.first = oldest, item.limit = item.length = limit;
    for (int c = oldest / kChunk; c < chunks; ++c) {
      item.chunk = c, item.slot = prefix_chunks + c;
      add(item, end - begin);
    }
    begin = end;
  }
}

void StepRecord::write(const ForwardPlan& plan, unsigned char* block) const {
  const StepLayout l = layout_of(shape_);
  const auto put = [&](size_t at, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(block + at, from, bytes);
  };
  put(l.header, &header_, sizeof header_);
  put(l.rows, rows_.data(), rows_.size() * sizeof(StepRow));
  size_t visible = 0;
  if (!shape_.direct)
    for (const StepRow& r : rows_)
      visible = std::max(visible, static_cast<size_t>(r.visible + r.length - r.cached));
  put(l.visible, plan.visible_rows().data(), visible * sizeof(int32_t));
  put(l.logit_rows, plan.logit_rows().data(), plan.logit_rows().size_bytes());
  put(l.hidden_rows, plan.hidden_rows().data(), plan.hidden_rows().size_bytes());
  put(l.answer_rows, plan.answer_rows().data(), plan.answer_rows().size_bytes());
  if (shape_.draws) put(l.uniforms, uniforms_.data(), uniforms_.size() * sizeof(double));
  put(l.tasks, tasks_.data(), tasks_.size() * sizeof(AnswerTask));
  put(l.children, children_.data(), children_.size() * sizeof(int32_t));
  put(l.further, further_.data(), further_.size() * sizeof(double));
  const auto put_items = [&](size_t at, const std::vector<AttentionItem>& items, int room) {
    const size_t bytes = items.size() * sizeof(AttentionItem);
    put(at, items.data(), bytes);
    std::memset(block + at + bytes, 0, static_cast<size_t>(room) * sizeof(AttentionItem) - bytes);
  };
  put_items(l.items, items_, shape_.items);
  put_items(l.items_windowed, items_windowed_, shape_.items_windowed);
}

}  // namespace evalrun::engine::cuda
