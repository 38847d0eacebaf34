#include "codegen/walk.h"

namespace attile::ir {

std::vector<Block*> blocks_of(Stmt& s) {
  return std::visit(overloaded{
                        [](Loop& loop) { return std::vector<Block*>{&loop.body}; },
                        [](Sweep& sweep) { return std::vector<Block*>{&sweep.body}; },
                        [](Advance& advance) { return std::vector<Block*>{&advance.body}; },
                        [](Visibility& v) { return std::vector<Block*>{&v.plain, &v.masked, &v.guarded, &v.hidden}; },
                        [](auto&) { return std::vector<Block*>{}; },
                    },
                    s.node);
}

std::vector<const Block*> blocks_of(const Stmt& s) {
  std::vector<const Block*> out;
  for (Block* b : blocks_of(const_cast<Stmt&>(s))) out.push_back(b);
  return out;
}

void walk(const Block& body, const std::function<void(const Stmt&)>& visit) {
  for (const Stmt& s : body) {
    visit(s);
    for (const Block* inner : blocks_of(s)) walk(*inner, visit);
  }
}

void walk(Block& body, const std::function<void(Stmt&)>& visit) {
  for (Stmt& s : body) {
    visit(s);
    for (Block* inner : blocks_of(s)) walk(*inner, visit);
  }
}

bool elementwise_on_stream(const Kernel& kernel, const Stmt& s) {
  const auto stream = [&](Value v) { return kernel[v].axis == Axis::stream; };
  return std::visit(overloaded{
                        [&](const Map& op) { return stream(op.dst); },
                        [&](const Mask& op) { return stream(op.tile); },
                        [&](const RowReduce& op) { return stream(op.src); },
                        [&](const Insert& op) { return stream(op.src); },
                        [&](const Store& op) { return stream(op.src); },
                        [](const auto&) { return false; },
                    },
                    s.node);
}

void remove_everywhere(Block& body, const std::function<bool(const Stmt&)>& condition) {
  std::erase_if(body, condition);
  for (Stmt& s : body)
    for (Block* inner : blocks_of(s)) remove_everywhere(*inner, condition);
}

}  // namespace attile::ir
