// Server-sent events (WHATWG HTML, section 9.2.6), fed with pieces of a body that end anywhere: in
// the middle of a line, of a UTF-8 character, of a line end.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace evalrun::net {

struct Event {
  std::string name;  // "" = message
  std::string data;  // lines of data joined by "\n"
};

class EventStream {
 public:
  explicit EventStream(size_t longest_event = 8 << 20) : longest_(longest_event) {}
  // Calls on_event for each event that is complete. False once on_event returned false, or an event
  // is longer than the limit (`too_long()`): nothing is read after that.
  bool feed(std::string_view bytes, const std::function<bool(const Event&)>& on_event);
  // What is left when the body has ended: an event without its blank line is not one.
  bool has_rest() const;
  bool too_long() const { return too_long_; }

 private:
  bool line(std::string_view text, const std::function<bool(const Event&)>& on_event);
  size_t longest_;
  std::string rest_;  // of a line
  Event event_;
  bool has_data_ = false, after_cr_ = false, begun_ = false;
  bool too_long_ = false, ended_ = false;
};

}  // namespace evalrun::net
