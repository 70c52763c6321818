// The definition of a model's result: the layer code over whole operators, evaluated by plain loops on the checkpoint's
// own row-major weights. It shares no product, layout or cut with the engine; tests compare the two bit for bit.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "model/layer.h"
#include "model/weights.h"

namespace myriad {

class Interpreter {
 public:
  // Reads every weight of the model, widened to f32 (4 bytes a weight): for small models.
  static Result<Interpreter> load(const ModelWeights& weights, Profile profile, KvCache cache = KvCache::by_profile,
                                  const Kernels& kernels = scalar_kernels());
  Interpreter(Interpreter&&) noexcept;
  ~Interpreter();

  // Continues the sequence by these tokens: logits [tokens, vocabulary].
  Result<std::vector<std::vector<float>>> forward(const std::vector<std::int32_t>& tokens);
  // Forgets the sequence.
  void reset();

 private:
  struct Impl;
  explicit Interpreter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace myriad
