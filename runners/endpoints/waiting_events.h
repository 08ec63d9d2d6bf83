// Events of a stream that have arrived and are not read yet. One that comes alone is read with
// caches that the server has used meanwhile, and the time of its arrival is known before it is
// read. So a few wait for each other.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::runners {

class WaitingEvents {
 public:
  // `at_once`: so many tokens were asked for; an event beyond as many may be one too many.
  explicit WaitingEvents(int at_once) : at_once_(at_once) {}

  // True: those that wait are to be read now. Enough of them wait, or this one does not look like
  // an event in the middle of an answer: an end, an error, no JSON object.
  bool add(std::string_view data, int64_t ns) {
    constexpr size_t kMostWaiting = 16;
    bytes_ += data;
    waiting_.push_back({ns, bytes_.size()});
    ++seen_;
    return waiting_.size() >= kMostWaiting || seen_ > at_once_ || !data.starts_with('{') ||
           !data.ends_with('}') || data.find("\"error") != std::string_view::npos;
  }

  // In the order of arrival, until `read` returns false, which this then does, too. None waits
  // after it.
  template <class Read>
  bool read_all(const Read& read) {
    size_t begin = 0;
    bool go_on = true;
    for (const One& one : waiting_) {
      if (go_on) go_on = read(std::string_view(bytes_).substr(begin, one.end - begin), one.ns);
      begin = one.end;
    }
    bytes_.clear();
    waiting_.clear();
    return go_on;
  }

 private:
  struct One {
    int64_t ns;  // of its arrival
    size_t end;  // in the bytes
  };
  int64_t at_once_, seen_ = 0;
  std::string bytes_;
  std::vector<One> waiting_;
};

}  // namespace evalrun::runners
