#include "reports/papers/form.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/json_fields.h"
#include "engine/base/text.h"
#include "reports/papers/embedded.h"

namespace evalrun::reports {

namespace {

using base::ObjectReader;

// One paper's file: what its tables share, by key.
class FormReader {
 public:
  FormReader(const nlohmann::json& json, const std::string& file)
      : file_(file), reader_(json, file, "") {
    paper_ = reader_.required<std::string>("paper");
    title_ = reader_.required<std::string>("title");
    const nlohmann::json empty = nlohmann::json::object();
    for (const auto& [key, value] : object("metrics").items()) metrics_[key] = metric(value, key);
    for (const auto& [key, value] : object("data").items()) {
      ObjectReader fields(value, file_, "data." + key);
      data_keys_.push_back(key);
      data_.push_back({fields.required<std::string>("label"),
                       fields.required<std::string>("dataset"),
                       fields.optional<std::string>("category", "")});
      fields.finish();
    }
  }

  std::vector<PaperForm> forms() {
    std::vector<PaperForm> forms;
    const nlohmann::json* list = reader_.raw("tables");
    if (list == nullptr || !list->is_array()) reader_.fail("tables", "must be a list");
    for (size_t i = 0; i < list->size(); ++i)
      forms.push_back(form((*list)[i], fmt::format("tables[{}]", i)));
    reader_.finish();
    return forms;
  }

 private:
  const nlohmann::json& object(const char* key) {
    const nlohmann::json* value = reader_.raw(key);
    if (value == nullptr || !value->is_object()) reader_.fail(key, "must be an object");
    return *value;
  }

  FormMetric metric(const nlohmann::json& json, const std::string& key) {
    ObjectReader fields(json, file_, "metrics." + key);
    FormMetric m;
    m.label = fields.required<std::string>("label");
    m.measured = fields.required<std::string>("measured");
    m.published = fields.required<std::string>("published");
    m.unit = fields.optional<std::string>("unit", "");
    m.decimals = fields.optional<int>("decimals", 2);
    m.beside_plain = fields.optional<bool>("beside_plain", false);
    one_of(fields, "measured", m.measured,
           {"speedup", "tau", "accepted_per_step", "alpha_share", "de", "tok_s", "rows_per_step",
            "rougeL", "pass", "win", "tie", "lose"});
    one_of(fields, "unit", m.unit, {"", "percent", "gain"});
    fields.finish();
    return m;
  }

  static void one_of(const ObjectReader& fields, const char* key, const std::string& value,
                     const std::vector<std::string>& known) {
    if (std::find(known.begin(), known.end(), value) == known.end())
      fields.fail(key, fmt::format("is '{}'", value), base::suggest(value, known));
  }

  size_t data_at(const ObjectReader& fields, const char* key, const std::string& name) const {
    const auto found = std::find(data_keys_.begin(), data_keys_.end(), name);
    if (found == data_keys_.end())
      fields.fail(key, fmt::format("names '{}', which is not in 'data'", name));
    return static_cast<size_t>(found - data_keys_.begin());
  }

  PaperForm form(const nlohmann::json& json, const std::string& place) {
    using Strings = std::vector<std::string>;
    ObjectReader fields(json, file_, place);
    PaperForm f;
    f.paper = paper_;
    f.title = title_;
    f.data = data_;
    f.table = fields.required<std::string>("table");
    f.place = fields.required<std::string>("place");
    f.caption = fields.required<std::string>("caption");
    f.suites = fields.required<Strings>("suites");
    f.decoding = fields.required<std::string>("decoding");
    one_of(fields, "decoding", f.decoding, {"greedy", "sampled"});
    f.models = fields.optional<Strings>("models", {});
    const auto models_as = fields.optional<std::string>("models_as", "rows");
    one_of(fields, "models_as", models_as, {"rows", "columns"});
    f.models_as_columns = models_as == "columns";
    f.across = fields.optional<std::string>("across", "");
    f.control = fields.optional<std::string>("control", "");
    f.equal_budgets = fields.optional<bool>("equal_budgets", false);
    for (const std::string& key : fields.optional<Strings>("rows", {}))
      f.rows.push_back(data_at(fields, "rows", key));
    const auto methods = fields.required<nlohmann::json>("methods"),
               columns = fields.required<nlohmann::json>("columns");
    for (size_t i = 0; i < methods.size(); ++i)
      f.methods.push_back(method(methods.at(i), fmt::format("{}.methods[{}]", place, i)));
    for (size_t i = 0; i < columns.size(); ++i)
      f.columns.push_back(column(f, columns.at(i), fmt::format("{}.columns[{}]", place, i)));
    fields.finish();
    for (const FormColumn& c : f.columns)
      for (const FormMetric& m : c.metrics)
        if (m.against_control() && f.control.empty())
          fields.fail("control", fmt::format("is missing, and '{}' is against it", m.measured));
    return f;
  }

