// An NVRTC whose file of built-ins is nowhere; it compiles nothing.
#define API extern "C" __attribute__((visibility("default")))

API int nvrtcVersion(int* major, int* minor) {
  *major = 99;
  *minor = 9;
  return 0;
}
API int nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return 0;
}
API int nvrtcGetSupportedArchs(int* archs) {
  *archs = 80;
  return 0;
}
API const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_INTERNAL_ERROR"; }
#define ABSENT(name) \
  API int name() { return 11; }
ABSENT(nvrtcCreateProgram)
ABSENT(nvrtcDestroyProgram)
ABSENT(nvrtcCompileProgram)
ABSENT(nvrtcGetProgramLogSize)
ABSENT(nvrtcGetProgramLog)
ABSENT(nvrtcGetCUBINSize)
ABSENT(nvrtcGetCUBIN)
ABSENT(nvrtcGetPTXSize)
ABSENT(nvrtcGetPTX)
