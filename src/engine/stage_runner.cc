#include "engine/stage_runner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace myriad {
namespace {

// A part in the way of an operator: which units, and who holds it.
struct Route {
  std::uint32_t begin, end, index, owner;
};

// Where the values of one part go in the operator's output row.
struct Slice {
  std::size_t offset, width;
};

Slice slice_of(const Operator& op, const Route& route, bool candidates) {
  if (op.kind == OpKind::embed) return {0, op.output.width};
  if (op.kind == OpKind::head && candidates) {
    const std::size_t first = route.begin / kVocabularyBlock,
                      blocks = (route.end - route.begin + kVocabularyBlock - 1) / kVocabularyBlock;
    return {first * kPackedCandidates, blocks * kPackedCandidates};
  }
  return {static_cast<std::size_t>(route.begin) * op.output_per_unit,
          static_cast<std::size_t>(route.end - route.begin) * op.output_per_unit};
}

std::size_t output_width(const Operator& op, bool candidates) {
  if (op.kind == OpKind::head && candidates)
    return (op.extent + kVocabularyBlock - 1) / kVocabularyBlock * kPackedCandidates;
  return op.output.width;
}

// One part's share of one operator call of a round.
struct Item {
  std::size_t call;  // in the round
  const Route* route;
  std::vector<std::uint16_t> rows;  // rows of the operator call's inputs (for embed: of the tokens); empty: all
};

}  // namespace

// One step on its way through this node's stage. Lives at a fixed address: coroutines refer to it.
struct ActiveStep final : OperatorRunner {
  StageRunner::Impl& owner;
  std::uint64_t ticket;
  Step step;
  std::size_t row_count = 0;
  Stream stream;
  LayerContext context;
  std::unique_ptr<Task> task;
  StepReply reply;
  std::optional<Error> error;

  // The round that is being waited for.
  Round* round = nullptr;
  std::coroutine_handle<> resume;
  struct Pending {
    std::uint32_t node;
    std::vector<Item> items;
  };
  std::map<std::uint64_t, Pending> pending;                          // by call
  std::optional<std::pair<std::uint64_t, std::uint32_t>> forwarded;  // the call to the next lead, and that node

  ActiveStep(StageRunner::Impl& o, std::uint64_t t, Step s);
  bool start(Round& r, std::coroutine_handle<> h) override;
  Status place(OperatorCall& call, const Item& item, Activation values) const;
  Task run();
};

struct StageRunner::Impl {
  const Graph& graph;
  Assign assign;
  PartExecutor& parts;
  const Kernels& kernels;
  std::map<OpRef, std::vector<Route>> routes;
  std::map<std::uint32_t, std::string> part_names;
  std::vector<std::uint32_t> stateful;
  std::map<std::uint64_t, std::unique_ptr<ActiveStep>> steps;  // by ticket
  std::map<std::uint64_t, std::uint64_t> ticket_of;            // call -> ticket
  std::uint64_t last_call = 0;
  std::vector<Action> out;

  Impl(const Graph& g, Assign a, PartExecutor& p, const Kernels& k)
      : graph(g), assign(std::move(a)), parts(p), kernels(k) {}
  [[nodiscard]] const std::string& self() const { return assign.nodes[assign.self].node.value; }
  std::uint64_t send(std::uint64_t ticket, std::uint32_t node, Message message) {
    const std::uint64_t call = ++last_call;
    ticket_of[call] = ticket;
    out.emplace_back(SendQuestion{call, node, std::move(message)});
    return call;
  }
  // Goes on with a step after something changed; ends it if it is done or failed.
  void advance(ActiveStep& s);
  void finish(ActiveStep& s, Result<StepReply> reply);
  void drop_calls(ActiveStep& s);
};

ActiveStep::ActiveStep(StageRunner::Impl& o, std::uint64_t t, Step s)
    : owner(o), ticket(t), step(std::move(s)), context{o.graph, o.assign.profile, o.kernels, o.parts.pool(),
                                                       *this,   o.parts.leads()} {
  for (const auto& seq : step.sequences) row_count += seq.rows;
}

