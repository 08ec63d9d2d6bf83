#include "runners/train/capture_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/json_fields.h"
#include "engine/base/text.h"
#include "engine/formats/safetensors.h"
#include "engine/formats/safetensors_writer.h"

namespace evalrun::runners {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kFormat = "evalrun-capture";
constexpr int kCaptureVersion = 1;  // of the model's own answers to single prompts
constexpr int kDatasetVersion = 2, kDialogueVersion = 3;
constexpr const char* kPartPrefix = "part-";
constexpr const char* kPartSuffix = ".safetensors";
constexpr const char* kBrokenPart = "delete this part; its lines are then generated again";
constexpr const char* kAnotherFolder =
    "give --out another folder, or the settings this one was begun with";

ordered_json to_json(const CaptureSettings& s) {
  ordered_json j;
  j["format"] = kFormat;
  j["answers"] = s.answers;
  j["dialogues"] = s.dialogues;
  // Programs that know no answers but the model's own, or no dialogues, must not go on with others.
  j["version"] = s.dialogues           ? kDialogueVersion
                 : s.answers == "self" ? kCaptureVersion
                                       : kDatasetVersion;
  j["model"] = {{"name", s.model_name},      {"path", s.model_path}, {"hash", s.model_hash},
                {"dtype", s.dtype},          {"d_model", s.d_model}, {"n_layers", s.n_layers},
                {"vocab_size", s.vocab_size}};
  j["engine"] = {{"kv_dtype", s.kv_dtype}, {"bits", s.bits}, {"chat_template", s.chat_template}};
  j["max_new"] = s.max_new;
  j["residual_layers"] = s.residual_layers;
  j["in_hash"] = s.in_hash;
  j["n_lines"] = s.n_lines;
  return j;
}

// What folders mean that were begun before there was this field.
std::optional<nlohmann::json> before_the_field(const std::string& field) {
  if (field == "answers") return nlohmann::json("self");
  if (field == "dialogues") return nlohmann::json(false);
  return std::nullopt;
}

// Every field of `now` but the model's path must be in `then` with the same value.
void compare(const nlohmann::json& then, const ordered_json& now, const std::string& file,
             const std::string& prefix) {
  if (!then.is_object())
    throw base::data_error(file, prefix, "must be an object", "the folder needs its capture.json");
  for (const auto& [key, value] : now.items()) {
    const std::string field = prefix.empty() ? key : prefix + "." + key;
    const auto early = before_the_field(field);
    if (!then.contains(key) && !early)
      throw base::data_error(file, field, "is missing",
                             "give --out another folder; this one is broken");
    const nlohmann::json& old = then.contains(key) ? then[key] : *early;
    if (value.is_object()) {
      compare(old, value, file, field);
    } else if (field != "model.path" && old != nlohmann::json(value)) {
      throw base::usage_error(
          fmt::format("{}: {} is {} there and {} now", file, field, old.dump(), value.dump()),
          kAnotherFolder);
    }
  }
}

// 12 of "part-00012.safetensors"
std::optional<int> part_number(const std::string& name) {
  const std::string_view prefix = kPartPrefix, suffix = kPartSuffix;
  if (!name.starts_with(prefix) || !name.ends_with(suffix) ||
      name.size() <= prefix.size() + suffix.size())
    return std::nullopt;
  const char* begin = name.data() + prefix.size();
  const char* end = name.data() + name.size() - suffix.size();
  int number = 0;
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || stop != end || number < 0) return std::nullopt;
  return number;
}

bool is_unfinished_part(const std::string& name) {
  return name.starts_with(kPartPrefix) &&
         name.find(std::string(kPartSuffix) + ".tmp") != std::string::npos;
}

