#include "convert/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "model/json_text.h"
#include "model/shard_files.h"

namespace myriad {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxJournal = std::size_t{1} << 30;

bool is_number(const Json& line, const char* name) {
  return line.contains(name) && line[name].is_number();
}

}  // namespace

std::filesystem::path journal_path(std::filesystem::path out) {
  out += ".journal";
  return out;
}

Result<Journal> Journal::open(const std::filesystem::path& out, std::string_view key) {
  Journal journal;
  journal.path_ = journal_path(out);
  int fd = -1;
  for (bool same = false; !same;) {  // who held it may have removed it between our opening and locking: then anew
    fd = ::open(journal.path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return fail(Code::io, "writing {}: {}", journal.path_.string(), std::strerror(errno));
    journal.file_ = std::make_shared<const Descriptor>(fd);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0)
      return fail(Code::busy, "writing {}: another process is writing this output", out.string());
    struct stat locked {
    }, named{};
    same = ::fstat(fd, &locked) == 0 && ::stat(journal.path_.c_str(), &named) == 0 && locked.st_ino == named.st_ino &&
           locked.st_dev == named.st_dev;
  }
  MYRIAD_TRY(const std::string text, read_text_file(journal.path_, kMaxJournal));
  journal.read(text, key);
  // What stands behind the last whole line was being written when the run ended.
  const std::size_t whole = journal.continued_ ? text.rfind('\n') + 1 : 0;
  if (::ftruncate(fd, static_cast<off_t>(whole)) != 0)
    return fail(Code::io, "writing {}: {}", journal.path_.string(), std::strerror(errno));
  if (!journal.continued_) MYRIAD_TRY_STATUS(journal.append(fmt::format("{{\"key\": {}}}\n", json_quoted(key))));
  return journal;
}

bool Journal::exists(const std::filesystem::path& out, std::string_view key) {
  const auto text = read_text_file(journal_path(out), kMaxJournal);
  if (!text) return false;
  Journal journal;
  journal.read(std::string_view(*text).substr(0, text->find('\n') + 1), key);
  return journal.continued_;
}

void Journal::read(std::string_view text, std::string_view key) {
  for (bool first = true;; first = false) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return;
    const Json line = Json::parse(text.substr(0, end), nullptr, false);
    text.remove_prefix(end + 1);
    if (!line.is_object()) return;
    if (first) {
      continued_ = line.contains("key") && line["key"] == key;
      if (!continued_) return;
    } else if (line.contains("tensor") && line["tensor"].is_string() && is_number(line, "values") &&
               is_number(line, "squared_error") && is_number(line, "squared_signal") && is_number(line, "largest")) {
      errors_[line["tensor"].get<std::string>()] = {
          line["values"].get<std::uint64_t>(), line["squared_error"].get<double>(),
          line["squared_signal"].get<double>(), line["largest"].get<double>()};
    } else if (line.contains("effect_of") && line["effect_of"].is_string() && is_number(line, "effect")) {
      effects_[line["effect_of"].get<std::string>()] = line["effect"].get<double>();
    }
  }
}

Status Journal::append(const std::string& line) {
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t n = ::write(file_->get(), line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(Code::io, "writing {}: {}", path_.string(), std::strerror(errno));
    done += static_cast<std::size_t>(n);
  }
  return {};
}

Status Journal::put_error(const std::string& tensor, const ErrorSums& sums) {
  errors_[tensor] = sums;
  return append(
      fmt::format("{{\"tensor\": {}, \"values\": {}, \"squared_error\": {:.17g}, \"squared_signal\": {:.17g}, "
                  "\"largest\": {:.17g}}}\n",
                  json_quoted(tensor), sums.values, sums.squared_error, sums.squared_signal, sums.largest_error));
}

Status Journal::put_effect(const std::string& what, double effect) {
  effects_[what] = effect;
  return append(fmt::format("{{\"effect_of\": {}, \"effect\": {:.17g}}}\n", json_quoted(what), effect));
}

Status Journal::remove() {
  std::error_code error;
  std::filesystem::remove(path_, error);
  if (error) return fail(Code::io, "removing {}: {}", path_.string(), error.message());
  return {};
}

}  // namespace myriad
