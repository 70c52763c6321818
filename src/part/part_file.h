// The part file: the canonical bytes of a piece of an operator. Its SHA-256 is the part's id. docs/part-file.md
// describes it.
//
// All little-endian.
//   header, kPartHeaderBytes (128):
//     0  "MYRPART1"          8  u32 version (1)     12  u32 entries
//    16  u16 layer  18  u8 role (OpRole)  19  u8 kind (OpKind)  20  u16 index (expert)  22  u16 zero
//    24  u32 begin  28  u32 end            units of the operator
//    32  u64 bytes of the whole file
//    40  u64 canary seed    48  32 bytes canary digest (SHA-256 over the f32 outputs, see canary.h)   80  zeros
//   entries, kPartEntryBytes (32) each, in the order of Operator::matrices, then Operator::vectors:
//     0  u8 class (0 matrix, 1 vector)  1  u8 role  2  u8 dtype  3  u8 zero  4  u32 count  8  u32 rows  12  u32 columns
//    16  u64 offset  24  u64 bytes
//     a matrix entry is `count` matrices [rows, columns] in tiles of 16 rows (kernels/kernels.h); a vector is f32
//     [rows].
//   data at multiples of 64, without gaps but for that padding (zeros).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/ids.h"
#include "kernels/kernels.h"
#include "model/graph.h"

namespace myriad {

inline constexpr std::uint32_t kPartVersion = 2;
inline constexpr std::size_t kMaxPartBytes = std::size_t{1} << 32;

struct MatrixView {
  MatrixRole role;
  DType dtype;
  std::uint32_t count, rows, k;
  const std::byte* data;  // host order; matrix i at i · matrix_bytes(dtype, rows, k)
  [[nodiscard]] const std::byte* at(std::size_t i) const { return data + i * matrix_bytes(dtype, rows, k); }
};
struct VectorView {
  VectorRole role;
  std::span<const float> values;
};

// A loaded part: owns its bytes, in host order.
class Part {
 public:
  // Takes the bytes of a part file (little-endian) and checks every field against what the graph says this part must
  // be. On a big-endian host swaps them in place. `verify`: check the SHA-256 first. Errors: corrupt, with the part's
  // name.
  static Result<Part> parse(AlignedBuffer bytes, const Graph& graph, const PartId* verify);

  // Gives the part's bytes back, little-endian again. Not of a part that another one is seen as, or that is seen so.
  AlignedBuffer release() &&;

  // The same weights as the part of another operator, without bytes of its own; it keeps this part's alive. With tied
  // embeddings the head's rows are the embedding's. Nothing, unless that operator's units have exactly these matrices
  // and no vectors.
  [[nodiscard]] std::optional<Part> seen_as(const PartSpec& spec, const Graph& graph) const;

  [[nodiscard]] const PartSpec& spec() const { return spec_; }
  [[nodiscard]] const Operator& op() const { return *op_; }  // in the graph, which must outlive the part
  // That it holds; 0, if it is another one's that is seen as this.
  [[nodiscard]] std::uint64_t bytes() const { return owned_; }
  // nullptr if this operator has none.
  [[nodiscard]] const MatrixView* matrix(MatrixRole role) const;
  [[nodiscard]] const std::vector<MatrixView>& matrices() const { return matrices_; }
  [[nodiscard]] std::span<const float> vector(VectorRole role) const;
  [[nodiscard]] const std::vector<VectorView>& vectors() const { return vectors_; }
  [[nodiscard]] std::uint64_t canary_seed() const { return canary_seed_; }
  [[nodiscard]] const Sha256Digest& canary_digest() const { return canary_digest_; }

 private:
  PartSpec spec_;
  const Operator* op_ = nullptr;
  std::shared_ptr<AlignedBuffer> bytes_;
  std::uint64_t owned_ = 0;
  std::vector<MatrixView> matrices_;
  std::vector<VectorView> vectors_;
  std::uint64_t canary_seed_ = 0;
  Sha256Digest canary_digest_{};
};

// The directory of a part: where each matrix and vector lies. Fixed by the operator and the units.
struct PartEntry {
  bool is_vector;
  std::uint8_t role;
  DType dtype;
  std::uint32_t count, rows, k;
  std::uint64_t offset, bytes;
  friend bool operator==(const PartEntry&, const PartEntry&) = default;
};
std::vector<PartEntry> part_entries(const Operator& op, std::uint32_t units);

// Writes header and entries into `bytes` (of Operator::weight_bytes(units)).
void write_part_header(std::span<std::byte> bytes, const Operator& op, const PartSpec& spec, std::uint64_t canary_seed,
                       const Sha256Digest& canary);

}  // namespace myriad