// A tensor of a part; `values` < 0 = any number.
template <typename T>
std::vector<T> read_tensor(const engine::SafeTensors& part, const std::string& file,
                           const std::string& name, engine::DType dtype, int64_t values) {
  const auto it = part.tensors().find(name);
  if (it == part.tensors().end())
    throw base::data_error(file, "tensor " + name, "is missing", kBrokenPart);
  const engine::SafeTensor& t = it->second;
  if (t.dtype != dtype || t.shape.size() != 1 || (values >= 0 && t.shape[0] != values))
    throw base::data_error(
        file, "tensor " + name,
        fmt::format("is {} [{}], not {} [{}]", engine::dtype_name(t.dtype),
                    fmt::join(t.shape, ", "), engine::dtype_name(dtype),
                    values < 0 ? std::string("sequences") : std::to_string(values)),
        kBrokenPart);
  std::vector<T> out(static_cast<size_t>(t.shape[0]));
  if (!out.empty()) std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
  return out;
}

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

void CaptureSettings::describe(const engine::Model& model) {
  const engine::ModelConfig& c = model.config();
  model_name = c.name, model_path = model.path(), model_hash = model.hash();
  dtype = engine::name_of(model.format());
  d_model = c.d_model, n_layers = c.n_layers, vocab_size = c.vocab_size;
}

CaptureFolder::CaptureFolder(std::string path, const CaptureSettings& settings)
    : path_(std::move(path)), settings_(settings) {
  held_.resize(static_cast<size_t>(settings_.n_lines));
  std::error_code error;
  fs::create_directories(path_, error);
  if (error || !fs::is_directory(path_, error))
    throw base::data_error(path_, "",
                           error ? "cannot be made: " + error.message() : "is not a folder",
                           "give --out a folder you may write to");
  try {
    lock();
    const std::string file = (fs::path(path_) / "capture.json").string();
    const ordered_json now = to_json(settings_);
    if (fs::exists(file, error)) {
      compare(base::parse_json(base::read_file(file), file), now, file, "");
      read_parts();
    } else {
      for (const fs::directory_entry& entry : fs::directory_iterator(path_))
        if (part_number(entry.path().filename().string()))
          throw base::data_error(path_, "", "holds parts but no capture.json",
                                 "nobody knows what they were made from: use another folder");
      base::write_file_atomic(
          file, now.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    }
  } catch (...) {
    if (lock_ >= 0) ::close(lock_);
    throw;
  }
}

CaptureFolder::~CaptureFolder() { ::close(lock_); }

// Two processes would give two parts the same name. The kernel drops the lock with the process.
void CaptureFolder::lock() {
  lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) throw base::data_error(path_, "", std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw base::usage_error(fmt::format("{}: another evalrun writes to this folder", path_),
                            "wait for it, or give --out another folder");
}

void CaptureFolder::read_parts() {
  std::vector<std::pair<int, std::string>> parts;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (const auto number = part_number(name)) parts.emplace_back(*number, entry.path().string());
    std::error_code ignored;
    if (is_unfinished_part(name)) fs::remove(entry.path(), ignored);  // left by a killed process
  }
  std::sort(parts.begin(), parts.end());
  for (const auto& [number, file] : parts) {
    read_part(file);
    next_part_ = number + 1;
  }
}

void CaptureFolder::read_part(const std::string& file) {
  const engine::SafeTensors part(file);
  const auto format = part.metadata().find("format");
  if (format == part.metadata().end() || format->second != kFormat)
    throw base::data_error(file, "__metadata__.format", fmt::format("is not {}", kFormat),
                           kBrokenPart);
  const auto lines = read_tensor<int64_t>(part, file, "line", engine::DType::kI64, -1);
  const auto start = read_tensor<int64_t>(part, file, "start", engine::DType::kI64,
                                          static_cast<int64_t>(lines.size()) + 1);
  (void)read_tensor<int32_t>(part, file, "tokens", engine::DType::kI32, start.back());
  int64_t previous = -1;  // sequences of one line are neighbours
  for (const int64_t line : lines) {
    if (line < 0 || line >= settings_.n_lines)
      throw base::data_error(file, "tensor line",
                             fmt::format("names line {} of {}", line, settings_.n_lines),
                             kBrokenPart);
    if (line != previous && held_[static_cast<size_t>(line)])
      throw base::data_error(file, "tensor line",
                             fmt::format("names line {}, which another part holds too", line),
                             kBrokenPart);
    held_[static_cast<size_t>(line)] = true;
    previous = line;
  }
  ++n_parts_;
  n_sequences_ += static_cast<int64_t>(lines.size());
  n_tokens_ += start.back();
}

