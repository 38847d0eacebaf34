#include "tests/emulator/engine.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

// Saves what a function must keep, stores the stack pointer in *save and goes on at `next`.
asm(R"(
.text
.local emulator_switch
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
extern "C" void emulator_switch(void** save, void* next) asm("emulator_switch");

namespace emulator {
namespace {

constexpr int lanes = 32, most_warps = 8, most_threads = most_warps * lanes, names = 16;
constexpr std::size_t stack_bytes = 512 << 10, page = 4096;
constexpr u32 most_shared = 228 << 10;

struct Copy {
  u32 to;
  int bytes;
  unsigned char data[16];
};

struct Fiber {
  Place place;
  void* stack_pointer;
  std::vector<Copy> begun;                 // of the group not yet committed
  std::vector<std::vector<Copy>> groups;  // committed, oldest first
};

struct Warp {
  const char* what = nullptr;
  void* operands[lanes];
  u32 ready = 0, arrived = 0;  // a bit a lane
  // A vector clock: what this warp knows of the others' time, which barriers tell and move on.
  u32 knows[most_warps] = {};
};

struct Barrier {
  int count = 0;                  // threads that it waits for
  int arrived = 0;                // threads
  u32 waiting[most_warps] = {};   // a bit a lane
};

// Of two bytes of shared memory, in the block that `block` counts.
struct Use {
  u32 block = 0;
  u32 written = 0, read[most_warps] = {};  // by the clock of the warp that did; 0: never
  std::uint8_t writer = 0;                 // warp
  bool on_its_way = false;
};

struct Machine {
  std::mutex mutex;  // one launch at a time
  char* stacks = nullptr;
  void* host = nullptr;  // stack pointer of the thread that launched
  const Launch* launch = nullptr;
  std::vector<Fiber> fibers{most_threads};
  Warp warps[most_warps];
  int threads = 0, ended = 0;
  Barrier barriers[names];             // number 0 is that of the block
  bool any = false, any_last = false;  // of the block's barrier
  u32 block = 0, random = 1;
  alignas(1024) char shared[most_shared];
  Use uses[most_shared / 2];
  char wrong[512];
};
Machine& machine() {
  static auto* m = new Machine();
  return *m;
}
Fiber* current = nullptr;

int number() { return static_cast<int>(place->thread.x); }
int warp_number() { return number() / lanes; }

bool now_and_then() {
  u32& x = machine().random;
  x ^= x << 13, x ^= x >> 17, x ^= x << 5;
  return x % 8 == 0;
}

void go_to(Fiber& next) {
  Fiber& from = *current;
  if (&next == &from) return;
  current = &next;
  place = &next.place;
  emulator_switch(&from.stack_pointer, next.stack_pointer);
}

// A thread that can go on: the next lane of this warp, or one of another warp.
Fiber* next_ready(bool of_another_warp) {
  Machine& m = machine();
  const int count = (m.threads + lanes - 1) / lanes, own = warp_number();
  if (const u32 ready = m.warps[own].ready; ready != 0 && !of_another_warp) {
    const int after = (number() + 1) % lanes;
    return &m.fibers[static_cast<std::size_t>(own * lanes + (after + std::countr_zero(std::rotr(ready, after))) % lanes)];
  }
  const int first = static_cast<int>(m.random % static_cast<u32>(count));
  for (int i = 0; i < count; ++i) {
    const int w = (first + i) % count;
    if ((w != own || !of_another_warp) && m.warps[w].ready != 0)
      return &m.fibers[static_cast<std::size_t>(w * lanes + std::countr_zero(m.warps[w].ready))];
  }
  return nullptr;
}

void set_ready(int thread, bool ready) {
  u32& mask = machine().warps[thread / lanes].ready;
  const u32 bit = u32{1} << thread % lanes;
  mask = ready ? mask | bit : mask & ~bit;
}

[[noreturn]] void leave_launch() {
  void* lost = nullptr;
  emulator_switch(&lost, machine().host);
  __builtin_unreachable();
}

void wait() {
  set_ready(number(), false);
  Fiber* next = next_ready(false);
  if (!next) fault(machine().ended > 0 ? "some threads have ended and the others wait for them" : "all threads wait");
  go_to(*next);
}

void thread_begins() {
  Machine& m = machine();
  m.launch->kernel(m.launch->arguments);
  set_ready(number(), false);
  if (++m.ended == m.threads) leave_launch();
  Fiber* next = next_ready(false);
  if (!next) fault("some threads have ended and the others wait for them");
  void* lost = nullptr;
  current = next;
  place = &next->place;
  emulator_switch(&lost, next->stack_pointer);
  __builtin_unreachable();
}

void make_stacks(Machine& m) {
  void* memory = mmap(nullptr, most_threads * stack_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::perror("emulator: stacks"), std::abort();
  m.stacks = static_cast<char*>(memory);
  for (int i = 0; i < most_threads; ++i) mprotect(m.stacks + static_cast<std::size_t>(i) * stack_bytes, page, PROT_NONE);
}

void begin_block(Machine& m, const Launch& l, Index block) {
  m.ended = 0;
  m.any = false;
  ++m.block;
  for (Barrier& b : m.barriers) b = {};
  std::memset(m.shared, 0xFF, l.shared_bytes);
  for (int i = 0; i < m.threads; ++i) {
    Fiber& f = m.fibers[static_cast<std::size_t>(i)];
    f.place = {{static_cast<unsigned>(i), 0, 0}, block, l.grid, l.threads};
    f.begun.clear();
    f.groups.clear();
    // Six registers, the address to go on at, and none to return to.
    void** top = reinterpret_cast<void**>(m.stacks + (static_cast<std::size_t>(i) + 1) * stack_bytes) - 8;
    std::memset(static_cast<void*>(top), 0, 8 * sizeof *top);
    top[6] = reinterpret_cast<void*>(thread_begins);
    f.stack_pointer = top;
  }
  for (int w = 0; w * lanes < m.threads; ++w) {
    m.warps[w] = {};
    m.warps[w].knows[w] = 1;
    const int count = m.threads - w * lanes;
    m.warps[w].ready = count >= lanes ? ~u32{0} : (u32{1} << count) - 1;
  }
}

void check(u32 address, int bytes) {
  if (address % static_cast<u32>(bytes) != 0) fault("an address of shared memory is not aligned");
  if (u64{address} + static_cast<u64>(bytes) > machine().launch->shared_bytes) fault("an address outside the shared memory");
}

template <class Each>
void for_uses(u32 address, int bytes, Each each) {
  Machine& m = machine();
  for (u32 i = address / 2; i < (address + static_cast<u32>(bytes)) / 2; ++i) {
    Use& use = m.uses[i];
    if (use.block != m.block) use = {}, use.block = m.block;
    each(use);
  }
}

void mark_written(u32 address, int bytes, bool arrives) {
  const int own = warp_number();
  const u32* knows = machine().warps[own].knows;
  for_uses(address, bytes, [&](Use& use) {
    if (!arrives) {
      if (use.on_its_way) fault("shared memory is written that a copy on its way will write");
      if (use.written > knows[use.writer]) fault("two warps write to the same shared memory without a barrier");
      for (int w = 0; w < most_warps; ++w)
        if (use.read[w] > knows[w]) fault("a warp writes to shared memory that another has read, without a barrier");
    }
    use.written = knows[own], use.writer = static_cast<std::uint8_t>(own), use.on_its_way = false;
  });
}

// Lets go those who wait at a barrier, the last to come among them: each knows what all knew.
void pass(Barrier& b) {
  Machine& m = machine();
  b.waiting[warp_number()] |= u32{1} << number() % lanes;
  u32 known[most_warps] = {};
  for (int w = 0; w < most_warps; ++w)
    for (int other = 0; b.waiting[w] != 0 && other < most_warps; ++other) known[other] = std::max(known[other], m.warps[w].knows[other]);
  for (int w = 0; w < most_warps; ++w) {
    if (b.waiting[w] == 0) continue;
    std::copy(std::begin(known), std::end(known), m.warps[w].knows);
    ++m.warps[w].knows[w];
    m.warps[w].ready |= b.waiting[w];
  }
  b = {};
  now_and_then();
  if (Fiber* other = next_ready(true)) go_to(*other);
}

// True for the last to come.
bool arrive(Barrier& b, int threads) {
  if (b.arrived > 0 && b.count != threads) fault("threads come to one barrier with different counts");
  b.count = threads;
  if (++b.arrived == threads) return true;
  b.waiting[warp_number()] |= u32{1} << number() % lanes;
  wait();
  return false;
}

}  // namespace

const Place* place = nullptr;

void fault(const char* what) {
  Machine& m = machine();
  std::snprintf(m.wrong, sizeof m.wrong, "%s (thread %u of block %u, after %u barriers)", what, place->thread.x,
                place->block.x, m.warps[warp_number()].knows[warp_number()] - 1);
  leave_launch();
}

void together(const char* what, void* operand, void (*act)(void* const*)) {
  Warp& w = machine().warps[warp_number()];
  const int lane = number() % lanes;
  if (w.arrived != 0 && std::strcmp(w.what, what) != 0) {
    char text[200];
    std::snprintf(text, sizeof text, "lanes of a warp come to %s and to %s", w.what, what);
    fault(text);
  }
  w.what = what;
  w.operands[lane] = operand;
  w.arrived |= u32{1} << lane;
  if (w.arrived != ~u32{0}) return wait();
  act(w.operands);
  w.arrived = 0;
  w.ready = ~u32{0};
  if (now_and_then())
    if (Fiber* other = next_ready(true)) go_to(*other);
}

bool barrier(bool own) {
  Machine& m = machine();
  m.any = m.any || own;
  if (arrive(m.barriers[0], m.threads)) {
    m.any_last = m.any, m.any = false;
    pass(m.barriers[0]);
  }
  return m.any_last;
}

void named_barrier(u32 name, u32 count) {
  if (name == 0 || name >= names || count == 0 || count % lanes != 0) fault("a barrier of no such name or count");
  Barrier& b = machine().barriers[name];
  if (arrive(b, static_cast<int>(count))) pass(b);
}

char* shared_to_read(u32 address, int bytes) {
  check(address, bytes);
  const int own = warp_number();
  const u32* knows = machine().warps[own].knows;
  for_uses(address, bytes, [&](Use& use) {
    if (use.on_its_way) fault("shared memory is read before a copy on its way has been waited for");
    if (use.written == 0) fault("shared memory is read that nobody wrote");
    if (use.written > knows[use.writer]) fault("shared memory is read that another warp wrote, without a barrier");
    use.read[own] = knows[own];
  });
  return machine().shared + address;
}

char* shared_to_write(u32 address, int bytes) {
  check(address, bytes);
  mark_written(address, bytes, false);
  return machine().shared + address;
}

u32 shared_address(const void* p) {
  const auto offset = static_cast<const char*>(p) - machine().shared;
  if (offset < 0 || offset > static_cast<std::ptrdiff_t>(most_shared)) fault("no address of shared memory");
  return static_cast<u32>(offset);
}

char* dynamic_shared() { return machine().shared; }

void copy_async(u32 to, const void* from, int bytes) {
  char* place_of_copy = shared_to_write(to, bytes);
  for_uses(to, bytes, [](Use& use) { use.on_its_way = true; });
  Copy copy{to, bytes, {}};
  if (from) {
    if (reinterpret_cast<std::uintptr_t>(from) % static_cast<unsigned>(bytes) != 0) fault("a copy from an address that is not aligned");
    std::memcpy(copy.data, from, static_cast<std::size_t>(bytes));
  }
  std::memset(place_of_copy, 0xFF, static_cast<std::size_t>(bytes));
  current->begun.push_back(copy);
}

void commit_copies() {
  current->groups.push_back(std::move(current->begun));
  current->begun.clear();
}

void wait_for_copies(int pending) {
  auto& groups = current->groups;
  while (groups.size() > static_cast<std::size_t>(pending)) {
    for (const Copy& copy : groups.front()) {
      mark_written(copy.to, copy.bytes, true);
      std::memcpy(machine().shared + copy.to, copy.data, static_cast<std::size_t>(copy.bytes));
    }
    groups.erase(groups.begin());
  }
}

u64 nanoseconds() {
  return static_cast<u64>(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

const char* run(const Launch& l) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  static char wrong[sizeof m.wrong];
  m.threads = static_cast<int>(l.threads.x);
  if (m.threads < 1 || m.threads > most_threads || l.threads.y != 1 || l.threads.z != 1 || l.shared_bytes > most_shared)
    return "a launch of a shape that is not emulated";
  if (!m.stacks) make_stacks(m);
  m.launch = &l;
  m.wrong[0] = 0;
  for (unsigned z = 0; z < l.grid.z; ++z)
    for (unsigned y = 0; y < l.grid.y; ++y)
      for (unsigned x = 0; x < l.grid.x; ++x) {
        begin_block(m, l, {x, y, z});
        current = &m.fibers[0];
        place = &current->place;
        emulator_switch(&m.host, current->stack_pointer);
        if (m.wrong[0] != 0) {
          std::memcpy(wrong, m.wrong, sizeof wrong);
          return wrong;
        }
      }
  return nullptr;
}

}  // namespace emulator
