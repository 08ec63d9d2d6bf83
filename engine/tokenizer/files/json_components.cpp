#include "engine/tokenizer/files/json_components.h"

#include <functional>
#include <stdexcept>

#include "engine/base/json_fields.h"
#include "engine/base/utf8.h"

namespace evalrun::engine {
namespace {

using base::ObjectReader;
using nlohmann::json;

[[noreturn]] void unknown(const std::string& file, const std::string& place,
                          const std::string& what, const std::string& value,
                          const std::string& known) {
  throw base::data_error(file, place, fmt::format("unknown {} '{}'", what, value),
                         "known: " + known);
}

// Sequences nest; `visit` sees the members in order, each with its place in the file.
using Visitor =
    std::function<void(const std::string& type, const json& component, const std::string& place)>;
void for_each_component(const json& component, const std::string& file, const std::string& place,
                        const std::string& members_key, const Visitor& visit, int depth = 0) {
  if (component.is_null()) return;
  if (depth > 8) throw base::data_error(file, place, "sequences are nested too deeply");
  ObjectReader reader(component, file, place);
  const auto type = reader.required<std::string>("type");
  if (type != "Sequence") return visit(type, component, place);
  const json* members = reader.raw(members_key);
  if (members == nullptr || !members->is_array()) reader.fail(members_key, "must be an array");
  for (size_t i = 0; i < members->size(); ++i)
    for_each_component((*members)[i], file, fmt::format("{}.{}[{}]", place, members_key, i),
                       members_key, visit, depth + 1);
}

struct Pattern {
  std::optional<Regex> regex;
  std::string literal;
};

// {"Regex": "..."} or {"String": "..."}
Pattern read_pattern(ObjectReader& parent, const std::string& file) {
  const json* value = parent.raw("pattern");
  if (value == nullptr) parent.fail("pattern", "is missing");
  ObjectReader reader(*value, file, parent.place("pattern"));
  Pattern pattern;
  if (reader.has("String")) {
    pattern.literal = reader.required<std::string>("String");
  } else if (reader.has("Regex")) {
    const auto source = reader.required<std::string>("Regex");
    try {
      pattern.regex.emplace(source);
    } catch (const std::invalid_argument& e) {
      reader.fail("Regex", e.what());
    }
  } else {
    parent.fail("pattern", "must hold 'String' or 'Regex'");
  }
  reader.finish();
  return pattern;
}

SplitBehavior read_behavior(ObjectReader& reader, const std::string& file) {
  const auto name = reader.required<std::string>("behavior");
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  unknown(file, reader.place("behavior"), "behavior", name,
          "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

PreTokenizer::Metaspace read_metaspace(ObjectReader& reader, const std::string& file) {
  PreTokenizer::Metaspace step;
  step.mark = reader.required<std::string>("replacement");
  if (step.mark.empty() || base::utf8_step(step.mark).length != step.mark.size())
    reader.fail("replacement", "must be one character");
  step.split = reader.optional<bool>("split", true);
  // Before `prepend_scheme` there was only this switch.
  const bool prefix = reader.optional<bool>("add_prefix_space", true);
  const auto scheme = reader.optional<std::string>("prepend_scheme", prefix ? "always" : "never");
  if (scheme == "always")
    step.prepend = PreTokenizer::Prepend::kAlways;
  else if (scheme == "first")
    step.prepend = PreTokenizer::Prepend::kFirst;
  else if (scheme == "never")
    step.prepend = PreTokenizer::Prepend::kNever;
  else
    unknown(file, reader.place("prepend_scheme"), "scheme", scheme, "always, first, never");
  return step;
}

}  // namespace

Normalizer read_json_normalizer(const json& component, const std::string& file) {
  Normalizer normalizer;
  for_each_component(
      component, file, "normalizer", "normalizers",
      [&](const std::string& type, const json& value, const std::string& place) {
        ObjectReader reader(value, file, place);
        if (type == "NFC") {
          normalizer.add(Normalizer::Nfc{});
        } else if (type == "Prepend") {
          normalizer.add(Normalizer::Prepend{reader.required<std::string>("prepend")});
        } else if (type == "Replace") {
          Pattern pattern = read_pattern(reader, file);
          normalizer.add(Normalizer::Replace{std::move(pattern.regex), std::move(pattern.literal),
                                             reader.required<std::string>("content")});
        } else {
          unknown(file, place + ".type", "normalizer", type, "Sequence, NFC, Prepend, Replace");
        }
      });
  return normalizer;
}

PreTokenizer read_json_pre_tokenizer(const json& component, const std::string& file) {
  PreTokenizer pre;
  for_each_component(
      component, file, "pre_tokenizer", "pretokenizers",
      [&](const std::string& type, const json& value, const std::string& place) {
        ObjectReader reader(value, file, place);
        if (type == "Digits") {
          const bool individual = reader.optional<bool>("individual_digits", false);
          pre.add(PreTokenizer::Split{
              Regex(R"(\p{N})"), "",
              individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false});
        } else if (type == "ByteLevel") {
          pre.add(PreTokenizer::ByteLevel{reader.optional<bool>("add_prefix_space", true),
                                          reader.optional<bool>("use_regex", true)});
        } else if (type == "Split") {
          Pattern pattern = read_pattern(reader, file);
          pre.add(PreTokenizer::Split{std::move(pattern.regex), std::move(pattern.literal),
                                      read_behavior(reader, file),
                                      reader.optional<bool>("invert", false)});
        } else if (type == "Metaspace") {
          pre.add(read_metaspace(reader, file));
        } else {
          unknown(file, place + ".type", "pre-tokenizer", type,
                  "Sequence, Digits, ByteLevel, Split, Metaspace");
        }
      });
  return pre;
}

DecodePlan read_json_decoder(const json& component, const std::string& file) {
  if (component.is_null())
    throw base::data_error(file, "decoder", "is missing",
                           "save the tokenizer with its decoder (ByteLevel, Metaspace, ...)");
  // The shapes in use are ByteLevel alone, Metaspace alone, and Replace, ByteFallback, Fuse, Strip
  // in this order, each at most once except Replace. `last` keeps them in order.
  DecodePlan plan;
  int last = 0;
  const auto in_order = [&](int place_in_order, const std::string& place, bool repeatable) {
    if (place_in_order < last || (place_in_order == last && !repeatable))
      throw base::data_error(file, place, "stands where we do not expect it",
                             "known: ByteLevel; Metaspace; Replace, ByteFallback, Fuse, Strip in "
                             "this order");
    last = place_in_order;
  };
  bool fused = false;
  for_each_component(
      component, file, "decoder", "decoders",
      [&](const std::string& type, const json& value, const std::string& place) {
        ObjectReader reader(value, file, place);
        if (type == "Replace") {
          in_order(1, place, true);
          Pattern pattern = read_pattern(reader, file);
          if (pattern.regex || pattern.literal.empty())
            reader.fail("pattern", "must be a non-empty 'String' in a decoder");
          plan.replace.emplace_back(pattern.literal, reader.required<std::string>("content"));
        } else if (type == "ByteFallback") {
          in_order(2, place, false);
          plan.byte_fallback = plan.rules.whole_byte_runs = true;
        } else if (type == "Fuse") {
          in_order(3, place, false);
          fused = true;
        } else if (type == "Strip") {
          in_order(4, place, false);
          // Unfused, every token would be stripped.
          if (!fused) throw base::data_error(file, place, "must come after Fuse");
          if (reader.required<std::string>("content") != " ") reader.fail("content", "must be ' '");
          if (reader.optional<int>("stop", 0) != 0) reader.fail("stop", "must be 0");
          plan.rules.strip_leading_spaces = reader.optional<int>("start", 0);
          if (plan.rules.strip_leading_spaces < 0) reader.fail("start", "must not be negative");
        } else if (type == "Metaspace") {
          in_order(5, place, false);
          if (last != 5 || fused || plan.byte_fallback || !plan.replace.empty())
            throw base::data_error(file, place, "Metaspace must be the only decoder");
          const PreTokenizer::Metaspace metaspace = read_metaspace(reader, file);
          plan.replace.emplace_back(metaspace.mark, " ");
          plan.rules.strip_first_token = metaspace.prepend != PreTokenizer::Prepend::kNever;
        } else if (type == "ByteLevel") {
          if (last != 0) throw base::data_error(file, place, "ByteLevel must be the only decoder");
          in_order(6, place, false);
          plan.byte_alphabet = true;
        } else {
          unknown(file, place + ".type", "decoder", type,
                  "Sequence, ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip");
        }
      });
  return plan;
}

namespace {

// [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, ...]
JsonTemplate read_template(ObjectReader& reader, const std::string& file) {
  JsonTemplate out;
  const json* single = reader.raw("single");
  const json* special_tokens = reader.raw("special_tokens");
  if (single == nullptr || !single->is_array()) reader.fail("single", "must be an array");
  bool text_seen = false;
  for (size_t i = 0; i < single->size(); ++i) {
    ObjectReader piece((*single)[i], file, fmt::format("{}[{}]", reader.place("single"), i));
    if (piece.has("Sequence")) {
      if (text_seen) piece.fail("Sequence", "stands twice");
      text_seen = true;
      continue;
    }
    const json* special = piece.raw("SpecialToken");
    if (special == nullptr) piece.fail("SpecialToken", "is missing");
    const auto name =
        ObjectReader(*special, file, piece.place("SpecialToken")).required<std::string>("id");
    if (special_tokens == nullptr) reader.fail("special_tokens", "is missing");
    const json* entry =
        ObjectReader(*special_tokens, file, reader.place("special_tokens")).raw(name);
    if (entry == nullptr) reader.fail("special_tokens", fmt::format("does not define '{}'", name));
    const auto ids =
        ObjectReader(*entry, file, fmt::format("{}['{}']", reader.place("special_tokens"), name))
            .required<std::vector<int32_t>>("ids");
    std::vector<int32_t>& side = text_seen ? out.after : out.before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!text_seen) reader.fail("single", "has no Sequence");
  return out;
}

}  // namespace

JsonTemplate read_json_post_processor(const json& component, const std::string& file) {
  JsonTemplate out;
  for_each_component(component, file, "post_processor", "processors",
                     [&](const std::string& type, const json& value, const std::string& place) {
                       ObjectReader reader(value, file, place);
                       if (type == "TemplateProcessing") {
                         const JsonTemplate inner = read_template(reader, file);
                         out.before.insert(out.before.begin(), inner.before.begin(),
                                           inner.before.end());
                         out.after.insert(out.after.end(), inner.after.begin(), inner.after.end());
                       } else if (type != "ByteLevel") {  // ByteLevel only trims offsets
                         unknown(file, place + ".type", "post-processor", type,
                                 "Sequence, TemplateProcessing, ByteLevel");
                       }
                     });
  return out;
}

}  // namespace evalrun::engine
