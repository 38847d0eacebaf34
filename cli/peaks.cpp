#include "cli/peaks.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/cuda_peaks.h"
#include "runtime/measure.h"

namespace attile::cli {
namespace {

bool is_gpu(Device device) { return device.kind == Device::Kind::cuda; }
bool uses_matrix_unit(const Schedule& s) { return s.lanes == Lanes::fragments; }

DType operand_type(const Problem& p) {
  const auto q = p.dtypes.find("q");
  return q == p.dtypes.end() ? DType::float32 : q->second;
}
// float32 is made of high and low parts in TF32.
int products_for_one(const Problem& p) { return operand_type(p) == DType::float32 && !p.tf32 ? 3 : 1; }

}  // namespace

std::string arithmetic_of(const Problem& p, const Schedule& s, Device device) {
  if (!is_gpu(device)) return s.bf16_dot ? "bfloat16 dots" : "multiply-adds";
  if (!uses_matrix_unit(s)) return "multiply-adds";
  const DType type = operand_type(p);
  if (type != DType::float32) return fmt::format("mma.sync of {}", to_string(type));
  return products_for_one(p) == 1 ? "mma.sync of TF32" : "float32 as three mma.sync of TF32";
}

double measure_gflops(const Problem& p, const Schedule& s, Device device, double seconds) {
  if (!is_gpu(device)) return s.bf16_dot ? measure_bf16_dot_gflops(seconds) : measure_fma_gflops(seconds);
  if (!uses_matrix_unit(s)) return measure_cuda_fma_gflops(device.index);
  return measure_cuda_mma_gflops(device.index, operand_type(p)) / products_for_one(p);
}

double measure_read_gbs_of(Device device) {
  return is_gpu(device) ? measure_cuda_read_gbs(device.index) : measure_read_gbs();
}

Peaks measure_peaks(const Problem& p, const Schedule& s, Device device) {
  Peaks peaks;
  peaks.arithmetic = arithmetic_of(p, s, device);
  if (is_gpu(device)) {
    peaks.gflops = measure_gflops(p, s, device);
  } else {
    peaks.fma_gflops = measure_fma_gflops();
    peaks.bf16_dot_gflops = measure_bf16_dot_gflops();
    peaks.gflops = s.bf16_dot ? peaks.bf16_dot_gflops : peaks.fma_gflops;
  }
  peaks.read_gbs = measure_read_gbs_of(device);
  return peaks;
}

double roofline_share(const Peaks& peaks, const Work& work, double seconds) {
  const double arithmetic = work.flops / (peaks.gflops * 1e9), memory = work.bytes / (peaks.read_gbs * 1e9);
  return std::max(arithmetic, memory) / seconds;
}

}  // namespace attile::cli
