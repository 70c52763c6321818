#include "part/canary.h"

#include "base/bytes.h"
#include "base/random.h"
#include "kernels/thread_pool.h"
#include "part/part_run.h"

namespace myriad {

std::uint64_t canary_seed(const PartSpec& spec) {
  return execution_order(spec.op) * 0x9e3779b97f4a7c15ull + spec.begin;
}

Result<Sha256Digest> canary(const Graph& graph, const Part& part, const Kernels& kernels) {
  const Operator& op = part.op();
  ThreadPool alone(1);
  const PartRunner runner(graph, Profile::exact, KvCache::by_profile, kernels, alone);
  Activation out;
  if (op.kind == OpKind::lead) {  // vectors only: their values are the output
    for (const auto& v : part.vectors()) out.values.insert(out.values.end(), v.values.begin(), v.values.end());
  } else if (op.kind == OpKind::embed) {
    const std::int32_t tokens[] = {static_cast<std::int32_t>(part.spec().begin),
                                   static_cast<std::int32_t>(part.spec().end - 1)};
    MYRIAD_TRY(out, runner.embed(part, tokens));
  } else {
    CounterRandom random(part.canary_seed());
    std::vector<Activation> inputs;
    for (const auto& seam : op.inputs) {
      Activation& x = inputs.emplace_back(Form::f32, 1, seam.width);
      for (float& v : x.values) v = random.symmetric();
    }
    std::vector<const Activation*> pointers;
    for (const auto& x : inputs) pointers.push_back(&x);
    if (has_state(op.kind)) {
      constexpr std::uint32_t kPositions = 4;
      const std::uint32_t units = part.spec().units();
      MYRIAD_TRY(AlignedBuffer memory, AlignedBuffer::allocate(op.state_bytes(units), "a canary's attention state"));
      MYRIAD_TRY(AlignedBuffer page,
                 AlignedBuffer::allocate(kPositions * op.state_bytes_per_position(units, runner.cache_of(op)),
                                         "a canary's cache"));
      std::byte* const pages[] = {page.data()};
      AttentionState state{memory.data(), pages, kPositions, 0};
      const SequenceSlice slice{1, &state};
      MYRIAD_TRY(out, runner.attend(part, pointers, {&slice, 1}));
    } else {
      const PartCall call{&part, pointers, {}};
      MYRIAD_TRY_STATUS(runner.run({&call, 1}, [&](std::size_t, Activation y) { out = std::move(y); }));
    }
  }
  little_in_place(std::span(out.values));
  return sha256(std::as_bytes(std::span(out.values)));
}

Status check_canary(const Graph& graph, const Part& part, const Kernels& kernels) {
  MYRIAD_TRY(const Sha256Digest found, canary(graph, part, kernels));
  if (found != part.canary_digest())
    return fail(Code::corrupt,
                "part {}: its canary gives {}, the part file says {}: this machine does not compute what the others "
                "do, so the part is not used",
                part.spec().name(), to_hex(found).substr(0, 16), to_hex(part.canary_digest()).substr(0, 16));
  return {};
}

}  // namespace myriad
