/* exp_constants.h: the numbers of the one exp() that all bodies share.
 *
 * exp(x) = 2^k * exp(r), k = rint(x * log2(e)), r = x - k * ln 2 in two fused steps, |r| <= 0.3467.
 * The polynomial 1 + r + C2 r^2 + ... + C6 r^6 is the minimax fit of exp on that interval with its
 * first two coefficients fixed (iteratively reweighted least squares in 120-bit arithmetic); with
 * the coefficients rounded to float its relative error is below 3.7e-9, 0.06 units of 2^-24. */
#ifndef BRIM_KERNELS_EXP_CONSTANTS_H
#define BRIM_KERNELS_EXP_CONSTANTS_H

#define BRIM__EXP_MIN -104.0f     /* below, the result rounds to 0 */
#define BRIM__EXP_MAX 88.7228317f /* above, it would overflow */
#define BRIM__EXP_LOG2E 0x1.715476p+0f
#define BRIM__EXP_LN2_HI 0x1.62e430p-1f
#define BRIM__EXP_LN2_LO -0x1.05c610p-29f
#define BRIM__EXP_C2 0x1.fffffcp-2f
#define BRIM__EXP_C3 0x1.555492p-3f
#define BRIM__EXP_C4 0x1.5558f2p-5f
#define BRIM__EXP_C5 0x1.123a20p-7f
#define BRIM__EXP_C6 0x1.6a23ccp-10f

#endif
