#include "cli/model_source.h"

#include <algorithm>

#include "cli/exit_code.h"
#include "convert/output.h"
#include "kernels/thread_pool.h"
#include "model/gguf_tokenizer.h"
#include "model/gguf_weights.h"
#include "model/hf_weights.h"
#include "model/model_text.h"
#include "model/own_context.h"
#include "part/file_io.h"

namespace myriad::cli {
namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

bool there_is(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// See open_weights.
template <class T>
Result<T> blame_file(Result<T> result) {
  if (!result && result.error().code == Code::limit) result.error().code = Code::unsupported;
  return result;
}

}  // namespace

void warn_of_context(std::string_view command, std::uint64_t positions, const ModelConfig& model) {
  if (const std::string said = beyond_own_context(positions, model.max_positions); !said.empty())
    complain(command, "warning: " + said);
}

bool is_cut_directory(const std::filesystem::path& directory) {
  return there_is(directory / kManifestName);
}

Result<ModelSource> ModelSource::open(const std::filesystem::path& directory) {
  std::error_code ec;
  if (!std::filesystem::exists(directory, ec))
    return fail(Code::not_found, "opening the model {}: there is no such file or directory", directory.string());
  ModelSource source;
  source.directory_ = directory;
  if (is_cut_directory(directory)) {
    MYRIAD_TRY(source.manifest_, blame_file(read_manifest(directory)));
    source.name_ = source.manifest_->model_name;
    MYRIAD_TRY(const ModelConfig config, blame_file(parse_config(source.manifest_->config_json)));
    MYRIAD_TRY(Graph graph, Graph::build(config));
    source.graph_ = std::make_unique<Graph>(std::move(graph));
    return source;
  }
  MYRIAD_TRY(source.weights_, open_weights(directory));
  MYRIAD_TRY_STATUS(source.weights_->verify_complete());
  source.name_ = model_name_of(directory);
  source.graph_ = std::make_unique<Graph>(source.weights_->graph());
  return source;
}

Status check_is_model(const std::filesystem::path& path) {
  std::error_code ec;
  const std::string name = path.string();
  if (!std::filesystem::is_directory(path, ec) || there_is(path / "config.json")) return {};
  if (there_is(path / "parts"))
    return fail(Code::not_found,
                "{} is no model: it has parts of a cut and no {}. The cut was interrupted: run `myriad cut MODEL --out "
                "{}` again, which goes on",
                name, kManifestName, name);
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> files;
  for (std::filesystem::directory_iterator it(path, ec), end; !ec && it != end; it.increment(ec))
    if (is_gguf_name(it->path())) files.push_back(it->path().filename().string());
  if (files.empty())
    return fail(Code::not_found,
                "{} is no model: it has neither a config.json (of the Hugging Face layout) nor a {} (of `myriad cut`); "
                "name a GGUF file or a directory that has one",
                name, kManifestName);
  std::sort(files.begin(), files.end());
  std::string list;
  for (std::size_t i = 0; i < std::min(files.size(), kNamed); ++i) list += (i == 0 ? "" : ", ") + files[i];
  if (files.size() > kNamed) list += fmt::format(" and {} more", files.size() - kNamed);
  return fail(Code::not_found, "{} is no model: it has no config.json, but GGUF files lie there ({}): name one of them",
              name, list);
}

Result<std::unique_ptr<ModelWeights>> open_weights(const std::filesystem::path& path) {
  std::error_code ec;
  MYRIAD_TRY_STATUS(check_is_model(path));
  if (std::filesystem::is_regular_file(path, ec)) {
    MYRIAD_TRY(GgufWeights weights, blame_file(GgufWeights::open(path)));
    return std::make_unique<GgufWeights>(std::move(weights));
  }
  MYRIAD_TRY(HfWeights weights, blame_file(HfWeights::open(path)));
  return std::make_unique<HfWeights>(std::move(weights));
}

Result<Tokenizer> ModelSource::tokenizer() const {
  MYRIAD_TRY(ModelText text, blame_file(load_model_text(directory_, static_cast<std::int32_t>(config().vocab))));
  return std::move(text.tokenizer);
}

Result<std::unique_ptr<LocalPipeline>> ModelSource::pipeline(Profile profile, const Budget& budget, std::size_t threads,
                                                             const CutOptions& cut_options) const {
  if (threads == 0) threads = usable_cores();
  std::vector<PartSpec> specs;
  if (manifest_)
    for (const auto& part : manifest_->parts) specs.push_back(part.spec);
  else
    specs = cut(*graph_, cut_options);
  return LocalPipeline::create(*graph_, name_, profile, budget, threads, specs, [&](std::size_t i) -> Result<Part> {
    if (!manifest_) {
      MYRIAD_TRY(AlignedBuffer bytes, build_part(*weights_, specs[i], false));
      return Part::parse(std::move(bytes), *graph_, nullptr);
    }
    const auto& part = manifest_->parts[i];
    const auto path = part_path(directory_, part.id);
    MYRIAD_TRY(AlignedBuffer bytes, read_aligned_file(path, kMaxPartBytes));
    auto parsed = Part::parse(std::move(bytes), *graph_, &part.id);
    if (!parsed) return std::unexpected(std::move(parsed).error().within(fmt::format("loading {}", path.string())));
    return parsed;
  });
}

Result<Tokenizer> open_tokenizer(const std::filesystem::path& path) {
  std::error_code ec;
  if (is_gguf_name(path)) {
    MYRIAD_TRY(ModelText text, blame_file(load_model_text(path, 0)));
    return std::move(text.tokenizer);
  }
  if (std::filesystem::is_regular_file(path, ec)) {
    MYRIAD_TRY(const std::string text, blame_file(read_small_file(path, Tokenizer::kMaxVocabularyBytes)));
    auto made = blame_file(Tokenizer::parse(text, {}));
    if (!made) return std::unexpected(std::move(made).error().within(path.string()));
    return made;
  }
  if (!there_is(path))
    return fail(Code::not_found, "opening the tokenizer {}: there is no such directory or file", path.string());
  if (there_is(path / kGgufTokenizerName)) {
    MYRIAD_TRY(ModelText text, blame_file(load_model_text(path, 0)));
    return std::move(text.tokenizer);
  }
  std::int32_t vocabulary = 0;
  if (is_cut_directory(path)) {
    MYRIAD_TRY(const ModelSource source, ModelSource::open(path));
    return source.tokenizer();
  }
  if (there_is(path / "config.json")) {
    MYRIAD_TRY(const std::string text, read_small_file(path / "config.json", kMaxConfigBytes));
    auto config = blame_file(parse_config(text));
    if (!config) return std::unexpected(std::move(config).error().within((path / "config.json").string()));
    vocabulary = static_cast<std::int32_t>(config->vocab);
  }
  return blame_file(Tokenizer::load(path, vocabulary));
}

}  // namespace myriad::cli
