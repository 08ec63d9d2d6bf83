#include "engine/base/text.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>

#include "engine/base/error.h"

namespace evalrun::base {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

std::string suggest(std::string_view unknown, const std::vector<std::string>& known) {
  if (known.empty()) return "none is known here";
  std::vector<std::pair<int, std::string>> ranked;
  for (const std::string& k : known) ranked.emplace_back(edit_distance(unknown, k), k);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  std::string text;
  const int near = std::max<int>(2, static_cast<int>(unknown.size()) / 3);
  if (ranked[0].first <= near) text = fmt::format("did you mean '{}'? ", ranked[0].second);
  text += "known: ";
  for (size_t i = 0; i < known.size(); ++i) text += (i ? ", " : "") + known[i];
  return text;
}

std::string plural(int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

std::string with_commas(int64_t n) {
  std::string digits = std::to_string(n);
  const size_t first = n < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  size_t start = 0;
  while (true) {
    const size_t end = text.find(separator, start);
    pieces.emplace_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return pieces;
    start = end + 1;
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    EVALRUN_CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void update(const char* data, size_t n) { EVP_DigestUpdate(context_.get(), data, n); }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &n);
    std::string out;
    for (unsigned int i = 0; i < n; ++i) out += fmt::format("{:02x}", digest[i]);
    return out;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* c) const { EVP_MD_CTX_free(c); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  Sha256 h;
  h.update(bytes.data(), bytes.size());
  return h.hex();
}

std::string sha256_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw data_error(path, "", std::strerror(errno), "check that the file exists and is readable");
  Sha256 h;
  std::vector<char> buffer(1 << 20);
  while (in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    h.update(buffer.data(), static_cast<size_t>(in.gcount()));
  }
  if (in.bad()) throw data_error(path, "", "read error");
  return h.hex();
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw data_error(path, "", std::strerror(errno), "check that the file exists and is readable");
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) throw data_error(path, "", "read error (a folder, or a failing disk?)");
  return bytes;
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  write_file_atomic(path, std::span(&bytes, 1));
}

void write_file_atomic(const std::string& path, std::span<const std::string_view> parts) {
  const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) throw data_error(path, "", fmt::format("cannot write: {}", std::strerror(errno)));
  bool ok = true;
  for (std::string_view left : parts) {
    while (ok && !left.empty()) {
      const ssize_t n = ::write(fd, left.data(), left.size());
      if (n < 0 && errno == EINTR) continue;
      ok = n > 0;
      if (ok) left.remove_prefix(static_cast<size_t>(n));
    }
  }
  int reason = ok ? 0 : errno;
  if (ok && ::fsync(fd) != 0 && errno != EINVAL) ok = false, reason = errno;
  if (::close(fd) != 0 && ok) ok = false, reason = errno;
  if (ok && ::rename(temporary.c_str(), path.c_str()) != 0) ok = false, reason = errno;
  if (!ok) {
    ::unlink(temporary.c_str());
    throw data_error(path, "", fmt::format("cannot write: {}", std::strerror(reason)),
                     "free some space or choose another place");
  }
}

}  // namespace evalrun::base
