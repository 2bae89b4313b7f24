/* Reductions of NCCL's types. What a GPU would do in another way (the order of adding) is exact for whole numbers. */
#include "collectives.h"

#include <string.h>

enum { I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16, F8E4M3, F8E5M2 };

size_t type_bytes(int type) {
    static const unsigned char sizes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < TYPES ? sizes[type] : 1;
}

int can_reduce(const Kernel *kernel) {
    int floating = kernel->type == F16 || kernel->type == F32 || kernel->type == F64 || kernel->type == BF16;
    if (kernel->type >= F8E4M3) return 0;
    return kernel->operation <= OP_MIN_MAX || (kernel->operation == OP_PRE_MUL_SUM && floating);
}

static float from_bf16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}
static uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float from_f16(uint16_t bits) { _Float16 value; memcpy(&value, &bits, 2); return (float)value; }
static uint16_t to_f16(float value) { _Float16 narrow = (_Float16)value; uint16_t bits; memcpy(&bits, &narrow, 2); return bits; }

#define SAME(x) (x)
/* a: taken, b: own. The lowest bit of MIN_MAX's operand says max; PRE_MUL_SUM's operand multiplies what is a rank's own. */
#define REDUCE(stored, number, load, store) do { \
    number factor = 1; \
    if (kernel->operation == OP_PRE_MUL_SUM) { stored bits; memcpy(&bits, &operand, sizeof bits); factor = load(bits); } \
    for (size_t i = 0; i < bytes / sizeof(stored); i++) { \
        stored x, y; number result; \
        memcpy(&y, own + i * sizeof y, sizeof y); \
        number b = load(y); \
        if (kernel->operation == OP_PRE_MUL_SUM) b *= factor; \
        result = b; \
        if (taken) { \
            memcpy(&x, taken + i * sizeof x, sizeof x); \
            number a = load(x); \
            switch (kernel->operation) { \
            case OP_PROD: result = a * b; break; \
            case OP_MIN_MAX: result = (operand & 1) ? (a > b ? a : b) : (a < b ? a : b); break; \
            default: result = a + b; \
            } \
        } \
        stored z = (stored)store(result); \
        memcpy(out + i * sizeof z, &z, sizeof z); \
    } \
} while (0)

void combine(const Kernel *kernel, uint64_t operand, char *out, const char *taken, const char *own, size_t bytes) {
    int plain = kernel->collective == ALL_GATHER || kernel->collective == BROADCAST || kernel->collective == SEND_RECEIVE;
    if (!own || (!taken && (plain || kernel->operation != OP_PRE_MUL_SUM))) {
        const char *from = own ? own : taken;
        if (from != out) memmove(out, from, bytes);
        return;
    }
    switch (kernel->type) {
    case I8: REDUCE(int8_t, int8_t, SAME, SAME); break;
    case U8: REDUCE(uint8_t, uint8_t, SAME, SAME); break;
    case I32: REDUCE(int32_t, int32_t, SAME, SAME); break;
    case U32: REDUCE(uint32_t, uint32_t, SAME, SAME); break;
    case I64: REDUCE(int64_t, int64_t, SAME, SAME); break;
    case U64: REDUCE(uint64_t, uint64_t, SAME, SAME); break;
    case F16: REDUCE(uint16_t, float, from_f16, to_f16); break;
    case F32: REDUCE(float, float, SAME, SAME); break;
    case F64: REDUCE(double, double, SAME, SAME); break;
    case BF16: REDUCE(uint16_t, float, from_bf16, to_bf16); break;
    default: break;
    }
}
