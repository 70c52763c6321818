#include "engine/pipeline.h"

#include <algorithm>
#include <future>

#include "proto/frame_rows.h"

namespace myriad {

Result<StepReply> run_step(Pipeline& pipeline, Step step) {
  auto promise = std::make_shared<std::promise<Result<StepReply>>>();
  auto future = promise->get_future();
  pipeline.submit(std::move(step), [promise](Result<StepReply> r) { promise->set_value(std::move(r)); });
  return future.get();
}

Status run_logits(Pipeline& pipeline, const SequenceRun& main, std::span<const SequenceRun> others, std::uint32_t chunk,
                  const std::function<void(std::size_t, std::span<const float>)>& on_row) {
  MYRIAD_TRY(const PipelineInfo info, pipeline.info());
  if (main.tokens.size() > info.budget.context)
    return fail(Code::limit, "{} tokens; the context budget is {} positions: raise --context", main.tokens.size(),
                info.budget.context);
  chunk = std::clamp<std::uint32_t>(chunk, 1, std::min(info.budget.step_rows, logit_rows(info.vocabulary)));
  std::uint64_t number = 0;
  std::vector<std::size_t> at(others.size(), 0);
  Status status;
  for (std::size_t first = 0; first < main.tokens.size() && status;) {
    Step step;
    step.step = ++number;
    // The others take turns in front of and behind the main sequence, as far as the step has room.
    std::uint32_t room = info.budget.step_rows;
    const auto add = [&](const SequenceRun& s, std::size_t from, std::size_t n) {
      step.sequences.push_back({s.sequence, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(n)});
      step.tokens.insert(step.tokens.end(), s.tokens.begin() + static_cast<std::ptrdiff_t>(from),
                         s.tokens.begin() + static_cast<std::ptrdiff_t>(from + n));
      room -= static_cast<std::uint32_t>(n);
    };
    const auto rows = static_cast<std::uint32_t>(std::min<std::size_t>(chunk, main.tokens.size() - first));
    const auto add_other = [&](std::size_t o) {
      const std::size_t left = std::min<std::size_t>(others[o].tokens.size(), info.budget.context) - at[o];
      const std::size_t n = std::min<std::size_t>(
          {left, room > rows ? room - rows : 0, 1 + (number * 7 + o * 3) % std::max<std::uint32_t>(chunk, 2)});
      if (n == 0) return;
      add(others[o], at[o], n);
      at[o] += n;
    };
    for (std::size_t o = 0; o < others.size() / 2; ++o) add_other(o);
    const std::size_t main_row = step.tokens.size();
    add(main, first, rows);
    room += rows;  // add_other keeps `rows` free by itself
    for (std::size_t o = others.size() / 2; o < others.size(); ++o) add_other(o);
    for (std::uint32_t r = 0; r < rows; ++r)
      step.wanted.push_back({static_cast<std::uint16_t>(main_row + r), HeadWant::logits, {}});
    auto reply = run_step(pipeline, std::move(step));
    if (!reply)
      status = std::unexpected(std::move(reply).error());
    else if (reply->tensors.size() != 1 || reply->tensors[0].rows != rows)
      status = fail(Code::corrupt, "a step wanted logits of {} rows and did not get them", rows);
    else
      for (std::uint32_t r = 0; r < rows; ++r) on_row(first + r, {reply->tensors[0].row(r), reply->tensors[0].width});
    first += rows;
  }
  std::vector<SequenceId> all{main.sequence};
  for (const auto& o : others) all.push_back(o.sequence);
  pipeline.release(std::move(all));
  return status;
}

}  // namespace myriad
