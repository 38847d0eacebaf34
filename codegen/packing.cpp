#include "codegen/packing.h"

namespace attile::ir {

Kernel packing_kernel(const Kernel& main) {
  Kernel pack;
  pack.name = main.name + ".pack";
  for (const ValueDecl& v : main.values)
    if (v.space == Space::workspace) pack.body.push_back({Copy{pack.add(v), v.name}});
  return pack;
}

}  // namespace attile::ir
