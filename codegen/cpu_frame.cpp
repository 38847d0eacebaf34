#include "codegen/cpu_frame.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/llvm_tiles.h"
#include "dsl/error.h"
#include "schedules/footprint.h"

namespace attile::llvm_text {

Val Arguments::slot(const Parameter& p) {
  const auto it = std::find(parameters_.begin(), parameters_.end(), p);
  if (it != parameters_.end()) return values_[static_cast<std::size_t>(it - parameters_.begin())];
  const auto number = static_cast<std::int64_t>(parameters_.size());
  const std::string type = p.kind == Parameter::Kind::data ? "ptr" : p.kind == Parameter::Kind::real ? "float" : "i64";
  const Val at = f_.at_entry("ptr", fmt::format("getelementptr inbounds i64, ptr %args, i64 {}", number));
  const Val value = f_.at_entry(type, fmt::format("load {}, ptr {}, align 8", type, at.name));
  parameters_.push_back(p);
  values_.push_back(value);
  return value;
}

Frame::Frame(const ir::Kernel& k, const ir::Context& c, bool split_stream)
    : kernel(k),
      context(c),
      f(module, fmt::format("void @{}(ptr noalias %args, i64 %task, ptr noalias %scratch)", k.name)),
      args(f),
      split(split_stream) {
  module.avx512 = c.target.vector_bytes == 64;
  module.attributes = fmt::format("nounwind \"target-cpu\"=\"{}\" \"target-features\"=\"{}\" \"prefer-vector-width\"=\"{}\"",
                                  c.target.llvm_cpu, c.target.llvm_features, c.target.vector_bytes * 8);
  for (const OutputDecl& o : c.algorithm.outputs) output_dims_.emplace(o.name, output_dims(c.algorithm, o));
}

std::int64_t Frame::panel_rows() const { return attile::panel_rows(context.schedule, context.target); }

DType Frame::dtype(const std::string& tensor) const {
  const auto it = context.problem.dtypes.find(tensor);
  internal_check(it != context.problem.dtypes.end(), "no dtype for tensor " + tensor);
  return it->second;
}

Val Frame::reserve(std::int64_t bytes) {
  const Val address = f.at_entry("ptr", fmt::format("getelementptr inbounds i8, ptr %scratch, i64 {}", scratch_bytes));
  scratch_bytes += (bytes + 63) / 64 * 64;
  return address;
}

const Dims& Frame::dims_of(const std::string& tensor) const {
  if (const InputDecl* input = context.algorithm.find_input(tensor)) return input->dims;
  const auto output = output_dims_.find(tensor);
  internal_check(output != output_dims_.end(), "unknown tensor " + tensor);
  return output->second;
}

static bool is_packed(const Dims& dims, const Algorithm& a) {
  const auto has = [&](const Dim& d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); };
  return a.lengths == Lengths::packed && (has(query) || has(key));
}

Val Frame::address(const std::string& tensor, const std::vector<Val>& indices) {
  const Dims& dims = dims_of(tensor);
  const bool packed = is_packed(dims, context.algorithm);
  Val offset = i64(0);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    Val at_index = indices[i];
    if (packed && dims[i] == batch) continue;
    if (packed && dims[i] == query) at_index = f.add(at_index, at.row_start);
    if (packed && dims[i] == key) at_index = f.add(at_index, at.position_start);
    if (at_index.name == "0") continue;
    offset = f.add(offset, f.mul(at_index, args.stride(tensor, static_cast<int>(i))));
  }
  if (split && !context.algorithm.find_input(tensor))
    offset = f.add(offset, f.mul(at.part, args.stride(tensor, static_cast<int>(dims.size()))));
  return f.gep("i8", args.data(tensor), f.mul(offset, i64(static_cast<std::int64_t>(size_of(dtype(tensor))))));
}

Val Frame::row_address(const std::string& tensor, const Val& row, const Val& position) {
  std::vector<Val> indices;
  const Val q_head = row.empty() ? at.head : row_head(row);
  for (const Dim& d : dims_of(tensor)) {
    if (d == batch) indices.push_back(at.sequence);
    else if (d == head) indices.push_back(q_head);
    else if (d == kv_head) indices.push_back(kv_head_at());
    else if (d == context.algorithm.parallel && !row.empty()) indices.push_back(row_index(row));
    else if (d == context.algorithm.streamed && !position.empty()) indices.push_back(position);
    else indices.push_back(i64(0));
  }
  return address(tensor, indices);
}

Val Frame::stream_stride(const std::string& tensor) {
  const Dims& dims = dims_of(tensor);
  const auto dim = std::find(dims.begin(), dims.end(), context.algorithm.streamed) - dims.begin();
  return f.mul(args.stride(tensor, static_cast<int>(dim)), i64(static_cast<std::int64_t>(size_of(dtype(tensor)))));
}

