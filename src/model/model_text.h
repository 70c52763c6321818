// What a model needs to deal in text: its tokenizer and, if it brings one, its chat template.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <initializer_list>
#include <optional>

#include "base/error.h"
#include "model/chat_template.h"
#include "model/template_traits.h"
#include "model/tokenizer.h"

namespace myriad {

struct ModelText {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  nlohmann::ordered_json special_tokens;  // bos_token, eos_token, … by text, for the template
  TemplateTraits template_traits;         // of chat_template
  std::optional<Error> template_error;    // why there is none although the model brings one
};

// The files that may hold it, as they lie in a Hugging Face or cut directory.
inline constexpr std::initializer_list<const char*> kTextFiles = {"tokenizer.gguf",        "tiktoken.model",
                                                                  "tokenizer.json",        "tokenizer.model",
                                                                  "tokenizer_config.json", "chat_template.jinja"};

// Of a GGUF file or of a directory. `vocabulary`: the model's, 0 if it is not known. Errors: as Tokenizer::load and
// GgufFile::open; a template that cannot be used is no error here.
Result<ModelText> load_model_text(const std::filesystem::path& path, std::int32_t vocabulary);

// The text of a directory's chat template as its files have it: chat_template.jinja, or the member of
// tokenizer_config.json (a text, or a list of named ones of which `default` counts); nothing if there is none.
Result<std::optional<std::string>> chat_template_text(const std::filesystem::path& directory);

}  // namespace myriad
