#include "engine/net/event_stream.h"

#include <utility>

namespace evalrun::net {

bool EventStream::feed(std::string_view bytes, const std::function<bool(const Event&)>& on_event) {
  if (ended_ || too_long_) return false;
  while (!bytes.empty()) {
    // The second half of "\r\n": its line has ended already.
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (rest_.size() + part.size() + event_.data.size() > longest_) {
      too_long_ = true;
      rest_.clear();
      event_ = {};
      return false;
    }
    if (end == std::string_view::npos) {
      rest_ += part;
      return true;
    }
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (rest_.empty()) {
      ended_ = !line(part, on_event);
    } else {
      rest_ += part;
      const std::string whole = std::exchange(rest_, {});
      ended_ = !line(whole, on_event);
    }
    if (ended_) return false;
  }
  return true;
}

// Fields other than data and event (id, retry) are for a browser that connects again.
bool EventStream::line(std::string_view text, const std::function<bool(const Event&)>& on_event) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (!std::exchange(begun_, true) && text.starts_with(kByteOrderMark))
    text.remove_prefix(kByteOrderMark.size());
  if (text.empty()) {
    // An event without a line of data is none; one with an empty line of data is.
    const bool go_on = !std::exchange(has_data_, false) || on_event(event_);
    event_.name.clear();  // what they hold is used again
    event_.data.clear();
    return go_on;
  }
  const size_t colon = text.find(':');  // at 0: a comment, a field without a name
  const std::string_view field = text.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    if (std::exchange(has_data_, true)) event_.data += '\n';
    event_.data += value;
  } else if (field == "event") {
    event_.name = value;
  }
  return true;
}

bool EventStream::has_rest() const { return !rest_.empty() || has_data_ || !event_.name.empty(); }

}  // namespace evalrun::net
