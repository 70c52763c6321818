#include "part/product_batch.h"

#include <algorithm>

#include "model/product.h"

namespace myriad {
namespace {

constexpr std::size_t kTileGrain = 4;      // tiles a thread takes at least
constexpr std::size_t kGroupGrain = 4096;  // groups of activations, of all rows together, likewise

}  // namespace

std::size_t ProductBatch::input_for(const Activation& x, DType type) {
  for (std::size_t i = laid_out_; i < inputs_.size(); ++i)
    if (inputs_[i].given == &x && inputs_[i].type == type) return i;
  Input& in = inputs_.emplace_back(Input{&x, type, {}, nullptr, nullptr});
  in.x = &for_product(kernels_, x, type, profile_, in.room);
  return inputs_.size() - 1;
}

std::size_t ProductBatch::add(const MatrixView& m, const Activation& x, std::size_t which) {
  const std::size_t tiles = x.rows == 0 ? 0 : tiles_for(m.rows);
  products_.push_back({.m = &m,
                       .weights = m.at(which),
                       .activation = {},
                       .input = input_for(x, m.dtype),
                       .first_tile = tiles_,
                       .y = Activation::unfilled(x.rows, tiles * kTileRows)});
  tiles_ += tiles;
  return products_.size() - 1;
}

std::size_t ProductBatch::add_glu(const MatrixView& gate, const MatrixView& up, ActivationSpec activation,
                                  const Activation& x) {
  const std::size_t result = add(gate, x);
  Product& p = products_[result];
  p.up = &up;
  p.activation = activation;
  p.up_input = input_for(x, up.dtype);
  p.up_y = Activation::unfilled(p.y.rows, p.y.width);
  return result;
}

void ProductBatch::multiply(const MatrixView& m, const std::byte* weights, const Input& in, std::size_t begin,
                            std::size_t end, Activation& y) const {
  if (in.laid_out != nullptr)
    kernels_.matmul_i8(m.dtype, weights, m.k, begin, end, in.laid_out.get(), y.rows, y.values.data(), y.width);
  else
    kernels_.matmul(m.dtype, weights, m.k, begin, end, in.x->values.data(), in.x->width, y.rows, y.values.data(),
                    y.width);
}

void ProductBatch::compute(Product& p, std::size_t begin, std::size_t end) const {
  multiply(*p.m, p.weights, inputs_[p.input], begin, end, p.y);
  if (p.up == nullptr) return;
  multiply(*p.up, p.up->data, inputs_[p.up_input], begin, end, p.up_y);
  const std::size_t first = begin * kTileRows, n = std::min<std::size_t>(end * kTileRows, p.m->rows) - first;
  for (std::size_t t = 0; t < p.y.rows; ++t) {
    float* gate = p.y.row(t) + first;
    kernels_.glu(p.activation, gate, p.up_y.row(t) + first, gate, n);
  }
}

void ProductBatch::run() {
  for (; laid_out_ < inputs_.size(); ++laid_out_) {
    Input& in = inputs_[laid_out_];
    const Activation& x = *in.x;
    if (x.form != Form::i8) continue;
    in.laid_out = std::make_unique_for_overwrite<std::byte[]>(kernels_.laid_out_bytes(in.type, x.width, x.rows));
    pool_.parallel(
        x.groups(), kGroupGrain / std::max<std::size_t>(x.rows, 1) + 1, [&](std::size_t begin, std::size_t end) {
          kernels_.lay_out_i8(in.type, {x.q.data(), x.scales.data()}, x.width, x.rows, begin, end, in.laid_out.get());
        });
  }
  const std::span<Product> todo = std::span(products_).subspan(done_);
  pool_.parallel(tiles_, kTileGrain, [&](std::size_t begin, std::size_t end) {
    // The last product that begins at `begin` or before; those without tiles stand before it.
    auto p = std::upper_bound(todo.begin(), todo.end(), begin,
                              [](std::size_t tile, const Product& q) { return tile < q.first_tile; }) -
             1;
    for (; begin < end; ++p) {
      const std::size_t tiles = p->y.rows == 0 ? 0 : tiles_for(p->m->rows);
      const std::size_t last = std::min(end, p->first_tile + tiles);
      if (last <= begin) continue;
      compute(*p, begin - p->first_tile, last - p->first_tile);
      begin = last;
    }
  });
  for (Product& p : todo) {
    const std::size_t rows = p.m->rows, padded = p.y.width;
    p.up_y = {};
    p.y.width = rows;
    if (padded == rows || p.y.rows == 0) continue;
    for (std::size_t t = 1; t < p.y.rows; ++t)
      std::copy_n(p.y.values.data() + t * padded, rows, p.y.values.data() + t * rows);
    p.y.values.resize(p.y.rows * rows);
  }
  for (std::size_t i = 0; i < inputs_.size(); ++i) {  // what they were made of may go now
    inputs_[i].room = {};
    inputs_[i].laid_out.reset();
  }
  done_ = products_.size();
  tiles_ = 0;
}

}  // namespace myriad