// Splits a round over the parts in the way; remote calls go out first, then the local items run, then the answers are
// awaited.
bool ActiveStep::start(Round& r, std::coroutine_handle<> h) {
  round = &r;
  resume = h;
  std::map<std::uint32_t, std::vector<Item>> by_owner;
  for (std::size_t c = 0; c < r.calls.size(); ++c) {
    OperatorCall& call = r.calls[c];
    const bool is_embed = call.op->kind == OpKind::embed;
    const std::size_t rows = is_embed            ? step.tokens.size()
                             : call.rows.empty() ? call.inputs[0]->rows
                                                 : call.rows.size();
    call.output.form =
        call.op->kind == OpKind::head ? Form::f32 : call.op->output.form[static_cast<int>(context.profile)];
    call.output.rows = rows;
    call.output.width = output_width(*call.op, call.candidates);
    for (const auto& route : owner.routes.at(call.op->ref)) {
      Item item{c, &route, call.rows};
      if (is_embed) {
        for (std::size_t t = 0; t < rows; ++t)
          if (static_cast<std::uint32_t>(step.tokens[t]) >= route.begin &&
              static_cast<std::uint32_t>(step.tokens[t]) < route.end)
            item.rows.push_back(static_cast<std::uint16_t>(t));
        if (item.rows.empty()) continue;
      }
      by_owner[route.owner].push_back(std::move(item));
    }
  }

  for (auto& [node, items] : by_owner) {
    if (node == owner.assign.self) continue;
    Call message;
    message.epoch = owner.assign.epoch;
    // A tensor is sent once a call; if every item that uses it wants only some rows, only those rows go.
    struct Sent {
      std::uint16_t index;
      std::vector<std::uint16_t> rows;  // empty: all
    };
    std::map<const Activation*, Sent> sent;
    std::map<const Activation*, std::set<std::uint16_t>> wanted;
    std::set<const Activation*> whole;
    for (const auto& item : items)
      for (const auto* input : r.calls[item.call].inputs) {
        if (item.rows.empty()) whole.insert(input);
        wanted[input].insert(item.rows.begin(), item.rows.end());
      }
    for (const auto& item : items) {
      const OperatorCall& call = r.calls[item.call];
      CallItem out{item.route->index, {}, item.rows, call.candidates ? HeadWant::candidates : HeadWant::logits};
      for (const auto* input : call.inputs) {
        auto it = sent.find(input);
        if (it == sent.end()) {
          Sent s{static_cast<std::uint16_t>(message.tensors.size()), {}};
          if (whole.contains(input)) {
            message.tensors.push_back(*input);
          } else {
            s.rows.assign(wanted[input].begin(), wanted[input].end());
            message.tensors.push_back(choose_rows(*input, s.rows));
          }
          it = sent.emplace(input, std::move(s)).first;
        }
        out.inputs.push_back(it->second.index);
        if (!it->second.rows.empty())
          for (std::size_t i = 0; i < out.rows.size(); ++i)
            out.rows[i] = static_cast<std::uint16_t>(
                std::lower_bound(it->second.rows.begin(), it->second.rows.end(), item.rows[i]) -
                it->second.rows.begin());
      }
      if (has_state(call.op->kind)) message.sequences = step.sequences;
      if (call.op->kind == OpKind::embed) message.tokens = step.tokens;
      message.items.push_back(std::move(out));
    }
    const std::uint64_t id = owner.send(ticket, node, std::move(message));
    pending[id] = {node, std::move(items)};
  }

  if (const auto local = by_owner.find(owner.assign.self); local != by_owner.end()) {
    std::vector<PartExecutor::Item> items;
    for (const auto& item : local->second) {
      const OperatorCall& call = r.calls[item.call];
      items.push_back(
          {item.route->index, call.inputs, item.rows, call.candidates ? HeadWant::candidates : HeadWant::logits});
    }
    Status placed;
    Status done = owner.parts.run(items, step.sequences, step.tokens, [&](std::size_t i, Activation values) {
      const Item& item = local->second[i];
      if (placed) placed = place(r.calls[item.call], item, std::move(values));
    });
    if (done) done = std::move(placed);
    if (!done) {
      error = std::move(done).error();
      if (error->node.empty()) error->node = owner.self();
    }
  }
  return pending.empty() && !error;
}

