// A model as the command line names it: a Hugging Face directory or a directory that `myriad cut` made.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "engine/local_pipeline.h"
#include "model/tokenizer.h"
#include "model/weights.h"
#include "part/cutter.h"

namespace myriad::cli {

// Whether the directory is one that `myriad cut` made.
// On standard error, if positions of one sequence are asked for that this model was not trained for. Every command that
// gives a sequence room says so by this (a session by itself: cli/session.h).
void warn_of_context(std::string_view command, std::uint64_t positions, const ModelConfig& model);

bool is_cut_directory(const std::filesystem::path& directory);

class ModelSource {
 public:
  // Reads headers and vectors. A model that lacks a tensor, or has one in a type or shape that cannot be run, is
  // refused here. Errors: not_found, io, corrupt, unsupported, naming the file and the tensor.
  static Result<ModelSource> open(const std::filesystem::path& directory);

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Graph& graph() const { return *graph_; }  // stays where it is when this object moves
  [[nodiscard]] const ModelConfig& config() const { return graph_->config(); }
  // The model's own files; nullptr for a cut directory.
  [[nodiscard]] const ModelWeights* weights() const { return weights_.get(); }
  [[nodiscard]] const Manifest* manifest() const { return manifest_ ? &*manifest_ : nullptr; }
  [[nodiscard]] Result<Tokenizer> tokenizer() const;
  // All parts in this process; this object must outlive the pipeline. A cut directory's parts are as they are (its
  // hashes are checked), a checkpoint is cut as `cut_options` say. threads 0: usable_cores().
  [[nodiscard]] Result<std::unique_ptr<LocalPipeline>> pipeline(Profile profile, const Budget& budget,
                                                                std::size_t threads,
                                                                const CutOptions& cut_options) const;

 private:
  ModelSource() = default;
  std::filesystem::path directory_;
  std::string name_;
  std::unique_ptr<ModelWeights> weights_;  // one of these two
  std::optional<Manifest> manifest_;
  std::unique_ptr<Graph> graph_;
};

// Whether a directory may be one: not_found, with what lies there instead and what to name, if it has no config.json.
Status check_is_model(const std::filesystem::path& path);

// A Hugging Face directory or a GGUF file. `limit` errors (a file beyond a named maximum) become `unsupported`: the
// file is at fault, not the work.
Result<std::unique_ptr<ModelWeights>> open_weights(const std::filesystem::path& path);

// Of a GGUF file, a directory with a tokenizer, or of a tiktoken file alone (any *.tiktoken or *.model). A config.json
// beside it says how large the vocabulary is.
Result<Tokenizer> open_tokenizer(const std::filesystem::path& path);

}  // namespace myriad::cli
