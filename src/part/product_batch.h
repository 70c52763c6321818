// Products whose tiles are handed out to the threads together: for one token, handing out and waiting costs as much as
// a small product takes.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/thread_pool.h"
#include "model/activation.h"
#include "model/graph.h"
#include "part/part_file.h"

namespace myriad {

class ProductBatch {
 public:
  // All three must outlive this one.
  ProductBatch(const Kernels& kernels, ThreadPool& pool, Profile profile)
      : kernels_(kernels), pool_(pool), profile_(profile) {}

  // Both give the number of a result, for take(). `m` (its matrix `which`) and `x` must stay until run() is done.
  // Row t of the result is the product with row t of x: [x.rows, m.rows] f32.
  std::size_t add(const MatrixView& m, const Activation& x, std::size_t which = 0);
  // gate and up: [n, k] both. glu(gate·x, up·x): [x.rows, n] f32.
  std::size_t add_glu(const MatrixView& gate, const MatrixView& up, ActivationSpec activation, const Activation& x);

  // Computes what was added since the last run.
  void run();
  Activation take(std::size_t result) { return std::move(products_[result].y); }

 private:
  // Rows as the kernels of one type read them, made once for all products with it.
  struct Input {
    const Activation* given;
    DType type;
    Activation room;
    const Activation* x;
    std::unique_ptr<std::byte[]> laid_out;  // of int8 rows
  };
  struct Product {
    const MatrixView* m;
    const std::byte* weights;
    const MatrixView* up = nullptr;  // of a glu
    ActivationSpec activation;
    std::size_t input, up_input = 0;
    std::size_t first_tile;  // of all that are handed out together
    Activation y{}, up_y{};
  };
  std::size_t input_for(const Activation& x, DType type);
  void multiply(const MatrixView& m, const std::byte* weights, const Input& in, std::size_t begin, std::size_t end,
                Activation& y) const;
  void compute(Product& p, std::size_t begin, std::size_t end) const;

  const Kernels& kernels_;
  ThreadPool& pool_;
  Profile profile_;
  std::deque<Input> inputs_;  // addresses stay: x may point to room
  std::vector<Product> products_;
  std::size_t tiles_ = 0, done_ = 0, laid_out_ = 0;
};

}  // namespace myriad
