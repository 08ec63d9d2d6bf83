// Options of something that a text names, "pld:k=4,match=recent": which values each one takes, and
// which member of a plain struct it sets. One line says all of it:
//
//   struct Shape { int branches = 6; bool staircase = true; };
//   const auto options =
//       Options<Shape>{}
//           .add("branches", &Shape::branches, {0, 64}, "draft branches (N)")
//           .choice("geometry", &Shape::staircase, {{"code", true}, {"paper", false}}, "...");
//
// The default is the struct's own initialiser. Values stay text, in their one spelling, until of()
// makes the struct: that text is what is stored and compared.
#pragma once
#include <concepts>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/parse_number.h"

namespace evalrun::base {

struct Bounds {  // both included; nothing = no limit
  std::optional<double> least = {}, most = {};
  bool hold(double value) const { return !(least && value < *least) && !(most && value > *most); }
};

struct OptionInfo {
  std::string name;
  std::string default_value;  // in its one spelling
  std::string description;
  enum class Type { kInt, kNumber, kText, kBool } type = Type::kText;
  Bounds bounds = {};                     // of numbers
  std::vector<std::string> choices = {};  // of texts; empty = free
};

// Whose options they are and what one is called in messages: "pld: parameter 'k' must be ...".
struct OptionOwner {
  std::string name;
  std::string noun = "parameter";
};

// "key=value,key=value" as a map. Throws usage_error for a piece without a key, whose hint is
// `form`, and for a key that occurs twice.
std::map<std::string, std::string> split_options(std::string_view text, const OptionOwner& owner,
                                                 const std::string& form);

// Every option with a value, checked and in its one spelling: equal settings give equal keys.
class OptionValues {
 public:
  OptionValues() = default;
  // Options that are not given have their defaults. Throws usage_error.
  template <std::derived_from<OptionInfo> Info>
  OptionValues(const std::vector<Info>& infos, const std::map<std::string, std::string>& given,
               const OptionOwner& owner)
      : OptionValues(pointers(infos), given, owner) {}

  const std::string& text(const std::string& name) const;
  std::string canonical() const;  // "k=4,ngram=3", sorted, all of them
  // Those that are not the default, as declared: "ngram=3,k=4".
  template <std::derived_from<OptionInfo> Info>
  std::string changed(const std::vector<Info>& infos) const {
    std::string out;
    for (const Info& info : infos)
      if (const std::string& value = text(info.name); value != info.default_value)
        out += fmt::format("{}{}={}", out.empty() ? "" : ",", info.name, value);
    return out;
  }

 private:
  OptionValues(const std::vector<const OptionInfo*>& infos,
               const std::map<std::string, std::string>& given, const OptionOwner& owner);
  template <typename Info>
  static std::vector<const OptionInfo*> pointers(const std::vector<Info>& infos) {
    std::vector<const OptionInfo*> all;
    for (const Info& info : infos) all.push_back(&info);
    return all;
  }

  std::map<std::string, std::string> values_;
};

// A choice's name and what it means.
template <typename T>
struct Named {
  std::string name;
  T value;
};

// `Info`: OptionInfo, or what says more than that about an option.
template <typename Shape, std::derived_from<OptionInfo> Info = OptionInfo>
class Options {
 public:
  template <typename T>
  static constexpr bool kIsNumber = std::same_as<T, int> || std::same_as<T, double>;

