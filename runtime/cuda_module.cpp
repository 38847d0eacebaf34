#include "runtime/cuda_module.h"

#include <fmt/format.h>

#include <array>
#include <bit>

#include "dsl/error.h"
#include "runtime/cubin.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"

namespace attile {
inline namespace v1 {

struct CudaKernel::Loaded {
  cu::Context context = nullptr;
  cu::Module module = nullptr;
  std::string origin;
  std::optional<CubinInfo> cubin;  // none for PTX

  Loaded() = default;
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
  // A context or driver that went before takes the module along.
  ~Loaded() {
    if (!module) return;
    try {
      const CurrentContext current(context);
      cuda_driver().module_unload(module);
    } catch (const Error&) {
    }
  }
};

namespace {

constexpr unsigned max_grid_x = 2147483647, max_grid_yz = 65535;

bool is_elf(const std::string& image) {
  return image.starts_with(
      "\x7f"
      "ELF");
}

// "sm_90 of cuda:0 (NVIDIA H200)" for the current context.
std::string chip_text(const CudaDriver& driver) {
  cu::DeviceHandle handle = -1;
  if (driver.ctx_get_device(&handle) == cu::Result::success)
    for (const CudaDevice& device : cuda_devices())
      if (device.handle == handle) return fmt::format("{} of cuda:{} ({})", device.arch(), device.index, device.name);
  return "an unknown device";
}

// The driver's own words about PTX it refuses, at most one line.
std::string first_line(const char* text) {
  std::string line = text;
  return line.substr(0, line.find('\n'));
}

}  // namespace

CudaModule::CudaModule(const std::string& image, std::string origin) {
  const CudaDriver& driver = cuda_driver();
  auto loaded = std::make_shared<CudaKernel::Loaded>();
  loaded->origin = std::move(origin);
  if (is_elf(image)) loaded->cubin = read_cubin(image);
  if (is_elf(image) ? !loaded->cubin : image.find(".version") == std::string::npos)
    throw Error(ErrorKind::environment, "load a CUDA kernel", fmt::format("the image of {} is damaged", loaded->origin),
                "clear the kernel cache with 'attile cache clear'");
  cuda_check(driver.ctx_get_current(&loaded->context), "asking for the current context");
  std::array<char, 2048> log{};
  std::array<cu::JitOption, 2> options{cu::JitOption::error_log, cu::JitOption::error_log_bytes};
  std::array<void*, 2> values{log.data(), std::bit_cast<void*>(log.size() - 1)};
  cu::Result result =
      driver.module_load_data_ex(&loaded->module, image.c_str(), options.size(), options.data(), values.data());
  if (result != cu::Result::success) {
    loaded->module = nullptr;
    std::string words = first_line(log.data());
    throw cuda_error(result, fmt::format("loading {} with a driver for CUDA {} on {}{}", loaded->origin,
                                         cuda_version_text(driver.version), chip_text(driver),
                                         words.empty() ? "" : " (" + words + ")"));
  }
  loaded_ = std::move(loaded);
}

cu::Context CudaModule::context() const noexcept { return loaded_->context; }

CudaKernel CudaModule::kernel(const std::string& name, std::size_t dynamic_shared_bytes) const {
  const CudaDriver& driver = cuda_driver();
  const CurrentContext current(loaded_->context);
  CudaKernel kernel;
  kernel.loaded_ = loaded_;
  kernel.name_ = name;
  kernel.dynamic_shared_bytes_ = dynamic_shared_bytes;
  cuda_check(driver.module_get_function(&kernel.function_, loaded_->module, name.c_str()),
             fmt::format("looking for kernel '{}' in {}", name, loaded_->origin));
  // With lazy loading a first launch may load code, which a graph capture forbids.
  if (driver.func_load) cuda_check(driver.func_load(kernel.function_), fmt::format("loading kernel '{}'", name));
  const auto ask = [&](cu::FunctionAttribute attribute) {
    int value = 0;
    cuda_check(driver.func_get_attribute(&value, attribute, kernel.function_), "asking for a kernel's resources");
    return value;
  };
  kernel.registers_ = ask(cu::FunctionAttribute::registers);
  kernel.local_bytes_ = ask(cu::FunctionAttribute::local_bytes);
  kernel.shared_bytes_ = ask(cu::FunctionAttribute::shared_bytes);
  kernel.max_threads_ = ask(cu::FunctionAttribute::max_threads_per_block);
  if (loaded_->cubin)
    if (const CudaResources* known = loaded_->cubin->kernel(name))
      kernel.parameter_bytes_ = static_cast<std::size_t>(known->parameter_bytes);
  auto result = driver.func_set_attribute(kernel.function_, cu::FunctionAttribute::max_dynamic_shared_bytes,
                                          static_cast<int>(dynamic_shared_bytes));
  std::string attempted = fmt::format("asking for {} bytes of shared memory for kernel '{}' (beside {} of its own)",
                                      dynamic_shared_bytes, name, kernel.shared_bytes_);
  if (result == cu::Result::invalid_value)  // the driver's word for more than there is
    throw Error(ErrorKind::resource, "CUDA driver", attempted + " failed: the device has less",
                "choose a schedule with smaller tiles or fewer stages");
  cuda_check(result, attempted);
  return kernel;
}

const std::string& CudaKernel::name() const noexcept { return name_; }

int CudaKernel::blocks_per_sm(int threads) const {
  const CurrentContext current(loaded_->context);
  int blocks = 0;
  cuda_check(cuda_driver().occupancy_max_active_blocks(&blocks, function_, threads, dynamic_shared_bytes_),
             fmt::format("asking for the occupancy of kernel '{}'", name_));
  return blocks;
}

void CudaKernel::launch(const CudaLaunch& l, const void* arguments, std::size_t bytes) const {
  internal_check(parameter_bytes_ == 0 || parameter_bytes_ == bytes, "the argument block has the kernel's size");
  const auto attempted = [&] {
    return fmt::format("launching kernel '{}' with {} x {} x {} blocks of {} threads and {} bytes of shared memory",
                       name_, l.grid_x, l.grid_y, l.grid_z, l.threads, dynamic_shared_bytes_);
  };
  if (l.grid_x > max_grid_x || l.grid_y > max_grid_yz || l.grid_z > max_grid_yz ||
      l.threads > static_cast<unsigned>(max_threads_))
    throw Error(ErrorKind::resource, "CUDA driver",
                fmt::format("{} failed: at most {} x {} x {} blocks of {} threads can be", attempted(), max_grid_x,
                            max_grid_yz, max_grid_yz, max_threads_),
                "make the problem smaller or choose another schedule");
  const CudaDriver& driver = cuda_driver();
  const CurrentContext current(loaded_->context);
  void* parameters[] = {const_cast<void*>(arguments)};
  const auto shared = static_cast<unsigned>(dynamic_shared_bytes_);
  cu::Result result;
  if (l.programmatic) {
    cu::LaunchAttribute attribute{};
    attribute.id = cu::LaunchAttributeId::programmatic_stream_serialization;
    attribute.value.programmatic_stream_serialization = 1;
    const cu::LaunchConfig config{l.grid_x, l.grid_y, l.grid_z, l.threads, 1, 1, shared, l.stream, &attribute, 1};
    result = driver.launch_kernel_ex(&config, function_, parameters, nullptr);
  } else {
    result = driver.launch_kernel(function_, l.grid_x, l.grid_y, l.grid_z, l.threads, 1, 1, shared, l.stream,
                                  parameters, nullptr);
  }
  if (result != cu::Result::success) throw cuda_error(result, attempted());
}

}  // namespace v1
}  // namespace attile
