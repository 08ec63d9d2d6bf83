// Folders and files for data set tests: a temporary folder that goes away, and the golden data if
// present.
#pragma once
#include <gmock/gmock.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "tests/temp_folder.h"

namespace evalrun::datasets {

using tests::TempFolder;

// One gzip member.
inline std::string gzip(std::string_view text) {
  z_stream stream{};
  EVALRUN_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) ==
                Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EVALRUN_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// The folder with official data files, "" when it is not here.
inline std::string golden_data_root() {
  const char* shared = std::getenv("EVALRUN_SHARED");
  const std::string root =
      std::string(shared != nullptr ? shared : EVALRUN_SOURCE_DIR "/../shared") + "/data";
  return std::filesystem::is_directory(root) ? root : "";
}

// Runs `f`, which must throw base::Error with this code, and returns its whole text.
template <typename F>
std::string error_of(base::ExitCode code, F&& f) {
  try {
    f();
  } catch (const base::Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace evalrun::datasets
