/* ptx.cuh: the instructions that the resident kernel is made of, each a function. Names follow the
 * PTX ISA (NVIDIA, "Parallel Thread Execution ISA"). What only sm_90 has (bulk copies, try_wait,
 * proxy fences) has a form for older architectures beside it. */
#ifndef BRIM_PTX_CUH
#define BRIM_PTX_CUH

#include <stdint.h>

#define FN static __device__ __forceinline__

#if __CUDA_ARCH__ >= 900
#define HAS_BULK 1
#else
#define HAS_BULK 0
#endif

FN uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- barriers in shared memory ---- */

FN void barrier_init(uint32_t bar, int count)
{
    asm volatile("mbarrier.init.shared.b64 [%0],%1;" ::"r"(bar), "r"(count) : "memory");
}
FN void barrier_arrive(uint32_t bar)
{
    asm volatile("{.reg .b64 s;\nmbarrier.arrive.shared.b64 s,[%0];}" ::"r"(bar) : "memory");
}
/* By the threads for which `arrives` is not 0; then the warp is together again. */
FN void barrier_arrive_if(uint32_t bar, uint32_t arrives)
{
    asm volatile("{.reg .b64 s;\n.reg .pred P;\nsetp.ne.u32 P,%1,0;\n"
                 "@P mbarrier.arrive.shared.b64 s,[%0];}" ::"r"(bar),
                 "r"(arrives)
                 : "memory");
    __syncwarp();
}
FN bool barrier_test(uint32_t bar, uint32_t phase)
{
    uint32_t done;
    asm volatile("{.reg .pred P;\n"
#if HAS_BULK
                 "mbarrier.test_wait.parity.shared.b64 P,[%1],%2;\n"
#else
                 "mbarrier.test_wait.parity.shared.b64 P,[%1],%2;\n"
#endif
                 "selp.u32 %0,1,0,P;}"
                 : "=r"(done)
                 : "r"(bar), "r"(phase)
                 : "memory");
    return done;
}
/* Looks up to 64 times. One block of assembly, so that the code around it stays short. Threads of the
 * warp that others wait for must not be left behind: hence the __syncwarp() after every arrival. */
FN bool barrier_spin(uint32_t bar, uint32_t phase)
{
    uint32_t done;
    asm volatile("{.reg .pred P,Q;\n.reg .u32 n;\n"
                 "mov.u32 n,64;\n"
                 "L:\n"
#if HAS_BULK
                 "mbarrier.try_wait.parity.shared.b64 P,[%1],%2;\n"
#else
                 "mbarrier.test_wait.parity.shared.b64 P,[%1],%2;\n"
#endif
                 "@P bra D;\n"
                 "sub.u32 n,n,1;\n"
                 "setp.ne.u32 Q,n,0;\n"
                 "@Q bra L;\n"
                 "D:\n"
                 "selp.u32 %0,1,0,P;}"
                 : "=r"(done)
                 : "r"(bar), "r"(phase)
                 : "memory");
    return done;
}
/* The same, but the hardware may keep the thread asleep for a moment. */
FN bool barrier_try(uint32_t bar, uint32_t phase)
{
#if HAS_BULK
    uint32_t done;
    asm volatile("{.reg .pred P;\nmbarrier.try_wait.parity.shared.b64 P,[%1],%2;\n"
                 "selp.u32 %0,1,0,P;}"
                 : "=r"(done)
                 : "r"(bar), "r"(phase)
                 : "memory");
    return done;
#else
    return barrier_test(bar, phase);
#endif
}

/* ---- copies into shared memory ---- */