Val Frame::row_index(const Val& row) { return group_in_rows() ? f.udiv(row, i64(context.problem.group)) : row; }
Val Frame::row_head(const Val& row) {
  if (!group_in_rows()) return at.head;
  return f.add(f.mul(at.head, i64(context.problem.group)), f.urem(row, i64(context.problem.group)));
}
Val Frame::kv_head_of(const Val& q_head) { return f.udiv(q_head, i64(context.problem.group)); }

Val Frame::visible_extent(const std::string& tensor, int dim) {
  const Dim& d = dims_of(tensor)[static_cast<std::size_t>(dim)];
  const Lengths lengths = context.algorithm.lengths;
  if (d == query && lengths == Lengths::packed) return at.row_length;
  if (d == key && lengths != Lengths::dense) return at.key_length;
  return args.extent(tensor, dim);
}

Values FrameEnvironment::length(const Dim& dim) {
  if (dim == frame_.context.algorithm.parallel) return {frame_.at.row_length};
  if (dim == frame_.context.algorithm.streamed) return {frame_.at.position_length};
  if (dim == key) return {frame_.at.key_length};
  const auto it = frame_.context.problem.extents.find(dim.name);
  internal_check(it != frame_.context.problem.extents.end(), "length of an unknown dim " + dim.name);
  return {i64(it->second)};
}

Values FrameEnvironment::scalar(const Node& node) {
  return {node.kind == Kind::real ? frame_.args.real(node.name) : frame_.args.integer(node.name)};
}

// A value loaded as its own kind: float, integer or i1.
static Val decoded(Function& f, DType type, const Val& raw) {
  const int lanes = lanes_of(raw.type);
  switch (type) {
    case DType::boolean: return f.compare("icmp ne", raw, splat_constant(Val{"0", "i8"}, lanes));
    case DType::int32: return lanes == 1 ? f.cast("sext", raw, "i64") : raw;
    case DType::int64: return raw;
    default: return widened(f, type, raw);
  }
}

Val FrameEnvironment::load_lanes(DType type, const Val& base, const Val& offsets) {
  if (is_vector(offsets.type)) return decoded(f_, type, gathered(type, base, offsets));
  const std::string raw = raw_type(type);
  return decoded(f_, type, f_.load(raw, f_.gep(raw, base, offsets), static_cast<int>(size_of(type))));
}
Val FrameEnvironment::gathered(DType type, const Val& base, const Val& offsets) {
  const int lanes = lanes_of(offsets.type), align = static_cast<int>(size_of(type));
  const std::string raw = raw_type(type);
  const Val addresses = f_.emit(vector_of(lanes, "ptr"), fmt::format("getelementptr {}, ptr {}, {} {}", raw, base.name, offsets.type, offsets.name));
  return f_.call(vector_of(lanes, raw), fmt::format("llvm.masked.gather.{}.v{}p0", mangled(vector_of(lanes, raw)), lanes),
                 {addresses, i32(align), splat_constant(Val{"true", "i1"}, lanes), {"poison", vector_of(lanes, raw)}});
}

// Lanes that count up along a dim: one load where the tensor's elements are neighbours there, which only the call
// knows.
Val FrameEnvironment::load_run(const std::string& tensor, const Val& rest, const Val& first, const Val& lanes, const Val& stride) {
  const DType type = frame_.dtype(tensor);
  const Val base = frame_.args.data(tensor);
  const int count = lanes_of(lanes.type);
  const std::string raw = raw_type(type);
  const Var loaded = f_.variable(vector_of(count, raw));
  f_.if_else(
      f_.compare("icmp eq", stride, i64(1)),
      [&] { f_.set(loaded, f_.load(loaded.type, f_.gep(raw, base, f_.add(rest, first)), static_cast<int>(size_of(type)))); },
      [&] {
        const Val steps = f_.binary("mul", f_.cast("sext", lanes, vector_of(count, "i64")), f_.splat(stride, count));
        f_.set(loaded, gathered(type, base, f_.binary("add", steps, f_.splat(rest, count))));
      });
  return decoded(f_, type, f_.get(loaded));
}

Values FrameEnvironment::combined(Values a, Values b, const char* op) {
  expr_.match(a, b);
  Values out;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool fold = !is_vector(a[i].type) && std::string_view(op) != "and";
    out.push_back(!fold ? f_.binary(op, a[i], b[i]) : std::string_view(op) == "add" ? f_.add(a[i], b[i]) : f_.mul(a[i], b[i]));
  }
  return out;
}
Values FrameEnvironment::compared(const char* predicate, Values a, Values b) {
  expr_.match(a, b);
  Values out;
  for (std::size_t i = 0; i < a.size(); ++i) out.push_back(f_.compare(predicate, a[i], b[i]));
  return out;
}