// What a part gave goes to its place in the operator's output: all of it at once, or piece by piece.
Status ActiveStep::place(OperatorCall& call, const Item& item, Activation values) const {
  const Slice slice = slice_of(*call.op, *item.route, call.candidates);
  const bool is_embed = call.op->kind == OpKind::embed;
  const std::size_t rows = is_embed ? item.rows.size() : call.output.rows;
  if (values.rows != rows || values.width != slice.width || values.form != call.output.form)
    return fail(Code::corrupt, "part {} answered {} rows of {} values in form {}, expected {} of {} in form {}",
                owner.part_names.at(item.route->index), values.rows, values.width, static_cast<int>(values.form), rows,
                slice.width, static_cast<int>(call.output.form));
  if (rows == call.output.rows && slice.width == call.output.width) {
    call.output = std::move(values);
    return {};
  }
  call.output.values.resize(call.output.rows * call.output.width);  // by the first piece
  for (std::size_t t = 0; t < rows; ++t)
    std::copy_n(values.row(t), slice.width, call.output.row(is_embed ? item.rows[t] : t) + slice.offset);
  return {};
}

Task ActiveStep::run() {
  const StageAssignment& stage = owner.assign.stages[step.next_stage];
  const Half halves = owner.graph.halves();
  if (stage.first == 0) {
    co_await embed(context, stream);
  } else {
    stream.residual = std::move(step.tensors.front());
    for (std::size_t i = 1; i < step.tensors.size(); ++i) stream.blocks.push_back(std::move(step.tensors[i]));
    step.tensors.clear();
  }
  co_await run_halves(context, stage.first, stage.last, stream);
  if (stage.last != halves || context.failed) co_return;

  // Rows that candidates decide, and rows of which all logits are wanted.
  std::vector<std::size_t> few, all;
  for (std::size_t i = 0; i < step.wanted.size(); ++i) {
    const auto& w = step.wanted[i];
    (w.want == HeadWant::candidates && decided_by_candidates(w.sample) ? few : all).push_back(i);
  }
  reply.samples.resize(step.wanted.size());
  const auto rows_of = [&](const std::vector<std::size_t>& which) {
    std::vector<std::uint16_t> rows;
    for (const auto i : which) rows.push_back(step.wanted[i].row);
    return rows;
  };
  if (!few.empty()) {
    Activation packed;
    std::vector<std::uint16_t> rows = rows_of(few);
    co_await run_head(context, stream, rows, true, packed);
    for (std::size_t i = 0; i < few.size() && !context.failed; ++i) {
      auto blocks =
          unpack_candidates({packed.row(i), packed.width}, static_cast<std::uint32_t>(owner.graph.config().vocab));
      if (!blocks) {
        error = std::move(blocks).error();
        co_return;
      }
      reply.samples[few[i]] = sample(step.wanted[few[i]].sample, *blocks);
    }
  }
  if (!all.empty() && !context.failed) {
    Activation logits;
    std::vector<std::uint16_t> rows = rows_of(all);
    co_await run_head(context, stream, rows, false, logits);
    Activation wanted;
    wanted.width = logits.width;
    for (std::size_t i = 0; i < all.size() && !context.failed; ++i) {
      const std::span<const float> row(logits.row(i), logits.width);
      if (!std::all_of(row.begin(), row.end(), [](float v) { return std::isfinite(v); })) {
        context.failed = true;
        co_return;
      }
      if (step.wanted[all[i]].want == HeadWant::logits) {
        wanted.values.insert(wanted.values.end(), row.begin(), row.end());
        ++wanted.rows;
      } else {
        reply.samples[all[i]] = sample(owner.kernels, step.wanted[all[i]].sample, row);
      }
    }
    if (wanted.rows > 0) reply.tensors.push_back(std::move(wanted));
  }
}

