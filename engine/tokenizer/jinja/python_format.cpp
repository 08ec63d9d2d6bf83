#include "engine/tokenizer/jinja/python_format.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/tokenizer/jinja/operators.h"
#include "engine/tokenizer/jinja/values/python_text.h"

namespace evalrun::engine::jinja {
namespace {

constexpr size_t kMaxWidth = 10'000;  // of one field; a prompt has no wider column
constexpr size_t kMaxPrecision = 100;

// Digits at `at`, which is moved past them; nothing when there are none.
std::optional<size_t> read_number(std::string_view text, size_t& at, size_t most,
                                  const char* what) {
  if (at == text.size() || !python::is_ascii_digit(text[at])) return std::nullopt;
  size_t number = 0;
  for (; at < text.size() && python::is_ascii_digit(text[at]); ++at) {
    number = number * 10 + static_cast<size_t>(text[at] - '0');
    if (number > most) throw Fault(fmt::format("{} of a format is above {}", what, most));
  }
  return number;
}

// [[fill]align][sign][#][0][width][.precision][type], the part of Python's language that numbers
// and texts of prompts need.
struct Spec {
  std::string fill = " ";
  char align = 0, sign = 0, type = 0;
  bool alternate = false;
  size_t width = 0;
  std::optional<size_t> precision;
};

Spec read_spec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const std::vector<std::string_view> letters = python::characters(text.substr(0, 8));
  const auto aligns = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (letters.size() >= 2 && letters[1].size() == 1 && aligns(letters[1][0])) {
    spec.fill = letters[0];
    spec.align = letters[1][0];
    at = letters[0].size() + 1;
  } else if (!text.empty() && aligns(text[0])) {
    spec.align = text[at++];
  }
  const auto take = [&](std::string_view any) {
    return at < text.size() && any.find(text[at]) != std::string_view::npos ? text[at++] : '\0';
  };
  spec.sign = take("+- ");
  spec.alternate = take("#") != '\0';
  if (take("0") != '\0' && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = read_number(text, at, kMaxWidth, "the width").value_or(0);
  if (take(".") != '\0') {
    spec.precision = read_number(text, at, kMaxPrecision, "the precision");
    if (!spec.precision) throw Fault("a format has no precision after its dot");
  }
  spec.type = take("sdioxXbeEfFgG%");
  if (at != text.size()) throw Fault(fmt::format("the format '{}' is not supported", text));
  return spec;
}

std::string padded(const std::string& body, const Spec& spec, char usual_align, Budget& budget) {
  const size_t n = static_cast<size_t>(python::length(body));
  if (n >= spec.width) return body;
  const size_t missing = spec.width - n;
  budget.repeated(spec.fill.size(), missing);
  const char align = spec.align == 0 ? usual_align : spec.align;
  const bool has_sign = !body.empty() && (body[0] == '-' || body[0] == '+' || body[0] == ' ');
  const size_t sign = align == '=' && has_sign ? 1 : 0;
  const size_t left = align == '<' ? 0 : (align == '^' ? missing / 2 : missing);
  std::string out = body.substr(0, sign);
  for (size_t i = 0; i < left; ++i) out += spec.fill;
  out += body.substr(sign);
  for (size_t i = left; i < missing; ++i) out += spec.fill;
  return out;
}

std::string signed_text(std::string body, bool negative, char sign) {
  if (negative) return "-" + body;
  return sign == '+' || sign == ' ' ? sign + body : body;
}

std::string format_whole(int64_t number, const Spec& spec) {
  // The magnitude of the smallest number does not fit its own type.
  const uint64_t size =
      number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  const auto in_base = [&](const char* mark, std::string digits) {
    return signed_text((spec.alternate ? mark : "") + digits, number < 0, spec.sign);
  };
  switch (spec.type) {
    case 'x':
      return in_base("0x", fmt::format("{:x}", size));
    case 'X':
      return in_base("0X", fmt::format("{:X}", size));
    case 'b':
      return in_base("0b", fmt::format("{:b}", size));
    case 'o':
      return in_base("0o", fmt::format("{:o}", size));
    default:
      return signed_text(fmt::format("{}", size), number < 0, spec.sign);
  }
}

std::string format_real(double number, const Spec& spec) {
  const bool negative = std::signbit(number);
  const double size = negative ? -number : number;
  const int precision = static_cast<int>(spec.precision.value_or(6));
  std::string body;
  switch (spec.type) {
    case 'e':
      body = fmt::format("{:.{}e}", size, precision);
      break;
    case 'E':
      body = fmt::format("{:.{}E}", size, precision);
      break;
    case 'f':
    case 'F':
      body = fmt::format("{:.{}f}", size, precision);
      break;
    case '%':
      body = fmt::format("{:.{}f}%", size * 100, precision);
      break;
    case 'g':
      body = fmt::format("{:.{}g}", size, precision);
      break;
    case 'G':
      body = fmt::format("{:.{}G}", size, precision);
      break;
    default:
      body = spec.precision ? fmt::format("{:.{}g}", size, precision) : number_text(size);
  }
  return signed_text(std::move(body), negative, spec.sign);
}

std::string first_letters(std::string_view text, size_t n) {
  std::string out;
  for (const std::string_view c : python::characters(text)) {
    if (n-- == 0) break;
    out += c;
  }
  return out;
}

std::string format_value(const Value& value, std::string_view text, Budget& budget) {
  if (text.empty()) return str(value, budget);
  const Spec spec = read_spec(text);
  const bool real_type =
      spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is(Kind::kFloat) || (value.is_whole() && real_type)) {
    if (!real_type && spec.type != 0)
      throw Fault(fmt::format("the format '{}' does not suit a float", text));
    return padded(format_real(value.real(), spec), spec, '>', budget);
  }
  if (value.is_whole() && (value.is(Kind::kInt) || spec.type != 0)) {
    if (spec.type == 's' || spec.precision)
      throw Fault(fmt::format("the format '{}' does not suit a whole number", text));
    return padded(format_whole(value.whole(), spec), spec, '>', budget);
  }
  if (!value.is_text() || (spec.type != 0 && spec.type != 's') || spec.align == '=')
    throw Fault(fmt::format("the format '{}' does not suit a {}", text, type_name(value)));
  budget.read(value.text().size());
  return padded(spec.precision ? first_letters(value.text(), *spec.precision) : value.text(), spec,
                '<', budget);
}

// The values of "%" in the order of use.
class PercentValues {
 public:
  explicit PercentValues(const Value& values) : values_(values) {}
  const Value& next() {
    const size_t i = used_++;
    if (values_.is(Kind::kTuple)) {
      if (i < values_.items().size()) return values_.items()[i];
    } else if (i == 0) {
      return values_;
    }
    throw Fault("not enough values for a format with %");
  }
  const Value& named(std::string_view name, Budget& budget) {
    by_name_ = true;
    if (values_.is_dict()) {
      const Value* found = find_entry(values_, budget.text(std::string(name)), budget);
      if (found != nullptr) return *found;
    }
    throw Fault(fmt::format("no value '{}' for a format with %", name));
  }
  void finish() const {
    const bool all = values_.is(Kind::kTuple)
                         ? used_ == values_.items().size()
                         : used_ > 0 || values_.is_dict() || values_.is_sequence();
    if (!all && !by_name_) throw Fault("not all values of a format with % are used");
  }

