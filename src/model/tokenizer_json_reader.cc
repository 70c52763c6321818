#include "model/tokenizer_json_reader.h"

#include <optional>

#include "model/token_merger.h"
#include "model/token_table.h"

namespace myriad {
namespace {

using Json = nlohmann::json;

// Receives the parser's events. `where_` says which of the large parts an event is in.
class Reader {
 public:
  explicit Reader(TokenizerJson& out) : out_(out) {}
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(std::int64_t value) {
    return where_ == Where::vocabulary ? refuse("is negative") : scalar(value);
  }
  bool number_unsigned(std::uint64_t value) { return where_ == Where::vocabulary ? token(value) : scalar(value); }
  bool number_float(double value, const std::string& /*text*/) { return scalar(value); }
  bool binary(Json::binary_t& /*value*/) { return false; }  // JSON has none
  bool string(std::string& value) {
    switch (where_) {
      case Where::merges:
        return joined_merge(value);
      case Where::merge_pair:
        return half_merge(value);
      default:
        return scalar(value);
    }
  }
  bool key(std::string& name) {
    if (where_ == Where::vocabulary) {
      key_text_ = store(name);
      return true;
    }
    key_ = name;
    return true;
  }

  bool start_object(std::size_t /*size*/) {
    if (where_ == Where::ignored) return deeper();
    if (where_ == Where::rest && in_model() && key_ == "vocab") return enter(Where::vocabulary);
    if (where_ != Where::rest) return refuse("is an object");
    return open(Json::object());
  }
  bool end_object() { return close(); }
  bool start_array(std::size_t /*size*/) {
    if (where_ == Where::ignored) return deeper();
    // A vocabulary that is a list belongs to another kind of model, which is refused by its name later.
    if (where_ == Where::rest && in_model() && key_ == "vocab") return enter(Where::ignored);
    if (where_ == Where::rest && in_model() && key_ == "merges") return enter(Where::merges);
    if (where_ == Where::merges) {
      where_ = Where::merge_pair;
      halves_ = 0;
      return true;
    }
    if (where_ != Where::rest) return refuse("is a list");
    return open(Json::array());
  }
  bool end_array() {
    if (where_ != Where::merge_pair) return close();
    where_ = Where::merges;
    return halves_ == 2 || refuse("has not two texts");
  }
  bool parse_error(std::size_t position, const std::string& /*token*/, const Json::exception& /*what*/) {
    if (!error_) error_ = Error{Code::corrupt, fmt::format("it is not JSON from byte {} on", position), {}, {}};
    return false;
  }

 private:
  enum class Where : std::uint8_t { rest, vocabulary, merges, merge_pair, ignored };

  bool refuse(std::string_view what) {
    const bool vocabulary = where_ == Where::vocabulary;
    error_ =
        Error{Code::corrupt,
              fmt::format("{} {} {}", vocabulary ? "in model.vocab the id of token" : "in model.merges entry",
                          vocabulary ? shown_token(out_.text(key_text_)) : std::to_string(out_.merges.size()), what),
              {},
              {}};
    return false;
  }
  bool exceed(std::string_view what, std::size_t limit) {
    error_ = Error{Code::limit, fmt::format("it has more than {} {}", limit, what), {}, {}};
    return false;
  }
  [[nodiscard]] bool in_model() const { return path_.size() == 2 && model_ == path_[1] && model_ != nullptr; }

  TokenizerJson::Text store(std::string_view text) {
    const auto offset = static_cast<std::uint32_t>(out_.texts.size());
    out_.texts.append(text);
    return {offset, static_cast<std::uint32_t>(text.size())};
  }
  bool token(std::uint64_t id) {
    if (id >= static_cast<std::uint64_t>(TokenTable::kMaxTokens)) return refuse("is too large");
    if (out_.tokens.size() == static_cast<std::size_t>(TokenTable::kMaxTokens)) {
      return exceed("tokens", static_cast<std::size_t>(TokenTable::kMaxTokens));
    }
    out_.tokens.push_back({key_text_, static_cast<std::int32_t>(id)});
    return true;
  }
  bool joined_merge(std::string_view text) {
    const std::size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) return refuse("has not two texts");
    return merge(store(text.substr(0, space)), store(text.substr(space + 1)));
  }
  bool half_merge(std::string_view text) {
    if (halves_ == 2) return refuse("has not two texts");
    const TokenizerJson::Text half = store(text);
    if (halves_++ == 0) {
      left_ = half;
      return true;
    }
    return merge(left_, half);
  }
  bool merge(TokenizerJson::Text left, TokenizerJson::Text right) {
    if (out_.merges.size() == MergeList::kMaxMerges) return exceed("merges", MergeList::kMaxMerges);
    out_.merges.push_back({left, right});
    return true;
  }

  Json* put(Json value) {
    if (++values_ > TokenizerJson::kMaxOtherValues) {
      exceed("values besides the vocabulary and the merges", TokenizerJson::kMaxOtherValues);
      return nullptr;
    }
    if (path_.empty()) {
      out_.rest = std::move(value);
      return &out_.rest;
    }
    Json& parent = *path_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }
  bool scalar(Json value) {
    if (where_ == Where::ignored) return true;
    if (where_ != Where::rest) return refuse("is not what is expected there");
    return put(std::move(value)) != nullptr;
  }
  bool open(Json value) {
    if (path_.size() == TokenizerJson::kMaxDepth) return exceed("levels", TokenizerJson::kMaxDepth);
    const bool is_model = path_.size() == 1 && path_[0]->is_object() && key_ == "model" && value.is_object();
    Json* opened = put(std::move(value));
    if (opened == nullptr) return false;
    path_.push_back(opened);
    if (is_model) model_ = opened;
    return true;
  }
  bool enter(Where where) {
    where_ = where;
    ignored_depth_ = 0;
    // Of equal keys the last one counts.
    if (where == Where::merges) out_.merges.clear();
    if (where != Where::merges) out_.tokens.clear();
    return true;
  }
  bool deeper() {
    ++ignored_depth_;
    return true;
  }
  bool close() {
    if (where_ == Where::rest) {
      path_.pop_back();
    } else if (where_ == Where::ignored && ignored_depth_ > 0) {
      --ignored_depth_;
    } else {
      where_ = Where::rest;
    }
    return true;
  }

  TokenizerJson& out_;
  std::optional<Error> error_;
  Where where_ = Where::rest;
  std::vector<Json*> path_;  // the open containers of `rest`
  Json* model_ = nullptr;
  std::string key_;
  TokenizerJson::Text key_text_, left_;
  int halves_ = 0;
  std::size_t values_ = 0, ignored_depth_ = 0;
};

}  // namespace

Result<TokenizerJson> read_tokenizer_json(std::string_view json) {
  if (json.size() > TokenizerJson::kMaxBytes) {
    return fail(Code::limit, "it has {} bytes, at most {} are expected", json.size(), TokenizerJson::kMaxBytes);
  }
  TokenizerJson out;
  Reader reader(out);
  const bool read = Json::sax_parse(json.begin(), json.end(), &reader);
  if (const auto& error = reader.error(); error.has_value()) return std::unexpected(error.value());
  if (!read) return fail(Code::corrupt, "it is not JSON");
  if (!out.rest.is_object()) return fail(Code::corrupt, "it is not a JSON object");
  return out;
}

}  // namespace myriad