void StageRunner::Impl::drop_calls(ActiveStep& s) {
  for (const auto& [call, p] : s.pending) {
    ticket_of.erase(call);
    out.emplace_back(CancelQuestion{call, p.node});
  }
  s.pending.clear();
  if (s.forwarded) {
    ticket_of.erase(s.forwarded->first);
    out.emplace_back(CancelQuestion{s.forwarded->first, s.forwarded->second});
    s.forwarded.reset();
  }
}

void StageRunner::Impl::finish(ActiveStep& s, Result<StepReply> reply) {
  drop_calls(s);
  out.emplace_back(FinishStep{s.ticket, std::move(reply)});
  steps.erase(s.ticket);
}

void StageRunner::Impl::advance(ActiveStep& s) {
  if (s.error) return finish(s, std::unexpected(std::move(*s.error)));
  if (s.context.failed) {
    Error e{Code::internal,
            fmt::format("computing step {}: a value is not finite, so it cannot be quantised; the weights of this "
                        "model or the input are damaged",
                        s.step.step),
            self(),
            {}};
    return finish(s, std::unexpected(std::move(e)));
  }
  if (!s.task->done()) return;  // waiting for answers
  const StageAssignment& stage = assign.stages[s.step.next_stage];
  if (stage.last == graph.halves()) return finish(s, std::move(s.reply));
  Step next;
  next.epoch = assign.epoch;
  next.step = s.step.step;
  next.sequences = s.step.sequences;
  next.tokens = s.step.tokens;
  next.wanted = s.step.wanted;
  next.next_stage = s.step.next_stage + 1;
  next.tensors.push_back(std::move(s.stream.residual));
  for (auto& block : s.stream.blocks) next.tensors.push_back(std::move(block));
  const std::uint32_t lead = assign.stages[next.next_stage].lead;
  s.forwarded = {send(s.ticket, lead, std::move(next)), lead};
}

Result<std::unique_ptr<StageRunner>> StageRunner::create(const Graph& graph, Assign assign, PartExecutor& parts,
                                                         const Kernels& kernels) {
  auto impl = std::make_unique<Impl>(graph, std::move(assign), parts, kernels);
  const Assign& a = impl->assign;
  MYRIAD_TRY_STATUS(check_window(graph.config(), a.budget.context));
  for (const auto& p : a.parts) {
    if (p.owner >= a.nodes.size())
      return fail(Code::corrupt, "part {} is given to node {} of {}", p.spec.name(), p.owner, a.nodes.size());
    impl->routes[p.spec.op].push_back({p.spec.begin, p.spec.end, p.index, p.owner});
    impl->part_names[p.index] = p.spec.name();
  }
  std::set<std::uint32_t> stateful;
  Half covered = 0;
  for (const auto& stage : a.stages) {
    if (stage.first != covered || stage.last <= stage.first || stage.lead >= a.nodes.size())
      return fail(Code::corrupt,
                  "the assignment of epoch {} has a stage [{}, {}) led by node {} of {}, where one from half-layer {} "
                  "on was expected",
                  a.epoch.value, stage.first, stage.last, stage.lead, a.nodes.size(), covered);
    covered = stage.last;
  }
  if (covered != graph.halves())
    return fail(Code::corrupt, "the stages of epoch {} end at half-layer {} of {}", a.epoch.value, covered,
                graph.halves());
  for (const auto& stage : a.stages) {
    if (stage.lead != a.self) continue;
    for (const auto& op : graph.operators()) {
      const Half half = half_of(op.ref, graph.halves());
      if (half < stage.first || half >= stage.last) continue;
      auto& routes = impl->routes[op.ref];
      std::sort(routes.begin(), routes.end(), [](const Route& x, const Route& y) { return x.begin < y.begin; });
      std::uint32_t at = 0;
      for (const auto& r : routes) at = r.begin == at ? r.end : ~0U;
      if (at != op.extent)
        return fail(Code::corrupt, "the assignment of epoch {} has no complete route for {}", a.epoch.value,
                    PartSpec{op.ref, 0, op.extent}.name());
      if (op.kind == OpKind::lead && !parts.leads().contains(op.ref))
        return fail(
            Code::corrupt,
            "the assignment of epoch {} makes this node lead half-layers {} to {}, but {} is not among its parts",
            a.epoch.value, stage.first, stage.last, PartSpec{op.ref, 0, 1}.name());
      if (has_state(op.kind))
        for (const auto& r : routes) stateful.insert(r.owner);
    }
  }
  impl->stateful.assign(stateful.begin(), stateful.end());
  return std::unique_ptr<StageRunner>(new StageRunner(std::move(impl)));
}

