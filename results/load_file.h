// Results of `evalrun load` as JSON Lines: a line for the setup, then for every block a line where
// it begins, one per request as it ends, and one where the block ends. A block without its last
// line was interrupted; it is measured again, and its requests are in no figure.
#pragma once
#include <fstream>
#include <set>
#include <string>

#include "results/load_records.h"

namespace evalrun::results {

// Throws data_error (file, line, field). A last line that was cut off is left out.
LoadRun read_load_file(const std::string& path);

// Appends. Every line is on its way to the disk when a call returns.
class LoadFile {
 public:
  // Begins a file or goes on with one. Throws data_error when it cannot be written, or holds
  // another setup (naming the field), or something else.
  LoadFile(std::string path, const LoadSetup& setup);
  // Whether the block was measured.
  bool has(const LoadPlace& place) const { return finished_.contains(place); }
  void begin(const LoadPlace& place);
  void add(const LoadRequest& request);
  void end(const LoadBlock& block);

 private:
  void write(const std::string& line);
  std::string path_;
  std::ofstream out_;
  std::set<LoadPlace> finished_;
};

}  // namespace evalrun::results
