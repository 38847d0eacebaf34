#include "codegen/cuda_tiles.h"

#include <fmt/format.h>

namespace attile::cuda_text {
namespace {

std::string number(std::int64_t n) { return fmt::format("{}", n); }

// Are the tiles in which a row tile sees something neighbours? Comparisons that are linear in the position say so.
bool is_range(const Expr& e, const Algorithm& a) {
  if (!has_free_dim(e, a.streamed) && !has_free_dim(e, a.parallel)) return true;
  if (e->op == Op::logical_and) return is_range(e->args[0], a) && is_range(e->args[1], a);
  if (e->op != Op::less && e->op != Op::less_equal && e->op != Op::equal) return false;
  return e->args[0]->kind == Kind::integer && e->args[1]->kind == Kind::integer && coefficient(e->args[0], a.streamed) &&
         coefficient(e->args[1], a.streamed);
}

}  // namespace

bool is_bound_only(const Expr& predicate, const Algorithm& a) {
  return predicate->op == Op::less && predicate->args[0]->op == Op::index && predicate->args[0]->dim == a.streamed &&
         predicate->args[1]->op == Op::length && predicate->args[1]->dim == a.streamed;
}

std::string TileSequence::name(int n) const { return n == 0 ? "tile" : n == ahead() ? "coming" : fmt::format("tile{}", n); }

void TileSequence::start(const ir::Loop& loop) {
  range();
  const Algorithm& a = frame_.algorithm();
  const bool some_hidden = !loop.skip_unless.empty() && !is_bound_only(loop.skip_unless, a);
  scans_ = some_hidden && intervals_.scans(loop.skip_unless);
  skips_ = some_hidden && !is_range(loop.skip_unless, a);
  if (some_hidden) leave_hidden_out(loop.skip_unless);
  for (int n = 0; n < ahead(); ++n) out_.line("i32 $tile = end_tile;", {{"tile", name(n)}});
  if (scans_)
    for (int n = 0; n < ahead(); ++n) out_.line("bool $tile_all = false;", {{"tile_all", name(n) + "_all"}});
  out_.line("i32 $tile = $first;", {{"tile", name(ahead())}, {"first", skips_ ? "walk.next(seen)" : "first_tile"}});
}

void TileSequence::range() {
  const std::int64_t keys = frame_.schedule().tile_keys;
  out_.line("const i32 all_tiles = (position_length + $less) / $keys;", {{"less", number(keys - 1)}, {"keys", number(keys)}});
  if (frame_.split) {
    out_.line("const i32 part_tiles = (all_tiles + static_cast<i32>($parts) - 1) / static_cast<i32>($parts);", {{"parts", frame_.args.size("parts")}});
    out_.line("i32 first_tile = min_(part * part_tiles, all_tiles), end_tile = min_(first_tile + part_tiles, all_tiles);");
  } else {
    out_.line("i32 first_tile = 0, end_tile = all_tiles;");
  }
}

void TileSequence::leave_hidden_out(const Expr& predicate) {
  Region region = form_.task_region();
  intervals_.hoist(predicate, region);
  out_.line(walks_together() ? "const auto seen = [&](i32 t, auto early) {" : "const auto seen = [&](i32 t) {");
  out_.line("const i32 position = t * $keys;", {{"keys", number(frame_.schedule().tile_keys)}});
  region.alike = false;
  region.early = walks_together() ? "early" : "Yes{}";
  const Truth truth = intervals_.truth(predicate, region);
  const std::string some = fmt::format("{} ? 1u : 0u", truth.possible);
  out_.line("return $answer;", {{"answer", scans_ ? fmt::format("!{} ? 0u : {} ? 3u : 1u", truth.possible, truth.certain) : some}});
  out_.line("};");
  out_.line(walks_together() ? "BlockWalk<threads> walk{first_tile, end_tile};"
            : skips_         ? "TileWalk walk{first_tile, end_tile};"
                             : "narrow(first_tile, end_tile, seen);");
  if (walks_together()) out_.line("walk.start(seen);");
}

void TileSequence::next() {
  for (int n = 0; n < ahead(); ++n) {
    out_.line("$tile = $next;", {{"tile", name(n)}, {"next", name(n + 1)}});
    if (scans_) out_.line("$tile_all = $next;", {{"tile_all", name(n) + "_all"}, {"next", n + 1 == ahead() ? "walk.all" : name(n + 1) + "_all"}});
  }
  out_.line("$tile = $next;", {{"tile", name(ahead())}, {"next", skips_ ? "walk.next(seen)" : name(ahead()) + " + 1"}});
}

}  // namespace attile::cuda_text