StageRunner::StageRunner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StageRunner::~StageRunner() = default;

std::vector<Action> StageRunner::on_step(std::uint64_t ticket, Step step) {
  Impl& i = *impl_;
  const auto refuse = [&](Error e) {
    e.node = i.self();
    std::vector<Action> out;
    out.emplace_back(FinishStep{ticket, std::unexpected(std::move(e))});
    return out;
  };
  if (step.epoch != i.assign.epoch)
    return refuse({Code::stale,
                   fmt::format("step {} belongs to epoch {}, this node runs epoch {}", step.step, step.epoch.value,
                               i.assign.epoch.value),
                   {},
                   {}});
  if (step.next_stage >= i.assign.stages.size() || i.assign.stages[step.next_stage].lead != i.assign.self)
    return refuse({Code::invalid_argument,
                   fmt::format("step {} is for stage {}, which this node does not lead", step.step, step.next_stage),
                   {},
                   {}});
  if (i.steps.size() >= kMaxStepsInFlight)
    return refuse({Code::busy, fmt::format("{} steps are in flight at this lead already", i.steps.size()), {}, {}});
  const auto& config = i.graph.config();
  const StageAssignment& stage = i.assign.stages[step.next_stage];
  std::size_t rows = 0;
  for (const auto& s : step.sequences) rows += s.rows;
  if (rows == 0 || rows > i.assign.budget.step_rows || step.tokens.size() != rows)
    return refuse({Code::invalid_argument,
                   fmt::format("step {} has {} rows and {} tokens; 1 to {} rows with a token each are expected",
                               step.step, rows, step.tokens.size(), i.assign.budget.step_rows),
                   {},
                   {}});
  for (const auto t : step.tokens)
    if (t < 0 || static_cast<std::size_t>(t) >= config.vocab)
      return refuse({Code::invalid_argument, fmt::format("token {} of a vocabulary of {}", t, config.vocab), {}, {}});
  for (const auto& w : step.wanted)
    if (w.row >= rows || w.want == HeadWant::nothing)
      return refuse(
          {Code::invalid_argument, fmt::format("step {} wants row {} of {}", step.step, w.row, rows), {}, {}});
  const std::size_t streams = stage.first == 0 ? 0 : 1 + banked_blocks(config, stage.first);
  const Form form = i.graph.residual_form(i.assign.profile);
  bool fits = step.tensors.size() == streams;
  for (const auto& t : step.tensors) fits = fits && t.rows == rows && t.width == config.hidden && t.form == form;
  if (!fits)
    return refuse({Code::invalid_argument,
                   fmt::format("step {} brings {} streams to half-layer {}, expected {} of [{}, {}]", step.step,
                               step.tensors.size(), stage.first, streams, rows, config.hidden),
                   {},
                   {}});

  auto active = std::make_unique<ActiveStep>(i, ticket, std::move(step));
  ActiveStep& s = *active;
  i.steps[ticket] = std::move(active);
  s.task = std::make_unique<Task>(s.run());
  s.task->start();
  i.advance(s);
  return std::exchange(i.out, {});
}