 private:
  const Value& values_;
  size_t used_ = 0;
  bool by_name_ = false;
};

std::string percent_field(const Value& value, Spec spec, char type, Budget& budget) {
  if (type == 's' || type == 'r') {
    std::string text = type == 'r' ? repr(value, budget) : str(value, budget);
    if (spec.precision) text = first_letters(text, *spec.precision);
    if (spec.align == '=') spec.align = '>';
    if (spec.fill == "0") spec.fill = " ";
    return padded(text, spec, '>', budget);
  }
  if (!value.is_numeric())
    throw Fault(fmt::format("%{} needs a number, not {}", type, type_name(value)));
  if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
    spec.type = type;
    return padded(format_real(value.real(), spec), spec, '>', budget);
  }
  if (value.is(Kind::kFloat) && !(std::abs(value.real()) < 9e18))
    throw Fault("a number does not fit 64 bits");
  spec.type = type == 'i' || type == 'u' ? 'd' : type;
  const int64_t whole = value.is_whole() ? value.whole() : static_cast<int64_t>(value.real());
  return padded(format_whole(whole, spec), spec, '>', budget);
}

}  // namespace

std::string percent_format(std::string_view pattern, const Value& values, Budget& budget) {
  budget.read(pattern.size());
  PercentValues given(values);
  std::string out;
  for (size_t at = 0; at < pattern.size();) {
    if (pattern[at] != '%') {
      out += pattern[at++];
      continue;
    }
    if (++at < pattern.size() && pattern[at] == '%') {
      out += pattern[at++];
      continue;
    }
    std::optional<std::string_view> name;
    if (at < pattern.size() && pattern[at] == '(') {
      const size_t close = pattern.find(')', at);
      if (close == std::string_view::npos) throw Fault("a format with % is cut short");
      name = pattern.substr(at + 1, close - at - 1);
      at = close + 1;
    }
    Spec spec;
    for (; at < pattern.size() &&
           std::string_view("-+ 0#").find(pattern[at]) != std::string_view::npos;
         ++at) {
      if (pattern[at] == '-') spec.align = '<';
      if (pattern[at] == '+' || (pattern[at] == ' ' && spec.sign == 0)) spec.sign = pattern[at];
      if (pattern[at] == '#') spec.alternate = true;
      if (pattern[at] == '0' && spec.align == 0) {
        spec.fill = "0";
        spec.align = '=';
      }
    }
    if (spec.align == '<') spec.fill = " ";
    spec.width = read_number(pattern, at, kMaxWidth, "the width").value_or(0);
    if (at < pattern.size() && pattern[at] == '.') {
      ++at;
      spec.precision = read_number(pattern, at, kMaxPrecision, "the precision").value_or(0);
    }
    if (at == pattern.size()) throw Fault("a format with % is cut short");
    const char type = pattern[at++];
    if (std::string_view("srdiuxXoeEfFgG").find(type) == std::string_view::npos)
      throw Fault(fmt::format("%{} in a format is not supported",
                              static_cast<unsigned char>(type) < 0x80 && type >= ' '
                                  ? std::string(1, type)
                                  : std::string("?")));
    const Value& value = name ? given.named(*name, budget) : given.next();
    const std::string field = percent_field(value, spec, type, budget);
    budget.bytes(field.size());
    out += field;
  }
  given.finish();
  return out;
}