// The index where it lies within `extent`, else 0; `inside` takes note.
Values FrameEnvironment::clamped(const Values& index, const Val& extent, Values& inside) {
  const Values in = combined(compared("icmp sge", index, {i64(0)}), compared("icmp slt", index, {extent}), "and");
  const Values kept = expr_.select(in, index, {i64(0)});
  inside = inside.empty() ? in : combined(inside, in, "and");
  return kept;
}

FrameEnvironment::ElementPlace FrameEnvironment::place_of(const Node& node, const std::vector<Values>& at) {
  const Dims& dims = frame_.dims_of(node.name);
  const bool packed = is_packed(dims, frame_.context.algorithm);
  ElementPlace place;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (packed && dims[i] == batch) continue;
    Values index = expr_.widened(at[i]);
    const bool own = node.args[i]->op == Op::index && node.args[i]->dim == dims[i];
    if (!own) index = clamped(index, frame_.visible_extent(node.name, static_cast<int>(i)), place.inside);
    if (packed && dims[i] == query) index = combined(index, {frame_.at.row_start}, "add");
    if (packed && dims[i] == key) index = combined(index, {frame_.at.position_start}, "add");
    const Val stride = frame_.args.stride(node.name, static_cast<int>(i));
    const Val first = own ? first_lane(dims[i]) : Val{};
    if (first.empty() || index.size() != 1 || !is_vector(index.front().type)) {
      place.offset = combined(place.offset, combined(index, {stride}, "mul"), "add");
      continue;
    }
    place.run = packed && dims[i] == key ? f_.add(first, frame_.at.position_start) : first;
    place.run_lanes = index.front(), place.run_stride = stride;
  }
  return place;
}

Values FrameEnvironment::loaded(const std::string& tensor, const ElementPlace& place) {
  Values offset = place.offset;
  if (!place.run.empty()) {
    if (is_uniform(offset)) return {load_run(tensor, offset.front(), place.run, place.run_lanes, place.run_stride)};
    offset = combined(offset, combined({place.run_lanes}, {place.run_stride}, "mul"), "add");
  }
  Values out;
  for (const Val& v : offset) out.push_back(load_lanes(frame_.dtype(tensor), frame_.args.data(tensor), v));
  return out;
}

// Indices that are not a dim's own index may lie outside: those lanes read element 0 and then get `outside`.
Values FrameEnvironment::element(const Node& node, const std::vector<Values>& at) {
  const ElementPlace place = place_of(node, at);
  Values read = loaded(node.name, place);
  if (place.inside.empty()) return read;
  if (expr_.is_wide(node)) read = expr_.widened(read);
  const bool one_for_all = is_uniform(place.inside) && !is_uniform(read);
  const Values inside = one_for_all ? Values(read.size(), place.inside.front()) : place.inside;
  return expr_.select(inside, read, expr_.constant(node.value, read));
}

Values FrameEnvironment::random(const Values& seed, const Values& offset) {
  Values row = index(query), position = index(key), head_index = index(head);
  const Val sequence = frame_.at.sequence;
  const Values heads{frame_.args.size("heads")};
  const int w = width();
  expr_.match(row, position);
  if (is_uniform(row)) row = Values{f_.splat(f_.cast("trunc", row.front(), "i32"), w)}, position = Values{f_.splat(f_.cast("trunc", position.front(), "i32"), w)};
  const auto words = [&](const Val& v) { return is_vector(v.type) ? v : f_.splat(f_.cast("trunc", v, "i32"), w); };
  const Val first_head = f_.mul(sequence, heads.front());
  const Val key_low = f_.cast("trunc", seed.front(), "i32");
  const Val key_high = f_.cast("trunc", f_.binary("lshr", seed.front(), i64(32)), "i32");
  const std::string philox = philox_function(frame_.module, w);
  Values out;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const Val h = words(head_index[std::min(i, head_index.size() - 1)]);
    const Val stream = f_.binary("add", f_.splat(f_.cast("trunc", first_head, "i32"), w), h);
    const Val group = f_.binary("lshr", words(position[i]), splat_constant(i32(2), w));
    const Val word = f_.binary("and", words(position[i]), splat_constant(i32(3), w));
    // Along the rows all lanes share one word number; along positions the four words are chosen by lane.
    const bool shared = !is_vector(index(key).front().type);
    const auto draw = [&](const Val& which) {
      return f_.call(vector_of(w, "i32"), philox, {words(offset.front()), stream, words(row[i]), group, key_low, key_high, which});
    };
    Val chosen;
    if (shared) {
      chosen = draw(f_.cast("trunc", f_.binary("and", index(key).front(), i64(3)), "i32"));
    } else {
      for (int n = 0; n < 4; ++n) {
        const Val candidate = draw(i32(n));
        chosen = n == 0 ? candidate : f_.select(f_.compare("icmp eq", word, splat_constant(i32(n), w)), candidate, chosen);
      }
    }
    out.push_back(f_.cast("zext", chosen, vector_of(w, "i64")));
  }
  return out;
}

}  // namespace attile::llvm_text
