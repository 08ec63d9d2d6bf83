#include "engine/model/shapes.h"

#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/json_fields.h"
#include "engine/base/text.h"
#include "engine/model/embedded_shapes.h"
#include "engine/model/hf_config.h"

namespace evalrun::engine {
namespace {

namespace fs = std::filesystem;

Shape make_shape(const std::string& name, const std::string& source, const nlohmann::json& config) {
  Shape shape{name, source, read_hf_shape(config, source)};
  shape.config.name = "shape:" + name;
  return shape;
}

std::vector<Shape> read_known_shapes() {
  std::vector<Shape> shapes;
  for (const base::EmbeddedFile& file : embedded_shapes()) {
    const std::string name(file.name);
    for (const nlohmann::json& entry : base::parse_json(file.text, name)) {
      base::ObjectReader r(entry, name, "");
      const nlohmann::json* config = r.raw("config");
      EVALRUN_CHECK(config != nullptr, "{}: an entry without a config", name);
      shapes.push_back(
          make_shape(r.required<std::string>("name"), r.required<std::string>("source"), *config));
      r.finish();
    }
  }
  return shapes;
}

// "models/Llama-3.2-1B/config.json" and the folder are Llama-3.2-1B, "my-7b.json" is my-7b.
std::string name_of_file(const fs::path& file) {
  std::error_code error;
  const fs::path whole = fs::absolute(file, error).lexically_normal();
  const std::string folder = whole.parent_path().filename().string();
  return whole.filename() == "config.json" && !folder.empty() ? folder : whole.stem().string();
}

Shape read_shape(const fs::path& file) {
  const std::string path = file.string();
  return make_shape(name_of_file(file), path, base::parse_json(base::read_file(path), path));
}

}  // namespace

const std::vector<Shape>& known_shapes() {
  static const std::vector<Shape> shapes = read_known_shapes();
  return shapes;
}

Shape find_shape(const std::string& text) {
  std::vector<std::string> names;
  for (const Shape& shape : known_shapes()) {
    if (shape.name == text) return shape;
    names.push_back(shape.name);
  }
  std::error_code error;
  if (fs::is_directory(text, error)) {
    const fs::path file = fs::path(text) / "config.json";
    if (!fs::is_regular_file(file, error))
      throw base::data_error(
          text, "", "holds no config.json",
          "get the model's config.json from Hugging Face; weights are not needed");
    return read_shape(file);
  }
  if (text.ends_with(".gguf") || text.ends_with(".safetensors"))
    throw base::usage_error(fmt::format("--shape: {} holds weights, which a shape has not", text),
                            "measure the model itself: -m " + text);
  if (fs::is_regular_file(text, error)) return read_shape(text);
  throw base::usage_error(
      fmt::format("--shape: no shape is called '{}', and no such file is there", text),
      base::suggest(text, names) + "; or the path of a model's config.json");
}

}  // namespace evalrun::engine