std::vector<Action> StageRunner::on_answer(std::uint64_t call, Result<Message> answer) {
  Impl& i = *impl_;
  const auto it = i.ticket_of.find(call);
  if (it == i.ticket_of.end()) return {};  // of a step that ended meanwhile
  ActiveStep& s = *i.steps.at(it->second);
  i.ticket_of.erase(it);
  const bool is_forward = s.forwarded && s.forwarded->first == call;
  const std::uint32_t node = is_forward ? s.forwarded->second : s.pending.at(call).node;
  const auto name_parts = [&](Error e) {
    if (e.node.empty()) e.node = i.assign.nodes[node].node.value;
    const bool gone = e.code == Code::unavailable || e.code == Code::deadline;
    if (e.part.empty() && is_forward && gone) {  // what that lead holds for sure
      const Half first = i.assign.stages[s.step.next_stage + 1].first;
      const OpRole lead = first % 2 == 0 ? OpRole::attn_lead : OpRole::ffn_lead;
      e.part = PartSpec{{static_cast<std::uint16_t>(first / 2), lead, 0}, 0, 1}.name();
    } else if (e.part.empty() && !is_forward) {
      const auto& items = s.pending.at(call).items;
      e.part = i.part_names.at(items.front().route->index);
      if (items.size() > 1) e.part += fmt::format(" and {} more", items.size() - 1);
    }
    return e;
  };
  if (!answer) {
    s.error = name_parts(std::move(answer).error());
  } else if (auto* failure = std::get_if<Failure>(&*answer)) {
    s.error = name_parts(std::move(failure->error));
  } else if (is_forward) {
    auto* reply = std::get_if<StepReply>(&*answer);
    s.forwarded.reset();
    if (reply != nullptr) {
      i.finish(s, std::move(*reply));
      return std::exchange(i.out, {});
    }
    s.error =
        Error{Code::corrupt,
              fmt::format("the lead of stage {} answered a step with {}", s.step.next_stage + 1, message_name(*answer)),
              i.assign.nodes[node].node.value,
              {}};
  } else {
    auto* reply = std::get_if<CallReply>(&*answer);
    const auto& items = s.pending.at(call).items;
    if (reply == nullptr || reply->tensors.size() != items.size()) {
      s.error = name_parts({Code::corrupt,
                            fmt::format("a call of {} items was answered by {}", items.size(), message_name(*answer)),
                            {},
                            {}});
    } else {
      for (std::size_t n = 0; n < items.size() && !s.error; ++n)
        if (auto placed = s.place(s.round->calls[items[n].call], items[n], std::move(reply->tensors[n])); !placed)
          s.error = name_parts(std::move(placed).error());
    }
    if (!s.error) {
      s.pending.erase(call);
      if (!s.pending.empty()) return std::exchange(i.out, {});
      s.resume.resume();
    }
  }
  i.advance(s);
  return std::exchange(i.out, {});
}

std::vector<Action> StageRunner::on_cancel(std::uint64_t ticket) {
  Impl& i = *impl_;
  const auto it = i.steps.find(ticket);
  if (it == i.steps.end()) return {};
  i.drop_calls(*it->second);
  i.steps.erase(it);
  return std::exchange(i.out, {});
}

const std::vector<std::uint32_t>& StageRunner::stateful_nodes() const {
  return impl_->stateful;
}

std::optional<std::uint32_t> StageRunner::next_lead() const {
  const Assign& a = impl_->assign;
  for (std::size_t s = 0; s + 1 < a.stages.size(); ++s)
    if (a.stages[s].lead == a.self) return a.stages[s + 1].lead;
  return std::nullopt;
}

const Assign& StageRunner::assignment() const {
  return impl_->assign;
}
std::size_t StageRunner::steps_in_flight() const {
  return impl_->steps.size();
}

}  // namespace myriad