#if HAS_BULK
FN uint64_t policy_evict_first(void)
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0,1.0;" : "=l"(policy));
    return policy;
}
FN void barrier_expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}
FN void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t bar, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0],[%1],%2,[%3],%4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar), "l"(policy)
                 : "memory");
}
#else
FN void copy_16(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(to), "l"(from) : "memory");
}
FN void copies_arrive(uint32_t bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
}
#endif
/* Generic writes to the device's memory before it are seen by bulk copies after it. */
FN void fence_proxy(void)
{
#if HAS_BULK
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

/* ---- shared memory ---- */

FN uint4 lds4(uint32_t a)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(a)
                 : "memory");
    return v;
}
FN void sts4(uint32_t a, uint4 v)
{
    asm volatile("st.shared.v4.u32 [%0],{%1,%2,%3,%4};" ::"r"(a), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}
FN void sts2_if(uint32_t a, float x, float y, uint32_t stores)
{
    asm volatile("{.reg .pred P;\nsetp.ne.u32 P,%3,0;\n@P st.shared.v2.f32 [%0],{%1,%2};}" ::"r"(a),
                 "f"(x), "f"(y), "r"(stores)
                 : "memory");
}
FN void sts1(uint32_t a, uint32_t v)
{
    asm volatile("st.shared.u32 [%0],%1;" ::"r"(a), "r"(v) : "memory");
}
FN void ldmatrix4t(uint32_t a, uint32_t r[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(a)
                 : "memory");
}

/* ---- memory of the device ---- */

/* Relaxed: a word is a word, nothing is ordered. Packets need no more. */
FN uint4 ld_packet4(const void *p)
{
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3},[%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
FN uint2 ld_packet2(const void *p)
{
    uint2 v;
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
    return v;
}
FN uint32_t ld_packet(const void *p)
{
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0,[%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
FN void st_packet(void *p, uint32_t v)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0],%1;" ::"l"(p), "r"(v) : "memory");
}
FN uint32_t ld_acquire(const void *p)
{
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0,[%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
FN uint64_t ld_acquire64(const void *p)
{
    uint64_t v;
    asm volatile("ld.acquire.gpu.global.u64 %0,[%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
FN void st_release64(void *p, uint64_t v)
{
    asm volatile("st.release.gpu.global.u64 [%0],%1;" ::"l"(p), "l"(v) : "memory");
}
FN void red_release(void *p, uint32_t v)
{
    asm volatile("red.release.gpu.global.add.u32 [%0],%1;" ::"l"(p), "r"(v) : "memory");
}

/* ---- arithmetic ---- */

/* c += a b, a of 16 rows by 16 columns, b of 16 columns by 8. BF16 chooses the type. */
template <bool BF16>
FN void mma16(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
              uint32_t b1)
{
    if (BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
/* Two floats as 16-bit ones, the first in the low half, to nearest even, overflow to infinity; NaN
 * becomes 0x7fff: never the empty word. */
template <bool BF16>
FN uint32_t pack16(float lo, float hi)
{
    uint32_t v;
    if (BF16)
        asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(v) : "f"(hi), "f"(lo));
    else
        asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(v) : "f"(hi), "f"(lo));
    return v;
}
template <bool BF16>
FN float low16(uint32_t v)
{
    if (BF16)
        return __uint_as_float(v << 16);
    float f;
    asm("{.reg .b16 l,h;\nmov.b32 {l,h},%1;\ncvt.f32.f16 %0,l;}" : "=f"(f) : "r"(v));
    return f;
}
template <bool BF16>
FN float high16(uint32_t v)
{
    if (BF16)
        return __uint_as_float(v & 0xffff0000u);
    float f;
    asm("{.reg .b16 l,h;\nmov.b32 {l,h},%1;\ncvt.f32.f16 %0,h;}" : "=f"(f) : "r"(v));
    return f;
}

/* Registers of a thread from here on; by all warps of a group of four. */
template <int COUNT>
FN void set_registers_more(void)
{
#if HAS_BULK
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}
template <int COUNT>
FN void set_registers_fewer(void)
{
#if HAS_BULK
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}

FN uint64_t timer_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0,%globaltimer;" : "=l"(t));
    return t;
}

#endif
