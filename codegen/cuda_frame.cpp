#include "codegen/cuda_frame.h"

#include <fmt/format.h>

#include <algorithm>

#include "dsl/error.h"
#include "schedules/footprint.h"
#include "schedules/operands.h"

namespace attile::cuda_text {
namespace {

bool is_packed(const Dims& dims, const Algorithm& a) {
  const auto has = [&](const Dim& d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); };
  return a.lengths == Lengths::packed && (has(query) || has(key));
}

std::string slot_name(const Parameter& p) {
  const std::string name = identifier(p.name);
  switch (p.kind) {
    case Parameter::Kind::data: return name;
    case Parameter::Kind::stride: return fmt::format("{}_stride{}", name, p.dim);
    case Parameter::Kind::extent: return fmt::format("{}_extent{}", name, p.dim);
    case Parameter::Kind::aligned: return fmt::format("{}_aligned{}", name, p.dim);
    case Parameter::Kind::size: return "n_" + p.name;  // a word of ours
    default: return name;
  }
}

}  // namespace

const char* type_name(DType type) {
  switch (type) {
    case DType::float32: return "float";
    case DType::bfloat16: return "bf16";
    case DType::float16: return "f16";
    case DType::int32: return "i32";
    case DType::int64: return "i64";
    case DType::boolean: return "u8";
  }
  return "float";
}

std::string Arguments::slot(const Parameter& p) {
  const auto it = std::find(parameters_.begin(), parameters_.end(), p);
  if (it != parameters_.end()) return "a." + names_[static_cast<std::size_t>(it - parameters_.begin())];
  std::string name = slot_name(p);
  while (std::find(names_.begin(), names_.end(), name) != names_.end()) name += "_";
  parameters_.push_back(p);
  names_.push_back(name);
  return "a." + name;
}

Frame::Frame(const ir::Kernel& k, const ir::Context& c, bool split_stream) : kernel(k), context(c), split(split_stream) {
  for (const OutputDecl& o : c.algorithm.outputs) output_dims_.emplace(o.name, output_dims(c.algorithm, o));
}

std::int64_t Frame::panel_rows() const { return attile::panel_rows(context.schedule, context.target); }

DType Frame::dtype(const std::string& tensor) const {
  const auto it = context.problem.dtypes.find(tensor);
  internal_check(it != context.problem.dtypes.end(), "no dtype for tensor " + tensor);
  return it->second;
}
std::string Frame::type(const std::string& tensor) const { return type_name(dtype(tensor)); }

const Dims& Frame::dims_of(const std::string& tensor) const {
  if (const InputDecl* input = context.algorithm.find_input(tensor)) return input->dims;
  const auto output = output_dims_.find(tensor);
  internal_check(output != output_dims_.end(), "unknown tensor " + tensor);
  return output->second;
}

std::string Frame::query_of(const std::string& row) const {
  return group_in_rows() ? fmt::format("({} / {})", row, context.problem.group) : row;
}
std::string Frame::head_of(const std::string& row) const {
  if (!group_in_rows()) return "head";
  return fmt::format("(kv_head * {0} + {1} % {0})", context.problem.group, row);
}

std::string Frame::offset(const std::string& tensor, const std::vector<std::string>& indices) {
  const Dims& dims = dims_of(tensor);
  const bool packed = is_packed(dims, context.algorithm);
  std::string sum;
  const auto add = [&](const std::string& index, int dim) {
    sum += fmt::format("{}{} * {}", sum.empty() ? "" : " + ", index, args.stride(tensor, dim));
  };
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (indices[i].empty() || (packed && dims[i] == batch)) continue;
    const char* start = !packed ? nullptr : dims[i] == query ? "row_start" : dims[i] == key ? "position_start" : nullptr;
    add(start ? fmt::format("({} + {})", start, indices[i]) : indices[i], static_cast<int>(i));
  }
  if (split && is_output(tensor)) add("part", static_cast<int>(dims.size()));
  return sum.empty() ? "0" : sum;
}

std::string Frame::row_offset(const std::string& tensor, const std::string& row, const std::string& position) {
  std::vector<std::string> indices;
  for (const Dim& d : dims_of(tensor)) {
    if (d == batch) indices.push_back("sequence");
    else if (d == head) indices.push_back(row.empty() ? "head" : head_of(row));
    else if (d == kv_head) indices.push_back("kv_head");
    else if (d == context.algorithm.parallel && !row.empty()) indices.push_back(query_of(row));
    else if (d == context.algorithm.streamed && !position.empty()) indices.push_back(position);
    else indices.push_back({});
  }
  return offset(tensor, indices);
}

