// The kernel IR: what lowering builds, the verifier checks and the emitters turn into text.
//
// Tiles. A Value is a tile of `rows` × `cols` elements; rows run over the parallel dim, cols over the stream
// or over a head dim; a row state has cols 1. A tile lives in one Space. `global` is the caller's tensors,
// `workspace` memory that the kernels of one program share.
// `tile` is fast memory that one task owns (a CPU's scratch in cache, a GPU's shared memory). `panel` holds the
// rows that one worker processes together (a CPU register panel and its L1 buffer, a warp's registers).
// Layout says how a tile is arranged there; only the emitters read it.
//
// Extents are upper bounds. At run time a row tile has `row_count` ≤ rows valid rows and a stream tile
// `position_count` ≤ cols valid positions; ops touch valid positions only, and rows past the end compute
// garbage that Store does not write. Products accumulate in float32, Map works in float32.
//
// Ordering. Statements run in order. A Loop runs its body once per tile or panel; values in `carry` keep
// their contents between iterations, all others are dead at the end of the body. Tasks share nothing.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "dsl/algorithm.h"

namespace attile::ir {

enum class Element : std::uint8_t { f32, bf16, f16, i32, i64, boolean };
enum class Space : std::uint8_t { global, workspace, tile, panel };
enum class Layout : std::uint8_t {
  plain,           // row-major
  row_panels,      // [panel][col][lane]: rows along lanes
  row_pairs,       // [panel][col/2][lane][2]: the same for a pair-wise dot
  position_blocks, // [position/block][col][block]: what a product broadcasts over head-dim columns
  position_pairs,  // [position/block][col/2][block][2]
  column_blocks,   // [col/block][position][block]: what a product broadcasts over positions
  column_pairs,    // [col/block][position/2][block][2]
  fragments,       // over the registers of a warp, as m16n8 accumulators; a Partition says which part a warp has
  shared_rows,     // row-major in shared memory, 16-byte units permuted against bank conflicts
  lanes,           // a row in the registers of a warp: column c in lane c % 32
};

struct Value {
  int id = -1;
  auto operator<=>(const Value&) const = default;
};

// What the cols of a tile count. row: a state with one element a row.
enum class Axis : std::uint8_t { row, stream, feature, slot };

struct ValueDecl {
  std::string name;
  Element element = Element::f32;
  Axis axis = Axis::row;
  std::int64_t rows = 0, cols = 0;
  Space space = Space::panel;
  Layout layout = Layout::plain;
  int stages = 1;  // tiles that lie in memory at once: a ring over the stream
};

// dst = the tile of input tensor `tensor` at the current rows or positions.
struct Copy {
  Value dst;
  std::string tensor;
  static constexpr const char* name = "copy";
  auto fields() const { return std::tie(dst, tensor); }
};
// A GPU's copies run beside the work. Prefetch begins the copy of the tile of `tensor` that is `ahead` tiles further on in
// the stream; Await waits until the current tile of each value is there for all warps, while the last `pending`
// tiles that were begun may be on their way, and until all warps have come here: so what earlier iterations read may
// be overwritten after it. Release waits for the latter only.
struct Prefetch {
  Value dst;
  std::string tensor;
  int ahead = 0;
  static constexpr const char* name = "prefetch";
  auto fields() const { return std::tie(dst, tensor, ahead); }
};
struct Await {
  std::vector<Value> values;
  int pending = 0;
  static constexpr const char* name = "await";
  auto fields() const { return std::tie(values, pending); }
};
struct Release {
  std::vector<Value> values;
  static constexpr const char* name = "release";
  auto fields() const { return std::tie(values); }
};
// dst = constant.
struct Fill {
  Value dst;
  double constant;
  static constexpr const char* name = "fill";
  auto fields() const { return std::tie(dst, constant); }
};
// How a product is computed.
enum class MmaKind : std::uint8_t {
  unselected,
  fma,       // register-blocked multiply-add, widened to float32
  pair_dot,  // dot instruction on bf16 pairs
  stream,    // operands read where they lie, once (few rows)
  tensor,    // matrix instruction of a GPU on 16-bit operands
  tf32,      // the same on float32 rounded to TF32
  tf32_exact,  // three of them on high and low parts
  lanes,     // multiply-add, a warp for each row
};
// dst = a · bᵀ over the head dim: a rows × D, b positions × D.
struct ScoreMma {
  Value dst, a, b;
  MmaKind kind = MmaKind::unselected;
  static constexpr const char* name = "score_mma";
  auto fields() const { return std::tie(dst, a, b, kind); }
};
// acc += p · v over the positions: p rows × positions, v positions × Dv. `guarded`: a position whose p is −0
// is hidden and takes no part, whatever v holds there.
struct SumMma {
  Value acc, p, v;
  MmaKind kind = MmaKind::unselected;
  bool guarded = false;
  static constexpr const char* name = "sum_mma";
  auto fields() const { return std::tie(acc, p, v, kind, guarded); }
};
// dst = expr, element by element; variables of expr are names of values (and, in a rule, of row states).
struct Map {
  Value dst;
  Expr expr;
  static constexpr const char* name = "map";
  auto fields() const { return std::tie(dst, expr); }
};
// tile = hidden where the position is hidden. `implied`: at a score of −inf the tile is 0 anyway.
struct Mask {
  Value tile;
  double hidden;
  bool implied = false;
  static constexpr const char* name = "mask";
  auto fields() const { return std::tie(tile, hidden, implied); }
};
enum class Reduce : std::uint8_t { max, sum };
// acc = op(acc, src over its valid positions).
struct RowReduce {
  Value acc, src;
  Reduce op;
  static constexpr const char* name = "row_reduce";
  auto fields() const { return std::tie(acc, src, op); }
};
// Multiplies each row of acc by that row of `factor`: the rescale rule made explicit.
struct Rescale {
  Value acc, factor;
  static constexpr const char* name = "rescale";
  auto fields() const { return std::tie(acc, factor); }
};
struct Stmt;
using Block = std::vector<Stmt>;
// The reference lags behind: unless for some row `maximum` is more than `slack` above it (in units of `scale`, where there
// is one), reference and sums stay as they are; else `body` moves the references and rescales the sums.
struct Advance {
  Value reference, maximum;
  double slack;
  Expr scale;
  Block body;
  static constexpr const char* name = "advance";
  auto fields() const { return std::tie(reference, maximum, slack, scale); }
};
// The warps of a task have each swept a share of the positions: reference, sums and what they were relative to become
// those of all. joined = the largest reference; every sum is multiplied by `factor`, which leads from a warp's
// reference to `joined` (where −inf reads as 0), and added up; reference = joined. Without a reference sums are added
// as they are.
struct Join {
  Value reference, joined;
  Expr factor;
  std::vector<Value> sums;
  static constexpr const char* name = "join";
  auto fields() const { return std::tie(reference, joined, factor, sums); }
};
// Keeps the k largest of (values, src) with their positions, ties to the lower position.
struct Insert {
  Value values, indices, src;
  static constexpr const char* name = "insert";
  auto fields() const { return std::tie(values, indices, src); }
};
// Writes valid rows (and positions) of src to output `tensor`, converted to its type.
struct Store {
  std::string tensor;
  Value src;
  static constexpr const char* name = "store";
  auto fields() const { return std::tie(tensor, src); }
};
// dst = Σ over slots of weight · the row of `tensor` that `indices` names (none for a negative index).
struct Gather {
  Value dst;
  Expr weight;
  Value indices;
  std::string tensor;
  static constexpr const char* name = "gather";
  auto fields() const { return std::tie(dst, weight, indices, tensor); }
};

// state = what Save last wrote for it at the current rows. The workspace keeps one tile of each state for every row
// tile, so that states outlive the iterations of a loop over row tiles.
struct Restore {
  Value state;
  static constexpr const char* name = "restore";
  auto fields() const { return std::tie(state); }
};
struct Save {
  Value state;
  static constexpr const char* name = "save";
  auto fields() const { return std::tie(state); }
};

enum class LoopKind : std::uint8_t {
  row_tiles,   // keys_outer order only: the row tiles of a task, which then has all rows of its head
  key_tiles,   // tiles of the stream
  panels,      // panels of the row tile
};
struct Loop {
  LoopKind kind;
  std::vector<Value> carry;
  Expr skip_unless;   // of tiles: one over whose intervals this is nowhere true is passed over; may be empty
  Block body;
  static constexpr const char* name = "loop";
  auto fields() const { return std::tie(kind, carry, skip_unless); }
};
// Evaluates `predicate` over the intervals of the current rows and positions and runs one body: `hidden` if all is
// hidden, `plain` if all is visible, `guarded` if mixed and a value in `watched` holds inf or NaN, else `masked`.
// `hidden` leaves every state alone and writes 0 to the outputs that have a value at every position; without such
// outputs it is empty, and a mixed panel may leave out positions at both ends that none of its rows sees.
struct Visibility {
  Expr predicate;
  std::vector<Value> watched;
  Block plain, masked, guarded, hidden;
  static constexpr const char* name = "visibility";
  auto fields() const { return std::tie(predicate, watched); }
};
// Runs its body position by position: element-wise ops fused into one pass over a stream tile.
struct Sweep {
  Block body;
  static constexpr const char* name = "sweep";
  auto fields() const { return std::tie(); }
};

struct Stmt {
  std::variant<Copy, Prefetch, Await, Release, Fill, ScoreMma, SumMma, Map, Mask, RowReduce, Rescale, Advance, Join, Insert,
               Store, Gather, Restore, Save, Loop, Visibility, Sweep>
      node;
};

template <class... Ts>
struct overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
overloaded(Ts...) -> overloaded<Ts...>;

struct Kernel {
  std::string name;
  std::vector<ValueDecl> values;
  std::vector<std::string> positive;  // scalars that must be > 0 in every call
  Block body;

  Value add(ValueDecl decl) {
    values.push_back(std::move(decl));
    return Value{static_cast<int>(values.size()) - 1};
  }
  const ValueDecl& operator[](Value v) const { return values[static_cast<std::size_t>(v.id)]; }
  ValueDecl& operator[](Value v) { return values[static_cast<std::size_t>(v.id)]; }
  // The value of that name; id −1 if there is none.
  Value find(const std::string& value_name) const;
};

// One op a line, the user's names, types at definitions. Stable over runs.
std::string print(const Kernel& kernel);

}  // namespace attile::ir