  // A number within bounds.
  template <typename T>
  requires kIsNumber<T> Options& add(const std::string& name, T Shape::*member, Bounds bounds,
                                     const std::string& description) {
    constexpr bool kWhole = std::same_as<T, int>;
    return declare({name,
                    {},
                    description,
                    kWhole ? OptionInfo::Type::kInt : OptionInfo::Type::kNumber,
                    bounds},
                   member);
  }
  // true or false, or any text.
  template <typename T>
  requires(std::same_as<T, bool> ||
           std::same_as<T, std::string>) Options& add(const std::string& name, T Shape::*member,
                                                      const std::string& description) {
    constexpr bool kSwitch = std::same_as<T, bool>;
    return declare(
        {name, {}, description, kSwitch ? OptionInfo::Type::kBool : OptionInfo::Type::kText},
        member);
  }
  // One of a few names; `choices` in the order in which they are listed.
  template <typename T>
  Options& choice(const std::string& name, T Shape::*member,
                  const std::type_identity_t<std::vector<Named<T>>>& choices,
                  const std::string& description) {
    OptionInfo info{name, {}, description};
    for (const Named<T>& one : choices) info.choices.push_back(one.name);
    return declare(
        Info{info},
        [member, choices](Shape& shape, const std::string& text) {
          for (const Named<T>& one : choices)
            if (one.name == text) shape.*member = one.value;
        },
        [member, choices](const Shape& shape) -> std::string {
          for (const Named<T>& one : choices)
            if (one.value == shape.*member) return one.name;
          EVALRUN_CHECK(false, "the default is none of the choices");
        });
  }
  // The options of a part of the struct. Their defaults are what this struct initialises it with.
  template <typename Part>
  Options& add(const Options<Part, Info>& part, Part Shape::*member) {
    for (size_t i = 0; i < part.infos_.size(); ++i)
      declare(
          part.infos_[i],
          [member, read = part.members_[i].read](Shape& shape, const std::string& text) {
            read(shape.*member, text);
          },
          [member, spell = part.members_[i].spell](const Shape& shape) {
            return spell(shape.*member);
          });
    return *this;
  }
  Options& add(const Options& more) {
    for (size_t i = 0; i < more.infos_.size(); ++i)
      declare(more.infos_[i], more.members_[i].read, more.members_[i].spell);
    return *this;
  }
  // What `Info` says besides, about the option that was added last.
  template <typename T>
  Options& with(T Info::*fact, const std::type_identity_t<T>& value) {
    infos_.back().*fact = value;
    return *this;
  }

  const std::vector<Info>& infos() const { return infos_; }
  Shape of(const OptionValues& values) const {
    Shape shape;
    for (size_t i = 0; i < infos_.size(); ++i) members_[i].read(shape, values.text(infos_[i].name));
    return shape;
  }
  // A function of the struct (and more) as a function of the values (and more).
  template <typename Function>
  auto bound(Function function) const {
    return [options = *this, function](const OptionValues& values, const auto&... more) {
      return function(options.of(values), more...);
    };
  }

 private:
  template <typename, std::derived_from<OptionInfo>>
  friend class Options;
  struct Member {
    std::function<void(Shape&, const std::string&)> read;  // a text in its one spelling
    std::function<std::string(const Shape&)> spell;
  };

  template <typename T>
  Options& declare(const OptionInfo& info, T Shape::*member) {
    return declare(
        Info{info},
        [member](Shape& shape, const std::string& text) {
          if constexpr (kIsNumber<T>)
            shape.*member = parse_number<T>(text).value();
          else if constexpr (std::same_as<T, bool>)
            shape.*member = text == "true";
          else
            shape.*member = text;
        },
        [member](const Shape& shape) { return fmt::format("{}", shape.*member); });
  }
  Options& declare(Info info, std::function<void(Shape&, const std::string&)> read,
                   std::function<std::string(const Shape&)> spell) {
    for (const Info& other : infos_)
      EVALRUN_CHECK(other.name != info.name, "option '{}' is declared twice", info.name);
    Shape defaults;
    info.default_value = spell(defaults);
    EVALRUN_CHECK(!info.default_value.empty(), "option '{}' has no default", info.name);
    infos_.push_back(std::move(info));
    members_.push_back({std::move(read), std::move(spell)});
    return *this;
  }

  std::vector<Info> infos_;
  std::vector<Member> members_;  // of infos_
};

}  // namespace evalrun::base
