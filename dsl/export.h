// ATTILE_API marks what the shared library exports; everything else is hidden.
#pragma once

#if defined(ATTILE_STATIC)
#define ATTILE_API
#else
#define ATTILE_API __attribute__((visibility("default")))
#endif