  FormMethod method(const nlohmann::json& json, const std::string& place) const {
    ObjectReader fields(json, file_, place);
    FormMethod m{fields.required<std::string>("label"),
                 fields.required<std::vector<std::string>>("arms"),
                 fields.required<std::string>("published"),
                 fields.optional<std::map<std::string, std::string>>("config", {}),
                 fields.optional<std::string>("sweep", "")};
    fields.finish();
    return m;
  }

  FormColumn column(const PaperForm& form, const nlohmann::json& json,
                    const std::string& place) const {
    ObjectReader fields(json, file_, place);
    FormColumn c;
    const char* key = form.methods_as_columns() ? "method" : "data";
    const auto name = fields.required<std::string>(key);
    if (form.methods_as_columns()) {
      const auto found = std::find_if(form.methods.begin(), form.methods.end(),
                                      [&](const FormMethod& m) { return m.label == name; });
      if (found == form.methods.end()) fields.fail(key, fmt::format("'{}' is no method", name));
      c.at = static_cast<size_t>(found - form.methods.begin());
    } else {
      c.at = data_at(fields, key, name);
    }
    for (const auto& metric : fields.required<std::vector<std::string>>("metrics")) {
      const auto found = metrics_.find(metric);
      if (found == metrics_.end())
        fields.fail("metrics", fmt::format("names '{}', which is not in 'metrics'", metric));
      c.metrics.push_back(found->second);
    }
    fields.finish();
    return c;
  }

  std::string file_;
  ObjectReader reader_;
  std::string paper_, title_;
  std::map<std::string, FormMetric> metrics_;
  std::vector<std::string> data_keys_;
  std::vector<FormData> data_;
};

}  // namespace

std::vector<PaperForm> parse_paper_forms(std::string_view json, const std::string& file) {
  const nlohmann::json parsed = base::parse_json(json, file);
  return FormReader(parsed, file).forms();
}

const std::vector<PaperForm>& paper_forms() {
  static const std::vector<PaperForm> all = [] {
    std::vector<PaperForm> forms;
    for (const base::EmbeddedFile& file : embedded_papers())
      for (PaperForm& form : parse_paper_forms(file.text, std::string(file.name)))
        forms.push_back(std::move(form));
    return forms;
  }();
  return all;
}

std::vector<const PaperForm*> find_paper_forms(const std::string& name) {
  std::vector<const PaperForm*> found;
  std::vector<std::string> papers, tables;
  const std::string paper = name.substr(0, name.find(':'));
  for (const PaperForm& form : paper_forms()) {
    if (form.name() == name || form.paper == name) found.push_back(&form);
    if (papers.empty() || papers.back() != form.paper) papers.push_back(form.paper);
    if (form.paper == paper) tables.push_back(form.table);
  }
  if (!found.empty()) return found;
  if (tables.empty())
    throw base::usage_error(
        fmt::format("no tables of a paper '{}'", paper),
        fmt::format("there are tables of {}; evalrun list tables", fmt::join(papers, ", ")));
  throw base::usage_error(
      fmt::format("{} has no table '{}'", paper,
                  name.size() > paper.size() ? name.substr(paper.size() + 1) : ""),
      fmt::format("it has {}", fmt::join(tables, ", ")));
}

}  // namespace evalrun::reports