void CaptureFolder::write(std::span<const CapturedSequence> sequences) {
  EVALRUN_CHECK(!sequences.empty(), "a part without sequences");
  std::vector<int32_t> tokens, prompt, answer_first, answer_last;
  std::vector<int64_t> start = {0}, answers = {0}, line;
  std::vector<uint8_t> ended;
  std::vector<uint16_t> hidden, residual;
  const auto d = static_cast<size_t>(settings_.d_model), layers = settings_.residual_layers.size();
  size_t total = 0;
  for (const CapturedSequence& s : sequences) total += s.tokens.size();
  hidden.reserve(total * d), residual.reserve(total * d * layers);
  for (const CapturedSequence& s : sequences) {
    EVALRUN_CHECK(s.line >= 0 && s.line < settings_.n_lines && !holds(s.line), "line {}", s.line);
    EVALRUN_CHECK(
        s.hidden.size() == s.tokens.size() * d && s.residual.size() == s.tokens.size() * d * layers,
        "line {}: {} tokens, {} and {} values", s.line, s.tokens.size(), s.hidden.size(),
        s.residual.size());
    append(tokens, s.tokens), append(hidden, s.hidden), append(residual, s.residual);
    start.push_back(static_cast<int64_t>(tokens.size()));
    EVALRUN_CHECK(s.answers.size() == 1 || (settings_.dialogues && !s.answers.empty()),
                  "line {}: {} answers", s.line, s.answers.size());
    for (const CapturedSequence::Answer& answer : s.answers)
      answer_first.push_back(answer.first), answer_last.push_back(answer.last);
    answers.push_back(static_cast<int64_t>(answer_first.size()));
    prompt.push_back(s.answers.front().first), line.push_back(s.line);
    ended.push_back(s.ended ? 1 : 0);
  }
  using engine::bytes_of_values;
  using engine::DType;
  const auto n = static_cast<int64_t>(total), s = static_cast<int64_t>(sequences.size());
  std::vector<engine::TensorToWrite> tensors = {
      {"tokens", DType::kI32, {n}, bytes_of_values(tokens)},
      {"start", DType::kI64, {s + 1}, bytes_of_values(start)},
      {"prompt", DType::kI32, {s}, bytes_of_values(prompt)},
      {"line", DType::kI64, {s}, bytes_of_values(line)},
      {"ended", DType::kU8, {s}, bytes_of_values(ended)},
      {"hidden", DType::kBF16, {n, settings_.d_model}, bytes_of_values(hidden)}};
  if (layers > 0)
    tensors.push_back({"residual",
                       DType::kBF16,
                       {n, static_cast<int64_t>(layers) * settings_.d_model},
                       bytes_of_values(residual)});
  if (settings_.dialogues) {
    const auto a = static_cast<int64_t>(answer_first.size());
    tensors.push_back({"answers", DType::kI64, {s + 1}, bytes_of_values(answers)});
    tensors.push_back({"answer_first", DType::kI32, {a}, bytes_of_values(answer_first)});
    tensors.push_back({"answer_last", DType::kI32, {a}, bytes_of_values(answer_last)});
  }
  const std::string name = fmt::format("{}{:05}{}", kPartPrefix, next_part_, kPartSuffix);
  engine::write_safetensors((fs::path(path_) / name).string(), tensors,
                            {{"format", kFormat}, {"version", std::to_string(kCaptureVersion)}});
  for (const CapturedSequence& sequence : sequences)
    held_[static_cast<size_t>(sequence.line)] = true;
  ++next_part_, ++n_parts_;
  n_sequences_ += s, n_tokens_ += n;
}

}  // namespace evalrun::runners