std::string brace_format(std::string_view pattern, const Arguments& arguments, Budget& budget) {
  budget.read(pattern.size());
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < pattern.size();) {
    const char c = pattern[at++];
    if (c != '{' && c != '}') {
      out += c;
      continue;
    }
    if (at < pattern.size() && pattern[at] == c) {
      out += pattern[at++];
      continue;
    }
    const size_t close = pattern.find('}', at);
    if (c == '}' || close == std::string_view::npos)
      throw Fault("a format has a single brace; write it twice");
    std::string_view field = pattern.substr(at, close - at), spec;
    at = close + 1;
    if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = 0;
    if (const size_t mark = field.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != field.size()) throw Fault("a format has a bad conversion after '!'");
      conversion = field.back();
      field = field.substr(0, mark);
    }
    const Value* value = nullptr;
    size_t digits = 0;
    if (field.empty()) {
      if (next < arguments.positional.size()) value = &arguments.positional[next++];
    } else if (const auto index = read_number(field, digits, kMaxWidth, "a field's number");
               index && digits == field.size()) {
      if (*index < arguments.positional.size()) value = &arguments.positional[*index];
    } else {
      for (const auto& [name, given] : arguments.named)
        if (name == field) value = &given;
    }
    if (value == nullptr)
      throw Fault(fmt::format("a format finds no argument for '{{{}}}'", field));
    std::string text;
    if (conversion == 'r')
      text = format_value(budget.text(repr(*value, budget)), spec, budget);
    else if (conversion == 's')
      text = format_value(budget.text(str(*value, budget)), spec, budget);
    else if (conversion == 0)
      text = format_value(*value, spec, budget);
    else
      throw Fault("a format has a bad conversion after '!'");
    budget.bytes(text.size());
    out += text;
  }
  return out;
}

}  // namespace evalrun::engine::jinja
