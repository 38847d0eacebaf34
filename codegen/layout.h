// Which stream tiles of a panel body may share memory, and which need none.
#pragma once

#include <map>
#include <set>

#include "codegen/ir.h"

namespace attile::ir {

struct StreamBuffers {
  std::map<int, int> buffer_of;   // value id → buffer number; values absent live in registers only
  int count = 0;
};

// A tile needs memory if a statement other than the Sweep that defines it touches it. Two share a buffer if
// one is dead when the other is defined; within one Sweep a tile may take the place of one that it is made from,
// since positions are done in order.
StreamBuffers assign_stream_buffers(const Kernel& kernel);

// Values read and written by one statement, nested ones included.
std::set<int> values_read(const Kernel& kernel, const Stmt& s);
std::set<int> values_written(const Stmt& s);

}  // namespace attile::ir
