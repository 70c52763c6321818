#include "model/model_text.h"

#include "model/gguf_tokenizer.h"
#include "model/shard_files.h"

namespace myriad {
namespace {

constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

bool there_is(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

Result<std::optional<std::string>> chat_template_text(const std::filesystem::path& directory) {
  if (there_is(directory / "chat_template.jinja")) {
    MYRIAD_TRY(std::string text, read_text_file(directory / "chat_template.jinja", kMaxTemplateBytes));
    return std::optional(std::move(text));
  }
  if (!there_is(directory / "tokenizer_config.json")) return std::optional<std::string>();
  MYRIAD_TRY(const std::string text, read_text_file(directory / "tokenizer_config.json", kMaxConfigBytes));
  const auto config = nlohmann::json::parse(text, nullptr, false);
  if (!config.is_object() || !config.contains("chat_template")) return std::optional<std::string>();
  const auto& found = config["chat_template"];
  if (found.is_string()) return std::optional(found.get<std::string>());
  if (found.is_array())
    for (const auto& named : found)
      if (named.is_object() && named.value("name", "") == "default" && named.contains("template") &&
          named["template"].is_string())
        return std::optional(named["template"].get<std::string>());
  return std::optional<std::string>();
}

Result<ModelText> load_model_text(const std::filesystem::path& path, std::int32_t vocabulary) {
  const auto gguf_path = there_is(path) ? path : path / kGgufTokenizerName;
  std::optional<std::string> jinja;
  std::optional<Tokenizer> tokenizer;
  if (there_is(gguf_path)) {
    MYRIAD_TRY(const GgufFile gguf, GgufFile::open(gguf_path));
    MYRIAD_TRY(tokenizer, gguf_tokenizer(gguf));
    MYRIAD_TRY(jinja, gguf_chat_template(gguf));
  } else {
    MYRIAD_TRY(tokenizer, Tokenizer::load(path, vocabulary));
    MYRIAD_TRY(jinja, chat_template_text(path));
  }
  ModelText out{std::move(*tokenizer), {}, nlohmann::ordered_json::object(), {}, {}};
  if (out.tokenizer.bos())
    out.special_tokens["bos_token"] = std::string(out.tokenizer.token_bytes(*out.tokenizer.bos()));
  if (out.tokenizer.eos())
    out.special_tokens["eos_token"] = std::string(out.tokenizer.token_bytes(*out.tokenizer.eos()));
  if (!jinja) return out;
  auto parsed = ChatTemplate::parse(*jinja);
  if (parsed) {
    out.template_traits = traits_of(*parsed);
    out.chat_template = std::move(*parsed);
  } else {
    out.template_error = std::move(parsed).error();
  }
  return out;
}

}  // namespace myriad
