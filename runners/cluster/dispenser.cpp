#include "runners/cluster/dispenser.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::runners {
namespace {

// Units handed out at once: few, so that little is left in one hand when the others are done; but
// not one by one while there are many, as each time costs a message.
constexpr size_t kMostAtOnce = 4;
constexpr size_t kShareAtOnce = 8;  // of the own queue: an eighth

}  // namespace

Dispenser::Dispenser(std::vector<std::vector<int>> queues) {
  for (const std::vector<int>& queue : queues) queues_.emplace_back(queue.begin(), queue.end());
}

void Dispenser::steal(std::deque<int>& queue) {
  auto longest = std::max_element(
      queues_.begin(), queues_.end(),
      [](const std::deque<int>& a, const std::deque<int>& b) { return a.size() < b.size(); });
  const size_t half = (longest->size() + 1) / 2;
  queue.assign(longest->end() - static_cast<std::ptrdiff_t>(half), longest->end());
  longest->erase(longest->end() - static_cast<std::ptrdiff_t>(half), longest->end());
  stolen_ += static_cast<int>(half);
}

std::vector<int> Dispenser::take(int worker) {
  EVALRUN_CHECK(worker >= 0 && static_cast<size_t>(worker) < queues_.size(), "worker {} of {}",
                worker, queues_.size());
  if (!given_back_.empty()) {
    const int unit = given_back_.front();
    given_back_.pop_front();
    return {unit};
  }
  std::deque<int>& queue = queues_[static_cast<size_t>(worker)];
  if (queue.empty() && left() > 0) steal(queue);
  const size_t n =
      std::min(queue.size(), std::clamp<size_t>(queue.size() / kShareAtOnce, 1, kMostAtOnce));
  std::vector<int> taken(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(n));
  queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(n));
  return taken;
}

void Dispenser::give_back(const std::vector<int>& units) {
  given_back_.insert(given_back_.end(), units.begin(), units.end());
}

int Dispenser::left() const {
  size_t n = given_back_.size();
  for (const std::deque<int>& queue : queues_) n += queue.size();
  return static_cast<int>(n);
}

}  // namespace evalrun::runners
