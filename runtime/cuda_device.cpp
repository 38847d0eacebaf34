#include "runtime/cuda_device.h"

#include <fmt/format.h>

#include <mutex>
#include <optional>

#include "dsl/error.h"
#include "runtime/cuda_driver.h"

namespace attile {
inline namespace v1 {
namespace {

// What was found at the first question; never destroyed, for threads may ask while the process exits.
struct Found {
  std::vector<CudaDevice> devices;
  std::vector<cu::Context> primary;  // retained when first needed
  std::mutex mutex;                  // of `primary`
  std::optional<Error> absence;
};

CudaDevice facts_of(const CudaDriver& driver, int index) {
  CudaDevice device;
  device.index = index;
  cuda_check(driver.device_get(&device.handle, index), "asking for a device");
  char name[256] = {};
  cuda_check(driver.device_get_name(name, sizeof name - 1, device.handle), "asking for a device's name");
  device.name = name;
  cu::Uuid uuid{};
  cuda_check(driver.device_get_uuid(&uuid, device.handle), "asking for a device's UUID");
  device.uuid = uuid_text(uuid, device.name.find("MIG") != std::string::npos);
  std::size_t bytes = 0;
  cuda_check(driver.device_total_mem(&bytes, device.handle), "asking for a device's memory");
  device.memory_bytes = static_cast<std::int64_t>(bytes);
  // A driver that does not know an attribute leaves it at 0.
  const auto ask = [&](cu::DeviceAttribute attribute) {
    int value = 0;
    return driver.device_get_attribute(&value, attribute, device.handle) == cu::Result::success ? value : 0;
  };
  using A = cu::DeviceAttribute;
  device.major = ask(A::capability_major);
  device.minor = ask(A::capability_minor);
  device.sms = ask(A::sm_count);
  device.l2_bytes = ask(A::l2_bytes);
  device.shared_per_block = ask(A::max_shared_per_block);
  device.shared_per_block_optin = ask(A::max_shared_per_block_optin);
  device.shared_per_sm = ask(A::max_shared_per_sm);
  device.shared_reserved_per_block = ask(A::reserved_shared_per_block);
  device.registers_per_sm = ask(A::max_registers_per_sm);
  device.registers_per_block = ask(A::max_registers_per_block);
  device.threads_per_sm = ask(A::max_threads_per_sm);
  device.threads_per_block = ask(A::max_threads_per_block);
  device.blocks_per_sm = ask(A::max_blocks_per_sm);
  device.clock_khz = ask(A::clock_khz);
  device.memory_clock_khz = ask(A::memory_clock_khz);
  device.memory_bus_bits = ask(A::memory_bus_bits);
  device.integrated = ask(A::integrated) != 0;
  device.memory_pools = ask(A::memory_pools_supported) != 0;
  return device;
}

Found* find_devices() {
  auto* found = new Found();
  try {
    const CudaDriver& driver = cuda_driver();
    int count = 0;
    cuda_check(driver.device_get_count(&count), "counting the devices");
    if (count <= 0) throw cuda_error(cu::Result::no_device, "counting the devices");
    for (int i = 0; i < count; ++i) found->devices.push_back(facts_of(driver, i));
    found->primary.resize(found->devices.size(), nullptr);
  } catch (const Error& error) {
    found->devices.clear();
    found->absence = error;
  }
  return found;
}

Found& found() {
  static Found* all = find_devices();
  return *all;
}

cu::Context primary_context(const CudaDevice& device) {
  Found& all = found();
  std::lock_guard lock(all.mutex);
  cu::Context& context = all.primary[static_cast<std::size_t>(device.index)];
  if (!context)
    cuda_check(cuda_driver().primary_ctx_retain(&context, device.handle),
               fmt::format("opening device cuda:{} ({})", device.index, device.name));
  return context;
}

// The current context where it belongs to the device, else null.
cu::Context current_of(const CudaDriver& driver, const CudaDevice& device) {
  cu::Context current = nullptr;
  cu::DeviceHandle handle = -1;
  if (driver.ctx_get_current(&current) != cu::Result::success || !current) return nullptr;
  if (driver.ctx_get_device(&handle) != cu::Result::success || handle != device.handle) return nullptr;
  return current;
}

}  // namespace

std::string CudaDevice::arch() const { return fmt::format("sm_{}{}", major, minor); }

int cuda_device_count() noexcept {
  try {
    return static_cast<int>(found().devices.size());
  } catch (...) {  // no memory to look with
    return 0;
  }
}

std::string cuda_absence() { return found().absence ? found().absence->message() : ""; }
const std::vector<CudaDevice>& cuda_devices() { return found().devices; }

const CudaDevice& cuda_device(int index) {
  if (found().absence) throw *found().absence;
  const auto& devices = found().devices;
  if (index < 0 || static_cast<std::size_t>(index) >= devices.size())
    throw Error(ErrorKind::argument, "device",
                fmt::format("there is no cuda:{}; the devices are cuda:0 to cuda:{}", index, devices.size() - 1),
                "CUDA_VISIBLE_DEVICES decides which are seen");
  return devices[static_cast<std::size_t>(index)];
}

int cuda_device_of(const void* pointer) {
  const CudaDriver& driver = cuda_driver();
  auto address = reinterpret_cast<cu::Address>(pointer);
  auto type = cu::MemoryType::host;
  int ordinal = -1;
  // Memory the driver does not know is an invalid value to it: the host's.
  if (driver.pointer_get_attribute(&type, cu::PointerAttribute::memory_type, address) != cu::Result::success) return -1;
  if (type == cu::MemoryType::host) return -1;
  cuda_check(driver.pointer_get_attribute(&ordinal, cu::PointerAttribute::device_ordinal, address),
             "asking for the device of a pointer");
  return ordinal;
}

std::string uuid_text(const cu::Uuid& uuid, bool mig) {
  std::string text = mig ? "MIG-" : "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

CurrentContext::CurrentContext(int device) {
  const CudaDevice& facts = cuda_device(device);
  const CudaDriver& driver = cuda_driver();
  context_ = current_of(driver, facts);
  if (context_) return;
  context_ = primary_context(facts);
  cuda_check(driver.ctx_push_current(context_), "making a device current");
  pushed_ = true;
}

CurrentContext::CurrentContext(cu::Context context) : context_(context) {
  const CudaDriver& driver = cuda_driver();
  cu::Context current = nullptr;
  if (driver.ctx_get_current(&current) == cu::Result::success && current == context) return;
  cuda_check(driver.ctx_push_current(context), "making a context current");
  pushed_ = true;
}

CurrentContext::~CurrentContext() {
  cu::Context popped = nullptr;
  if (pushed_) cuda_driver().ctx_pop_current(&popped);
}

cu::Context context_for(int device, cu::Stream stream) {
  const CudaDriver& driver = cuda_driver();
  const CudaDevice& facts = cuda_device(device);
  if (reinterpret_cast<std::uintptr_t>(stream) <= 2) return CurrentContext(device).context();
  cu::Context context = nullptr;
  cuda_check(driver.stream_get_ctx(stream, &context), "asking for the context of a stream");
  const CurrentContext current(context);
  cu::DeviceHandle handle = -1;
  cuda_check(driver.ctx_get_device(&handle), "asking for the device of a stream");
  if (handle != facts.handle)
    throw Error(ErrorKind::argument, "stream", fmt::format("belongs to another device than cuda:{}", device),
                "pass a stream of the tensors' device");
  return context;
}

}  // namespace v1
}  // namespace attile
