// NVRTC has a file of built-in functions beside it; the emulated one has this, with nothing in it.
extern "C" void emulated_builtins() {}
