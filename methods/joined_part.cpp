#include "methods/joined_part.h"

#include <algorithm>
#include <utility>

namespace evalrun::methods {

void JoinedPart::own(std::unique_ptr<Drafter> owned) {
  drafter = std::move(owned);
  dear = drafter->group() != nullptr;
  LargestStep step = drafter->largest_step();
  cost = step.draft_cost;
  draft_rows = std::move(step.draft_rows);
  draft.reserve(engine::kMaxRows);
  watched.reserve(engine::kMaxRows);
  held.reserve(engine::kMaxRows);
  node_of.reserve(engine::kMaxRows);
  path.reserve(engine::kMaxRows);
  for (std::vector<int32_t>* v : {&side.token, &side.parent}) v->reserve(engine::kMaxRows);
  side.read.reserve(engine::kMaxRows);
}

void JoinedPart::start(const GenerationContext& context) {
  drafter->start(context);
  acceptance.start(*drafter);
  watched.forget();
  held.forget();
  backoff.start(dear ? 1 : drafter->rarest_query());
  // As its most forwards would do where the likeliest of each level came true as expected.
  forwards = nodes = static_cast<double>(draft_rows.size());
  gain = 0;
  double joint = 1;
  for (int depth = 1; depth <= static_cast<int>(draft_rows.size()); ++depth)
    gain += joint *= acceptance.of(0, depth, 0);
  last_text = context.prompt.size();
  interval = 1;  // at once: nothing has to be caught up with yet
  tried = drafted = joins = drafting = staged = false;
  side.clear();
}

double JoinedPart::cost_of(double n, const RowPrice& price) const {
  if (!dear || draft_rows.empty()) return 0;
  double rows = 0;
  const auto whole = static_cast<size_t>(std::max(n + 0.5, 1.0));
  for (size_t i = 0; i < whole; ++i)
    rows += price(std::max(draft_rows[std::min(i, draft_rows.size() - 1)], 1));
  if (lag > 1 && drafter->must_catch_up()) rows += price(lag);
  return cost * rows;
}

void JoinedPart::join(JoinedTree& tree) {
  tree.add(
      draft.tree, [this](int node) { return acceptance.of(draft, node); }, node_of);
}

void JoinedPart::tell(std::span<const int> place, std::span<const int32_t> accepted,
                      int32_t bonus) {
  int last = 0, length = 0;
  for (int i = 1; i < draft.tree.size(); ++i) {
    const int at = place[static_cast<size_t>(node_of[static_cast<size_t>(i)])];
    if (at <= length) continue;
    length = at;
    last = i;
  }
  path.clear();
  for (int node = last; node > 0; node = draft.tree.parent[static_cast<size_t>(node)])
    path.push_back(node);
  std::reverse(path.begin(), path.end());
  const auto next = static_cast<size_t>(length);
  drafter->accepted(path, next < accepted.size() ? accepted[next] : bonus);
}

}  // namespace evalrun::methods
