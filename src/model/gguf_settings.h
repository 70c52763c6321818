// A model's config, tokenizer and chat template as the metadata of a GGUF file, under llama.cpp's keys: the way back
// from gguf_config and gguf_tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/gguf_writer.h"
#include "model/rope.h"

namespace myriad {

struct GgufSetting {
  std::string key;
  std::variant<bool, std::uint32_t, float, std::string, std::vector<std::int32_t>, std::vector<float>,
               std::vector<std::string>>
      value;
};
Status set_all(GgufWriter& out, std::span<const GgufSetting> settings);

// general.architecture. Errors: unsupported (features that no architecture has together, each by its name).
Result<std::string> gguf_architecture(const ModelConfig& config);

// What a directory's model is in GGUF. Files without a tokenizer get "no_vocab", as llama.cpp has it.
struct GgufDescription {
  std::string architecture;
  std::vector<GgufSetting> settings;
  // Of a directory that came from a GGUF file (tokenizer.gguf): that file's metadata, for all that `settings` leave
  // out.
  std::optional<GgufMetadata> rest;
  std::vector<float> rope_factors;  // kGgufRopeFactors; empty: no such tensor
};
// `name`: general.name. Blocks on the file system. Errors: as Tokenizer::load; unsupported for what GGUF or the
// architecture's code in llama.cpp cannot say, by its name.
Result<GgufDescription> describe_as_gguf(const std::filesystem::path& directory, std::string_view config_json,
                                         const ModelConfig& config, std::string_view name);

}  // namespace myriad
