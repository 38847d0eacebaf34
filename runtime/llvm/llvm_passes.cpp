#include "runtime/llvm/llvm_passes.h"

#include "llvm/Analysis/AliasAnalysis.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/BasicAliasAnalysis.h"
#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/BranchProbabilityInfo.h"
#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/MemorySSA.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/PostDominators.h"
#include "llvm/Analysis/ProfileSummaryInfo.h"
#include "llvm/Analysis/ScopedNoAliasAA.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Analysis/TypeBasedAliasAnalysis.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassInstrumentation.h"
#include "llvm/IR/PassManager.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include "runtime/llvm/llvm_support.h"
#if LLVM_VERSION_MAJOR >= 20
#include "llvm/Analysis/LastRunTrackingAnalysis.h"
#endif

namespace attile_llvm {
namespace {

llvm::AAManager alias_analyses() {
  llvm::AAManager aliases;
  aliases.registerFunctionAnalysis<llvm::BasicAA>();
  aliases.registerFunctionAnalysis<llvm::ScopedNoAliasAA>();
  aliases.registerFunctionAnalysis<llvm::TypeBasedAA>();
  return aliases;
}

void register_analyses(llvm::FunctionAnalysisManager& fam, llvm::TargetMachine& machine) {
  fam.registerPass([&] { return machine.getTargetIRAnalysis(); });
  fam.registerPass([] { return alias_analyses(); });
  fam.registerPass([] { return llvm::AssumptionAnalysis(); });
  fam.registerPass([] { return llvm::BasicAA(); });
  fam.registerPass([] { return llvm::BlockFrequencyAnalysis(); });
  fam.registerPass([] { return llvm::BranchProbabilityAnalysis(); });
  fam.registerPass([] { return llvm::DominatorTreeAnalysis(); });
  fam.registerPass([] { return llvm::LoopAnalysis(); });
  fam.registerPass([] { return llvm::MemorySSAAnalysis(); });
  fam.registerPass([] { return llvm::OptimizationRemarkEmitterAnalysis(); });
  fam.registerPass([] { return llvm::PassInstrumentationAnalysis(); });
  fam.registerPass([] { return llvm::PostDominatorTreeAnalysis(); });
  fam.registerPass([] { return llvm::ScopedNoAliasAA(); });
  fam.registerPass([] { return llvm::TargetLibraryAnalysis(); });
  fam.registerPass([] { return llvm::TypeBasedAA(); });
#if LLVM_VERSION_MAJOR >= 20
  fam.registerPass([] { return llvm::LastRunTrackingAnalysis(); });
#endif
}

llvm::FunctionPassManager pipeline() {
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::SimplifyCFGPass());
  return passes;
}

}  // namespace

void run_passes(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::FunctionAnalysisManager fam;
  llvm::ModuleAnalysisManager mam;
  register_analyses(fam, machine);
  mam.registerPass([] { return llvm::PassInstrumentationAnalysis(); });
  mam.registerPass([] { return llvm::ProfileSummaryAnalysis(); });
  mam.registerPass([&] { return llvm::FunctionAnalysisManagerModuleProxy(fam); });
  fam.registerPass([&] { return llvm::ModuleAnalysisManagerFunctionProxy(mam); });
  llvm::ModulePassManager passes;
  passes.addPass(llvm::createModuleToFunctionPassAdaptor(pipeline()));
  passes.run(module, mam);
}

}  // namespace attile_llvm
