# The exponential function in loops that the compiler vectorises, with the same results on every
# processor: it makes them for two generations of processors, and what fits is taken at run time.

cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
    #define FOR_EACH_PROCESSOR __attribute__((unused, target_clones("avx2", "default")))
    #else
    #define FOR_EACH_PROCESSOR
    #endif

    #ifdef _MSC_VER
    #define restrict __restrict
    #endif

    /* In a loop whose body is over some lanes: else the compiler may take several rounds of the
       loop at a time, and turn all they read and write around. */
    #ifdef __GNUC__
    #define IN_LANES __asm__ volatile("");
    #else
    #define IN_LANES
    #endif

    /* exp(x) for -700 <= x <= 700, without a branch: 2^n times a Taylor series. */
    static inline double exp_within(double x) {
        const double shift = 6755399441055744.0; /* 1.5 * 2^52: its last bits are an integer */
        double n, p;
        int64_t bits;
        n = x * 1.4426950408889634 + shift;
        memcpy(&bits, &n, sizeof bits);
        n -= shift;
        x = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
        p = 1.0 / 6227020800.0;
        p = p * x + 1.0 / 479001600.0;
        p = p * x + 1.0 / 39916800.0;
        p = p * x + 1.0 / 3628800.0;
        p = p * x + 1.0 / 362880.0;
        p = p * x + 1.0 / 40320.0;
        p = p * x + 1.0 / 5040.0;
        p = p * x + 1.0 / 720.0;
        p = p * x + 1.0 / 120.0;
        p = p * x + 1.0 / 24.0;
        p = p * x + 1.0 / 6.0;
        p = p * x + 0.5;
        p = p * x + 1.0;
        p = p * x + 1.0;
        bits = (int64_t)(((uint64_t)bits + 1023u) << 52);
        memcpy(&n, &bits, sizeof n);
        return p * n;
    }

    /* sums[s] += weight * exp(logs[s] - own[s]); what is beyond e^600 is all there is */
    FOR_EACH_PROCESSOR
    static void add_ratios(
        Py_ssize_t n, double weight, const double* restrict logs, const double* restrict own,
        double* restrict sums
    ) {
        for (Py_ssize_t s = 0; s < n; s++) {
            double ratio = logs[s] - own[s];
            ratio = ratio > -700.0 ? ratio : -700.0;
            sums[s] += weight * exp_within(ratio < 600.0 ? ratio : 600.0);
        }
    }

    /* kernels[j] := exp(half * (least - squares[j])), in two loops: else the compiler makes a
       branch of what is far */
    FOR_EACH_PROCESSOR
    static void normal_kernels(
        Py_ssize_t m, double half, double least, const double* restrict squares,
        double* restrict kernels
    ) {
        for (Py_ssize_t j = 0; j < m; j++) {
            const double exponent = half * (least - squares[j]);
            kernels[j] = exponent > -700.0 ? exponent : -700.0;
        }
        for (Py_ssize_t j = 0; j < m; j++)
            kernels[j] = exp_within(kernels[j]);
    }

    /* whether all ratios of e^logs to e^own are below e^most */
    FOR_EACH_PROCESSOR
    static int all_below(
        Py_ssize_t n, double most, const double* restrict logs, const double* restrict own
    ) {
        int64_t above = 0;
        for (Py_ssize_t s = 0; s < n; s++)
            above += !(logs[s] - own[s] < most);
        return above == 0;
    }

    /* p[s] := (p^(1/2) - q^(1/2))^2 / (p + q), of sums that are not both zero */
    FOR_EACH_PROCESSOR
    static void divergences(Py_ssize_t n, double* restrict p, const double* restrict q) {
        for (Py_ssize_t s = 0; s < n; s++) {
            const double difference = sqrt(p[s]) - sqrt(q[s]);
            p[s] = difference * difference / (p[s] + q[s]);
        }
    }
    """
    double exp_within(double x) noexcept nogil
    void add_ratios(
        Py_ssize_t n, double weight, const double* logs, const double* own, double* sums
    ) noexcept nogil
    void normal_kernels(
        Py_ssize_t m, double half, double least, const double* squares, double* kernels
    ) noexcept nogil
    bint all_below(
        Py_ssize_t n, double most, const double* logs, const double* own
    ) noexcept nogil
    void divergences(Py_ssize_t n, double* p, const double* q) noexcept nogil