std::string Frame::visible_extent(const std::string& tensor, int dim) {
  const Dim& d = dims_of(tensor)[static_cast<std::size_t>(dim)];
  const Lengths lengths = context.algorithm.lengths;
  if (d == query && lengths == Lengths::packed) return "row_length";
  if (d == key && lengths != Lengths::dense) return "key_length";
  return args.extent(tensor, dim);
}

std::string Frame::loaded(const std::string& tensor, const std::string& offset) {
  const std::string element = fmt::format("{}[{}]", args.data(tensor), offset);
  const DType t = dtype(tensor);
  if (is_float(t)) return t == DType::float32 ? element : fmt::format("to_float({})", element);
  return t == DType::boolean ? fmt::format("({} != 0)", element) : element;
}

std::string Frame::parameters_text() const {
  std::string out = "struct Arguments {\n";
  for (std::size_t i = 0; i < args.parameters().size(); ++i) {
    const Parameter& p = args.parameters()[i];
    const std::string data = fmt::format("{}{}*", p.kind == Parameter::Kind::data && is_output(p.name) ? "" : "const ",
                                         p.kind == Parameter::Kind::data ? type(p.name) : "");
    out += fmt::format("  alignas(8) {} {};\n",
                       p.kind == Parameter::Kind::data ? data : p.kind == Parameter::Kind::real ? "float" : "i64", args.name(i));
  }
  return out + "};\n";
}

std::string FrameEnvironment::index(const Dim& dim) {
  const Algorithm& a = frame_.algorithm();
  if (dim == batch) return "sequence";
  if (dim == head) return row_.empty() ? "head" : frame_.head_of(row_);
  if (dim == kv_head) return "kv_head";
  if (dim == slot && !slot_.empty()) return slot_;
  if (dim == a.parallel) return frame_.query_of(row_);
  if (dim == a.streamed && !position_.empty()) return position_;
  internal_check(!column_.empty(), "no index of " + dim.name + " here");
  return column_;
}

std::string FrameEnvironment::length(const Dim& dim) {
  if (dim == frame_.algorithm().parallel) return "row_length";
  if (dim == frame_.algorithm().streamed) return "position_length";
  if (dim == key) return "key_length";
  const auto it = frame_.context.problem.extents.find(dim.name);
  internal_check(it != frame_.context.problem.extents.end(), "length of an unknown dim " + dim.name);
  return fmt::format("{}", it->second);
}

std::string FrameEnvironment::scalar(const Node& node) {
  return node.kind == Kind::real ? frame_.args.real(node.name) : frame_.args.integer(node.name);
}

// A tile's rows and positions may lie past the end, where nothing may be read; other indices of the user's own may be
// anywhere and read as `outside`.
std::string FrameEnvironment::element(const Node& node, const std::vector<std::string>& at) {
  const Dims& dims = frame_.dims_of(node.name);
  const Algorithm& a = frame_.algorithm();
  std::vector<std::string> indices;
  std::string inside;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const bool own = node.args[i]->op == Op::index && node.args[i]->dim == dims[i];
    if (own && dims[i] == a.parallel) {
      indices.push_back(fmt::format("min_({}, row_length - 1)", at[i]));
    } else if (own && dims[i] == a.streamed) {
      indices.push_back(fmt::format("min_({}, position_length - 1)", at[i]));
    } else if (own) {
      indices.push_back(at[i]);
    } else {
      const std::string index = expr_.named(at[i]);
      const std::string ok = expr_.named(fmt::format("{0} >= 0 && {0} < {1}", index, frame_.visible_extent(node.name, static_cast<int>(i))));
      indices.push_back(fmt::format("({} ? {} : 0)", ok, index));
      inside += (inside.empty() ? "" : " && ") + ok;
    }
  }
  const std::string value = frame_.loaded(node.name, frame_.offset(node.name, indices));
  return inside.empty() ? value : fmt::format("({} ? {} : {})", inside, value, constant_text(node.value, node.kind));
}

std::string FrameEnvironment::random(const std::string& seed, const std::string& offset) {
  const std::string stream = fmt::format("static_cast<u32>(sequence * {} + {})", frame_.args.size("heads"), index(head));
  return fmt::format("static_cast<i64>(philox_word(static_cast<u32>({}), {}, static_cast<u32>({}), static_cast<u32>({}), static_cast<u64>({})))",
                     offset, stream, index(query), index(key), seed);
}

// Weights that are rounded to 16 bits do not show the difference.
bool FrameEnvironment::coarse() const {
  const Problem& p = frame_.context.problem;
  for (const Operand& o : product_operands(frame_.algorithm()))
    if (o.streamed && p.dtypes.at(o.tensor) == DType::float32) return false;
  return true;
}

}  // namespace attile::cuda_text
