// What an unfinished run has found out, beside its output as OUT.journal: a line of JSON each, so that a run that was
// ended at any moment loses at most the line it was writing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "quant/error_metrics.h"

namespace myriad {

class Descriptor;

// OUT.journal
std::filesystem::path journal_path(std::filesystem::path out);

class Journal {
 public:
  // Reads the journal of `out` if there is one with this key, else begins a new one. Holds a lock on it. Errors: busy
  // (somebody else is writing this output), io.
  static Result<Journal> open(const std::filesystem::path& out, std::string_view key);

  // Whether `out` has a journal with this key. Changes nothing.
  static bool exists(const std::filesystem::path& out, std::string_view key);

  // Whether an earlier run with the same key is continued.
  [[nodiscard]] bool continued() const { return continued_; }
  [[nodiscard]] const std::map<std::string, ErrorSums, std::less<>>& errors() const { return errors_; }
  [[nodiscard]] const std::map<std::string, double, std::less<>>& effects() const { return effects_; }

  Status put_error(const std::string& tensor, const ErrorSums& sums);
  // A measurement of the mixed mode.
  Status put_effect(const std::string& what, double effect);
  // The work is done.
  Status remove();

 private:
  Journal() = default;
  void read(std::string_view text, std::string_view key);
  Status append(const std::string& line);

  std::filesystem::path path_;
  std::shared_ptr<const Descriptor> file_;
  bool continued_ = false;
  std::map<std::string, ErrorSums, std::less<>> errors_;
  std::map<std::string, double, std::less<>> effects_;
};

}  // namespace myriad
