// The short IR pipeline. The emitted text is already made of explicit vectors, so five cheap passes (promote the
// allocas, fold, simplify the control flow) reach the speed of -O3 at a fraction of its time, and PassBuilder with
// every pass it names stays out of the module.
#pragma once

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace attile_llvm {

void run_passes(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace attile_llvm
