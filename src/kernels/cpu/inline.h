/* inline.h: how the templates of the vectorised bodies are told to the compiler. */
#ifndef BRIM_KERNELS_INLINE_H
#define BRIM_KERNELS_INLINE_H

/* A function whose type, count and format arguments become constants where it is used. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Before loops whose count the compiler knows and whose arrays must live in registers. Under a
 * sanitizer, where every access brings a check, unrolling would make compilation endless. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNROLL
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(undefined_behavior_sanitizer) || __has_feature(memory_sanitizer)
#define UNROLL
#endif
#endif
#ifndef UNROLL
#define UNROLL _Pragma("GCC unroll 32")
#endif

#endif
