// Who measures what next: each worker has a queue of its own, its shard at first, and one whose
// queue is empty takes the back half of the longest one (work stealing, as in R. Blumofe and C.
// Leiserson, "Scheduling multithreaded computations by work stealing", J. ACM 46 (1999)). So
// workers are busy to the end although prompts take unequally long, and neighbours in the plan stay
// together. Not for several threads at once.
#pragma once
#include <deque>
#include <vector>

namespace evalrun::runners {

class Dispenser {
 public:
  // Units of work by worker, such as waves of a plan, in the order in which they are measured.
  explicit Dispenser(std::vector<std::vector<int>> queues);

  // What this worker is to do now, one unit at a time near the end. Empty = nothing is left, for
  // anyone.
  std::vector<int> take(int worker);
  // Of a worker that is gone: they are the next that anyone takes.
  void give_back(const std::vector<int>& units);
  int left() const;                       // not handed out yet
  int stolen() const { return stolen_; }  // units that went to another worker

 private:
  void steal(std::deque<int>& queue);
  std::vector<std::deque<int>> queues_;
  std::deque<int> given_back_;
  int stolen_ = 0;
};

}  // namespace evalrun::runners
