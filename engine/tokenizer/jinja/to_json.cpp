#include "engine/tokenizer/jinja/to_json.h"

#include <algorithm>
#include <cmath>

#include "engine/base/utf8.h"
#include "engine/tokenizer/jinja/operators.h"

namespace evalrun::engine::jinja {
namespace {

class Writer {
 public:
  Writer(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& value, size_t level) {
    budget_.step();
    switch (value.kind()) {
      case Kind::kText:
        write_text(value.text());
        break;
      case Kind::kList:
      case Kind::kTuple: {
        const Values& items = value.items();
        open('[');
        for (size_t i = 0; i < items.size(); ++i) {
          begin_item(i, level + 1);
          write(items[i], level + 1);
        }
        close(']', items.empty(), level);
        break;
      }
      case Kind::kDict:
        write_dict(value, level);
        break;
      default:
        put(scalar(value));
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void put(std::string_view text) {
    budget_.bytes(text.size());
    out_ += text;
  }
  void open(char bracket) { put({&bracket, 1}); }
  void close(char bracket, bool empty, size_t level) {
    if (!empty) new_line(level);
    put({&bracket, 1});
  }
  void begin_item(size_t i, size_t level) {
    if (i > 0) put(style_.item_separator);
    new_line(level);
  }
  void new_line(size_t level) {
    if (!style_.indent) return;
    put("\n");
    for (size_t i = 0; i < level; ++i) put(*style_.indent);
  }
  static std::string scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return value.whole() != 0 ? "true" : "false";
      case Kind::kInt:
        return fmt::format("{}", value.whole());
      case Kind::kFloat:
        if (std::isnan(value.real())) return "NaN";
        if (std::isinf(value.real())) return value.real() < 0 ? "-Infinity" : "Infinity";
        return number_text(value.real());
      default:
        throw Fault(fmt::format("tojson: a value of type {} is not JSON", type_name(value)));
    }
  }
  void write_dict(const Value& value, size_t level) {
    std::vector<std::pair<std::string, const Value*>> entries;
    for (const auto& [key, entry] : value.entries())
      entries.emplace_back(key.is_text() ? key.text() : scalar(key), &entry);
    if (style_.sort_keys) {
      for (const auto& entry : value.entries())
        if (entry.first.kind() != value.entries().front().first.kind())
          throw Fault("tojson: keys of different types cannot be sorted");
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    open('{');
    for (size_t i = 0; i < entries.size(); ++i) {
      begin_item(i, level + 1);
      write_text(entries[i].first);
      put(style_.key_separator);
      write(*entries[i].second, level + 1);
    }
    close('}', entries.empty(), level);
  }
  void write_text(std::string_view text) {
    budget_.repeated(text.size(), 4);  // escapes are longer
    std::string out = "\"";
    while (!text.empty()) {
      const base::Utf8Step step = base::utf8_step(text);
      write_letter(out, text.substr(0, step.length), step.valid ? step.code : char32_t{0xFFFD});
      text.remove_prefix(step.length);
    }
    put(out += '"');
  }
  void write_letter(std::string& out, std::string_view bytes, char32_t code) const {
    static constexpr std::string_view kShort = "\"\\\n\r\t\b\f", kNames = "\"\\nrtbf";
    if (const size_t at = code < 0x80 ? kShort.find(static_cast<char>(code)) : kShort.npos;
        at != kShort.npos) {
      (out += '\\') += kNames[at];
    } else if (code < 0x20 || (style_.ensure_ascii && code > 0x7F && code < 0x10000)) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
    } else if (style_.ensure_ascii && code >= 0x10000) {
      const uint32_t rest = static_cast<uint32_t>(code) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      out += bytes;
    }
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  Writer writer(style, budget);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace evalrun::engine::jinja
