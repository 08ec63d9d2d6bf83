// Values of a method's parameters for one machine and one kind of text: a search in place of a
// grid. One parameter at a time, all of its values race with the others held fixed: they are
// measured on a few prompts, the slower half leaves, the others meet as many new prompts as there
// were so far, until the prompts are used up; the last two meet all of them. Rounds over the
// parameters go on until one changes nothing.
//
// What wins was the luckiest of many on these prompts. Its speedup there is too high, and only
// prompts that took no part can tell it (evalrun tune parameters).
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "methods/registration.h"

namespace evalrun::runners {

class SearchSpace {
 public:
  // One value an axis, by its place.
  using Point = std::vector<size_t>;
  struct Axis {
    std::string name;
    std::vector<std::string> values;  // in their one spelling, each once
  };

  // `method` with the parameters that stay; `texts` such as "length=2..8", "branches=4..20..4",
  // "match=first|recent". usage_error that names --space.
  SearchSpace(const std::string& method, const std::vector<std::string>& texts);

  const std::vector<Axis>& axes() const { return axes_; }
  size_t size() const;  // points, impossible ones included
  // The method's own values where they are in the space, the middle ones elsewhere.
  Point start() const;
  // The method at a point, parameters at their defaults left out; nothing where its values do not
  // go together.
  std::optional<std::string> spec(const Point& point) const;
  std::string method() const { return spec_of({}); }  // as given
  // The values of all axes but one: "length=6,gram=4"; the method where there is no other.
  std::string others(const Point& point, size_t axis) const;

 private:
  std::string spec_of(const Point& point) const;  // empty = the method's own values
  methods::MethodSpec method_;
  std::vector<Axis> axes_;
};

// Decoding of some prompts, and plain decoding of the same beside it.
struct RaceTime {
  double tokens = 0, ns = 0, plain_tokens = 0, plain_ns = 0;
  void add(const RaceTime& other);
  double speedup() const;  // 0 where nothing was decoded
};

struct ParameterSearch {
  int first_prompts = 4;  // of a race
  int prompts = 16;       // all there are
  int rounds = 4;         // over the parameters, at most
  // Each method on prompts [begin, end) of the search's.
  std::function<std::vector<RaceTime>(const std::vector<std::string>& methods, int begin, int end)>
      measure;
  std::function<bool()> stop;  // true = end with the best so far; asked between measurements

  struct Step {
    std::string method;  // that leads
    size_t axis = 0;     // that was varied
    int raced = 0;       // methods at the start of the race
    int prompts = 0;     // that the leader has met in it
    double speedup = 0;  // of the leader, on these
  };
  std::function<void(const Step&)> progress;  // after each measurement; may be empty

  struct Result {
    SearchSpace::Point point;
    std::string method;
    double speedup = 0;    // in its last race
    int prompts = 0;       // of it
    int tried = 0;         // methods, each counted once
    int impossible = 0;    // points met whose values do not go together
    bool finished = true;  // a round changed nothing, or there was one parameter
  };
  // usage_error when no point of an axis is possible.
  Result run(const SearchSpace& space) const;
};

}  // namespace evalrun::runners
